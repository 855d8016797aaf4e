"""A federation as a drawing: SVG of owners, nodes, fragments, boxes and the streams between them. Pure.

Colours and sizes are attributes, so that the file stands alone; each kind of thing has a class, so that the
page can give it other colours, and what can be asked about has a ``data-key``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import log10
from xml.sax.saxutils import escape, quoteattr

from medusa.apps.dashboard.network import (
    CUT,
    FLOWING,
    REFUSED,
    UNASKED,
    UNREACHABLE,
    NetworkView,
    Seen,
    StandbyView,
    StreamView,
    network_of,
)
from medusa.apps.dashboard.placing import placed
from medusa.apps.dashboard.shapes import SIZES, Arrow, Drawn, Point, Rect, TextShape
from medusa.apps.dashboard.words import ago, count, of_guarded, per_second, plain, secondary, unstable_for
from medusa.query.render.diagram_load import DARK_INK, LEGEND_HEIGHT, LEGEND_WIDTH, colours, legend, outline
from medusa.runtime.client.status.bounded_streams import unstable_text
from medusa.wire.status_and_metrics import FOLLOWING, MISSING, SEEDING

__all__ = ["key_of", "picture", "svg_of"]

FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, monospace"
CORNER = 6.0
BOLD = ("owner", "node", "fragment", "box")
INKS = {"owner": "#3b4554", "state": "#3b4554", "figures": "#3b4554", "port": "#3b4554"}
NODE_COLOURS = {"up": "#f2f6fb", UNREACHABLE: "#fbe9e9", UNASKED: "#f4f4f4"}
NODE_OUTLINES = {"up": "#3a72b0", UNREACHABLE: "#b3261e", UNASKED: "#8a93a0"}
ARROWS = {FLOWING: "#56606e", CUT: "#b3261e", REFUSED: "#b3261e"}
ARROW_ELSE = "#9aa3af"
STANDBY = {FOLLOWING: "#1e7a3c", SEEDING: "#8a6d00", MISSING: "#b3261e"}
"""Outlines and arrows of those that stand by; each has its dashes, too."""
STANDBY_DASHES = {FOLLOWING: "1 3", SEEDING: "4 3", MISSING: "6 3"}
TENTATIVE = "#c2410c"
"""Of what may be wrong, as in the plots."""
TENTATIVE_DASHES = 'stroke-dasharray="7 3"'
OVER = "over the last 5 s"


def picture(seen: Iterable[Seen]) -> str:
    """Draw what is known of some nodes.

    Returns:
        an SVG document; the same for the same knowledge.
    """
    return svg_of(network_of(seen))


def key_of(*parts: str) -> str:
    """What an element of the drawing is called: parts joined by spaces, each without any."""
    return " ".join("".join(_safe(each) for each in part) or "%" for part in parts)


def _safe(letter: str) -> str:
    return letter if letter.isascii() and (letter.isalnum() or letter in "._-/:+") else f"%{ord(letter):x};"


def svg_of(network: NetworkView) -> str:
    """Draw a network."""
    drawn = placed(network)
    width = max(drawn.width, LEGEND_WIDTH + 28.0)
    height = drawn.height + LEGEND_HEIGHT
    size = f"{width:.0f} {height:.0f}"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}"'
        f' viewBox="0 0 {size}" role="group" aria-label="federation" font-family={quoteattr(FONT)}>',
        f"<title>federation: {len(network.nodes)} nodes, {len(network.streams)} streams</title>",
        *_defs(),
        f'<rect class="paper" width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>',
        *_owners(drawn),
        *_nodes(drawn),
        *_fragments(drawn, network),
        *_standbys(drawn),
        *_inner_arcs(drawn),
        *_unstable_outputs(drawn),
        *_boxes(drawn),
        *(line for arrow in drawn.arrows for line in _arrow(arrow)),
        f'<g transform="translate(14 {drawn.height:.0f})">',
        *legend(OVER, 0.0),
        "</g>",
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _defs() -> Iterator[str]:
    yield "<defs>"
    arrows = {"flowing": ARROWS[FLOWING], "cut": ARROWS[CUT], "unknown": ARROW_ELSE}
    for name, colour in (arrows | STANDBY).items():
        yield (
            f'<marker id="medusa-{name}" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8"'
            f' markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0L8 4L0 8z" fill="{colour}"/></marker>'
        )
    yield "</defs>"


def _owners(drawn: Drawn) -> Iterator[str]:
    for owner, rect in drawn.owners.items():
        yield f'<g class="owner" data-key="{key_of("owner", owner)}">'
        yield _rect(rect, 'rx="10" fill="none" stroke="#c3cad3" stroke-dasharray="2 3"')
        yield from _texts(drawn, "owner", owner)
        yield "</g>"


def _nodes(drawn: Drawn) -> Iterator[str]:
    for name, (node, rect) in drawn.nodes.items():
        state = node.state.replace(" ", "-")
        dashes = "" if node.state == "up" else ' stroke-dasharray="6 3"'
        yield f'<g class="node {state}" {_asked("node", name)}>'
        yield _title(f"node {name}: {node.state}{': ' + node.why if node.why else ''}")
        yield _rect(
            rect,
            f'rx="8" fill="{NODE_COLOURS[node.state]}" stroke="{NODE_OUTLINES[node.state]}"'
            f' stroke-width="1.6"{dashes}',
        )
        yield from _texts(drawn, "node", name)
        yield "</g>"


def _fragments(drawn: Drawn, network: NetworkView) -> Iterator[str]:
    guarded = {(each.replicas.owner, each.fragment): each for each in network.guarded}
    for (node, name), (fragment, rect) in drawn.fragments.items():
        faded = ' opacity="0.55"' if drawn.nodes[node][0].state == UNREACHABLE else ""
        bad = fragment.state == "failed"
        of = guarded.get((node, name))
        alone = of is not None and of.alone
        kind = "fragment" + " failed" * bad + " alone" * alone
        yield f'<g class="{kind}" {_asked("fragment", node, name)}{faded}>'
        title = f"fragment {name} at {node}: {fragment.failed or fragment.state}"
        yield _title("\n".join([title, *([] if of is None else of_guarded(of))]))
        yield _rect(rect, f'rx="5" fill="#ffffff" stroke="{ARROWS[CUT] if bad or alone else "#9aa7b8"}"')
        yield from _texts(drawn, "fragment", node, name)
        yield "</g>"


def _unstable_outputs(drawn: Drawn) -> Iterator[str]:
    """A dashed line around what is said of a stream that isn't stable, whoever reads it."""
    for (node, fragment, stream), (of, rect) in drawn.unstable.items():
        title = f"stream {stream} at {node}: {unstable_for(of)}: {unstable_text(of)}"
        yield f'<g class="output tentative" {_asked_as(key_of("output", node, fragment, stream), title)}>'
        yield _title(title)
        yield _rect(rect, f'rx="3" fill="#000000" fill-opacity="0" stroke="{TENTATIVE}" {TENTATIVE_DASHES}')
        yield "</g>"


