"""The owners of the market and their nodes: contracts that both have signed, capacities, private costs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from medusa.apps.workloads.interruption import Interruption
from medusa.apps.workloads.local_nodes import START_TIMEOUT_S
from medusa.apps.workloads.owned_nodes import FEDERATION, OwnedNodes, Owner

__all__ = ["DEALS", "LATE", "TRADERS", "Deal", "MarketNodes", "TradingOwner"]

DAY_US = 86_400_000_000
CONTRACTS = "contracts-of"
SPARK_START_S = 180.0
"""Java and Spark start, and run some triggers, before the node listens."""

SPARK_MEMORY = "1g"


@dataclass(frozen=True, slots=True, kw_only=True)
class TradingOwner:
    """An owner.

    Attributes:
        node: that trades for it; its home node is called the same with ``-home`` behind.
        tasks: fragments of its own; 0: it only sells, and has no home node.
        threshold: cores up to which a core-second costs it ``below``; beyond it ``above``.
        capacity: cores; nothing is taken beyond it.
        prefer: partners that are asked first.
        cluster: what a core-second of Spark costs it, which runs the fragments of its node; 0: the node does.
        delay: what a second by which results come later on Spark costs, a second.
        late: its node isn't started with the others.
    """

    node: str
    tasks: int
    threshold: float
    below: float = 0.017
    above: float = 0.06
    capacity: float = 1.0
    prefer: Sequence[str] = ()
    cluster: float = 0.0
    delay: float = 0.0
    late: bool = False

    @property
    def home(self) -> str:
        return f"{self.node}-home"

    @property
    def cost(self) -> str:
        """What load costs it, as a node's configuration has it."""
        if self.cluster:
            return f'cluster = "{self.cluster:.6f}"\ndelay = "{self.delay:.6f}"'
        return f"cpu = {self.points}"

    @property
    def points(self) -> str:
        """Its cost for each load."""
        most, cost = 2 * self.capacity, self.threshold * self.below
        cost_most = cost + (most - self.threshold) * self.above
        return f'[[0, "0"], [{self.threshold:.3f}, "{cost:.6f}"], [{most:.3f}, "{cost_most:.6f}"]]'


@dataclass(frozen=True, slots=True, kw_only=True)
class Deal:
    """A contract.

    Attributes:
        price: of a core-second, at most; ``width``: so much less it may be.
        interval_s: so often rows are read and signed for.
    """

    provider: str
    consumer: str
    price: float
    width: float = 0.0
    interval_s: int = 4

    @property
    def id(self) -> str:
        return f"{self.consumer}-at-{self.provider}"


PRICE = 0.02
LATE = "dave"
TRADERS = {
    "alice": TradingOwner(node="a", tasks=4, threshold=0.25, prefer=("bob",)),
    "bob": TradingOwner(node="b", tasks=2, threshold=0.2),
    "carol": TradingOwner(node="c", tasks=3, threshold=0.28),
    LATE: TradingOwner(node="d", tasks=0, threshold=0.6, below=0.01, late=True),
}
"""Thresholds are small, so that a laptop overloads all of them."""

DEALS = (
    Deal(provider="bob", consumer="alice", price=PRICE),
    Deal(provider="carol", consumer="alice", price=PRICE),
    Deal(provider="carol", consumer="bob", price=PRICE),
    Deal(provider=LATE, consumer="carol", price=0.8 * PRICE),
)


