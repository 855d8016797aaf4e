"""Guests: tasks that run here for their consumers, and when one goes back.

A guest leaves where it is called back, where its contract ends, where it takes more than was said, where the
capacity is exceeded, and where it costs more than it earns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from medusa.market.negotiation.backoff import Backoff
from medusa.market.negotiation.books import GuestTask, LoadBooks, kept_deal
from medusa.market.negotiation.contract_book import SignedContract
from medusa.market.negotiation.decisions import TradeLog
from medusa.market.negotiation.effects import HandBack, TradeEffects
from medusa.market.negotiation.kept import KeptDeal
from medusa.market.negotiation.reasons import TradeReason, reason_text
from medusa.market.negotiation.settings import PPM, TradeSettings
from medusa.market.work import TradedTask, nano_units_per_row

__all__ = ["GuestKeeper"]

STRAYS_MAX = 1_024
"""So many tasks whose room went before they came are remembered."""

_ROUNDING = 1e-6


class GuestKeeper:
    """Keeps them, and gives them back.

    Args:
        distrust: partners that said too little.
        call_back: has a guest that was passed on come back here first; with the code.
    """

    def __init__(
        self,
        settings: TradeSettings,
        *,
        books: LoadBooks,
        distrust: Backoff,
        log: TradeLog,
        effects: TradeEffects,
        call_back: Callable[[int, str, str], None],
    ) -> None:
        self._settings, self._books, self._distrust = settings, books, distrust
        self._log, self._effects, self._call_back = log, effects, call_back
        self._left: Callable[[int, GuestTask], None] = _nobody
        self._strays: dict[str, tuple[SignedContract, int, str]] = {}

    def listen(self, left: Callable[[int, GuestTask], None]) -> None:
        """Have this told when a task is no guest any more."""
        self._left = left

    def kept(self) -> Iterator[KeptDeal]:
        """What has to outlive a restart."""
        for guest in self._books.guests.values():
            if not guest.virtual:
                yield kept_deal("guest", guest, guest.leaving)

    def settle(
        self, now_us: int, signed: SignedContract, number: int, price_micro: int, task: TradedTask
    ) -> GuestTask:
        """It runs here from now on."""
        contract = signed.contract
        guest = GuestTask(
            task=task,
            signed=signed,
            number=number,
            price_micro=price_micro,
            nano=nano_units_per_row(task.cpu_ns_per_row, task.bytes_per_row, contract.bytes_per_unit),
            since_us=now_us,
            reckoned_us=now_us,
            seen_us=now_us,
        )
        self._books.guests[task.name, contract.shadow] = guest
        if not contract.shadow:
            self._books.came(now_us, task.name)
        return guest

    def measured(self, now_us: int) -> None:
        """Judge the guests by what was just measured."""
        for (name, virtual), guest in list(self._books.guests.items()):
            if virtual:
                continue
            task = self._books.task(name)
            if task is not None:
                guest.measured(now_us, task, self._settings.settle_us)
                self._judge_guest(now_us, guest, task)
            elif (name, False) in self._books.away:
                guest.measured(now_us, guest.now, self._settings.settle_us)
            elif now_us - guest.seen_us >= self._settings.absent_us:
                self._effects.say(guest.partner, guest.ended(TradeReason.GONE.value))
                self._log.note_task(now_us, "ended", guest, TradeReason.GONE.value)
                self._drop(now_us, guest)
        for name in list(self._strays):
            if self._books.task(name) is not None:
                self.give_stray(now_us, name)

    def _judge_guest(self, now_us: int, guest: GuestTask, task: TradedTask) -> None:
        if guest.leaving or now_us - guest.since_us < self._settings.settle_us or not task.rows_per_s_milli:
            return
        takes = nano_units_per_row(
            task.cpu_ns_per_row, task.bytes_per_row, guest.signed.contract.bytes_per_unit
        )
        if takes * PPM > guest.nano * (PPM + self._settings.tolerance_ppm):
            # For as long as a task is held: who is served again sooner gains by it.
            self._distrust.failed(now_us, ("understates", guest.partner), first_us=self._settings.hold_us)
            text = f"a row takes {takes} nano-units, {guest.nano} was said"
            self.give_back(now_us, guest, TradeReason.UNDERSTATED.value, text)

    def shed(self, now_us: int) -> int | None:
        """Give a guest back that is beyond a limit, or costs more than it earns; when to look again."""
        guests = [each for each in self._books.guests.values() if not each.leaving]
        if any(each.leaving and not each.virtual for each in self._books.guests.values()):
            return None
        if not guests:
            return None
        look_us: int | None = None
        # Each was worth its price when it came, to what was here then. So those that came last go first, and
        # a guest isn't judged by what was taken after it: with the same load of our own none is at a loss.
        shadows = any(guest.virtual for guest in guests)
        load = {
            virtual: self._books.load(virtual=virtual) for virtual in ((False, True) if shadows else (False,))
        }
        overloaded, taken = self._books.overloaded, self._books.all_units_taken()
        for guest in reversed(guests):
            limit_milli = guest.signed.contract.units_per_s_max_milli
            here = guest.virtual or self._books.task(guest.task.name) is not None
            if taken[guest.signed.key] * 1_000 > limit_milli * (1 + _ROUNDING):
                self.give_back(now_us, guest, TradeReason.OVER_LIMIT.value, "")
                return None
            if not here:
                continue
            if overloaded and not guest.virtual and not guest.planned:
                self.give_back(now_us, guest, TradeReason.FULL.value, "")
                return None
            units, before = guest.units_now, load[guest.virtual]
            dear = units > 0 and self._books.saved(before, guest.now, units) > self._settings.above(
                guest.price_micro
            )
            for virtual in (True,) if guest.virtual else tuple(load):
                load[virtual] = load[virtual].minus(guest.now.use)
            dear = dear and not guest.planned
            lost_us = guest.loses(now_us, so=dear)
            if not dear:
                continue
            wait_us = max(
                self._settings.patience_us - lost_us, guest.since_us + self._settings.hold_us - now_us
            )
            if wait_us <= 0:
                self.give_back(now_us, guest, TradeReason.LOSS.value, "")
                return None
            look_us = min(now_us + wait_us, look_us or now_us + wait_us)
        return look_us

    def give_back(self, now_us: int, guest: GuestTask, code: str, text: str) -> None:
        """It goes back to who gave it; said again, it is confirmed again."""
        first = not guest.leaving
        if first:
            guest.leave(code, text)
            self._log.note_task(now_us, "handed_back", guest, code, text)
        self._effects.say(guest.partner, guest.ended(guest.leaving, guest.text))
        if guest.virtual:
            self._drop(now_us, guest)
        elif first and (guest.task.name, False) in self._books.away:
            self._call_back(now_us, guest.task.name, guest.leaving)
        elif first:
            self._hand_back(guest)

    def back_here(self, now_us: int, name: str) -> None:
        """A guest that had been passed on is here again: if it is to go back, it goes."""
        guest = self._books.guests.get((name, False))
        if guest is not None and guest.leaving and not guest.handed:
            self._hand_back(guest)

    def _hand_back(self, guest: GuestTask) -> None:
        guest.given()
        self._effects.append(
            HandBack(partner=guest.partner, task=guest.task.name, code=guest.leaving, text=guest.text)
        )

    def handed_back(self, now_us: int, name: str) -> None:
        """Its owner has it, or has given it up: it is no guest any more, nor one that came too late."""
        stray, guest = self._strays.pop(name, None), self._books.guests.get((name, False))
        if stray is not None or guest is not None:
            self._books.left(name)
        if guest is not None:
            self._drop(now_us, guest)

    def _drop(self, now_us: int, guest: GuestTask) -> None:
        """It is no guest any more."""
        del self._books.guests[guest.task.name, guest.virtual]
        if guest.virtual:
            guest.reckon(now_us, guest.task.rows_per_s_milli)
            self._books.virtual_over(guest)
        self._left(now_us, guest)

    def contract_over(self, now_us: int, signed: SignedContract, keep: SignedContract | None) -> None:
        """It has ended, was revoked, or replaced: those that came by it go home.

        Args:
            keep: the version in its place: what that allows at this price stays.
        """
        for guest in list(self._books.guests.values()):
            if guest.signed.key == signed.key and not guest.leaving and not guest.allowed_by(keep):
                self.give_back(now_us, guest, TradeReason.ENDED.value, "")

    # --- what came too late ---------------------------------------------------------------------

    def welcome(self, name: str) -> None:
        """Room is kept for it."""
        self._strays.pop(name, None)

    def stray(self, now_us: int, name: str, signed: SignedContract, number: int) -> None:
        """Its room is gone. If it turns up here all the same, it goes back."""
        self._strays[name] = signed, number, ""
        while len(self._strays) > STRAYS_MAX:
            del self._strays[next(iter(self._strays))]
        self.give_stray(now_us, name)

    def give_stray(self, now_us: int, name: str) -> None:
        """Give a task back that came too late, if it is here."""
        found = self._strays.get(name)
        if found is None or found[2] or self._books.task(name) is None:
            return
        signed, number, _ = found
        code = TradeReason.LATE.value
        self._strays[name] = signed, number, code
        self._log.note(
            now_us,
            "handed_back",
            signed.partner,
            signed.contract.id,
            negotiation=number,
            tasks=(name,),
            code=code,
        )
        self._effects.append(HandBack(partner=signed.partner, task=name, code=code, text=reason_text(code)))


def _nobody(now_us: int, guest: GuestTask) -> None:
    """Nobody listens yet."""
