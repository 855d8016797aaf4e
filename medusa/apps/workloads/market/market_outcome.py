"""What became of a run of the market: moves, loads, balances, and what was to be seen in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

__all__ = [
    "AgreedPrice",
    "ContractBalance",
    "MarketCheck",
    "MarketMove",
    "MarketOutcome",
    "MarketPhase",
    "Sample",
    "TaskResult",
]

MOVES_MAX = 4
"""There and home again twice: where figures jump, as on a busy machine, a task may come home since it takes
more than was said. One that goes to and fro is moved more often."""

BESIDE_S = 3.0
"""Of so long before and after a move it is said how rows came."""

SLACK = 0.005
"""Cores: who is above the threshold by no more than this is at it."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What a node that trades said of itself; ``at_s``: since rows began to flow.

    Attributes:
        used: cores that the market reckons with; ``cpu``: that the process takes.
        balance_micro: what it has earned less what it has paid, in millionths.
        away: task -> the partner that it is at.
    """

    at_s: float
    owner: str
    used: float
    cpu: float
    balance_micro: int
    away: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class MarketMove:
    """A task was at one owner's, and is at another's.

    Attributes:
        at_s: since rows began to flow.
        why: it came home; empty: it didn't, or nobody had said so.
    """

    at_s: float
    task: str
    giver: str
    taker: str
    why: str = ""

    @property
    def owner(self) -> str:
        return self.task.partition("/")[0]

    @property
    def goes(self) -> bool:
        """It leaves its owner; else it comes home."""
        return self.giver == self.owner


@dataclass(frozen=True, slots=True)
class MarketPhase:
    """A part of the run, and when it began and ended."""

    name: str
    begin_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class ContractBalance:
    """What the consumer of a contract owes or has paid, in millionths, as both ends say."""

    contract: str
    consumer: str
    provider: str
    by_consumer_micro: int
    by_provider_micro: int


@dataclass(frozen=True, slots=True)
class AgreedPrice:
    """What a core-second of a task costs its owner at a partner's, in millionths."""

    task: str
    partner: str
    price_micro: int


@dataclass(frozen=True, slots=True)
class TaskResult:
    """What came of a task.

    Attributes:
        equal: to what the query gives in one program, row by row and bit by bit.
        arrivals: (when it came, rows, seconds since its newest window could be closed), of each train.
    """

    task: str
    rows: int
    equal: bool
    arrivals: Sequence[tuple[float, int, float]]

    def beside(self, at_s: float) -> tuple[float | None, float | None]:
        """Median latency in seconds, and rows a second, from this moment until ``BESIDE_S`` later."""
        import numpy as np

        there = [each for each in self.arrivals if at_s <= each[0] < at_s + BESIDE_S]
        if not there:
            return None, None
        return float(np.median([each[2] for each in there])), sum(each[1] for each in there) / BESIDE_S


