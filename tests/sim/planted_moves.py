"""Mistakes in how fragments move, each with a seed of the scenario ``move`` that notices it."""

from __future__ import annotations

from medusa.mind.arrivals import Arrivals
from medusa.mind.hosting import Hosted
from medusa.mind.moves import Moves
from medusa.mind.moving import TargetState
from medusa.mind.shadow import Shadow


def starts_before_it_persisted(monkeypatch):
    """The target feeds and emits before its disk says that the fragment is its own."""
    honest = Arrivals._look

    def hasty(self, now_us, taking):
        honest(self, now_us, taking)
        if taking.state is TargetState.TAKING and taking.spec.name in self._takings:
            self._take(now_us, taking)

    monkeypatch.setattr(Arrivals, "_look", hasty)


def handed_over_before_it_persisted(monkeypatch):
    """The owner says that it stopped before its disk does."""
    honest = Moves._handing

    def hasty(self, now_us, order, due):
        if order.handing is not None and not order.handing.handed:
            order.handing.hand_over(now_us)
        honest(self, now_us, order, due)

    monkeypatch.setattr(Moves, "_handing", hasty)


def goes_on_after_it_handed_over(monkeypatch):
    """The owner says that it stopped, and feeds and emits on."""
    monkeypatch.setattr(Hosted, "freeze", lambda self: None)
    honest = Shadow.freeze
    monkeypatch.setattr(Shadow, "freeze", honest)


def never_while_it_takes(monkeypatch):
    """The target denies what is just on its way to its disk."""
    honest = Arrivals.settle

    def hasty(self, now_us, peer, message):
        taking = self._takings.get(message.fragment)
        if taking is not None and taking.state is TargetState.TAKING:
            del self._takings[message.fragment]
            self._kept.taken.pop(message.fragment, None)
            honest(self, now_us, peer, message)
            self._takings[message.fragment] = taking
        else:
            honest(self, now_us, peer, message)

    monkeypatch.setattr(Arrivals, "settle", hasty)


MOVED = {
    "the target starts before it persisted": (1, starts_before_it_persisted),
    "handed over before it persisted": (11, handed_over_before_it_persisted),
    "the owner goes on after it handed over": (1, goes_on_after_it_handed_over),
    "never, while it takes": (35, never_while_it_takes),
}
"""Name: the seed that must notice it, and the mistake."""
