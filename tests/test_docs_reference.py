"""The API reference has every public name, and the built pages' links lead somewhere."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote

import pytest

import medusa
from medusa.query.stream.stream import Stream
from medusa.runtime.embedded.run import Run

DOCS = Path(__file__).resolve().parents[1] / "docs"


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    return script("reference")


def script(name: str) -> ModuleType:
    """A script of docs/, which isn't a package."""
    sys.path.insert(0, str(DOCS))
    try:
        return __import__(name)
    finally:
        sys.path.remove(str(DOCS))


def test_every_public_name_is_there_with_a_docstring(reference: ModuleType) -> None:
    text = reference.reference()
    for name, value in reference.public_names().items():
        assert f"\n### md.{name}\n" in text, f"md.{name} isn't in a section of docs/reference.py"
        assert inspect.getdoc(value), f"md.{name} has no docstring"
    for name in medusa.testing.__all__:
        assert f"\n### md.testing.{name}\n" in text


def test_methods_are_there_with_docstrings(reference: ModuleType) -> None:
    text = reference.reference()
    for _, things in reference.SECTIONS.values():
        for thing in filter(inspect.isclass, things):
            assert thing.__doc__, thing
            for name, value in reference.members_of(thing).items():
                assert inspect.getdoc(value), f"{thing.__name__}.{name} has no docstring"
    for name in (name for name in dir(Stream) if not name.startswith("_")):
        assert f"\n#### Stream.{name}\n" in text
    for name in (
        "Run.push_async",
        "Run.take",
        "WindowedStream.top",
        "KeyedStream.running",
        "Federation.deploy",
    ):
        assert f"\n#### {name}\n" in text
    assert "\nsource(\n    name: str,\n    schema: Any = None,\n    time: str | None = 'ts',\n" in text
    assert "    how: str = 'linear',\n    *,\n    gap: Duration,\n" in text
    assert "| `query.column` | QueryError |" in text


def test_links_of_the_built_pages_lead_somewhere(tmp_path: Path) -> None:
    script("make").main(tmp_path / "out", modules=False)
    pages = {path.name: path.read_text(encoding="utf-8") for path in (tmp_path / "out").glob("*.html")}
    ids = {name: set(re.findall(r'id="([^"]+)"', text)) for name, text in pages.items()}
    assert {"index.html", "guide.html", "reference.html", "contents.html"} <= set(pages)
    assert 'href="reference.html">reference</a>' in pages["guide.html"].split("</nav>")[1]
    for name, text in pages.items():
        assert "```" not in text, f"{name}: a block that was not taken for one"
        for link in re.findall(r'(?:href|src)="([^"]*)"', text):
            if "://" in link:
                continue
            target, _, anchor = unquote(link).partition("#")
            assert (tmp_path / "out" / (target or name)).exists(), f"{name} links to {link}"
            assert not anchor or anchor in ids[target or name], f"{name} links to {link}"


def test_the_list_of_pages_has_all() -> None:
    listed = set(re.findall(r"\]\(([\w-]+\.md)\)", (DOCS / "contents.md").read_text(encoding="utf-8")))
    assert listed == {path.name for path in DOCS.glob("*.md")} - {"contents.md"}


ROOMS = (
    "",
    "medusa",
    "medusa/engine",
    "medusa/query",
    "native",
    "docs",
    "tests",
    "bench",
)


@pytest.mark.parametrize(
    "page", [DOCS.parent / "README.md", *sorted(DOCS.glob("*.md"))], ids=lambda p: p.name
)
def test_what_a_page_names_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    names = {*medusa.__all__, "testing", "spark"}
    assert {*re.findall(r"\bmd\.(\w+)\b(?!\.md)", text)} <= names
    assert {*re.findall(r"\bmd\.testing\.(\w+)", text)} <= {*medusa.testing.__all__}
    assert {*re.findall(r"\bmd\.spark\.(\w+)", text)} <= {*medusa.spark.__all__}
    # In code only: `run.busy` is the code of an error.
    assert {name for name in re.findall(r"\brun\.(\w+)\(", text) if not hasattr(Run, name)} == set()
    for path in re.findall(r"`([\w./*-]+\.(?:py|c|h|pyx|pxi|json))`", text):
        if "/" in path and not any(list((DOCS.parent / room).glob(path)) for room in ROOMS):
            raise AssertionError(f"{page.name}: there is no {path}")


@pytest.mark.parametrize(
    "package",
    sorted((DOCS.parent / "medusa").rglob("__init__.py")),
    ids=lambda p: p.parent.relative_to(DOCS.parent).as_posix(),
)
def test_files_that_a_package_says_to_have_exist(package: Path) -> None:
    """``nodes/fragment/host`` in a docstring of a package is a module, ``native/window/window.c`` a file."""
    said = ast.get_docstring(ast.parse(package.read_text())) or ""
    root = DOCS.parent
    for path in re.findall(r"``((?:\w+/)+[\w.*]+)``", said):
        places = (root / "medusa", root, package.parent)
        kinds = (path, f"{path}.py", f"{path}/__init__.py")
        assert any(list(place.glob(kind)) for place in places for kind in kinds), f"{package}: no {path}"
