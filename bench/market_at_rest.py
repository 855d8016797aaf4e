"""Question: what does the market cost while nothing moves, for each contract?

    python -m bench.market_at_rest [--rounds 5] [--seconds 600]

One participant with 1 and with 50 contracts, with a partner each; it provides under all of them, or it
consumes under all of them. Each participant has a ``Trader`` and a ``PartyLedger``, pure as nodes get them,
in virtual time, and a key of Ed25519. With tasks, one task runs by each contract: the traders have agreed
on it and moved it themselves. Each is measured once a second, never twice the same (within 0.2 %), and rows
are counted once a second at both ends, 20 ms apart.
*CPU*: of one side, in all calls of its trader and its ledger, with encoding and decoding of messages,
signing and verifying; a contract and virtual second. *bytes*: encoded messages of both sides; *kept*:
records for both disks. Contracts begin at times of their own, so that readings don't fall together.
Exact first: a run counts only if each interval was read and receipted, so are all rows, both sides have the
same sum, it is what the rows cost, and nothing was refused, disputed or stopped.
Not shown: links and disks; what a machine has to do to measure a task and to count its rows.
"""

from __future__ import annotations

import argparse
import gc
import heapq
import random
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from bench import machine, report
from bench.conftest import RESULTS
from medusa.market.contract.terms import Contract
from medusa.market.ledger.effects import KeepRecord, LedgerEffects, SayInLedger, StopWork
from medusa.market.ledger.ledger import PartyLedger
from medusa.market.ledger.messages import LedgerMessage
from medusa.market.negotiation.effects import HandBack, HandOver, Say, TradeEffects
from medusa.market.negotiation.messages import LoadMessage
from medusa.market.negotiation.trader import Trader
from medusa.market.work import ResourceUse, TradedTask
from medusa.runtime.keys.key_files import ParticipantKey, verifier

S = 1_000_000
BEGIN_US = 1_700_000_000 * S
COUNTS = (1, 50)
AIM_CPU, AIM_BYTES = 0.001, 200.0
"""Of a core, and bytes a second, for each contract."""
FEDERATION, HUB = "netmon", "hub"
DELAY_US = 20_000
INTERVAL_S = 10
WARM_S, QUIET_S = 900, 60
ROWS_PER_S, CPU_NS_PER_ROW = 1_000, 100_000
"""A tenth of a core: as much as its contract allows."""
NOISE = 0.002


class Square:
    """What load costs: ``scale * cores ** 2`` micro-units a second."""

    def __init__(self, scale: float) -> None:
        self._scale = scale

    def cost(self, use: ResourceUse) -> float:
        return self._scale * use.cpu_cores**2


EAGER, IDLE = Square(1e8), Square(1e4)
"""Whoever consumes would give all away for the price, and whoever provides would take all."""


class Side:
    """A participant: its trader, its ledger, and the CPU time of both, in ns."""

    def __init__(self, name: str, cost: Square, key: ParticipantKey, keys: dict[str, str], seed: int) -> None:
        self.name = name
        self.trades, self.records = TradeEffects(), LedgerEffects()
        pick = random.Random(f"{name} {seed}").randrange
        self.trader = Trader(name, cost, effects=self.trades, pick=pick)
        self.ledger = PartyLedger(
            name, FEDERATION, signer=key, verify=verifier(), keys=keys, effects=self.records
        )
        self.here: dict[str, TradedTask] = {}
        self.spent_ns = {"trader": 0, "ledger": 0}
        self.wakes: dict[str, int | None] = {"trader": None, "ledger": None}

    def timed(self, part: str, call: Callable[..., Any], *given: Any, **named: Any) -> Any:
        begin = time.thread_time_ns()
        try:
            return call(*given, **named)
        finally:
            self.spent_ns[part] += time.thread_time_ns() - begin

    def add(self, task: TradedTask) -> None:
        self.here[task.name] = task

    def hand_over(self, name: str, to: Side) -> None:
        to.add(self.here.pop(name))