@dataclass(frozen=True, slots=True)
class MarketCheck:
    """Something that was to be seen.

    Attributes:
        exact: the demonstration fails if it isn't held. Others are about loads, which a busy machine moves.
        shown: the figures that it is about, or why it isn't held.
        built: this release can do it.
    """

    what: str
    held: bool
    exact: bool
    shown: str
    built: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class MarketOutcome:
    """A finished run.

    Attributes:
        thresholds: owner -> cores beyond which a core-second costs it more than any price.
        late: the owner whose node started late; empty: there is none in this run.
        prices: by which tasks went, each once.
    """

    thresholds: Mapping[str, float]
    late: str
    phases: Sequence[MarketPhase]
    samples: Sequence[Sample]
    moves: Sequence[MarketMove]
    results: Sequence[TaskResult]
    balances: Sequence[ContractBalance]
    published: int
    seconds: float
    prices: Sequence[AgreedPrice] = ()

    @property
    def fine(self) -> bool:
        """All that must be exact is held."""
        return all(each.held for each in self.checks() if each.exact)

    def checks(self) -> list[MarketCheck]:
        """In the order in which the demonstration shows them."""
        made = [*self._shed(), self._acceptable("uneven load")]
        if self.late:
            made += [self._overloaded(), *self._flows(), self._acceptable("the fourth")]
        return [*made, *self._relieved(), self.thrashes(), *self.exact(), *self._not_built()]

    def phase(self, name: str) -> MarketPhase:
        return next(each for each in self.phases if each.name == name)

    def earned_micro(self) -> dict[str, int]:
        """What each owner has earned, less what it has paid, as it says itself."""
        earned = dict.fromkeys(self.thresholds, 0)
        for each in self.balances:
            earned[each.consumer] -= each.by_consumer_micro
            earned[each.provider] += each.by_provider_micro
        return earned

    def to_json(self) -> dict[str, Any]:
        """For scripts."""
        return {"fine": self.fine, "checks": [asdict(each) for each in self.checks()], **self.seen()}

    def seen(self) -> dict[str, Any]:
        """What was seen, without checks."""
        return {
            "phases": [asdict(each) for each in self.phases],
            "moves": [
                {**asdict(each), "before": before, "after": after} for each, before, after in self.beside()
            ],
            "results": [{"task": each.task, "rows": each.rows, "equal": each.equal} for each in self.results],
            "balances": [asdict(each) for each in self.balances],
            "prices": [asdict(each) for each in self.prices],
            "earned_micro": self.earned_micro(),
            "published": self.published,
            "seconds": round(self.seconds, 3),
        }

    def beside(self) -> Iterator[tuple[MarketMove, tuple[float | None, ...], tuple[float | None, ...]]]:
        """Each move with latency and rows a second of its task, before it and after."""
        by_task = {each.task: each for each in self.results}
        for move in self.moves:
            result = by_task[move.task]
            yield move, result.beside(move.at_s - BESIDE_S), result.beside(move.at_s)

    # --- checks -------------------------------------------------------------------------------------

    def _shed(self) -> Iterator[MarketCheck]:
        """Alice has the most to do; bob is asked first, unless he is busy with something else."""
        end_s = self.phase("uneven load").end_s
        first = [each for each in self.moves if each.goes and each.at_s < end_s]
        told = ", ".join(_said(each) for each in first) or "nothing moved"
        yield MarketCheck(
            "alice, who has too much, sheds", bool(first) and first[0].giver == "alice", True, told
        )
        yield MarketCheck("to bob first", bool(first) and first[0].taker == "bob", False, told)
        takers = list(dict.fromkeys(each.taker for each in first if each.giver == "alice"))
        yield MarketCheck("and then to carol", takers[:2] == ["bob", "carol"], False, told)

    def _used(self, at_s: float) -> dict[str, float]:
        """What each owner used at a moment, as it said last."""
        return {each.owner: each.used for each in self.samples if each.at_s <= at_s}

    def _acceptable(self, phase: str) -> MarketCheck:
        used = self._used(self.phase(phase).end_s)
        over = [name for name, cores in used.items() if cores > self.thresholds[name] + SLACK]
        return MarketCheck(
            f"nobody is above the threshold at the end of: {phase}", not over, False, self._loads(used)
        )

    def _loads(self, used: Mapping[str, float]) -> str:
        return ", ".join(f"{name} {cores:.3f} of {self.thresholds[name]:.3f}" for name, cores in used.items())

    def _overloaded(self) -> MarketCheck:
        phase = self.phase("too much for all")
        used = self._used(phase.end_s)
        over = all(cores > self.thresholds[name] for name, cores in used.items())
        # What was agreed on before all had too much may still be on its way.
        late_s = (phase.begin_s + phase.end_s) / 2
        moved = [each for each in self.moves if late_s < each.at_s < phase.end_s]
        shown = f"{self._loads(used)}; {', '.join(map(_said, moved)) or 'nothing moved'}"
        return MarketCheck("all have too much, and nothing goes to and fro", over and not moved, False, shown)

    def _flows(self) -> Iterator[MarketCheck]:
        begin_s = self.phase("the fourth").begin_s
        since = [each for each in self.moves if each.at_s >= begin_s]
        told = ", ".join(map(_said, since)) or "nothing moved"
        to_late = [each for each in since if each.taker == self.late]
        yield MarketCheck(f"carol sheds to {self.late}, who is cheaper", bool(to_late), False, told)
        freed_s = to_late[0].at_s if to_late else float("inf")
        follows = [each for each in since if each.goes and each.taker == "carol" and each.at_s > freed_s]
        yield MarketCheck(
            f"and takes of others what she has room for then: load flows through her to {self.late}",
            bool(follows),
            False,
            ", ".join(map(_said, follows)) or "nobody came",
        )

    def thrashes(self) -> MarketCheck:
        """Whether a task goes to and fro."""
        counts: dict[str, int] = {}
        for each in self.moves:
            counts[each.task] = counts.get(each.task, 0) + 1
        most = max(counts.values(), default=0)
        shown = f"{len(self.moves)} moves of {len(counts)} tasks, at most {most} of one"
        return MarketCheck(
            f"nobody thrashes: no task moves more than {MOVES_MAX} times", most <= MOVES_MAX, True, shown
        )

    def exact(self) -> Iterator[MarketCheck]:
        """What can't depend on how busy a machine is: results and money."""
        wrong = [each.task for each in self.results if not each.equal]
        rows = sum(each.rows for each in self.results)
        yield MarketCheck(
            "results are those of a run in which nothing moves",
            not wrong and rows > 0,
            True,
            f"{rows:,} rows of {len(self.results)} tasks"
            + (f", NOT those of {', '.join(wrong)}" if wrong else ", each in order, bit for bit"),
        )
        differ = [each for each in self.balances if each.by_consumer_micro != each.by_provider_micro]
        yield MarketCheck(
            "both ends of each contract say the same",
            not differ,
            True,
            ", ".join(
                f"{each.contract} {each.by_consumer_micro / 1e6:.6f}"
                + ("" if each not in differ else f" and {each.by_provider_micro / 1e6:.6f}")
                for each in self.balances
            ),
        )
        earned = self.earned_micro()
        shown = ", ".join(f"{name} {micro / 1e6:+.6f}" for name, micro in earned.items())
        yield MarketCheck(
            "what all have earned and paid is nothing in sum", not sum(earned.values()), True, shown
        )
        paid = sum(each.by_consumer_micro for each in self.balances)
        yield MarketCheck("what was taken is paid for", paid > 0, True, f"{paid / 1e6:.6f} EUR")

    def _relieved(self) -> Iterator[MarketCheck]:
        """Who sheds is rid of the work: what it lends it doesn't compute.

        A move takes work itself, and what a node says of its load lags behind by seconds. So what it says at
        the end of the phase counts, while rows come at the pace of the first move. Processors are shared: a
        busy machine may say otherwise.
        """
        first = next((each for each in self.moves if each.goes), None)
        if first is not None:
            mine = [each for each in self.samples if each.owner == first.giver]
            before = [each.cpu for each in mine if first.at_s - BESIDE_S <= each.at_s < first.at_s]
            end_s = next((each.end_s for each in self.phases if each.end_s > first.at_s), self.seconds)
            begin_s = max(end_s - 2 * BESIDE_S, first.at_s + BESIDE_S)
            after = [each.cpu for each in mine if begin_s <= each.at_s < end_s]
            if before and after:
                was, now = sum(before) / len(before), sum(after) / len(after)
                yield MarketCheck(
                    f"the process of {first.giver} takes less CPU once its moves are over",
                    now < was,
                    False,
                    f"{was:.3f} cores before, {now:.3f} after",
                )

    def _not_built(self) -> Iterator[MarketCheck]:
        """What the poster has, and this release doesn't."""
        if self.late:
            yield MarketCheck(
                "a guest is passed on, from bob to carol to dave",
                False,
                False,
                "not built: nodes pass no guests on; each sheds tasks of its own",
                built=False,
            )


def _said(move: MarketMove) -> str:
    why = f" ({move.why})" if move.why else ""
    return f"{move.task} from {move.giver} to {move.taker} at {move.at_s:.1f} s{why}"
