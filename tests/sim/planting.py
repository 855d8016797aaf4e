"""How a mistake is planted: as a small edit of the source text of a function.

A mistake names a function, the text in it to replace, and the replacement: what a programmer might type.
If the text is no longer in the function, planting fails and says so.
"""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

__all__ = ["NEAR", "Edit", "Mistake", "edit", "fails_its_tests", "noticed", "planted"]

NEAR = 60
"""Seeds that are tried where the recorded one doesn't notice a mistake any more: whatever a node says more
moves all that follows. Then record the one that does: it is the first to be tried."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One change: ``where`` is ``module:Class.function`` within ``medusa``."""

    where: str
    old: str
    new: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """An edit, and the seed that notices it.

    Attributes:
        area: the part of the system.
        about: what is wrong, and what it costs users.
        edits: how it is planted.
        scenarios: where a seed should notice it; the first is that of ``seed``.
        seed: notices it; None: none of the first 200 seeds of each scenario does.
        beside: edits that take away the second check that covers it: the seed notices both together, and
            neither alone.
        shows: how the violation begins.
        tests: what notices it by itself, as pytest is given it: for a part that isn't simulated, and for a
            mistake that few seeds notice, so that any change of a schedule would make the recorded one stale.
    """

    area: str
    about: str
    edits: tuple[Edit, ...]
    scenarios: tuple[str, ...] = ()
    seed: int | None = None
    beside: tuple[Edit, ...] = ()
    shows: str = "SimulationError: "
    tests: str = ""


def noticed(violation: Callable[[int], str], recorded: int, shows: str = "") -> str:
    """The violation of the recorded seed, or of the first of ``NEAR`` that has one; empty: none has.

    Args:
        violation: runs a seed with the mistake planted.
        shows: how the violation begins.
    """
    for seed in (recorded, *range(NEAR)):
        if (found := violation(seed)) and found.startswith(shows):
            if seed != recorded:
                print(f"RECORD {seed} for {recorded}")
            return found
    return ""


def fails_its_tests(table: str, name: str) -> str:
    """Run the tests of a mistake with it planted, and with the second check that covers it planted away.

    Args:
        table: ``module:NAME`` of the table that it is in.

    Returns:
        What was printed where they pass, or couldn't run; empty: a test failed, as it should.
    """
    module, _, variable = table.partition(":")
    mistake: Mistake = getattr(import_module(module), variable)[name]
    assert mistake.tests
    program = (
        f"import sys, pytest; from {module} import {variable}; from tests.sim.planting import planted\n"
        f"mistake = {variable}[sys.argv[1]]\n"
        "with planted(mistake, also=mistake.beside):\n"
        "    sys.exit(pytest.main([*sys.argv[2:], '-q', '-x', '--unsampled', '-p', 'no:cacheprovider', "
        "'-p', 'no:xdist']))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, name, mistake.tests],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        check=False,
    )
    return "" if ran.returncode == pytest.ExitCode.TESTS_FAILED else ran.stdout + ran.stderr


@contextmanager
def planted(mistake: Mistake, *, also: tuple[Edit, ...] = ()) -> Iterator[None]:
    """Run the body with the mistake in the code.

    Args:
        also: planted beside.

    Raises:
        AssertionError: the text to replace isn't in the function exactly once.
    """
    changed: dict[FunctionType, list[Edit]] = {}
    for edit in (*mistake.edits, *also):
        changed.setdefault(_function(edit.where), []).append(edit)
    codes = {function: _code(function, edits) for function, edits in changed.items()}
    before = {function: function.__code__ for function in codes}
    for function, code in codes.items():
        function.__code__ = code
    try:
        yield
    finally:
        for function, code in before.items():
            function.__code__ = code


def _function(where: str) -> FunctionType:
    module, _, name = where.partition(":")
    found: Any = import_module(f"medusa.{module}")
    for part in name.split("."):
        found = inspect.getattr_static(found, part)
    for inside in ("fget", "__func__", "func"):
        found = getattr(found, inside, found)
    assert isinstance(found, FunctionType), f"{where} is no function"
    return found


def _code(function: FunctionType, edits: list[Edit]) -> CodeType:
    """The code of the function with the edits applied. The wrapper has its free variables (``__class__`` for
    ``super()``) as arguments, so that they stay free variables of the new code."""
    text = textwrap.dedent(inspect.getsource(function))
    for edit in edits:
        assert text.count(edit.old) == 1, f"{edit.where} has {text.count(edit.old)} times {edit.old!r}"
        text = text.replace(edit.old, edit.new)
    tree = ast.parse(text)
    made = tree.body[0]
    assert isinstance(made, ast.FunctionDef)
    made.decorator_list.clear()
    cells = function.__code__.co_freevars
    outer = ast.parse(f"def outer({', '.join(cells)}): pass").body[0]
    assert isinstance(outer, ast.FunctionDef)
    outer.body = [made]
    tree.body = [*ast.parse("from __future__ import annotations").body, outer]
    whole = compile(ast.fix_missing_locations(tree), inspect.getfile(function), "exec", dont_inherit=True)
    code = _inner(_inner(whole, "outer"), made.name)
    assert code.co_freevars == cells, f"{code.co_freevars} instead of {cells}"
    return code


def _inner(code: CodeType, name: str) -> CodeType:
    return next(each for each in code.co_consts if isinstance(each, CodeType) and each.co_name == name)


def edit(where: str, old: str, new: str) -> tuple[Edit, ...]:
    """A single edit."""
    return (Edit(where, old, new),)