class Rest:
    """Participants, their contracts, and time that passes."""

    def __init__(self, contracts: int, *, provides: bool, tasks: bool, seed: int = 1) -> None:
        self.now_us = BEGIN_US
        self.tasks = tasks
        self.bytes = {"trader": 0, "ledger": 0}
        self.kept_bytes = self.moves = 0
        self.running: dict[str, tuple[int, int, str]] = {}
        self.stops_at_us: int | None = None
        self._rng = random.Random(seed)
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        self._encoder = msgspec.msgpack.Encoder()
        self._decoders = {
            "trader": msgspec.msgpack.Decoder(LoadMessage),
            "ledger": msgspec.msgpack.Decoder(LedgerMessage),
        }
        partners = [f"p{number}" for number in range(contracts)]
        keys = {name: ParticipantKey.new() for name in (HUB, *partners)}
        public = {name: key.key for name, key in keys.items()}
        costs = (IDLE, EAGER) if provides else (EAGER, IDLE)
        self.sides = {HUB: Side(HUB, costs[0], keys[HUB], public, seed)}
        for name in partners:
            self.sides[name] = Side(name, costs[1], keys[name], public, seed)
        self.contracts = [self._contract(name, provides) for name in partners]
        for each in self.contracts:
            if tasks:
                owner = self.sides[each.consumer]
                owner.add(
                    TradedTask(
                        name=f"task of {each.id}",
                        owner=each.consumer,
                        rows_per_s_milli=ROWS_PER_S * 1_000,
                        cpu_ns_per_row=CPU_NS_PER_ROW,
                    )
                )
            for name in (each.provider, each.consumer):
                self.sides[name].trader.sign(self.now_us, each)
                self.sides[name].ledger.sign(self.now_us, each)
        for side in self.sides.values():
            self.at(self.now_us + self._rng.randrange(S), lambda side=side: self._measures(side))

    def _contract(self, partner: str, provides: bool) -> Contract:
        provider, consumer = (HUB, partner) if provides else (partner, HUB)
        return Contract(
            id=f"with-{partner}",
            provider=provider,
            consumer=consumer,
            begins_us=BEGIN_US - self._rng.randrange(INTERVAL_S * S),
            ends_us=BEGIN_US + 86_400 * S,
            price_micro=1_000_000,
            range_micro=200_000,
            units_per_s_max_milli=ROWS_PER_S * CPU_NS_PER_ROW // 10**6,
            interval_s=INTERVAL_S,
        )

    # --- time ---------------------------------------------------------------------------------------

    def at(self, us: int, do: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._queue, (max(us, self.now_us), self._count, do))

    def run(self, until_us: int) -> None:
        while self._queue and self._queue[0][0] <= until_us:
            self.now_us, _, do = heapq.heappop(self._queue)
            do()
        self.now_us = until_us

    # --- drivers ------------------------------------------------------------------------------------

    def _measures(self, side: Side) -> None:
        """Once a second: what runs here, and how many rows of it there are."""
        self.at(self.now_us + S, lambda: self._measures(side))
        found = [self._as_measured(each) for each in side.here.values()]
        side.timed("trader", side.trader.measured, self.now_us, found)
        for each in self.contracts:
            if each.id in self.running and side.name in (each.provider, each.consumer):
                partner = each.consumer if side.name == each.provider else each.provider
                number, _, name = self.running[each.id]
                rows = self.rows(each.id, late=side.name == each.consumer)
                side.timed(
                    "ledger",
                    side.ledger.counted,
                    self.now_us,
                    each.id,
                    partner,
                    number,
                    name,
                    rows,
                )
        self._look(side, "trader")
        self._look(side, "ledger")

    def _as_measured(self, each: TradedTask) -> TradedTask:
        noise = 1 + self._rng.uniform(-NOISE, NOISE)
        return msgspec.structs.replace(each, cpu_ns_per_row=round(each.cpu_ns_per_row * noise))

    def rows(self, contract: str, *, late: bool = False) -> int:
        """That were put out so far, or that have come."""
        until_us = self.now_us - (DELAY_US if late else 0)
        if self.stops_at_us is not None:
            until_us = min(until_us, self.stops_at_us)
        return max(until_us - self.running[contract][1], 0) * ROWS_PER_S // S

    def _look(self, side: Side, part: str) -> None:
        """Do what is to be done, and have it woken."""
        for effect in (side.trades if part == "trader" else side.records).take():
            self._perform(side, effect)
        if part == "trader":
            wake_us = side.timed("trader", side.trader.wake_at_us)
        else:
            wake_us = side.timed("ledger", side.ledger.wake_at_us, self.now_us)
        if wake_us is not None and (wake_us != side.wakes[part] or wake_us <= self.now_us):
            at_us = max(wake_us, self.now_us + 1)
            side.wakes[part] = at_us
            self.at(at_us, lambda: self._wake(side, part, at_us))

    def _wake(self, side: Side, part: str, at_us: int) -> None:
        if side.wakes[part] != at_us:
            return
        side.wakes[part] = None
        side.timed(part, (side.trader if part == "trader" else side.ledger).tick, self.now_us)
        self._look(side, part)

    def _perform(self, side: Side, effect: object) -> None:
        if isinstance(effect, Say):
            self._send(side, "trader", effect.partner, effect.message)
        elif isinstance(effect, SayInLedger):
            self._send(side, "ledger", effect.partner, effect.message)
        elif isinstance(effect, KeepRecord):
            self.kept_bytes += len(effect.data)
        elif isinstance(effect, HandOver):
            self.at(self.now_us + S, lambda: self._arrives(side, effect))
        elif isinstance(effect, HandBack | StopWork):
            raise AssertionError(f"{side.name} isn't at rest: {effect}")

    def _send(self, side: Side, part: str, to: str, message: object) -> None:
        data = side.timed(part, self._encoder.encode, message)
        self.bytes[part] += len(data)
        self.at(self.now_us + DELAY_US, lambda: self._comes(side.name, part, self.sides[to], data))

    def _comes(self, sender: str, part: str, side: Side, data: bytes) -> None:
        message = side.timed(part, self._decoders[part].decode, data)
        mind = side.trader if part == "trader" else side.ledger
        side.timed(part, mind.receive, self.now_us, sender, message)
        self._look(side, part)

    def _arrives(self, side: Side, effect: HandOver) -> None:
        target = self.sides[effect.partner]
        no = target.trader.admits(self.now_us, side.name, effect.negotiation, effect.task)
        if no is None:
            side.hand_over(effect.task, target)
            self.moves += 1
        side.trader.handed_over(
            self.now_us, effect.negotiation, effect.task, why="" if no is None else no.value
        )
        self._look(side, "trader")

    # --- what is measured ---------------------------------------------------------------------------

    def begin(self) -> None:
        """Let the traders move a task by each contract, and all come to rest; then it is paid for.

        Raises:
            AssertionError: they didn't.
        """
        self.run(self.now_us + (WARM_S if self.tasks else QUIET_S) * S)
        if not self.tasks:
            return
        assert self.moves == len(self.contracts), f"{self.moves} of {len(self.contracts)} tasks were moved"
        for each in self.contracts:
            status = self.sides[each.consumer].trader.status(self.now_us)
            (away,) = (found for found in status.away if found.partner == each.provider)
            self.running[each.id] = away.negotiation, self.now_us, away.name
            for name, partner in ((each.provider, each.consumer), (each.consumer, each.provider)):
                self.sides[name].ledger.began(
                    self.now_us,
                    each.id,
                    partner,
                    negotiation=away.negotiation,
                    task=away.name,
                    begin_row=0,
                    nano_units_per_row=away.nano_units_per_row,
                    price_micro=away.price_micro,
                )
                self._look(self.sides[name], "ledger")
        self.run(self.now_us + 3 * INTERVAL_S * S)

    def spent_ns(self, part: str, *, hub: bool) -> int:
        return sum(side.spent_ns[part] for side in self.sides.values() if (side.name == HUB) == hub)

    def check(self, seconds: int) -> None:
        """Once no more rows come, all that was done is receipted, at both sides alike, and to the last row.

        Raises:
            AssertionError: it isn't.
        """
        if not self.tasks:
            return
        self.stops_at_us = self.now_us
        self.run(self.now_us + 3 * INTERVAL_S * S)
        for each in self.contracts:
            books = (
                self.sides[each.provider].ledger.book(each.id, each.consumer),
                self.sides[each.consumer].ledger.book(each.id, each.provider),
            )
            for book in books:
                (task,) = book.tasks.values()
                nano = self.rows(each.id) * task.nano_units_per_row * task.price_micro
                assert book.chain.total_micro == nano // 10**9 > 0, "another sum than the rows cost"
                assert not book.unreceipted_rows()
                assert not book.disputes
                assert not book.stopped
                assert book.chain.number >= seconds // INTERVAL_S
            # One may be under way: it is over no rows.
            assert 0 <= books[1].chain.number - books[0].chain.number <= 1


