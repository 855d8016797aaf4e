"""What an operator decides about fragments in doubt (``nodes.catalog.in_doubt``). Pure: the node isn't
running.

    take up        it runs here again, from its newest whole checkpoint or its decision log
    begin anew     it runs here again, from nothing: its state is lost
    delete         it isn't here
    accept         the lost catalog named nothing beyond what is known now

All of one call holds or nothing does. ``nodes.repair.resolution`` does it at the next start.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from medusa.errors import StateError
from medusa.nodes.catalog.catalog import Catalog
from medusa.nodes.catalog.in_doubt import Decision, FragmentInDoubt, InDoubt, shared_box
from medusa.query.suggest import did_you_mean

__all__ = ["OperatorDecisions", "decided"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorDecisions:
    """Names of fragments; in ``delete`` also owners of groups that nobody can read."""

    take_up: tuple[str, ...] = ()
    begin_anew: tuple[str, ...] = ()
    delete: tuple[str, ...] = ()
    accept: bool = False

    def __bool__(self) -> bool:
        return bool(self.take_up or self.begin_anew or self.delete or self.accept)


def decided(
    catalog: Catalog, decisions: OperatorDecisions, unnamed: Mapping[str, FragmentInDoubt] | None = None
) -> InDoubt:
    """What is in doubt after these decisions; the catalog stays as it is.

    Args:
        unnamed: fragments on disk that the catalog doesn't name: they can be taken up, and go otherwise.

    Raises:
        StateError: a decision can't be (``state.repair``): says which, and why.
    """
    doubt, unnamed = catalog.in_doubt, unnamed or {}
    fragments, unreadable = dict(doubt.fragments), dict(doubt.unreadable)
    for name in (chosen := (*decisions.take_up, *decisions.begin_anew, *decisions.delete)):
        if chosen.count(name) > 1:
            raise _refused(f"{name!r:.200} is named twice", "decide one thing about it")
        if name in unreadable and name in decisions.delete:
            del unreadable[name]
            continue
        if name not in fragments and name in unnamed and name in decisions.delete:
            continue  # It goes at the next start anyway.
        each = fragments.get(name) or unnamed.get(name)
        if each is None:
            raise _unknown(name, catalog, [*fragments, *unreadable, *unnamed])
        fragments[name] = msgspec.structs.replace(each, decision=_decision(name, each, decisions))
    _check_overlaps(catalog, fragments, (*decisions.take_up, *decisions.begin_anew))
    if decisions.accept:
        _check_accept(doubt, fragments)
    return msgspec.structs.replace(
        doubt,
        fragments=fragments,
        unreadable=unreadable,
        accepted=doubt.accepted or decisions.accept,
    )


def _decision(name: str, each: FragmentInDoubt, decisions: OperatorDecisions) -> Decision:
    if name in decisions.delete:
        return "forget"
    if name in decisions.take_up and each.state == "lost":
        raise _refused(
            f"fragment {name!r} has no whole checkpoint left to be taken up from",
            "put back a copy of the folder; or begin it anew: its readers then get other rows under the "
            "numbers that they have, and its publishers' durable rows are lost",
        )
    if name in decisions.begin_anew and each.state != "lost":
        raise _refused(f"the state of fragment {name!r} is not lost", "take it up")
    return "adopt"


def _unknown(name: str, catalog: Catalog, names: list[str]) -> StateError:
    if name in catalog.fragments:
        return _refused(f"fragment {name!r} is not in doubt: this node runs it", "")
    return _refused(
        f"nothing in doubt here is called {name!r:.200}", did_you_mean(name, names) or "nothing is in doubt"
    )


def _check_overlaps(
    catalog: Catalog, fragments: Mapping[str, FragmentInDoubt], taken: tuple[str, ...]
) -> None:
    """A split leaves fragments that share boxes with the one whose place they took: one of them runs."""
    adopted = [each.spec for each in fragments.values() if each.decision == "adopt"]
    for name in taken:
        for other in (*catalog.fragments.values(), *adopted):
            if (shared := shared_box(fragments[name].spec, other)) is not None:
                raise _refused(
                    f"fragments {name!r} and {other.name!r} both have or read box {shared!r}: one took the "
                    "other's place",
                    "take up one, and delete the other",
                )


def _check_accept(doubt: InDoubt, fragments: Mapping[str, FragmentInDoubt]) -> None:
    if not doubt.newest:
        raise _refused("the catalog of this node is not lost", "there is nothing to accept")
    if undecided := [repr(name) for name, each in fragments.items() if not each.decision]:
        raise _refused(
            f"still in doubt: {', '.join(undecided)}", "decide about each of them, in the same call or before"
        )


def _refused(text: str, hint: str) -> StateError:
    return StateError(text, hint=hint, code="state.repair")
