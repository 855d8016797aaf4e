"""What a node takes from its decision logs when it starts. Nothing is written or deleted here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from medusa.engine.recovery.decisions import is_framed, is_torn
from medusa.engine.recovery.synced_length import Damage, damage_in
from medusa.nodes.fragment.input_log_records import Decision, unpack
from medusa.nodes.spec.fragment_spec import FragmentSpec
from medusa.ports import Buffer, Journal, Synced

__all__ = ["FoundDecisions", "Unused", "find_decisions"]


@dataclass(frozen=True, slots=True)
class Unused:
    """A file that can't be used, or not to its end.

    Attributes:
        stays: so many bytes stay; 0: the file goes.
        aside: it isn't what an interrupted write leaves, so a copy of it is kept.
    """

    number: int
    stays: int
    aside: bool


@dataclass(slots=True)
class FoundDecisions:
    """What each fragment was fed after its checkpoint.

    Attributes:
        decisions: by fragment: what follows the checkpoint without a gap, and nothing else.
        logs: by fragment, the files that hold them.
        unused: what is to be cut or removed, since decisions of this life will bear its numbers.
        lost: fragments of which decisions that were on disk can't be used; empty name: nobody knows whose.
    """

    decisions: dict[str, list[Decision]] = field(default_factory=dict)
    logs: dict[str, list[int]] = field(default_factory=dict)
    unused: list[Unused] = field(default_factory=list)
    lost: set[str] = field(default_factory=set)


def find_decisions(
    journal: Journal,
    specs: Mapping[str, FragmentSpec],
    decided: Mapping[str, int],
    warn: Callable[[str], None],
    *,
    unknown_stay: bool,
) -> FoundDecisions:
    """Read all files of the decision logs.

    Args:
        specs: the fragments that are, or may be, here.
        decided: by fragment, the number of the first decision that its checkpoint doesn't hold.
        warn: told what is damaged or missing.
        unknown_stay: a file of another fragment stays as it is: nobody knows whether that is here.

    Raises:
        StateError: a file can't be read.
    """
    found = FoundDecisions()
    at = dict(decided)
    for number in journal.numbers():
        data = journal.read(number)
        records, length = unpack(data)
        size = memoryview(data).nbytes
        name = records[0].fragment if records else ""
        damage = _damage(data, length, journal.synced(number))
        damaged = damage is not None
        if damage is not None:
            warn(
                f"{journal.where(number)} {damage.what}: {damage.lost} bytes of it can't be used. Rows that "
                "left after them may differ from those that come again under the same numbers"
            )
            found.lost.add(name)
        if name not in at or any(each.fragment != name for each in records):
            if not (unknown_stay and (records or damaged)):
                found.unused.append(Unused(number, 0, aside=damaged))
            continue
        if records[0].first > at[name]:
            missing = records[0].first - at[name]
            warn(
                f"fragment {name}: {journal.where(number)} comes {missing} decisions too late, and isn't "
                "used: rows that left after them may differ from those that come again under the same numbers"
            )
            found.unused.append(Unused(number, 0, aside=True))
            found.lost.add(name)
            continue
        if length < size or damaged:
            found.unused.append(Unused(number, length, aside=damaged))
        found.logs.setdefault(name, []).append(number)
        for each in records:
            new = max(each.end - at[name], 0)
            found.decisions.setdefault(name, []).extend(each.decisions()[-new:] if new else ())
            at[name] += new
    for name, decisions in list(found.decisions.items()):
        if decisions and not _known(decisions, specs[name]):
            warn(f"fragment {name}: its decision log names inputs that it doesn't have, and is not used")
            found.unused = [each for each in found.unused if each.number not in found.logs[name]]
            found.unused += [Unused(number, 0, aside=True) for number in found.logs.pop(name)]
            del found.decisions[name]
            found.lost.add(name)
    return found


def _damage(data: Buffer, length: int, synced: Synced | None) -> Damage | None:
    """What was synced and can't be read. Of a log without a mark also what no interrupted write leaves."""
    found = damage_in(data, length, synced, is_framed)
    rest = memoryview(data)[length:]
    if found is None and synced is None and len(rest) and not is_torn(rest):
        found = Damage(length, len(rest), f"is damaged at byte {length}")
    return found


def _known(decisions: list[Decision], spec: FragmentSpec) -> bool:
    """Whether they can be about this fragment at all. A stream may have moved to another node since."""
    sources = {*spec.entries, *(feed.source for feed in spec.feeds)}
    return all(each.source in sources for each in decisions)
