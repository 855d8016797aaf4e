"""What tests replace is there by the name that they say: else a planted mistake plants nothing.

Many of those run in `make test-ci` alone, so nobody would hear of it before.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
FILES = sorted(
    str(path.relative_to(ROOT))
    for path in (ROOT / "tests").rglob("*.py")
    if "spark" not in path.parts and ".setattr(" in path.read_text()
)


def imported(tree: ast.Module) -> dict[str, Any]:
    """What a file has from the package, by the name that it has there."""
    found: dict[str, Any] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "medusa":
            module = importlib.import_module(str(node.module))
            for alias in node.names:
                if hasattr(module, alias.name):
                    found[alias.asname or alias.name] = getattr(module, alias.name)
    return found


def is_there(owner: Any, name: str) -> bool:
    fields = (vars(each).get("__annotations__", {}) for each in getattr(owner, "__mro__", ()))
    return hasattr(owner, name) or any(name in each for each in fields)


def missing(text: str) -> Iterator[str]:
    """What isn't there of what is replaced (``setattr(Owner, "name", ...)``) or read of a class."""
    tree = ast.parse(text)
    known = imported(tree)
    for node in ast.walk(tree):
        owner, name = None, ""
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "setattr"
        ):
            match node.args:
                case [ast.Name(id=owner_name), ast.Constant(value=str(name)), *_] if owner_name in known:
                    owner = known[owner_name]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            owner, name = known.get(node.value.id), node.attr
            owner = owner if isinstance(owner, type) else None
        if owner is not None and not is_there(owner, name):
            yield f"line {node.lineno}: {getattr(owner, '__name__', owner)}.{name}"


@pytest.mark.parametrize("file", FILES)
def test_what_is_replaced_is_there(file: str) -> None:
    assert not list(missing((ROOT / file).read_text()))


def test_what_is_gone_is_found() -> None:
    planted = """
from medusa.nodes.fragment.publishers import Publishers
def plant(monkeypatch):
    honest = Publishers.offer
    monkeypatch.setattr(Publishers, "open", honest)
    monkeypatch.setattr(Publishers, "offer", honest)
"""
    assert sorted(missing(planted)) == ["line 4: Publishers.offer", "line 6: Publishers.offer"]
