"""The drawing of a federation: whole, readable, and nothing in it that isn't XML."""

from __future__ import annotations

import random
from itertools import combinations
from xml.etree import ElementTree

import pytest

from medusa.apps.dashboard.details import details_of
from medusa.apps.dashboard.network import NetworkView, network_of
from medusa.apps.dashboard.picture import key_of, picture, svg_of
from medusa.apps.dashboard.placing import placed
from medusa.apps.dashboard.shapes import SIZES, Drawn, Rect, width_of
from tests.apps.dashboard.statuses import box, edges_and_core, fragment, guarding, node, owned, seen

SVG = "{http://www.w3.org/2000/svg}"
MISSING = ("source", "stream", "kind", "from", "why")
HOSTILE = "<script>alert(1)</script>&\"'\x00\x1b]\ud800\n界]]>"


def keys(svg: str) -> list[str]:
    return [key for each in ElementTree.fromstring(svg).iter() if (key := each.get("data-key"))]


def random_federation(seed: int) -> NetworkView:
    """1 to 20 nodes of up to three owners, any streams, cycles too, some nodes dead, some links cut."""
    chance = random.Random(seed)
    names = [f"n{place}" for place in range(1 + seed % 20)]
    statuses = {name: node(name, participant=f"p{chance.randrange(3)}") for name in names}
    for name in names:
        outs = {f"q.{name}-{k}": chance.choice(names) for k in range(chance.randrange(4))}
        statuses[name]["fragments"] = [fragment(f"q/{name}", outs=outs)] if chance.random() < 0.8 else []
        for stream, target in outs.items() if statuses[name]["fragments"] else ():
            taker = fragment(f"q/{stream}", ins={stream: name})
            statuses[target].setdefault("more", []).append(taker)
        known = {peer: chance.choice(["up", "up", "silent"]) for peer in names if peer != name}
        statuses[name]["peers"] = known
    told = []
    for each in statuses.values():
        for part in each["fragments"]:
            for output in part["outputs"]:
                if chance.random() < 0.3:
                    output["consistency"] = unstable(chance.choice(["up_failure", "stabilization", "stable"]))
            if chance.random() < 0.4:
                states = {
                    name: {"state": chance.choice(["following", "seeding", "missing"]), "since_us": 5_000_000}
                    for name in chance.sample([*names, "spare"], chance.randrange(1 + min(3, len(names))))
                    if name != each["node"]
                }
                part["replicas"] = {"owner": each["node"], "secondaries": states}
                part["configuration"] = 7
        each["fragments"] = [*each["fragments"], *each.pop("more", [])]
        told += seen(each, why="gone" if chance.random() < 0.2 else "")
    return network_of(told)


def unstable(state: str, **fields: object) -> dict[str, object]:
    missing = {"source": "b", "stream": "q.b", "kind": "node", "from": "m", "why": "isn't heard"}
    return {"state": state, "for_us": 12_000_000, "missing": [missing], "fork": 1, **fields}


def overlap(one: Rect, other: Rect) -> bool:
    return (
        one.x < other.right - 0.01
        and other.x < one.right - 0.01
        and one.y < other.bottom - 0.01
        and other.y < one.bottom - 0.01
    )


def inside(inner: Rect, outer: Rect) -> bool:
    return (
        outer.x <= inner.x + 0.01
        and outer.y <= inner.y + 0.01
        and inner.right <= outer.right + 0.01
        and inner.bottom <= outer.bottom + 0.01
    )


