"""Mistakes in how fragments move and boxes are split, each with a seed of its scenario that notices it."""

from __future__ import annotations

from dataclasses import replace

from medusa.engine.operator_kinds import OPERATORS
from medusa.engine.repartition.rows import cut_distinct
from medusa.engine.repartition.tables import StateCut
from medusa.nodes.catalog.kept_moves import Ownership
from medusa.nodes.fragment.host import FragmentHost
from medusa.nodes.migration.automaton import TargetState
from medusa.nodes.migration.incoming import IncomingMoves
from medusa.nodes.migration.outgoing import OutgoingMoves
from medusa.nodes.migration.rerouting import Rerouting
from medusa.nodes.migration.standby import StandbyFragment
from medusa.nodes.repartition.automaton import SplitState
from medusa.nodes.repartition.job import RepartitionJob
from medusa.nodes.repartition.successor import SuccessorFragment
from medusa.query.boxes import Distinct


def starts_before_it_persisted(monkeypatch):
    """The target feeds and emits before its disk says that the fragment is its own."""
    honest = IncomingMoves._look

    def hasty(self, now_us, taking):
        honest(self, now_us, taking)
        if taking.state is TargetState.TAKING and taking.spec.name in self._takings:
            self._take(now_us, taking)

    monkeypatch.setattr(IncomingMoves, "_look", hasty)


def handed_over_before_it_persisted(monkeypatch):
    """The owner says that it stopped before its disk does."""
    honest = OutgoingMoves._handing

    def hasty(self, now_us, order, due):
        if order.handing is not None and not order.handing.handed:
            self._fragments[order.fragment].freeze()
            order.handing.hand_over(now_us)
        honest(self, now_us, order, due)

    monkeypatch.setattr(OutgoingMoves, "_handing", hasty)


def goes_on_after_it_handed_over(monkeypatch):
    """The owner says that it stopped, and feeds and emits on."""
    monkeypatch.setattr(FragmentHost, "freeze", lambda self: None)
    honest = StandbyFragment.freeze
    monkeypatch.setattr(StandbyFragment, "freeze", honest)


def never_while_it_takes(monkeypatch):
    """The target denies what is just on its way to its disk."""
    honest = IncomingMoves.settle

    def hasty(self, now_us, peer, message):
        taking = self._takings.get(message.fragment)
        if taking is not None and taking.state is TargetState.TAKING:
            del self._takings[message.fragment]
            self._kept.taken.pop(message.fragment, None)
            honest(self, now_us, peer, message)
            self._takings[message.fragment] = taking
        else:
            honest(self, now_us, peer, message)

    monkeypatch.setattr(IncomingMoves, "settle", hasty)


def what_follows_emits(monkeypatch):
    """The target's copy answers and sends while the owner does."""
    honest = StandbyFragment.standing

    def loud(self, now_us, readers):
        for output in self.outputs.values():
            output.sender.muted = False
        honest(self, now_us, readers)

    monkeypatch.setattr(StandbyFragment, "standing", loud)


def one_row_too_far(monkeypatch):
    """The target asks upstream for the row after the one that it wants."""
    honest = StandbyFragment.own

    def far(self, now_us, *args, **options):
        for input in self.inputs.values():
            if input.fed_seq:
                input.fed_seq += 1
        honest(self, now_us, *args, **options)

    monkeypatch.setattr(StandbyFragment, "own", far)


def readers_are_told_once(monkeypatch):
    """Who had it tells its readers where it went, and never again."""
    monkeypatch.setattr(Rerouting, "tick", lambda self, now_us: None)
    monkeypatch.setattr(Rerouting, "wake_at_us", lambda self: None)


def the_target_stays_expected(monkeypatch):
    """An attempt that ends leaves upstream with a reader that never comes."""
    monkeypatch.setattr(Rerouting, "_unexpect", lambda self, now_us, peer, message: False)


def the_same_epoch(monkeypatch):
    """Who takes it goes on in the epoch of who had it."""
    monkeypatch.setattr(Ownership, "epoch", lambda self, fragment: 1)


def the_coordinator_is_not_told(monkeypatch):
    """The node that coordinates the query never learns who has its fragments."""
    monkeypatch.setattr(Rerouting, "_placed", lambda self, peer, message: False)


