"""What became of one query by several methods of recovery: an account of every row, figures, and checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from medusa.apps.workloads.demos.ha_query import POSTER, HaMethod, HaShape
from medusa.query.recovery import ACTIVE, AMNESIA, PRECISE_UPSTREAM

__all__ = ["HaAccount", "HaCheck", "HaEvent", "HaOutcome", "HaResult", "HaWindow", "account"]


@dataclass(frozen=True, slots=True)
class HaWindow:
    """A received row: a window of one group.

    Attributes:
        at_s: when it came, since rows began to flow.
        rows: that it says it holds; ``first``, ``last``, ``total``: of their numbers.
        sent_s: when the newest of them was published, since rows began to flow.
    """

    at_s: float
    rows: int
    first: int
    last: int
    total: int
    sent_s: float


@dataclass(frozen=True, slots=True)
class HaAccount:
    """Published rows by what the output says of them.

    Attributes:
        missing: in no window.
        doubled: how many times rows were in a window after their first.
        wrong: windows whose figures aren't those of any published rows.
        example: of the first thing that is amiss; empty: nothing is.
        repeats: (when it came, rows in it that had come before), of each window with some.
    """

    published: int
    missing: int
    doubled: int
    wrong: int
    example: str
    repeats: Sequence[tuple[float, int]] = ()


@dataclass(frozen=True, slots=True)
class HaEvent:
    """Something that happened, in words; ``at_s``: since rows began to flow."""

    at_s: float
    what: str


@dataclass(frozen=True, slots=True)
class HaCheck:
    """Something that the poster says.

    Attributes:
        held: None: it can't be said.
        exact: the demonstration fails if it isn't held. Others compare times, which a busy machine moves.
        shown: the figures that it is about.
    """

    what: str
    held: bool | None
    exact: bool
    shown: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HaResult:
    """One query.

    Attributes:
        windows: as they came.
        killed_s: when its primary was killed, since rows began to flow; None: it wasn't.
        primary_cpu_us, secondary_cpu_us: of their processes for each row, before that.
        sent_bytes: from primary to secondary for each row, before that; None: nobody knows.
        told_lost: rows that the status says are lost; ``told_unknown``: it says that there are more.
        told_lost_by: of each source of its fragment.
    killed_rows: published by then.
    fed_rows: that its new owner was fed, up to the end; None: nobody knows.
        owner: who has its fragment at the end.
    """

    of: HaMethod
    shape: HaShape
    published: int
    windows: Sequence[HaWindow]
    killed_s: float | None
    primary_cpu_us: float
    secondary_cpu_us: float
    sent_bytes: float | None
    told_lost: int
    told_unknown: bool
    owner: str
    told_lost_by: Mapping[str, int] = field(default_factory=dict)
    killed_rows: int = 0
    fed_rows: int | None = None
    account: HaAccount = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "account", account(self.windows, self.published, self.shape.groups))

    @property
    def cpu_us(self) -> float:
        """Of both processes, for each row."""
        return self.primary_cpu_us + self.secondary_cpu_us

    @property
    def delays_s(self) -> list[float]:
        """Of windows that came before the failure: from the publication of their newest row."""
        end_s = float("inf") if self.killed_s is None else self.killed_s
        return [each.at_s - each.sent_s for each in self.windows if each.at_s < end_s]

    def delay_s(self, share: float) -> float | None:
        """A quantile of ``delays_s``; None: nothing came."""
        import numpy as np

        return float(np.quantile(self.delays_s, share)) if self.delays_s else None

    @property
    def takeover_s(self) -> float | None:
        """From the kill until a window came with a row that was published after it; None: none did.

        The lost process can't have had such a row.
        """
        if self.killed_s is None:
            return None
        new = (each.at_s for each in self.windows if each.sent_s > self.killed_s)
        first = min(new, default=None)
        return None if first is None else first - self.killed_s

    @property
    def read_again(self) -> int | None:
        """Rows that were published before the kill and that senders sent once more for the new owner; None:
        nobody knows. By active standby it had them."""
        if self.killed_s is None or self.fed_rows is None:
            return None
        # It is fed the rows from some number up to the last one.
        begins = self.published - self.fed_rows
        return 0 if self.of.method == ACTIVE else max(self.killed_rows - begins, 0)

    def to_json(self) -> dict[str, Any]:
        """For scripts."""
        amounts = asdict(self.account)
        del amounts["repeats"]
        return {
            "letter": self.of.letter,
            "recovery": self.of.recovery,
            "method": self.of.name,
            **amounts,
            "windows": len(self.windows),
            "told_lost": self.told_lost,
            "told_lost_by": dict(self.told_lost_by),
            "told_unknown": self.told_unknown,
            "owner": self.owner,
            "delay_p50_s": self.delay_s(0.5),
            "delay_p99_s": self.delay_s(0.99),
            "takeover_s": self.takeover_s,
            "read_again": self.read_again,
            "primary_cpu_us": self.primary_cpu_us,
            "secondary_cpu_us": self.secondary_cpu_us,
            "sent_bytes": self.sent_bytes,
        }


def account(windows: Sequence[HaWindow], published: int, groups: int) -> HaAccount:
    """Hold what came against what was published: numbers 0, 1, 2, ..., n of group ``n mod groups``."""
    import numpy as np

    times = np.zeros(published, np.int64)
    repeats, wrong, example = [], 0, ""
    for each in windows:
        numbers = range(each.first, each.last + 1, groups)
        fault = ""
        if not 0 <= each.first <= each.last < published or (each.last - each.first) % groups:
            fault = "these are not rows of one group"
        elif len(numbers) != each.rows:
            fault = f"that would be {len(numbers):,} rows"
        elif (each.first + each.last) * each.rows != 2 * each.total:
            fault = "that isn't their sum"
        if fault:
            wrong += 1
            said = f"{each.rows:,} rows from {each.first:,} to {each.last:,}, sum {each.total:,}"
            example = example or f"a window says {said}: {fault}"
            continue
        covered = times[each.first : each.last + 1 : groups]
        again = int(np.count_nonzero(covered))
        if again:
            repeats.append((each.at_s, again))
            number = each.first + groups * int(np.flatnonzero(covered)[0])
            example = example or f"row {number:,} came again"
        covered += 1
    absent = np.flatnonzero(times == 0)
    if len(absent):
        example = example or f"row {absent[0]:,} is missing"
    doubled = int(np.maximum(times - 1, 0).sum())
    return HaAccount(published, len(absent), doubled, wrong, example, repeats)


@dataclass(frozen=True, slots=True, kw_only=True)
class HaOutcome:
    """A finished run of several methods side by side."""

    results: Sequence[HaResult]
    events: Sequence[HaEvent]
    seconds: float

    def checks(self) -> list[HaCheck]:
        """What the poster says, as far as it is about methods that ran; those that aren't there, as such."""
        exact = [check for each in self.results for check in _exact(each)]
        return [*exact, self._duplicates(), *self._compared(), *self._absent()]

    @property
    def fine(self) -> bool:
        """All that must be exact is held."""
        return not any(each.exact and each.held is not True for each in self.checks())

    def to_json(self) -> dict[str, Any]:
        """For scripts."""
        return {
            "fine": self.fine,
            "checks": [asdict(each) for each in self.checks()],
            "events": [{"at_s": round(each.at_s, 3), "what": each.what} for each in self.events],
            "results": [each.to_json() for each in self.results],
            "seconds": round(self.seconds, 3),
        }

    def _compared(self) -> list[HaCheck]:
        return [
            self._is_most("active_standby", "sends most to its secondary", _bytes, " B a row"),
            self._is_most("active_standby", "takes most CPU", lambda each: each.cpu_us, " us a row"),
            self._is_most(
                "active_standby", "recovers fastest", lambda each: each.takeover_s, " ms", 1e3, least=True
            ),
            self._is_most(
                "passive_standby",
                "adds most delay before the failure",
                lambda each: each.delay_s(0.5),
                " ms",
                1e3,
                beside=(PRECISE_UPSTREAM,),
            ),
            *self._of_upstream(),
        ]

    def _of_upstream(self) -> list[HaCheck]:
        """Held against those that lose nothing; E goes the same way as D at its primary."""
        is_most = partial(self._is_most, "upstream_backup", beside=(PRECISE_UPSTREAM, AMNESIA))
        return [
            is_most("sends least to its secondary", _bytes, " B a row", least=True),
            is_most("takes least CPU", lambda each: each.cpu_us, " us a row", least=True),
            is_most("reads most again after the failure", lambda each: each.read_again, " rows", digits=0),
        ]

    def _duplicates(self) -> HaCheck:
        """What D costs its reader, and E doesn't."""
        what = "duplicates in D, and none in E"
        found = {each.of.letter: each.account.doubled for each in self.results}
        if not {"D", "E"} <= found.keys():
            return HaCheck(what, None, False, "nothing to compare: a method isn't there")
        shown = f"D {found['D']:,}, E {found['E']:,}"
        return HaCheck(what, found["D"] > 0 and found["E"] == 0, False, shown)

    def _is_most(
        self,
        method: str,
        what: str,
        figure: Callable[[HaResult], float | None],
        unit: str,
        factor: float = 1.0,
        *,
        least: bool = False,
        beside: Sequence[str] = (),
        digits: int = 1,
    ) -> HaCheck:
        """That one method has the largest (or smallest) of a figure.

        Args:
            beside: methods that are shown, and not compared: they wait for the same where clients publish.
        """
        what = f"{method.replace('_', ' ')} {what}"
        found = {each.of.name: figure(each) for each in self.results}
        known = {name: value for name, value in found.items() if value is not None}
        shown = ", ".join(
            f"{each.of.letter} {known[each.of.name] * factor:,.{digits}f}{unit}"
            for each in self.results
            if each.of.name in known
        )
        if method not in found or len(found) < 2:
            return HaCheck(what, None, False, "nothing to compare: a method isn't there")
        if len(known) < len(found):
            return HaCheck(what, None, False, f"not all known: {shown or 'none'}")
        others = [value for name, value in known.items() if name not in (method, *beside)]
        if not others:
            return HaCheck(what, None, False, "nothing to compare: a method isn't there")
        held = known[method] < min(others) if least else known[method] > max(others)
        return HaCheck(what, held, False, shown)

    def _absent(self) -> list[HaCheck]:
        ran = [each.of.letter for each in self.results]
        missing = {each.letter: each.title for each in POSTER if each.letter not in ran}
        return [HaCheck(f"{letter}: {what}", None, False, "didn't run") for letter, what in missing.items()]


