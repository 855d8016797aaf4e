"""Drawings coloured by load: darker is busier, for every eye, and the marks are where they belong."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

import medusa as md
from medusa.query.render.diagram import Diagram
from medusa.query.render.diagram_load import DARK_INK, LIGHT_INK, BoxLoad, DiagramLoads, colours, luminance

SVG = "{http://www.w3.org/2000/svg}"


def query() -> md.Query:
    q = md.Query("q")
    a = q.source("a", {"t": "int64", "k": "int64"}, time="t", unit="s", slack="0s")
    q.sink("out", a.filter("k > 0", name="f").union(a, name="u"))
    return q


def boxes_of(svg: str) -> dict[str, ET.Element]:
    root = ET.fromstring(svg)
    return {each.attrib["data-id"]: each for each in root.iter(f"{SVG}g") if each.get("class") == "box"}


def fill(box: ET.Element) -> str:
    rect = box.find(f"{SVG}rect")
    assert rect is not None
    return rect.attrib["fill"]


shares = st.floats(0, 1)


@given(shares, shares)
def test_the_larger_share_is_darker(one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert luminance(colours(low)[0]) >= luminance(colours(high)[0])
    if high - low > 0.02:
        assert luminance(colours(low)[0]) > luminance(colours(high)[0])


@given(shares)
def test_text_can_be_read_on_every_colour(share: float) -> None:
    fill, ink = colours(share)
    light, dark = sorted((luminance(fill), luminance(ink)), reverse=True)
    assert (light + 0.05) / (dark + 0.05) >= 4.5


def test_the_ends_of_the_scale() -> None:
    assert colours(0) == ("#ffffe5", DARK_INK)
    assert colours(1) == ("#662506", LIGHT_INK)
    assert colours(7) == colours(1)


def test_luminance_is_that_of_the_standard() -> None:
    assert luminance("#ffffff") == pytest.approx(1)
    assert luminance("#000000") == 0
    assert luminance("#808080") == pytest.approx(0.2159, abs=1e-4)


LOADS = DiagramLoads(
    {
        "a": BoxLoad(0.1, ("10% of busy time",)),
        "f": BoxLoad(0.6, ("60% of busy time", "1,000 rows wait, 8 KiB"), tip="1 us a row"),
        "u": BoxLoad(0.3, ("30% of busy time", "held by a, 3s behind"), held=True),
        "out": BoxLoad(0.0, ()),
    },
    "over the last 5s",
)


def test_colours_marks_and_legend() -> None:
    svg = Diagram(query().graph, LOADS).svg
    boxes = boxes_of(svg)
    assert min(boxes, key=lambda id: luminance(fill(boxes[id]))) == "f"
    assert boxes["f"].attrib["data-load"] == "0.6000"
    texts = {id: [each.text for each in box.iter(f"{SVG}text")] for id, box in boxes.items()}
    assert texts["f"][-2:] == ["60% of busy time", "1,000 rows wait, 8 KiB"]
    assert texts["u"][-1] == "held by a, 3s behind"
    titles = {id: box.findtext(f"{SVG}title") for id, box in boxes.items()}
    assert (titles["f"] or "").endswith("\n1 us a row")
    dashed = [id for id, box in boxes.items() if "stroke-dasharray" in box.find(f"{SVG}rect").attrib]  # type: ignore[union-attr]
    assert dashed == ["u"]
    assert "share of the time that boxes were busy, over the last 5s" in svg
    assert "held back by one of its inputs" in svg


def test_nothing_lies_outside_the_picture() -> None:
    root = ET.fromstring(Diagram(query().graph, LOADS).svg)
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for rect in root.iter(f"{SVG}rect"):
        x, y = float(rect.get("x", 0)), float(rect.get("y", 0))
        assert 0 <= x <= x + float(rect.attrib["width"]) <= width
        assert 0 <= y <= y + float(rect.attrib["height"]) <= height
    for text in root.iter(f"{SVG}text"):
        assert float(text.attrib["y"]) <= height - 16


def test_mermaid_has_the_same_colours() -> None:
    drawn = Diagram(query().graph, LOADS)
    boxes = boxes_of(drawn.svg)
    styles = dict(re.findall(r"style b(\d) fill:(#\w+)", drawn.mermaid))
    assert [styles[str(place)] for place in range(4)] == [fill(boxes[id]) for id in ("a", "f", "u", "out")]
    assert drawn.mermaid.count("stroke-dasharray") == 1


def test_without_loads_nothing_changes() -> None:
    assert "legend" not in query().diagram().svg
    assert "data-load" not in query().diagram().svg
    assert "style" not in query().diagram().mermaid