def _standbys(drawn: Drawn) -> Iterator[str]:
    for (node, name), (standby, rect) in drawn.standbys.items():
        title = _standby_title(standby)
        yield f'<g class="standby {standby.state}" {_asked_as(key_of("standby", node, name), title)}>'
        yield _title(title)
        colour, dashes = STANDBY[standby.state], STANDBY_DASHES[standby.state]
        yield _rect(
            rect, f'rx="5" fill="none" stroke="{colour}" stroke-width="1.6" stroke-dasharray="{dashes}"'
        )
        yield from _texts(drawn, "standby", node, name)
        yield "</g>"


def _standby_title(standby: StandbyView) -> str:
    told = secondary(standby.state, standby.since_us, standby.behind_bytes)
    return f"{standby.node} stands by for {standby.fragment} at {standby.owner}: {told}"


def _inner_arcs(drawn: Drawn) -> Iterator[str]:
    for _, _, _, points in drawn.arcs:
        yield (
            f'<path class="arc" d="{_curve(points)}" fill="none" stroke="{ARROWS[FLOWING]}"'
            ' stroke-width="1.1" marker-end="url(#medusa-flowing)"/>'
        )


def _boxes(drawn: Drawn) -> Iterator[str]:
    for (node, fragment, name), (box, rect) in drawn.boxes.items():
        view = drawn.nodes[node][0]
        held = drawn.fragments[node, fragment][0].is_held(name)
        fill, ink = ("#eeeeee", DARK_INK) if box.load is None else colours(box.load)
        faded = ' opacity="0.55"' if view.state == UNREACHABLE else ""
        yield f'<g class="box" {_asked("box", node, fragment, name)}{faded}>'
        yield _title(f"{box.kind} {name}" + (f"\nwaits for {box.waits_for}" if box.waits_for else ""))
        yield _rect(rect, f'rx="4" fill="{fill}" {outline(held=held)}')
        yield from _texts(drawn, "box", node, fragment, name, ink=ink)
        yield "</g>"