def gives_up_what_it_handed_over(monkeypatch):
    """The owner takes the fragment back when the target goes away, whatever that has on its disk."""
    monkeypatch.setattr(OutgoingMoves, "_said", lambda self, order: False)


def denies_after_its_restart(monkeypatch):
    """A target that has restarted says of what it took that it never did."""
    honest = IncomingMoves.start

    def forgetful(self, now_us):
        self._kept.taken.clear()
        honest(self, now_us)

    monkeypatch.setattr(IncomingMoves, "start", forgetful)


MOVED = {
    "the target starts before it persisted": (0, starts_before_it_persisted),
    "handed over before it persisted": (4, handed_over_before_it_persisted),
    "the owner goes on after it handed over": (0, goes_on_after_it_handed_over),
    "never, while it takes": (16, never_while_it_takes),
    "what follows emits": (0, what_follows_emits),
    "one row too far": (3, one_row_too_far),
    "readers are told once": (107, readers_are_told_once),
    "the target stays expected": (1, the_target_stays_expected),
    "the same epoch": (0, the_same_epoch),
    "the coordinator is not told": (7, the_coordinator_is_not_told),
    "gives up what it handed over": (35, gives_up_what_it_handed_over),
    "denies after its restart": (35, denies_after_its_restart),
}
"""Name: the seed that must notice it, and the mistake."""


def new_ones_go_before_it_persisted(monkeypatch):
    """The parts of a box feed and emit before the disk says that they are there."""
    honest = RepartitionJob._switch

    def hasty(self, now_us):
        honest(self, now_us)
        if self.state is SplitState.SWITCHING:
            self._go(now_us)

    monkeypatch.setattr(RepartitionJob, "_switch", hasty)


def what_waited_is_forgotten(monkeypatch):
    """Rows that came while a box was split are fed to nobody."""
    monkeypatch.setattr(SuccessorFragment, "_take_waiting", lambda self, old: None)


def new_ones_begin_one_row_too_far(monkeypatch):
    """Their first checkpoint is of a place behind that of the state in it."""
    honest = SuccessorFragment.base

    def far(self, now_us):
        inputs = [input for (source, _), input in self.inputs.items() if source in self.outer]
        for input in inputs:
            input.fed_seq += 1
        token = honest(self, now_us)
        for input in inputs:
            input.fed_seq -= 1
        self._writing.positions[:] = [(input, input.fed_seq, us) for input, _, us in self._writing.positions]
        return token

    monkeypatch.setattr(SuccessorFragment, "base", far)


def what_was_sent_is_sent_again(monkeypatch):
    """Rows that the old fragment has sent leave the new one too."""
    honest = SuccessorFragment._relieve

    def twice(self, old, gone):
        honest(self, old, gone)
        for sink in self._later:
            self.outputs[sink].rows = self.outputs[sink].given

    monkeypatch.setattr(SuccessorFragment, "_relieve", twice)
    monkeypatch.setattr(SuccessorFragment, "sent", lambda self, outputs: None)


def one_side_of_a_join_goes_to_the_first_part(monkeypatch):
    """Rows that wait for partners are where their keys aren't."""
    honest = StateCut.owners
    monkeypatch.setattr(
        StateCut, "owners", lambda self, keys, input=0: honest(self, keys, input) * (1 if input == 0 else 0)
    )


def what_was_seen_is_forgotten(monkeypatch):
    """Parts of a ``distinct`` begin as if nothing had come."""

    def forgetful(cut):
        tables, meta, seen = cut_distinct(cut)
        return [{name: each.slice(0, 0) for name, each in part.items()} for part in tables], meta, seen

    kind = OPERATORS[Distinct]
    assert kind.repartition is not None
    planted = replace(kind, repartition=replace(kind.repartition, cut=forgetful))
    monkeypatch.setitem(OPERATORS, Distinct, planted)


SPLIT = {
    "the new ones begin one row too far": (5, new_ones_begin_one_row_too_far),
    "what was sent is sent again": (3, what_was_sent_is_sent_again),
    "the new ones go before it persisted": (0, new_ones_go_before_it_persisted),
    "what waited is forgotten": (17, what_waited_is_forgotten),
    "what was seen is forgotten": (9, what_was_seen_is_forgotten),
}
"""As ``MOVED``, of the scenario ``splits``."""
