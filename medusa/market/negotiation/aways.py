"""Tasks that are away, and how they come home: called back, given back, or found here again.

Nothing that a partner says makes a task be home: the driver says that it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from medusa.market.negotiation.books import AwayTask, LoadBooks, kept_deal
from medusa.market.negotiation.contract_book import SignedContract
from medusa.market.negotiation.decisions import TradeLog
from medusa.market.negotiation.effects import TradeEffects
from medusa.market.negotiation.kept import KeptDeal
from medusa.market.negotiation.messages import LoadEnded
from medusa.market.negotiation.reasons import TradeReason
from medusa.market.negotiation.settings import TradeSettings
from medusa.market.work import ResourceUse

__all__ = ["AwayKeeper"]


class AwayKeeper:
    """Calls them back, again and again while their provider is reached, ever more rarely.

    Args:
        reachable: whether a partner is.
    """

    def __init__(
        self,
        settings: TradeSettings,
        *,
        books: LoadBooks,
        log: TradeLog,
        effects: TradeEffects,
        reachable: Callable[[str], bool],
    ) -> None:
        self._settings, self._books, self._log = settings, books, log
        self._effects, self._reachable = effects, reachable
        self._came: Callable[[int, AwayTask], None] = _nobody
        self._called: dict[tuple[str, bool], AwayTask] = {}  # those that are to come back

    def listen(self, came: Callable[[int, AwayTask], None]) -> None:
        """Have this told when a task is away no more."""
        self._came = came

    def went(self, away: AwayTask) -> None:
        """It runs at its provider from now on."""
        key = away.task.name, away.virtual
        self._books.away[key] = away
        self._called.pop(key, None)

    def kept(self) -> Iterator[KeptDeal]:
        """What has to outlive a restart."""
        for away in self._books.away.values():
            if not away.virtual:
                yield kept_deal("away", away, away.recalled)

    def recall(
        self, now_us: int, key: tuple[str, bool], reason: TradeReason | str, *, again: bool = False
    ) -> None:
        """Call a task back. It is away until the driver says that it is home."""
        away = self._books.away[key]
        if away.recalled and not again:
            return
        code = reason.value if isinstance(reason, TradeReason) else reason
        if not again:
            self._log.note_task(now_us, "recalled", away, code)
        away.recall(now_us, code, self._settings.again_us, self._settings.backoff_max_us)
        self._called[key] = away
        self._say_ended(away, code)
        if away.virtual:
            self._drop(now_us, key)

    def call_home(self, now_us: int) -> int | None:
        """Have the dearest task come back that would cost less here than its price; when to look again."""
        look_us: int | None = None
        if self._called:
            return None
        for key, away in self._cheaper_here():
            held_us = away.since_us + (self._settings.chain_us if away.makes_room else self._settings.hold_us)
            if now_us < held_us:
                look_us = min(held_us, look_us or held_us)
                continue
            self.recall(now_us, key, TradeReason.RECALLED)
            return None
        return look_us

    def held_micro(self) -> int:
        """The price of the dearest one that would cost less here, and is away only since it is held; 0: there
        is none. Room that it would take isn't worth less."""
        return next((away.price_micro for _, away in self._cheaper_here() if not away.virtual), 0)

    def _cheaper_here(self) -> Iterator[tuple[tuple[str, bool], AwayTask]]:
        """Those that would cost less here than their price, the dearest first; none that was called."""
        loads: dict[bool, ResourceUse] = {}
        added: dict[tuple[bool, int, tuple[int, int, int]], float | None] = {}
        for key, away in sorted(self._books.away.items(), key=lambda each: -each[1].price_micro):
            if away.recalled or away.planned:
                continue
            alike = away.virtual, away.signed.contract.bytes_per_unit, away.now.shape
            if alike not in added:
                if away.virtual not in loads:
                    loads[away.virtual] = self._books.load_promised(virtual=away.virtual)
                added[alike] = self._added(loads[away.virtual], away)
            more = added[alike]
            if more is not None and more < self._settings.below(away.price_micro):
                yield key, away

    def _added(self, load: ResourceUse, away: AwayTask) -> float | None:
        """By what a unit of it would raise the cost here; None: it isn't load, or doesn't fit."""
        task = away.now
        units = away.signed.units_per_s(task)
        if units <= 0 or not self._books.fits(load.plus(task.use)):
            return None
        return self._books.added(load, task, units)

    def on_ended(self, now_us: int, partner: str, message: LoadEnded) -> None:
        """Its provider gives tasks back, or says that it has none."""
        for key, away in list(self._books.away.items()):
            mine = away.number == message.negotiation and away.signed.key == (partner, message.contract)
            if not mine or (message.tasks and key[0] not in message.tasks):
                continue
            self._log.note_task(now_us, "ended", away, message.code, message.text)
            if away.virtual:
                self._drop(now_us, key)
            else:
                away.comes(now_us, message.code, self._settings.backoff_max_us)
                self._called[key] = away

    def home(self, now_us: int, name: str) -> None:
        """It runs here again, or was given up: it isn't away any more."""
        away = self._books.away.get((name, False))
        if away is None:
            return
        if not away.coming:
            self._say_ended(away, TradeReason.HOME)
        self._log.note_task(now_us, "home", away, away.recalled or TradeReason.HOME.value)
        self._drop(now_us, (name, False))
        self._books.came(now_us, name)

    def _drop(self, now_us: int, key: tuple[str, bool]) -> None:
        away = self._books.drop_away(key)
        self._called.pop(key, None)
        if away.virtual:
            away.reckon(now_us, away.task.rows_per_s_milli)
            self._books.virtual_over(away)
        self._came(now_us, away)

    def contract_over(self, now_us: int, signed: SignedContract, keep: SignedContract | None) -> None:
        """It has ended, was revoked, or replaced: what went by it comes home.

        Args:
            keep: the version in its place: what that allows at this price stays.
        """
        for key, away in list(self._books.away.items()):
            if away.signed.key == signed.key and not away.allowed_by(keep):
                self.recall(now_us, key, TradeReason.ENDED)

    def tick(self, now_us: int) -> None:
        for key, away in list(self._called.items()):
            if now_us >= away.say_at_us and self._reachable(away.partner):
                self.recall(now_us, key, away.recalled, again=True)

    def wake_at_us(self) -> int | None:
        times = (each.say_at_us for each in self._called.values() if self._reachable(each.partner))
        return min(times, default=None)

    def _say_ended(self, away: AwayTask, reason: TradeReason | str) -> None:
        code = reason.value if isinstance(reason, TradeReason) else reason
        self._effects.say(away.partner, away.ended(code))


def _nobody(now_us: int, away: AwayTask) -> None:
    """Nobody listens yet."""