def figures(contracts: int, *, provides: bool, tasks: bool, seconds: int, seed: int = 1) -> dict[str, float]:
    """Of one run, for each contract and virtual second: CPU in seconds, and bytes."""
    rest = Rest(contracts, provides=provides, tasks=tasks, seed=seed)
    rest.begin()
    gc.collect()
    before = {
        (part, hub): rest.spent_ns(part, hub=hub) for part in ("trader", "ledger") for hub in (True, False)
    }
    said, kept = dict(rest.bytes), rest.kept_bytes
    rest.run(rest.now_us + seconds * S)
    of = contracts * seconds
    found = {
        f"{'hub' if hub else 'partner'}_{part}_cpu": (rest.spent_ns(part, hub=hub) - spent) / 1e9 / of
        for (part, hub), spent in before.items()
    }
    found |= {f"{part}_bytes": (rest.bytes[part] - said[part]) / of for part in said}
    found["kept_bytes"] = (rest.kept_bytes - kept) / of
    rest.check(seconds)
    return found


def measure(rounds: int = 5, seconds: int = 600, counts: tuple[int, ...] = COUNTS) -> dict[str, Any]:
    """By shape: medians over rounds of what a contract costs in a virtual second, and the dearest round."""
    shapes = [
        (count, provides, tasks)
        for tasks in (True, False)
        for count in counts
        for provides in ((True, False) if count > 1 else (True,))
    ]
    found: dict[str, Any] = {**machine.describe(), "rounds": rounds, "seconds": seconds, "shapes": []}
    runs: dict[tuple[int, bool, bool], list[dict[str, float]]] = {shape: [] for shape in shapes}
    for number in range(rounds):
        for shape in shapes:
            count, provides, tasks = shape
            runs[shape].append(
                figures(count, provides=provides, tasks=tasks, seconds=seconds, seed=number + 1)
            )
            print(f"round {number + 1} of {rounds}, {shape}: {runs[shape][-1]}", file=sys.stderr)
    for (count, provides, tasks), rows in runs.items():
        median = {name: statistics.median(row[name] for row in rows) for name in rows[0]}
        dearest = max(max(cpu_of(row, "hub"), cpu_of(row, "partner")) for row in rows)
        about = {"contracts": count, "provides": provides, "tasks": tasks, "dearest_cpu": dearest}
        found["shapes"].append(about | median | {"runs": rows})
    return found