def _bytes(of: HaResult) -> float | None:
    return of.sent_bytes


def _exact(of: HaResult) -> list[HaCheck]:
    """What its method promises."""
    letter, found = of.of.letter, of.account
    amount = f"{found.missing:,} missing, {found.doubled:,} doubled, {found.wrong:,} wrong"
    shown = f"{amount} of {found.published:,}" + (f": {found.example}" if found.example else "")
    gone = []
    if of.killed_s is not None:
        taken = of.owner == of.of.secondary
        gone = [HaCheck(f"{letter}: {of.of.secondary} has taken over", taken, True, of.owner or "nobody")]
    if of.of.recovery == "gap":
        by = ", ".join(f"{source} {rows:,}" for source, rows in of.told_lost_by.items())
        told = f"status says {of.told_lost:,}" + (" and more" if of.told_unknown else "")
        told += f" ({by})" if by else ""
        counted = of.told_lost == found.missing == sum(of.told_lost_by.values()) and not of.told_unknown
        return [
            *gone,
            HaCheck(f"{letter}: nothing doubled, all figures right", _once(found), True, shown),
            HaCheck(f"{letter}: the gap is counted", counted, True, f"{found.missing:,} missing, {told}"),
            # Of a primary that died between two windows nothing is lost.
            HaCheck(f"{letter}: there is a gap", found.missing > 0, False, f"{found.missing:,} missing"),
        ]
    if of.of.recovery == "rollback":
        whole = found.missing == found.wrong == 0
        again = f"{found.doubled:,} came again"
        return [
            *gone,
            HaCheck(f"{letter}: nothing lost, all figures right", whole, True, shown),
            # Of a primary that died just behind a mark nothing comes again.
            HaCheck(f"{letter}: rows come again", found.doubled > 0, False, again),
        ]
    whole = found.missing == 0 and _once(found)
    return [*gone, HaCheck(f"{letter}: nothing lost, nothing doubled", whole, True, shown)]


def _once(found: HaAccount) -> bool:
    return found.doubled == found.wrong == 0
