"""Mistakes in what two owners have to do with each other, and in subscriptions that have names.

They are those of an engineer who hadn't written ``nodes/remote/``, ``nodes/dht/``,
``nodes/names/participant_catalog.py``, ``nodes/fragment/subscribers.py`` and ``nodes/security/registry.py``;
``tests.sim.planting`` plants one, and a seed of ``owners`` notices it.
"""

from __future__ import annotations

from tests.sim.planting import Mistake, edit

__all__ = ["OWNERS"]

_IN = ("owners",)

OWNERS: dict[str, Mistake] = {
    # --- four of a stranger, which only unit tests noticed ----------------------------------------
    "a revocation forgotten at a restart": Mistake(
        area="security",
        about="At start only revocations by the node's own participant are loaded: a key that another "
        "participant revoked is accepted again.",
        edits=edit(
            "nodes.security.registry:Registry._load",
            "self._revoke(statement)",
            "if statement.participant == self.participant:\n            self._revoke(statement)",
        ),
        tests="tests/nodes/test_statements.py",
        scenarios=_IN,
        seed=0,
        shows="SimulationError: revoked: ",
    ),
    "ages compared without the epoch": Mistake(
        area="DHT",
        about="Of two entries for a name the one with the larger sequence number wins whatever its epoch: "
        "the entry of a former owner replaces that of the current one.",
        edits=edit(
            "nodes.dht.storage:DhtStorage.put",
            "(age_of(held.entry), held.data) > (age_of(entry), data)",
            "(age_of(held.entry)[1], held.data) > (age_of(entry)[1], data)",
        ),
        tests="tests/nodes/test_between.py",
        scenarios=_IN,
    ),
    "a revocation without an end is forgotten": Mistake(
        area="remote definitions",
        about="A revocation of a definition that never expires counts as expired: a keeper that was away "
        "never hears of it and keeps the definition.",
        edits=edit(
            "nodes.remote.revocation:RemoteRevocations.forget_expired",
            "if 0 < each.expires_us < wall_us - 2 * SKEW_US",
            "if each.expires_us < wall_us - 2 * SKEW_US",
        ),
        tests="tests/nodes/test_remote_revoking.py",
        scenarios=_IN,
        seed=1,
        shows="SimulationError: defined: ",
    ),
    "what a named reader acknowledged isn't saved": Mistake(
        area="subscribers",
        about="An acknowledgement of a named subscription doesn't make a checkpoint due: after a crash of "
        "an otherwise idle node, rows acknowledged long before are sent again.",
        edits=edit(
            "nodes.fragment.subscribers:Subscribers.receive",
            "if view is not None and view.named and view.durable > before:",
            "if view is not None and view.named and view.durable > before and view.state is None:",
        ),
        tests="tests/nodes/test_subscribers.py",
        scenarios=_IN,
        seed=4,
    ),
    # --- remote definitions -----------------------------------------------------------------------
    "a name that was revoked still leads there": Mistake(
        area="remote definitions",
        about="The definer keeps a revoked definition among those that deployments use. Its keeper has "
        "forgotten it, so every later deployment of that query is refused.",
        edits=edit(
            "nodes.catalog.kept_definitions:RemoteKept.begin_revoking",
            "self.mapped.pop(name, None)",
            "self.mapped.get(name)",
        ),
        scenarios=_IN,
        seed=0,
    ),
    "a keeper answers before it has forgotten on disk": Mistake(
        area="remote definitions",
        about="A keeper says that it has dropped a definition before its catalog says so on disk: after "
        "a crash it keeps, and runs, what was revoked.",
        edits=edit(
            "nodes.remote.keeper:RemoteKeeper.drop",
            "self._saver.send(peer, Reply(request=message.request), after=self._saver.save())",
            "self._saver.save()\n    self._outbox.send(peer, Reply(request=message.request))",
        ),
        scenarios=_IN,
        seed=4,
    ),
    "the keeper's own revocation is only answered": Mistake(
        area="remote definitions",
        about="Who runs the keeper revokes what it keeps for others, is told that it is done, and it is "
        "still kept and run.",
        edits=edit(
            "nodes.remote.keeper:RemoteKeeper.revoke",
            "self._kept.forget_held(full)",
            "self._kept.held.get(full)",
        ),
        scenarios=_IN,
        seed=0,
    ),
    "what the keeper revoked is kept again": Mistake(
        area="remote definitions",
        about="A keeper doesn't compare the numbers of what it is asked: a late KeepRemote brings back what "
        "was dropped after it.",
        edits=edit("nodes.deploy.stale_requests:StaleRequests.install", "return True", "return False"),
        scenarios=_IN,
        seed=17,
        shows="SimulationError: defined: ",
    ),
    "an unanswered definition isn't taken back": Mistake(
        area="remote definitions",
        about="A definer that dies before its keeper has answered knows of nothing to "
        "take back: the keeper keeps it for ever.",
        edits=edit(
            "nodes.remote.definitions:RemoteDefinitions._take",
            "self._kept.revoking[message.name] = mapped  # If we die before it has answered.",
            "pass",
        ),
        scenarios=_IN,
        seed=5,
    ),
    # --- named subscriptions ----------------------------------------------------------------------
    "a reader's name isn't on disk when it is answered": Mistake(
        area="subscribers",
        about="A new name is attached at once, not once a checkpoint holds it: after a crash the program is "
        "told that there is no such subscription.",
        edits=edit(
            "nodes.fragment.subscribers:Subscribers._attach",
            "self._waiting.append(_Waiting(key, sink, peer, message))",
            "sender.receive(now_us, peer, message, key=key)",
        ),
        scenarios=_IN,
        seed=3,
    ),
    "a reader comes back to what it received": Mistake(
        area="subscribers",
        about="A named subscription goes on behind the last row that was received under it, not behind the "
        "last that was acknowledged: what its program hadn't done when it died is never sent again.",
        edits=edit(
            "wire.link.sender:Sender._asked",
            "if message.name and view is not None:\n        return view.durable",
            "if message.name and view is not None:\n        return max(view.durable, view.acked)",
        ),
        scenarios=_IN,
        seed=2,
    ),
    "a name's place is saved as what was received": Mistake(
        area="subscribers",
        about="A checkpoint records for a name what was received under it: after a crash of the node rows "
        "that its program hasn't acknowledged are gone.",
        edits=edit(
            "wire.link.sender:Sender.durable_positions",
            "return {key: view.durable for",
            "return {key: max(view.acked, view.durable) if view.named else view.durable for",
        ),
        scenarios=_IN,
        seed=23,
    ),
    # --- keys -------------------------------------------------------------------------------------
    "who comes up isn't told what was declared": Mistake(
        area="security",
        about="Statements are passed on to the nodes that are there, and not said again to one that comes "
        "up: who was away lets revoked keys in for ever.",
        edits=edit(
            "nodes.security.guard:Guard.came_up",
            "for data in (*own, *self.registry.to_pass_on()):",
            "for data in own:",
        ),
        scenarios=_IN,
        seed=3,
    ),
    "a revocation is answered before it is on disk": Mistake(
        area="security",
        about="Who declares a revocation is answered at once: after a crash the node lets the key in again, "
        "and nobody knows.",
        edits=edit(
            "nodes.security.guard:Guard.declare",
            "self._saver.send(peer, Reply(request=message.request), after=self._token)",
            "self._outbox.send(peer, Reply(request=message.request))",
        ),
        scenarios=_IN,
        seed=1,
    ),
    "certificates outlive their revocation": Mistake(
        area="security",
        about="A key that was certified counts although it was revoked: only configured keys are compared "
        "with what was revoked.",
        edits=edit(
            "nodes.security.registry:Registry._list",
            "if not self._is_revoked(one.key, one.participant):",
            "if one.key:",
        ),
        scenarios=_IN,
        seed=0,
    ),
    # --- the catalog between participants ---------------------------------------------------------
    "what is gone isn't said": Mistake(
        area="DHT",
        about="A stream that was removed is said no more, instead of being said to be gone: others find it "
        "until its entry expires.",
        edits=edit(
            "nodes.names.participant_catalog:ParticipantCatalog._publish",
            "self._say(now_us, name, said.entry.epoch, (), NOTHING, gone=True)",
            "pass",
        ),
        scenarios=_IN,
        seed=3,
    ),
    "a lost put isn't tried again": Mistake(
        area="DHT",
        about="An entry that too few members took isn't said again in the next round but only when it is due "
        "again, after a minute: until then nobody finds the name.",
        edits=edit("nodes.dht.member:DhtMember._said", "if not put.enough:", "if False:"),
        tests="tests/nodes/test_between.py::test_an_entry_that_too_few_took_is_said_again_in_the_next_round",
        scenarios=_IN,
    ),
    "sequences begin anew in each life": Mistake(
        area="DHT",
        about="The sequence of entries counts from 1 in each life: what a restarted node says is older than "
        "what is held of it, and is refused.",
        edits=edit(
            "nodes.names.participant_catalog:ParticipantCatalog._say",
            "sequence=max(wall_us, sequence, 1 + before.entry.sequence if before else 0)",
            "sequence=1 + before.entry.sequence if before else 1",
        ),
        tests="tests/nodes/test_between.py::test_what_a_restarted_node_says_is_younger_than_what_it_said_before",
        scenarios=_IN,
    ),
}