def check_geometry(network: NetworkView) -> Drawn:
    drawn = placed(network)
    whole = Rect(0, 0, drawn.width, drawn.height)
    nodes = {name: rect for name, (_, rect) in drawn.nodes.items()}
    fragments = {key: rect for key, (_, rect) in drawn.fragments.items()}
    boxes = {key: rect for key, (_, rect) in drawn.boxes.items()}
    standbys = {key: rect for key, (_, rect) in drawn.standbys.items()}
    inner = {("fragment", *key): rect for key, rect in fragments.items()}
    inner |= {("standby", *key): rect for key, rect in standbys.items()}
    for rects in (drawn.owners, nodes, inner, boxes):
        assert not [pair for pair in combinations(rects.values(), 2) if overlap(*pair)]
    assert all(inside(rect, whole) for rect in drawn.owners.values())
    assert all(inside(rect, drawn.owners[drawn.nodes[name][0].owner]) for name, rect in nodes.items())
    assert all(inside(rect, nodes[node_]) for (_, node_, _), rect in inner.items())
    assert all(inside(rect, fragments[node_, name]) for (node_, name, _), rect in boxes.items())
    places = {("owner", key): rect for key, rect in drawn.owners.items()}
    places |= {("node", key): rect for key, rect in nodes.items()}
    places |= inner
    places |= {("box", *key): rect for key, rect in boxes.items()}
    for key, texts in drawn.texts.items():
        for text in texts:
            wide = width_of([(text.role, text.text)])
            left = text.x - wide if text.end else text.x
            rect = Rect(left, text.y - SIZES[text.role], wide, SIZES[text.role])
            assert inside(rect, places[key]), (key, text)
            within = {"owner": nodes, "node": inner, "fragment": boxes}.get(key[0], {})
            assert not [other for other in within.values() if overlap(rect, other)], (key, text)
    return drawn


@pytest.mark.parametrize("seed", range(40))
def test_nothing_overlaps_or_sticks_out(seed: int) -> None:
    network = random_federation(seed)
    drawn = check_geometry(network)
    nodes = [rect for _, rect in drawn.nodes.values()]
    lanes = [arrow.points[2][1] for arrow in drawn.arrows if len(arrow.points) > 2]
    assert all(abs(one - other) > 4 for one, other in combinations(lanes, 2))
    for arrow in drawn.arrows:
        assert all(0 <= x <= drawn.width and 0 <= y <= drawn.height for x, y in arrow.points)
        if len(arrow.points) > 2:  # the ways round: behind no node but at their ends
            for (x, y), (end_x, end_y) in zip(arrow.points[1:], arrow.points[2:-1], strict=False):
                line = Rect(min(x, end_x), min(y, end_y), abs(end_x - x), abs(end_y - y))
                assert not [rect for rect in nodes if overlap(line, rect)]


@pytest.mark.parametrize("seed", range(0, 40, 5))
def test_every_node_fragment_box_and_stream_is_drawn_once_and_has_details(seed: int) -> None:
    network = random_federation(seed)
    wanted = {key_of("owner", owner) for owner in network.owners}
    asked = set()
    assert network.unstable or seed % 20 == 0, "the seeds have some that aren't stable"
    for each in network.nodes:
        asked.add(key_of("node", each.name))
        for part in each.fragments:
            asked.add(key_of("fragment", each.name, part.fragment))
            asked |= {key_of("box", each.name, part.fragment, name) for name in part.boxes}
            of = [out.stream for out in part.outputs if out.stream in network.unstable]
            asked |= {key_of("output", each.name, part.fragment, name) for name in of if each.state == "up"}
    for each in network.standbys:
        asked |= {key_of(kind, each.node, each.fragment) for kind in ("standby", "follows")}
    for s in network.streams:
        asked.add(key_of("stream", s.name, s.origin, s.origin_fragment, s.target, s.target_fragment))
    drawn = keys(svg_of(network))
    assert len(set(drawn)) == len(drawn)
    links = {key for key in drawn if key.startswith("link ")}
    assert set(drawn) == wanted | asked | links
    assert asked | links <= set(details_of(network))


def test_the_same_statuses_in_any_order_give_the_same_drawing() -> None:
    statuses = edges_and_core(3)
    one = picture(seen(*statuses))
    mixed = seen(*statuses)
    random.Random(1).shuffle(mixed)
    assert picture(mixed) == one