def cpu_of(row: dict[str, float], who: str) -> float:
    return row[f"{who}_trader_cpu"] + row[f"{who}_ledger_cpu"]


def table(found: dict[str, Any]) -> str:
    """Markdown."""
    lines = [
        f"{report.machine_line(found)} Medians of {found['rounds']} rounds of {found['seconds']:,} s.",
        "",
        "| contracts of one | it | a task by each | its CPU, trader + ledger | that of a partner "
        "| dearest side and round | bytes said, trader + ledger | kept |",
        f"|{'---|' * 8}",
    ]
    for row in found["shapes"]:
        cpu = [
            f"{(row[f'{who}_trader_cpu']) * 1e6:.0f} + {row[f'{who}_ledger_cpu'] * 1e6:.0f} us/s"
            for who in ("hub", "partner")
        ]
        lines.append(
            f"| {row['contracts']} | {'provides' if row['provides'] else 'consumes'} "
            f"| {'yes' if row['tasks'] else 'no'} | {' | '.join(cpu)} | {row['dearest_cpu']:.4%} of a core "
            f"| {row['trader_bytes']:.0f} + {row['ledger_bytes']:.0f} B/s | {row['kept_bytes']:.0f} B/s |"
        )
    worst_cpu = max(row["dearest_cpu"] for row in found["shapes"])
    worst_bytes = max(row["trader_bytes"] + row["ledger_bytes"] for row in found["shapes"])
    return (
        "\n".join(lines)
        + f"\n\nFor each contract. At most {worst_cpu:.4%} of a core (aim: under {AIM_CPU:.1%}) and"
        + f" {worst_bytes:.0f} bytes a second (aim: under {AIM_BYTES:.0f}).\n"
    )


def write(found: dict[str, Any], folder: Path) -> str:
    return report.save("market_at_rest", found, table(found), folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=600, help="virtual ones of a round")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    sys.stdout.write(write(measure(options.rounds, options.seconds), options.out))


if __name__ == "__main__":
    main()