class MarketNodes(OwnedNodes):
    """Their nodes; each has all contracts of its owner before it starts.

    Args:
        folder: for keys, contracts, configurations, state and logs; the caller removes it.
        hold: so long a task stays where it went; empty: as nodes do if nothing is said.
        tolerance: by so much a row of a guest may take more than was said; 0: the same.

    Attributes:
        traders: by name; ``deals``: the contracts between them.
    """

    def __init__(
        self,
        traders: Mapping[str, TradingOwner],
        deals: Sequence[Deal],
        folder: Path,
        interruption: Interruption | None = None,
        *,
        hold: str = "",
        tolerance: float = 0.0,
    ) -> None:
        self.traders, self.deals = dict(traders), tuple(deals)
        self._hold, self._tolerance = hold, tolerance
        self._on_spark = {of.node: of for of in traders.values() if of.cluster}
        owners = {
            name: Owner(
                nodes=[*([] if of.late else [of.node]), *([of.home] if of.tasks else [])],
                later=[of.node] if of.late else [],
            )
            for name, of in traders.items()
        }
        super().__init__(
            owners,
            folder,
            interruption,
            more=self._trades,
            command=lambda node: "spark-participant" if node in self._on_spark else "node",
            patience_s=SPARK_START_S if self._on_spark else START_TIMEOUT_S,
        )
        for name in traders:
            (folder / f"{CONTRACTS}-{name}").mkdir()
        for deal in self.deals:
            self._sign(deal, folder)

    def _sign(self, deal: Deal, folder: Path) -> None:
        """As ``medusa contract propose`` and ``accept`` do, each with the key of its party."""
        from medusa.market.contract.signed import (
            ContractDocument,
            check_signatures,
            countersign,
            sign_document,
        )
        from medusa.market.contract.terms import Contract
        from medusa.market.money import micro_of
        from medusa.runtime.contracts.contract_files import read_signed, write_signed
        from medusa.runtime.keys.key_files import read_participant_key, verifier

        now_us = time.time_ns() // 1_000
        terms = Contract(
            id=deal.id,
            provider=deal.provider,
            consumer=deal.consumer,
            begins_us=now_us - DAY_US,
            ends_us=now_us + DAY_US,
            price_micro=micro_of(f"{deal.price:.6f}", what="price"),
            range_micro=micro_of(f"{deal.width:.6f}", what="range"),
            units_per_s_max_milli=4_000,
            interval_s=deal.interval_s,
            settlement_s=3_600,
        )
        paper = ContractDocument(federation=FEDERATION, until_us=now_us + DAY_US, contract=terms)
        theirs, ours = (read_participant_key(folder / f"{each}.key") for each in paper.parties)
        offered = folder / f"{CONTRACTS}-{deal.consumer}" / f"{deal.id}.contract"
        write_signed(offered, countersign(sign_document(paper, ours, deal.consumer), theirs, deal.provider))
        signed, found = read_signed(offered)
        keys = {deal.consumer: ours.key, deal.provider: theirs.key}
        check_signatures(
            signed, found, verify=verifier(), keys=keys, federation=FEDERATION, needs=paper.parties
        )
        write_signed(folder / f"{CONTRACTS}-{deal.provider}" / f"{deal.id}.contract", signed)

    def _trades(self, node: str) -> str:
        """What the configuration of a node that trades has more."""
        owner = next((name for name, of in self.traders.items() if of.node == node), None)
        if owner is None:
            return ""
        of = self.traders[owner]
        parties = [(each.provider, each.consumer) for each in self.deals]
        partners = sorted({name for pair in parties if owner in pair for name in pair if name != owner})
        lines = [
            '\n[load]\nhalf_life = "3s"',
            f'\n[node]\ncapacity = "{of.capacity} cores"',
            f'\n[market]\ncontracts = "{CONTRACTS}-{owner}"\nkey = "{owner}.key"',
            *([f'hold = "{self._hold}"'] if self._hold else []),
            *([f"tolerance = {self._tolerance}"] if self._tolerance else []),
            f"\n[market.cost]\n{of.cost}",
            *(f'\n[market.partners.{name}]\nnode = "{self.traders[name].node}"' for name in partners),
        ]
        if of.prefer:
            names = ", ".join(f'"{name}"' for name in of.prefer)
            lines.append(f"\n[market.policy]\nprefer = [{names}]")
        if of.cluster:
            lines.append(f'\n[spark]\nmaster = "local[*]"\nmemory = "{SPARK_MEMORY}"')
        return "\n".join(lines) + "\n"
