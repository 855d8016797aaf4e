"""What ``medusa status``, ``medusa top`` and ``medusa explain market/`` say of load that is traded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import UNSET

from medusa.cli.screens.terminal_text import number
from medusa.market.money import money_text
from medusa.units import duration_text
from medusa.wire.status_and_metrics import MarketContractStatus, MarketStatus, MarketTaskStatus, NodeStatus

__all__ = [
    "CONTRACTS",
    "TASKS",
    "contract_rows",
    "explained_lines",
    "market_lines",
    "planned_lines",
    "task_rows",
    "top_lines",
]

CONTRACTS = ("contract", "at", "peer", "state", "cores", "a unit", "owed", "settled", "unsigned", "why")
TASKS = ("task", "at", "peer", "state", "a unit", "for", "paid row", "why")


def market_lines(status: NodeStatus) -> Iterator[str]:
    """Of one node, below its first line."""
    market = status.market
    if market is UNSET:
        return
    over = ", OVERLOADED" if market.overloaded else ""
    watches = ", only watches" if market.shadow else ""
    yield (
        f"market: {market.used:.2f} of {market.capacity:g} cores{over}{watches}, {len(market.away)} tasks "
        f"away, {len(market.guests)} guests; {market.why_still or 'something moves'}"
    )
    for file, why in market.refused_papers.items():
        yield f"CONTRACT {file} doesn't count: {why}"
    for partner, why in market.refused_by.items():
        yield f"REFUSED by {partner}: {why}"


def contract_rows(statuses: Iterable[NodeStatus]) -> Iterator[tuple[str, ...]]:
    """A row of ``CONTRACTS`` for each contract."""
    for status in statuses:
        if status.market is UNSET:
            continue
        for each in status.market.contracts:
            yield (
                f"{each.id} v{each.version}",
                status.node,
                each.partner,
                _state(each),
                f"{each.cores:.2f}",
                money_text(each.ask_micro, each.currency) + (f" a {each.per}" if each.per else ""),
                money_text(each.owed_micro),
                money_text(each.settled_micro),
                money_text(each.exposure_micro),
                each.stopped or _rests(each),
            )


def _state(each: MarketContractStatus) -> str:
    """What we are in it, and whether it counts."""
    if not each.in_force:
        return f"{each.role}, not in force"
    if each.shadow:
        return f"{each.role}, shadow"
    if not each.reached:
        return f"{each.role}, silent"
    return f"{each.role}, {each.readers} read" if each.per else each.role


def _rests(each: MarketContractStatus) -> str:
    if each.virtual_micro:
        return f"would have come to {money_text(each.virtual_micro, each.currency)}"
    return f"rests for {duration_text(_seconds(each.rests_us))}" if each.rests_us else ""


def task_rows(statuses: Iterable[NodeStatus]) -> Iterator[tuple[str, ...]]:
    """A row of ``TASKS`` for each task that is away, and for each guest."""
    for status in statuses:
        if status.market is UNSET:
            continue
        for state, tasks in (("away", status.market.away), ("guest", status.market.guests)):
            for each in tasks:
                yield _task(status, state, each)


def _task(status: NodeStatus, state: str, each: MarketTaskStatus) -> tuple[str, ...]:
    return (
        each.task,
        status.node,
        each.partner,
        f"as if {state}" if each.virtual else state,
        money_text(each.price_micro),
        duration_text(_seconds(each.for_us)),
        "-" if each.paid_row is None else number(each.paid_row),
        f"goes home: {each.recalled}" if each.recalled else "",
    )


def top_lines(statuses: Iterable[NodeStatus]) -> Iterator[str]:
    """Of each node that trades: what it has, with whom, and what is owed."""
    for status in statuses:
        market = status.market
        if market is UNSET:
            continue
        yield from (f"{status.node}: {line}" for line in market_lines(status))
        for each in market.contracts:
            tasks = [*market.away, *market.guests]
            count = sum(task.contract == each.id and task.partner == each.partner for task in tasks)
            yield (
                f"{status.node}: {each.id} with {each.partner} ({_state(each)}): {count} tasks, "
                f"{each.cores:.2f} cores at {money_text(each.ask_micro, each.currency)}, "
                f"{money_text(each.owed_micro)} owed, {money_text(each.exposure_micro)} unsigned"
            )
        for offer in market.open:
            way = "asked of" if offer.buying else "asked by"
            yield (
                f"{status.node}: {', '.join(offer.tasks[:3])} {way} {offer.partner} at "
                f"{money_text(offer.price_micro)}: {offer.state}"
            )


def explained_lines(status: NodeStatus, about: str) -> Iterator[str]:
    """Why something moved or didn't, in sentences.

    Args:
        about: a task, a fragment, a box or a partner that they name; empty: all.
    """
    market = status.market
    if market is UNSET:
        return
    yield from (line for line in market.explained if about in line)
    yield from (f"{name} stays: {why}" for name, why in market.stays.items() if about in name or about in why)
    if not about:
        yield from market_lines(status)


def planned_lines(market: MarketStatus) -> Iterator[str]:
    """What would be offered now, and why nothing else."""
    for each in market.planned:
        yield (
            f"would offer {', '.join(each.tasks)} to {each.partner} by {each.contract} at "
            f"{money_text(each.price_micro)} a unit, and save {each.saved_micro_per_s / 1e6:.6f} a second"
        )
    yield from (line for line in market.explained if " isn't offered to " in line)
    yield from (f"{name} stays: {why}" for name, why in market.stays.items())
    if not market.planned:
        yield f"nothing would be offered: {market.why_still}"


def _seconds(duration_us: int) -> int:
    return duration_us // 1_000_000 * 1_000_000