def _arrow(arrow: Arrow) -> Iterator[str]:
    what = arrow.what
    if isinstance(what, StandbyView):
        yield from _standby_arrow(what, arrow.points)
        return
    state = what.state
    colour = ARROWS.get(state, ARROW_ELSE)
    marker = {FLOWING: "flowing", CUT: "cut", REFUSED: "cut"}.get(state, "unknown")
    dashes = "" if state == FLOWING else ' stroke-dasharray="5 4"'
    width, end = 1.4, f' marker-end="url(#medusa-{marker})"'
    age = ""  # More has no room between nodes.
    if isinstance(what, StreamView):
        key, kind = stream_key(what), "stream"
        if what.unstable is not None:
            since_us = what.unstable.for_us
            age = "" if since_us is None else ago(since_us // 1_000_000)
            if state == FLOWING:
                colour, dashes, state = TENTATIVE, f" {TENTATIVE_DASHES}", f"{FLOWING} tentative"
        ends = f"from {what.origin} to {what.target}"
        title = f"stream {what.name} {ends}: {what.state}, {per_second(what.rate)}"
        if what.behind_rows:
            title += f", {count(what.behind_rows)} rows under way"
        title += f"\n{what.why}" if what.why else ""
        if what.unstable is not None:
            title += f"\n{unstable_for(what.unstable)}: {unstable_text(what.unstable)}"
        if what.rate is not None and what.state == FLOWING:
            width += min(log10(1 + max(what.rate, 0.0)) * 0.5, 3.0)
    else:
        key, kind, end = key_of("link", what.a, what.b), "link", ""
        title = f"link between {what.a} and {what.b}: {state}"
    points = arrow.points
    yield f'<g class="{kind} {state}" {_asked_as(key, title)}>'
    yield _title(title)
    yield from _line(points, f'stroke="{colour}" stroke-width="{width:.1f}"{dashes}{end}')
    if state in (CUT, REFUSED):
        x, y = _middle(points)
        yield (
            f'<path class="cross" d="M{x - 6:.1f} {y - 6:.1f}l12 12m0 -12l-12 12" fill="none"'
            f' stroke="{colour}" stroke-width="3"/>'
        )
    if age:
        x, y = _middle(points)
        yield (
            f'<text class="age" x="{x:.1f}" y="{y - 9:.1f}" font-size="{SIZES["port"]}" text-anchor="middle"'
            f' fill="{TENTATIVE}" font-weight="bold" stroke="#ffffff" stroke-width="3"'
            f' paint-order="stroke">{escape(age)}</text>'
        )
    yield "</g>"


def _standby_arrow(standby: StandbyView, points: tuple[Point, ...]) -> Iterator[str]:
    """From who has a fragment to who stands by for it."""
    state, title = standby.state, _standby_title(standby)
    key = key_of("follows", standby.node, standby.fragment)
    yield f'<g class="follows {state}" {_asked_as(key, title)}>'
    yield _title(title)
    dashes = f'stroke-dasharray="{STANDBY_DASHES[state]}" marker-end="url(#medusa-{state})"'
    yield from _line(points, f'stroke="{STANDBY[state]}" stroke-width="1.4" {dashes}')
    yield "</g>"


def _line(points: tuple[Point, ...], look: str) -> Iterator[str]:
    """A way, and around it what a pointer can hit."""
    path = _curve(points) if len(points) == 2 else _cornered(points)
    yield f'<path class="hit" d="{path}" fill="none" stroke="#000000" stroke-opacity="0" stroke-width="12"/>'
    yield f'<path class="line" d="{path}" fill="none" {look}/>'


def stream_key(stream: StreamView) -> str:
    """What a stream is called in the drawing."""
    ends = (stream.origin, stream.origin_fragment, stream.target, stream.target_fragment)
    return key_of("stream", stream.name, *ends)


# --- pieces -----------------------------------------------------------------------------------------


def _asked(*key: str) -> str:
    """Attributes of what can be asked about, also by keyboard."""
    return _asked_as(key_of(*key), f"{key[0]} {key[-1]}")


def _asked_as(key: str, label: str) -> str:
    return f'data-key="{key}" tabindex="0" role="button" aria-label={_attribute(label)}'


def _attribute(text: str) -> str:
    return quoteattr(plain(text.replace("\n", "; ")))


def _title(text: str) -> str:
    return f"<title>{escape(chr(10).join(plain(line) for line in text.split(chr(10))))}</title>"


def _rect(rect: Rect, attributes: str) -> str:
    return (
        f'<rect x="{rect.x:.1f}" y="{rect.y:.1f}" width="{rect.width:.1f}" height="{rect.height:.1f}"'
        f" {attributes}/>"
    )


def _texts(drawn: Drawn, *key: str, ink: str = "#1c2430") -> Iterator[str]:
    for text in drawn.texts.get(key, ()):
        yield _text(text, INKS.get(text.role, ink))


def _text(text: TextShape, ink: str) -> str:
    bold = ' font-weight="bold"' if text.role in BOLD else ""
    anchor = ' text-anchor="end"' if text.end else ""
    return (
        f'<text class="{text.role}" x="{text.x:.1f}" y="{text.y:.1f}" font-size="{SIZES[text.role]}"'
        f' fill="{ink}"{bold}{anchor}>{escape(text.text)}</text>'
    )


def _curve(points: tuple[Point, ...] | list[Point]) -> str:
    """Through all points, level at each."""
    (x, y), *rest = points
    parts = [f"M{x:.1f} {y:.1f}"]
    for end_x, end_y in rest:
        if end_y == y:
            parts.append(f"L{end_x:.1f} {end_y:.1f}")
        else:
            middle = (x + end_x) / 2
            parts.append(f"C{middle:.1f} {y:.1f} {middle:.1f} {end_y:.1f} {end_x:.1f} {end_y:.1f}")
        x, y = end_x, end_y
    return "".join(parts)


def _cornered(points: tuple[Point, ...]) -> str:
    """Lines that are level or upright, with round corners."""
    parts = [f"M{points[0][0]:.1f} {points[0][1]:.1f}"]
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        near, far = _towards(corner, before), _towards(corner, after)
        parts.append(
            f"L{near[0]:.1f} {near[1]:.1f}Q{corner[0]:.1f} {corner[1]:.1f} {far[0]:.1f} {far[1]:.1f}"
        )
    parts.append(f"L{points[-1][0]:.1f} {points[-1][1]:.1f}")
    return "".join(parts)


def _towards(corner: Point, other: Point) -> Point:
    """A point on the way from a corner to another point, no further than half of it."""
    dx, dy = other[0] - corner[0], other[1] - corner[1]
    length = abs(dx) + abs(dy)
    share = min(CORNER / length, 0.5) if length else 0.0
    return corner[0] + dx * share, corner[1] + dy * share


def _middle(points: tuple[Point, ...]) -> Point:
    """Where the sign of a cut stands: in the middle of the gap, or of the lane."""
    one, other = (points[0], points[1]) if len(points) == 2 else (points[2], points[3])
    return (one[0] + other[0]) / 2, (one[1] + other[1]) / 2
