"""Queries as drawings: every box and arrow is there, nothing overlaps, texts fit and are escaped."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings

import medusa as md
from medusa.apps.workloads import netmon as workload
from medusa.errors import QueryError
from medusa.query.boxes import Graph, Input, Sink
from medusa.query.builder import Query
from medusa.query.render.diagram import Diagram
from tests.query.queries import queries

SVG = "{http://www.w3.org/2000/svg}"
Box = tuple[float, float, float, float]


def rectangle(group: ElementTree.Element) -> Box:
    rect = group.find(f"{SVG}rect")
    assert rect is not None
    x, y, width, height = (float(rect.get(name, "nan")) for name in ("x", "y", "width", "height"))
    return x, y, x + width, y + height


def drawn(svg: str) -> tuple[ElementTree.Element, dict[str, ElementTree.Element]]:
    root = ElementTree.fromstring(svg)
    groups = {
        group.get("data-id", ""): group for group in root.iter(f"{SVG}g") if group.get("class") == "box"
    }
    return root, groups


def points(path: ElementTree.Element) -> list[tuple[float, float]]:
    numbers = [float(number) for number in re.findall(r"-?[\d.]+", path.get("d", ""))]
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def sampled(path: ElementTree.Element) -> list[tuple[float, float]]:
    """Points along the curve, between the bends."""
    steps = re.findall(r"([MLC])([^MLC]*)", path.get("d", ""))
    here, found = (0.0, 0.0), []
    for kind, text in steps:
        numbers = [float(number) for number in text.split()]
        ends = list(zip(numbers[::2], numbers[1::2], strict=True))
        if kind != "M":
            control = [here, *ends] if kind == "C" else [here, here, ends[0], ends[0]]
            for step in range(1, 20):
                t = step / 20
                weights = ((1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3)
                found.append(
                    (
                        sum(w * point[0] for w, point in zip(weights, control, strict=True)),
                        sum(w * point[1] for w, point in zip(weights, control, strict=True)),
                    )
                )
        here = ends[-1]
    return found


def netmon() -> Query:
    return workload.query()


def check_drawing(q: Query) -> None:
    root, groups = drawn(q.diagram().svg)
    width, height = float(root.get("width", 0)), float(root.get("height", 0))
    assert groups.keys() == {box.id for box in q.graph.boxes}
    places = {id: rectangle(group) for id, group in groups.items()}
    for id, (x0, y0, x1, y1) in places.items():
        # Inside the drawing, whose content is moved by the margin.
        assert min(x0, y0) >= 0
        assert x1 + 16 <= width
        assert y1 + 16 <= height
        for other, (a0, b0, a1, b1) in places.items():
            assert id == other or x1 <= a0 or a1 <= x0 or y1 <= b0 or b1 <= y0, (id, other)
    arcs = Counter((arc.box, box.id) for box in q.graph.boxes for arc in box.inputs)
    paths = [path for path in root.iter(f"{SVG}path") if path.get("class") == "arc"]
    assert Counter((path.get("data-from"), path.get("data-to")) for path in paths) == arcs
    for path in paths:
        start, end = places[path.get("data-from", "")], places[path.get("data-to", "")]
        way = points(path)
        assert way[0][0] == pytest.approx(start[2], abs=0.2)
        assert start[1] < way[0][1] < start[3]
        assert way[-1][0] == pytest.approx(end[0], abs=0.2)
        assert end[1] < way[-1][1] < end[3]
        # No arrow runs through a box.
        for x, y in sampled(path):
            assert not any(x0 < x < x1 and y0 < y < y1 for x0, y0, x1, y1 in places.values())
    for group in groups.values():
        check_texts(group)


def check_texts(group: ElementTree.Element) -> None:
    x0, y0, x1, y1 = rectangle(group)
    texts = list(group.iter(f"{SVG}text"))
    assert len(texts) >= 2
    lines = []
    for text in texts:
        size, x, y = (float(text.get(name, "nan")) for name in ("font-size", "x", "y"))
        assert x0 < x
        assert x + len(text.text or "") * size * 0.6 <= x1
        assert y0 < y - size < y < y1
        lines.append(y)
    assert all(later - earlier >= 12 for earlier, later in pairwise(lines))


def test_the_query_of_the_demonstration() -> None:
    check_drawing(netmon())
    _, groups = drawn(netmon().diagram().svg)
    texts = [text.text for text in groups["is_heavy"].iter(f"{SVG}text")]
    assert texts == ["filter", "is_heavy", "n > 100"]
    texts = [text.text for text in groups["per_prefix"].iter(f"{SVG}text")]
    assert texts == ["aggregate", "per_prefix", "tumbling windows of 1 min by prefix", "n = sum(n)"]


@settings(max_examples=60)
@given(queries())
def test_any_query(q: Query) -> None:
    check_drawing(q)
    assert q.diagram().svg == q.diagram().svg
    mermaid = q.diagram().mermaid.splitlines()
    assert mermaid[0] == "flowchart LR"
    nodes = [line for line in mermaid[1:] if "--" not in line]
    arcs = [line for line in mermaid[1:] if "--" in line]
    assert len(nodes) == len(q.graph.boxes)
    assert len(arcs) == sum(len(box.inputs) for box in q.graph.boxes)


def test_texts_are_escaped() -> None:
    q = md.Query("q")
    s = q.source("s", {"ts": "timestamp", "a<b&\"c'": "utf8"})
    q.sink("out", s.filter(md.col("a<b&\"c'") != "</text><script>"))
    root, _ = drawn(q.diagram().svg)
    assert not list(root.iter(f"{SVG}script"))
    assert "<script" not in q.diagram().svg
    mermaid = q.diagram().mermaid
    assert "<script" not in mermaid
    assert "#lt;/text#gt;" in mermaid
    assert all(line.count('"') == 2 for line in mermaid.splitlines() if "filter" in line)


def test_long_texts_are_cut() -> None:
    q = md.Query("q")
    s = q.source("s", {"ts": "timestamp", "列" * 60: "int8", "x" * 200: "int8"}, time=None)
    s.select("列" * 60)
    s.select("x" * 200, name="n" * 64)
    check_drawing(q)
    _, groups = drawn(q.diagram().svg)
    assert max(rectangle(group)[2] - rectangle(group)[0] for group in groups.values()) < 420
    # All of it is in the tip.
    assert any(
        "x" * 200 in (title.text or "") for group in groups.values() for title in group.iter(f"{SVG}title")
    )


def test_late_rows_are_told_apart() -> None:
    q = md.Query("q")
    cars = q.source("cars", {"ts": "timestamp"})
    q.sink("late", cars.late)
    q.sink("cars_out", cars)
    root, _ = drawn(q.diagram().svg)
    assert [text.text for text in root.iter(f"{SVG}text")].count("late") == 2  # the arrow and the sink
    assert "b0 -->|late| b1" in q.diagram().mermaid
    assert "b0 --> b2" in q.diagram().mermaid


def test_mermaid_of_a_small_query() -> None:
    q = md.Query("q")
    q.sink("out", q.source("cars", {"ts": "timestamp", "speed": "int8"}).filter("speed > 0", name="fast"))
    assert q.diagram().mermaid == (
        "flowchart LR\n"
        '    b0(["source<br/>cars<br/>time ts"])\n'
        '    b1["filter<br/>fast<br/>speed #gt; 0"]\n'
        '    b2(["sink<br/>out"])\n'
        "    b0 --> b1\n"
        "    b1 --> b2\n"
    )


def test_saving(tmp_path: Path) -> None:
    diagram = netmon().diagram()
    diagram.save(tmp_path / "q.svg")
    diagram.save(str(tmp_path / "q.mmd"))
    assert (tmp_path / "q.svg").read_text(encoding="utf-8") == diagram.svg
    assert (tmp_path / "q.mmd").read_text(encoding="utf-8") == diagram.mermaid
    with pytest.raises(QueryError, match=r"can't write 'q\.png' \(the name ends in \.svg or \.mmd\)"):
        diagram.save(tmp_path / "q.png")
    with pytest.raises(md.QueryError, match=r"can't write '.*no.q\.svg': No such file or directory") as told:
        diagram.save(tmp_path / "no" / "q.svg")
    assert "folder must be there" in told.value.hint
    assert sorted(path.name for path in tmp_path.iterdir()) == ["q.mmd", "q.svg"]


def test_notebooks_show_queries() -> None:
    q = netmon()
    assert q._repr_svg_() == q.diagram()._repr_svg_() == q.diagram().svg
    assert repr(q.diagram()) == "<Diagram of query 'netmon': .svg, .mermaid, .save(path)>"
    drawn(md.Query("empty").diagram().svg)


def test_a_graph_that_does_not_hold_is_not_drawn() -> None:
    with pytest.raises(QueryError, match="there is no box 'nowhere'"):
        Diagram(Graph(name="q", boxes=(Sink(id="out", inputs=(Input("nowhere"),)),)))
