"""Functions and classes of users: a query stores their name and version, never themselves.

Data that comes from a file or a link can so name code, but never bring or import any: what a name
stands for is what this process has registered under it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from medusa.errors import QueryError
from medusa.query.structs import Function
from medusa.query.suggest import did_you_mean

__all__ = ["check_functions", "check_reference", "reference", "register", "registered", "resolve", "versions"]

T = TypeVar("T", bound=Callable[..., Any])

VERSION_MAX = 1 << 30

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_known: dict[tuple[str, int], Any] = {}
_names: dict[int, Function] = {}  # by id(); _known keeps the objects alive


def register(name: str, version: int = 1) -> Callable[[T], T]:
    """Give a function or class of yours the name under which queries store it.

    ::

        @md.register("geocode", version=2)
        def geocode(batch): ...

    Raise the version when the answer changes: checkpoints and deployed queries name it, and are refused
    where that version isn't registered. Both versions may be registered at the same time.

    Args:
        name: a letter or ``_``, then letters, digits, ``_``, ``.`` and ``-``; up to 64.
        version: a whole number from 1.

    Raises:
        QueryError: no name, no version, not callable, or the name and version stand for another object
            (the same one again is no error).
    """
    check_reference(Function(name, version), what="md.register")

    def enter(made: T) -> T:
        if not callable(made):
            raise QueryError(
                f"md.register({name!r}): expected a function or class, got {type(made).__name__}",
                code="query.function",
            )
        held = _known.get((name, version))
        if held is not None and held is not made:
            raise QueryError(
                f"md.register: {name!r} version {version} stands for {_shown(held)} already",
                hint=f"a changed function is version={version + 1}; another one needs another name",
                code="query.function",
            )
        named = _names.get(id(made))
        if named is not None and named != Function(name, version):
            raise QueryError(
                f"md.register: {_shown(made)} is registered as {named.name!r} version {named.version}",
                hint="one name and version for each function",
                code="query.function",
            )
        _known[name, version] = made
        _names[id(made)] = Function(name, version)
        return made

    return enter


def reference(made: object) -> Function:
    """The name and version of a function; the empty name where it isn't registered."""
    return _names.get(id(made), Function(""))


def registered(name: str, version: int = 1) -> Any:
    """What is registered under a name and version; None where nothing is."""
    return _known.get((name, version))


def versions(name: str) -> list[int]:
    """The versions under which a name is registered, ascending."""
    return sorted(version for known, version in _known if known == name)


def resolve(function: Function, *, label: str) -> Any:
    """What a box names.

    Args:
        label: the box, for the message.

    Raises:
        QueryError: nothing is registered so; says which versions there are, or what is close.
    """
    found = _known.get((function.name, function.version))
    if found is None:
        raise QueryError(
            f"{label}: nothing is registered as {function.name[:80]!r} version {function.version}",
            hint=_instead(function),
            code="query.function",
        )
    return found


def check_reference(function: Function, *, what: str) -> None:
    """Raises QueryError where a name or version can't be one."""
    name, version = function.name, function.version
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise QueryError(
            f"{what}: {str(name)[:80]!r} can't be the name of a function",
            hint="a letter or _, then letters, digits, _ . and -, up to 64 characters",
            code="query.function",
        )
    if type(version) is not int or not 1 <= version <= VERSION_MAX:
        raise QueryError(
            f"{what}: the version of {name!r} is a whole number from 1, got {version!r:.80}",
            code="query.function",
        )


def check_functions(needed: Mapping[str, Iterable[Function]], given: Iterable[object] = ()) -> None:
    """Check that every function that boxes name is registered.

    Args:
        needed: label of a box -> what it names.
        given: functions that the caller says are meant; each must be registered.

    Raises:
        QueryError: one of ``given`` isn't registered, or boxes name what nobody registered; says all of
            it at once.
    """
    for made in given:
        if not reference(made).name:
            raise QueryError(
                f"functions: {_shown(made)} is not registered",
                hint='write @md.register("name", version=1) above it',
                code="query.function",
            )
    missing: dict[Function, list[str]] = {}
    for label, functions in needed.items():
        for function in functions:
            if function.name and registered(function.name, function.version) is None:
                missing.setdefault(function, []).append(label)
    if missing:
        listed = "; ".join(
            f"{function.name!r} version {function.version} of {', '.join(labels[:4])}"
            for function, labels in missing.items()
        )
        raise QueryError(
            f"functions that nobody registered: {listed}",
            hint=_instead(next(iter(missing))),
            code="query.function",
        )


def _instead(function: Function) -> str:
    known = versions(function.name)
    if known:
        return f"there is version {', '.join(map(str, known))} of it"
    close = did_you_mean(function.name, sorted({name for name, _ in _known}))
    return close or 'import the module that says @md.register("name", version=1)'


def _shown(made: object) -> str:
    return str(getattr(made, "__qualname__", None) or repr(made))[:100]
