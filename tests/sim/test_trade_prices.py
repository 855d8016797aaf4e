"""``TradeChecks.delivered``: what an owner pays for load that it is rid of."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from medusa.market.negotiation.kept import KeptDeal
from medusa.market.negotiation.messages import LoadAgreed
from medusa.market.work import TradedTask
from medusa.nodes.market.market_words import encode_word
from medusa.sim.lending.trade_checks import TradeChecks, TradedContract
from medusa.sim.world.virtual_time import SimulationError
from medusa.wire.codec import encode_frame
from medusa.wire.messages.market import Traded
from tests.sim.trade_terms import with_bob

PRICE_MICRO = 1_000_000
COSTS = {"a2": ((0.0, 0), (0.5, 0), (4.0, 10_500_000)), "b1": ((0.0, 0), (4.0, 400_000))}
"""Each core beyond a half costs the owner 3."""


def agrees(owner_cores: float, process_cores: float, followed_cores: float = 0.0) -> None:
    """``b1`` takes a task of 0.25 cores of ``a2``, whose fragments take so much, and its process in all, and
    what it follows."""
    terms = with_bob(lasts_s=60)
    task = TradedTask(name="alice/q/per0", owner="alice", rows_per_s_milli=10_000, cpu_ns_per_row=25_000_000)
    room = KeptDeal(
        part="room",
        partner="alice",
        task=task,
        contract=terms,
        negotiation=7,
        price_micro=PRICE_MICRO,
        nano=25_000_000,
        since_us=0,
    )

    def machine(
        name: str, deals: tuple[KeptDeal, ...], fragments: float, process: float, followed: float = 0.0
    ) -> Any:
        loads = SimpleNamespace(
            fragment=lambda _: SimpleNamespace(busy_share=fragments),
            cpu_share=process / 2,
            followed_cores=lambda: followed,
            usage=SimpleNamespace(cores=2),
        )
        brain = SimpleNamespace(
            fragments={"q/per0": SimpleNamespace(frozen=False, inputs={})},
            permits=SimpleNamespace(into=lambda _: None),
            catalog=SimpleNamespace(market=SimpleNamespace(trades=SimpleNamespace(deals=deals))),
            loads=loads,
            refusals={},
        )
        return SimpleNamespace(name=name, alive=True, brain=brain, reports=[])

    owner = machine("a2", (), owner_cores, process_cores, followed_cores)
    nodes = {"a2": owner, "b1": machine("b1", (room,), 0.0, 0.0)}
    world: Any = SimpleNamespace(now_us=1_000_000)
    about = TradedContract(terms=terms, fragments=frozenset({"q/per0"}), ends_us=terms.ends_us)
    checks = TradeChecks(world, nodes, [about], COSTS, {"alice": "a2", "bob": "b1"}, 25_000_000)
    for node in nodes.values():
        checks.look(node)
    word = LoadAgreed(
        contract=terms.id,
        version=terms.version,
        negotiation=7,
        tasks=(task.name,),
        nano_units_per_row=(25_000_000,),
        price_micro=PRICE_MICRO,
        within_us=1_000_000,
    )
    checks.delivered("b1", "a2", encode_frame(Traded(request=1), encode_word(word)))


def test_what_the_process_takes_beside_fragments_is_load() -> None:
    """Of 0.72 cores 0.53 are fragments: 0.22 cores are beyond what costs nothing (seeds 177, 207)."""
    agrees(0.53, 0.72)


def test_who_pays_more_than_it_saves_is_noticed() -> None:
    with pytest.raises(SimulationError, match="cost: a2 pays 1000000"):
        agrees(0.53, 0.53)


def test_fragments_alone_are_load_too() -> None:
    agrees(0.72, 0.0)


def test_what_an_owner_follows_is_load_too() -> None:
    """It is rid of some of what its fragments and its shadows take together (deserted 459)."""
    agrees(0.53, 0.0, followed_cores=0.19)
