"""A trader of a hundred lines, for tests of the world and of the figures: fixed price, one offer at a time.

It has what the paper's protocol has and nothing else, so what comes of a small market can be worked out by
hand. Its subclasses plant mistakes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from medusa.market.contract.terms import Contract
from medusa.market.cost import CostFunction
from medusa.market.negotiation.effects import HandOver, TradeEffects
from medusa.market.negotiation.messages import (
    LoadAgreed,
    LoadEnded,
    LoadMessage,
    LoadMoved,
    LoadRequest,
    LoadRuns,
)
from medusa.market.work import ResourceUse, TradedTask

ROUND_US = 7_000_000
EPSILON = 0.02


class SimpleTrader:
    def __init__(
        self, name: str, cost: CostFunction, effects: TradeEffects, pick: Callable[[int], int]
    ) -> None:
        self.name, self.cost, self.effects = name, cost, effects
        self.sells: dict[str, Contract] = {}
        self.buys: dict[str, Contract] = {}
        self.tasks: list[TradedTask] = []
        self.load = 0.0
        self.wake: int | None = pick(ROUND_US)
        self.open: tuple[int, Contract] | None = None
        self.left: list[str] = []
        self.moved: list[str] = []
        self.number = 0
        self.said_no: set[str] = set()
        self.promised = 0.0

    def sign(self, now_us: int, contract: Contract) -> None:
        (self.buys if contract.consumer == self.name else self.sells)[contract.id] = contract

    def revoke(self, now_us: int, contract_id: str, partner: str) -> None:
        self.buys.pop(contract_id, None)
        self.sells.pop(contract_id, None)

    def partner(self, now_us: int, partner: str, *, reachable: bool) -> None:
        pass

    def measured(self, now_us: int, tasks: Sequence[TradedTask]) -> None:
        self.tasks = list(tasks)
        self.load = sum(task.use.cpu_cores for task in tasks)

    def admits(self, now_us: int, partner: str, negotiation: int, task: str) -> object | None:
        return None

    def wake_at_us(self) -> int | None:
        return self.wake

    def tick(self, now_us: int) -> None:
        self.wake = now_us + ROUND_US
        if self.open is None:
            self.ask()

    def ask(self) -> None:
        ready = [each for each in self.buys.values() if each.id not in self.said_no]
        if not ready:
            self.said_no.clear()
            return
        contract = min(ready, key=lambda each: (each.price_micro, each.id))
        chosen, load = [], self.load
        for task in self.tasks:
            size = task.use.cpu_cores
            if self.rise(load - size, size) > contract.price_micro * (1 + EPSILON):
                chosen.append(task)
                load -= size
        if not chosen:
            return
        self.number += 1
        self.open = self.number, contract
        price = self.price(contract)
        self.effects.say(
            contract.provider,
            LoadRequest(
                **self.about(contract, self.number),
                tasks=tuple(chosen[:100]),
                price_micro=price,
                within_us=5_000_000,
            ),
        )

    def price(self, contract: Contract) -> int:
        return contract.price_micro

    def rise(self, before: float, size: float) -> float:
        after = self.cost.cost(ResourceUse(cpu_cores=before + size))
        return (after - self.cost.cost(ResourceUse(cpu_cores=before))) / size

    def about(self, contract: Contract, number: int) -> dict[str, object]:
        return {"contract": contract.id, "version": contract.version, "negotiation": number}

    def takes(self, task: TradedTask, load: float, price: int) -> bool:
        return self.rise(load, task.use.cpu_cores) < price * (1 - EPSILON)

    def receive(self, now_us: int, partner: str, message: LoadMessage) -> None:
        if isinstance(message, LoadRequest):
            taken, load = [], self.load + self.promised
            for task in message.tasks:
                if not self.promised and self.takes(task, load, message.price_micro):
                    taken.append(task)
                    load += task.use.cpu_cores
            contract = self.sells[message.contract]
            if not taken:
                no = LoadEnded(**self.about(contract, message.negotiation), code="no")
                self.effects.say(partner, no)
                return
            self.promised = load - self.load
            yes = LoadAgreed(
                **self.about(contract, message.negotiation),
                tasks=tuple(task.name for task in taken),
                nano_units_per_row=tuple(task.cpu_ns_per_row for task in taken),
                price_micro=message.price_micro,
                within_us=60_000_000,
            )
            self.effects.say(partner, yes)
        elif isinstance(message, LoadAgreed):
            assert self.open is not None
            self.left, self.moved = list(message.tasks), []
            self.next()
        elif isinstance(message, LoadEnded):
            self.said_no.add(message.contract)
            self.open = None
        elif isinstance(message, LoadMoved):
            self.promised = 0.0
            runs = LoadRuns(
                **self.about(self.sells[message.contract], message.negotiation), tasks=message.tasks
            )
            self.effects.say(partner, runs)
        elif isinstance(message, LoadRuns):
            self.open = None

    def next(self) -> None:
        assert self.open is not None
        number, contract = self.open
        if self.left:
            self.effects.append(
                HandOver(
                    partner=contract.provider, task=self.left[0], contract=contract.id, negotiation=number
                )
            )
        else:
            moved = LoadMoved(**self.about(contract, number), tasks=tuple(self.moved))
            self.effects.say(contract.provider, moved)

    def handed_over(self, now_us: int, negotiation: int, task: str, *, why: str = "") -> None:
        self.left.remove(task)
        if not why:
            self.moved.append(task)
        self.next()

    def handed_back(self, now_us: int, task: str) -> None:
        pass