def test_hostile_names_stay_text() -> None:
    bad = fragment(
        HOSTILE,
        ins={HOSTILE: "client-1"},
        outs={HOSTILE + "2": HOSTILE},
        failed=HOSTILE,
        boxes={HOSTILE: box(HOSTILE, waits_for=HOSTILE), "source-0": box("source")},
        arcs=[[HOSTILE, "", HOSTILE], ["source-0", "", HOSTILE], ["?", "", "source-0"]],
    )
    status = node(HOSTILE, bad, participant=HOSTILE, disk_error=HOSTILE)
    status["peers"] = {HOSTILE + "3": HOSTILE, HOSTILE: "up"}
    said = {HOSTILE + "4": {"state": HOSTILE, "since_us": -(2**62)}, "other": {"state": "following"}}
    decided = {HOSTILE: {"owner": HOSTILE + "5", "secondaries": said}}
    bad["outputs"][0]["consistency"] = unstable(
        HOSTILE, for_us=-(2**62), why=HOSTILE, missing=[dict.fromkeys(MISSING, HOSTILE)]
    )
    status["queries"] = {HOSTILE: {"configuration": {"number": 1, "coordinator": "x", "fragments": decided}}}
    answers = seen({**status, "node": "well" + HOSTILE})
    network = network_of([*seen(status, node("other", peers="x"), why=HOSTILE), *answers])
    assert len(network.unstable) == 1
    svg = svg_of(network)
    root = ElementTree.fromstring(svg)
    assert {each.tag.removeprefix(SVG) for each in root.iter()} <= {
        *("svg", "title", "defs", "marker", "path", "rect", "g", "text"),
    }
    assert not [name for each in root.iter() for name in each.attrib if name.startswith("on")]
    assert "<script" not in svg
    svg.encode()
    check_geometry(network)
    for title, lines in details_of(network).values():
        assert all(text.isprintable() for line in lines for text in (title, *line))


def test_very_long_names_are_cut_but_told_whole_where_asked() -> None:
    long = "q/" + "x" * 5000
    network = network_of(seen(node("n" * 64, fragment(long, ins={"s" * 3000: "client-1"}))))
    drawn = check_geometry(network)
    assert drawn.width < 1200
    assert long in svg_of(network)


def test_an_empty_federation_is_a_drawing_too() -> None:
    assert keys(picture([])) == []


def test_states_show_as_classes_and_signs() -> None:
    statuses = edges_and_core(2)
    statuses[1]["peers"]["core"] = "silent"
    told = [*seen(statuses[0]), *seen(statuses[1]), *seen(statuses[2])]
    root = ElementTree.fromstring(picture(told))
    states = {
        each.get("data-key", ""): each.get("class")
        for each in root.iter(f"{SVG}g")
        if each.get("data-key", "").startswith("stream ")
    }
    assert states == {
        "stream q.cars-edge-1 edge-1 q/cars core q/all": "stream flowing",
        "stream q.cars-edge-2 edge-2 q/cars core q/all": "stream cut",
    }
    assert len([each for each in root.iter(f"{SVG}path") if each.get("class") == "cross"]) == 1
    dead = ElementTree.fromstring(picture([*told[:2], *seen(statuses[2], why="no answer", age_s=12.0)]))
    texts = [each.text for each in dead.iter(f"{SVG}text")]
    assert "unreachable, last seen 12 s ago" in texts


def test_a_cut_between_living_nodes_is_drawn_and_one_of_a_dead_node_is_not() -> None:
    a, b = node("a", peers="b=silent"), node("b", peers="a=silent")
    assert "link a b" in keys(picture(seen(a, b)))
    assert "link a b" not in keys(picture([*seen(a), *seen(b, why="no answer")]))
    assert "link a b" not in keys(picture(seen(node("a", peers="b"), node("b", peers="a"))))


def test_loads_have_colours_and_who_is_held_an_outline() -> None:
    boxes = {
        "a": box("source", boundary=1),
        "b": box("source", boundary=2, load=None),
        "join": box("join", load=1.0, waits_for="rows; a holds it at 1"),
    }
    svg = picture(seen(node("n", fragment("q/f", boxes=boxes, arcs=[["a", "", "join"], ["b", "", "join"]]))))
    (join,) = [
        each
        for each in ElementTree.fromstring(svg).iter(f"{SVG}g")
        if each.get("data-key") == "box n q/f join"
    ]
    rect, title = join.find(f"{SVG}rect"), join.find(f"{SVG}title")
    assert rect is not None
    assert title is not None
    assert rect.get("fill") == "#662506"
    assert rect.get("stroke-dasharray") is not None
    assert title.text == "join join\nwaits for rows; a holds it at 1"


