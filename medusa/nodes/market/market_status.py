"""What ``status`` says of the market: docs/market.md describes each field."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

import msgspec

from medusa.market.ledger.ledger import LedgerStanding
from medusa.market.negotiation.status import (
    ContractStanding,
    OpenNegotiation,
    PlannedMove,
    TaskStanding,
    TraderStatus,
)
from medusa.nodes.config.settings_market import MarketRules
from medusa.nodes.market.paid_tasks import PaidTasks
from medusa.nodes.market.sold_streams import SoldStreams, StreamStanding
from medusa.nodes.market.traded_tasks import TradedTasks
from medusa.wire.status_and_metrics import (
    MarketContractStatus,
    MarketDecisionStatus,
    MarketOfferStatus,
    MarketStatus,
    MarketTaskStatus,
)

__all__ = ["market_status"]

DECISIONS_MAX = 20
SENTENCES_MAX = 200


def market_status(
    time_us: int,
    rules: MarketRules,
    *,
    tasks: TradedTasks,
    paid: PaidTasks,
    sold: SoldStreams,
    up: Mapping[str, bool],
    refused_papers: Mapping[str, str],
    refused_by: Mapping[str, str],
) -> MarketStatus:
    """``status()["market"]``.

    Args:
        time_us: now, by the clock of the market.
        up: partner -> whether its node is there.
        refused_papers: file -> why it doesn't count; ``refused_by``: partner -> what it has answered.
    """
    with tasks.policy.as_if_it_traded():
        known = tasks.trader.status(time_us)
        planned, _ = tasks.trader.dry_run(time_us)
        sentences = tuple(islice(tasks.trader.explain(time_us), SENTENCES_MAX))
    books = {(each.partner, each.contract): each for each in paid.status()}
    return MarketStatus(
        capacity=rules.capacity.cpu_cores,
        used=tasks.used_cores,
        overloaded=known.overloaded,
        shadow=rules.shadow,
        contracts=(
            *(_contract(time_us, rules, paid, each, books) for each in known.contracts),
            *(_of_streams(rules, paid, each, books, up) for each in sold.status()),
        ),
        away=tuple(_task(time_us, paid, each) for each in known.away),
        guests=tuple(_task(time_us, paid, each) for each in known.guests),
        open=(*_open(known.open, buying=True), *_open(known.serving, buying=False)),
        planned=tuple(_planned(each) for each in planned),
        stays=tasks.why_each_stays(),
        why_still="this node only watches" if rules.shadow else known.why_still,
        decisions=_decisions(time_us, known),
        explained=(*sentences, *islice(sold.explained(), SENTENCES_MAX)),
        refused_papers=dict(refused_papers),
        refused_by=dict(refused_by),
        handed_over=tasks.handed_over,
        came_home=tasks.came_home,
        lost=tasks.lost,
        took=tasks.took,
        gave_back=tasks.gave_back,
    )


def _contract(
    time_us: int,
    rules: MarketRules,
    paid: PaidTasks,
    standing: ContractStanding,
    books: Mapping[tuple[str, str], LedgerStanding],
) -> MarketContractStatus:
    versions = paid.versions(standing.id, standing.partner)
    book = books.get((standing.partner, standing.id))
    made = MarketContractStatus(
        id=standing.id,
        version=standing.version,
        partner=standing.partner,
        node=rules.partners.get(standing.partner, ""),
        role=standing.role,
        in_force=standing.in_force,
        ends_us=0 if versions is None else versions.last_us,
        reached=standing.reachable,
        shadow=standing.shadow,
        ask_micro=standing.ask_micro,
        room=None if standing.room_milli is None else standing.room_milli / 1_000,
        cores=standing.units_per_s,
        rests_us=max(standing.rests_until_us - time_us, 0),
        virtual_micro=standing.virtual_micro,
    )
    return _with_ledger(made, book)


def _of_streams(
    rules: MarketRules,
    paid: PaidTasks,
    standing: StreamStanding,
    books: Mapping[tuple[str, str], LedgerStanding],
    up: Mapping[str, bool],
) -> MarketContractStatus:
    terms, partner = standing.terms, standing.partner
    versions = paid.versions(terms.id, partner)
    made = MarketContractStatus(
        id=terms.id,
        version=terms.version,
        partner=partner,
        node=rules.partners.get(partner, ""),
        role="provider" if partner == terms.consumer else "consumer",
        in_force=standing.in_force,
        ends_us=0 if versions is None else versions.last_us,
        reached=up.get(partner, False),
        ask_micro=terms.price_micro or 0,
        per=terms.price_unit or "row",
        streams=tuple(terms.streams),
        readers=standing.readers,
        missed_us=standing.missed_us,
    )
    return _with_ledger(made, books.get((partner, terms.id)))


def _with_ledger(made: MarketContractStatus, book: LedgerStanding | None) -> MarketContractStatus:
    if book is None:
        return made
    return msgspec.structs.replace(
        made,
        currency=book.currency,
        stopped=book.stopped,
        receipts=book.receipts,
        owed_micro=book.owed_micro,
        settled_micro=book.settled_micro,
        exposure_micro=book.exposure_micro,
        exposure_most_micro=book.exposure_most_micro,
        written_off_micro=book.written_off_micro,
        disputes=book.disputes,
    )


def _task(time_us: int, paid: PaidTasks, standing: TaskStanding) -> MarketTaskStatus:
    return MarketTaskStatus(
        task=standing.name,
        partner=standing.partner,
        contract=standing.contract,
        negotiation=standing.negotiation,
        price_micro=standing.price_micro,
        nano_units_per_row=standing.nano_units_per_row,
        paid_row=paid.paid_row(standing.contract, standing.partner, standing.negotiation, standing.name),
        for_us=max(time_us - standing.since_us, 0),
        recalled=standing.recalled,
        virtual=standing.virtual,
    )


def _open(found: tuple[OpenNegotiation, ...], *, buying: bool) -> list[MarketOfferStatus]:
    return [
        MarketOfferStatus(
            partner=each.partner,
            contract=each.contract,
            tasks=each.tasks,
            price_micro=each.price_micro,
            state=each.state,
            buying=buying,
        )
        for each in found
    ]


def _planned(move: PlannedMove) -> MarketOfferStatus:
    return MarketOfferStatus(
        partner=move.partner,
        contract=move.contract,
        tasks=move.tasks,
        price_micro=move.price_micro,
        saved_micro_per_s=move.saved_micro_per_s,
    )


def _decisions(time_us: int, known: TraderStatus) -> tuple[MarketDecisionStatus, ...]:
    return tuple(
        MarketDecisionStatus(
            ago_us=max(time_us - each.at_us, 0),
            step=each.step,
            partner=each.partner,
            contract=each.contract,
            tasks=each.tasks,
            price_micro=each.price_micro,
            code=each.code,
            text=each.text,
        )
        for each in known.decisions[-DECISIONS_MAX:]
    )