def groups(svg: str) -> dict[str, ElementTree.Element]:
    found = {each.get("data-key", ""): each for each in ElementTree.fromstring(svg).iter(f"{SVG}g")}
    return {key: each for key, each in found.items() if key}


def test_who_stands_by_is_drawn_otherwise_than_who_has_it_and_linked_to_it() -> None:
    network = network_of(seen(*guarding({"s": "following", "t": "missing"})))
    drawn = groups(svg_of(network))
    owner, follows, missing = (
        drawn[key] for key in ("fragment edge q/cars", "standby s q/cars", "standby t q/cars")
    )
    assert (owner.get("class"), follows.get("class")) == ("fragment", "standby following")
    assert missing.get("class") == "standby missing"
    outlines = [each.find(f"{SVG}rect") for each in (owner, follows, missing)]
    assert len({(each.get("stroke"), each.get("stroke-dasharray")) for each in outlines}) == 3
    lines = {text.text for each in (owner, follows, missing) for text in each.iter(f"{SVG}text")}
    assert {
        "standby: s following, t missing",
        "stands by for edge: following for 12 s, 2 KiB behind",
        "stands by for edge: missing for 12 s",
    } <= lines
    placed_ = placed(network)
    for node_ in "st":
        assert drawn[f"follows {node_} q/cars"].get("tabindex") == "0", "also by keyboard"
        (arrow,) = (each for each in placed_.arrows if getattr(each.what, "node", "") == node_)
        fragment_, standby = placed_.fragments["edge", "q/cars"][1], placed_.standbys[node_, "q/cars"][1]
        assert (arrow.points[0][0], arrow.points[-1][0]) == (fragment_.right, standby.x)


def test_after_a_takeover_the_new_owner_has_it_and_says_from_whom_and_since_when() -> None:
    """The lost one is still drawn with what it said last, by which it had it."""
    lost, spare, _ = guarding({"s": "following", "t": "following"})
    taken = owned("q/cars", {"t": "following", "edge": "missing"}, configuration=4)
    taken["replicas"] |= {"owner": "s", "epoch": 3, "taken_over_us": 12_900_000, "taken_over_from": "edge"}
    spare["fragments"] = [taken]
    network = network_of([*seen(spare), *seen(lost, why="no answer", age_s=13.0)])
    assert {(each.owner, each.node, each.state) for each in network.standbys} == {
        ("s", "t", "following"),
        ("s", "edge", "missing"),
    }
    drawn = groups(svg_of(network))
    told = [each.text for each in drawn["fragment s q/cars"].iter(f"{SVG}text")]
    assert "standby: t following, edge missing" in told
    assert "taken over from edge, 12 s ago" in told
    assert "taken over" not in " ".join(drawn["fragment edge q/cars"].itertext())
    drawn_at = placed(network).fragments
    heights = [drawn_at[name, "q/cars"][1].height for name in ("s", "edge")]
    assert heights[0] > heights[1], "its lines have room"
    lines = dict(details_of(network)["fragment s q/cars"][1])
    assert lines["taken over"] == "from edge, 12 s ago"


def test_details_tell_the_configuration_and_who_is_how_far() -> None:
    details = details_of(network_of(seen(*guarding({"s": "following", "t": "missing"}))))
    title, lines = details["standby t q/cars"]
    assert title == "standby t for q/cars at edge"
    assert dict(lines) == {
        "state": "missing",
        "for": "12 s",
        "behind": "not known",
        "fragment": "q/cars",
        "has it": "edge",
        "place in the order": "2",
        "configuration": "3 of query q",
    }
    assert details["follows t q/cars"] == details["standby t q/cars"]
    assert (
        dict(details["node s"][1])["stands by for q/cars"] == "following for 12 s, 2 KiB behind; edge has it"
    )
    fragment_ = dict(details["fragment edge q/cars"][1])
    assert fragment_["configuration"] == "3, epoch 2 of the fragment"
    assert fragment_["standby t"] == "missing for 12 s"
    assert "ALONE" not in fragment_


def test_a_fragment_that_nobody_could_take_over_is_marked() -> None:
    network = network_of(seen(*guarding({"s": "missing"}, alone_us=7_900_000)))
    owner = groups(svg_of(network))["fragment edge q/cars"]
    assert owner.get("class") == "fragment alone"
    assert "ALONE for 7 s, standby: s missing" in [each.text for each in owner.iter(f"{SVG}text")]
    lines = dict(details_of(network)["fragment edge q/cars"][1])
    assert lines["ALONE"] == "nobody could take it over for 7 s"


def test_keys_of_different_things_differ() -> None:
    names = ["a b", "a", "b", "a%20;b", "", "-", "%", "a\nb", "é", "&", "\0"]
    made = [key_of("node", one, other) for one in names for other in names]
    assert len(set(made)) == len(made)
    assert all(key_of(each).isascii() and not set(key_of(each)) & set(' \n"<>&') for each in names)


def test_a_peer_that_refuses_the_key_is_not_just_silent():
    away = {"y": {"seen_us": 1, "refusal": "refuses our key", "refused_us": 1}, "z": {"refusal": ""}}
    network = network_of(seen(node("x", peers="y=silent z=silent", away=away)))
    _, lines = details_of(network)[key_of("node", "x")]
    assert dict(lines)["link to y"] == "silent: it refuses our key"
    assert dict(lines)["link to z"] == "silent"


def test_what_a_node_does_about_the_parts_of_a_query_is_told_with_what_it_lacks() -> None:
    lacks = {"count": 2, "for_us": 7_000_000, "why": "w has too much to do", "nodes": ["s"]}
    queries = {"q": {"scaling": {"now": "split w in 2 at x", "lacks": lacks}}, "other": {}}
    _, lines = details_of(network_of(seen(node("x", queries=queries))))[key_of("node", "x")]
    said = dict(lines)["scales query q"]
    assert "under way: split w in 2 at x" in said
    assert "lacks 2 nodes with room, since 7 s (w has too much to do): not up: s" in said
    assert "scales query other" not in dict(lines)


def test_a_stream_that_is_not_stable_is_dashed_with_its_age_whoever_reads_it() -> None:
    edge, core = edges_and_core(1)
    edge["fragments"][0]["outputs"][0]["consistency"] = unstable("up_failure", tentative_rows=1_200)
    core["fragments"][0]["outputs"][0]["consistency"] = unstable(
        "stabilization", for_us=3_000_000, missing=[], uncorrected_rows=40, behind_rows=7, behind_us=2_000_000
    )
    network = network_of(seen(edge, core))
    check_geometry(network)
    root = ElementTree.fromstring(svg_of(network))
    drawn = {each.get("data-key"): each for each in root.iter(f"{SVG}g")}
    stream = drawn["stream q.cars-edge-1 edge-1 q/cars core q/all"]
    assert stream.get("class") == "stream flowing tentative"
    [line] = [each for each in stream if each.get("class") == "line"]
    assert line.get("stroke-dasharray")
    assert [each.text for each in stream.iter(f"{SVG}text")] == ["12 s"]
    assert "missing: stream q.b of node m, which isn't heard" in stream[0].text
    out = drawn["output core q/all q.out"]
    assert out.get("class") == "output tentative"
    assert out.find(f"{SVG}rect").get("stroke-dasharray")
    texts = [each.text for each in drawn["fragment core q/all"].iter(f"{SVG}text")]
    assert [text for text in texts if text.endswith(", being corrected for 3 s")]
    title, lines = details_of(network)["output core q/all q.out"]
    assert title == "stream q.out at core"
    assert ("corrections to come", "of 40 rows shown") in lines
    assert ("waiting input", "7 rows, 2 s behind") in lines
    assert ("missing", "stream q.b of node m, which isn't heard") in details_of(network)[
        "stream q.cars-edge-1 edge-1 q/cars core q/all"
    ][1]


def test_of_a_node_that_does_not_answer_nobody_says_whether_its_streams_are_stable() -> None:
    [edge] = [each for each in edges_and_core(1) if each["node"] == "edge-1"]
    edge["fragments"][0]["outputs"][0]["consistency"] = unstable("up_failure")
    network = network_of(seen(edge, why="gone"))
    assert network.unstable == []
    assert "tentative" not in svg_of(network)
