"""Mistakes in how others stand by for fragments and take them over; ``tests.sim.planting`` plants one."""

from __future__ import annotations

from tests.sim.planting import Edit, Mistake, edit

__all__ = ["BY_METHOD", "COORDINATORS", "HANDOVERS", "STANDBY"]

_SCENARIOS = ("standby",)

STANDBY: dict[str, Mistake] = {
    "a secondary acknowledges what is still to come": Mistake(
        area="replication",
        about="A secondary says that it has one frame more than it has. The owner lets go what came of "
        "decisions that nobody has who stands by.",
        edits=edit(
            "nodes.migration.state_receiver:StateReceiver.tick",
            "frames=self.done,",
            "frames=self.done + (self._secondary and self._opened),",
        ),
        scenarios=_SCENARIOS,
        seed=6,
    ),
    "a secondary acknowledges out of order": Mistake(
        area="replication",
        about="A frame that comes before one that was lost counts as if both were there.",
        edits=edit(
            "nodes.migration.state_receiver:StateReceiver._take",
            "self._told = -1",
            "self._told = -1; self._frames = max(self._frames, message.frame + 1)",
        ),
        scenarios=_SCENARIOS,
        seed=18,
    ),
    "what is fed is taken for what is on its disk": Mistake(
        area="replication",
        about="The owner takes a checkpoint for covered once its secondary has fed as much. Senders forget "
        "rows; who takes "
        "over, dies and comes back has them nowhere.",
        edits=edit(
            "nodes.migration.state_sender:StateSender.got",
            "self._marks[0][0] < message.durable",
            "self._marks[0][0] < message.frames",
        ),
        scenarios=_SCENARIOS,
        seed=6,
    ),
    "senders forget what the owner's checkpoint holds": Mistake(
        area="durability",
        about="Input is acknowledged once it is on the owner's disk, whatever its secondaries have. What "
        "the owner's "
        "machine had alone is lost with it.",
        edits=edit(
            "nodes.fragment.durability:Secondaries.covers",
            "return all(moment.token <= at for at in self._covered.values())",
            "return True",
        ),
        scenarios=_SCENARIOS,
        seed=1,
    ),
    "who takes the role over doesn't ask whether all is there": Mistake(
        area="recovery",
        about="The coordinator was lost before a node's disk had its part. Its successor has the query run "
        "without that for ever.",
        edits=edit(
            "nodes.deploy.coordinator:DeploymentCoordinator.took_over",
            "self._succeeded.begin(now_us, query)",
            "pass",
        ),
        scenarios=_SCENARIOS,
        seed=1548,
        shows="SimulationError: liveness",
    ),
    "a removal of what isn't known yet says nothing": Mistake(
        area="recovery",
        about="A node that hears the removal of a query before its configuration keeps that for ever, and "
        "takes its part out of the next query of that name once somebody says that this one was removed.",
        edits=edit(
            "nodes.fragments:Fragments.remove",
            "self._catalog.is_over(query, message.life)",
            "pass",
        ),
        scenarios=_SCENARIOS,
        seed=1641,
        shows="SimulationError: liveness",
    ),
    "of two secondaries one is counted twice": Mistake(
        area="durability",
        about="The word of one that stands by counts for the other one too. Where both it and the owner are "
        "lost, the other goes on without decisions that were shown; rows are gone that were acknowledged.",
        edits=edit(
            "nodes.fragment.durability:Secondaries.released",
            "min(self._decided.values(), default=ALL)",
            "max(self._decided.values(), default=ALL)",
        )
        + edit(
            "nodes.fragment.durability:Secondaries.covers",
            "return all(moment.token <= at for at in self._covered.values())",
            "return not self._covered or any(moment.token <= at for at in self._covered.values())",
        ),
        scenarios=_SCENARIOS,
        seed=4,
    ),
    "a publisher's count runs ahead of the secondary": Mistake(
        area="durability",
        about="What nodes send is acknowledged when the secondary has it, what publishers send when the "
        "owner's disk "
        "has it. A publisher forgets rows that whoever takes over never had.",
        edits=edit(
            "nodes.fragment.host:FragmentHost.persisted",
            "self.checkpoint_on_disk = token",
            "self.checkpoint_on_disk = token; "
            "[i.receiver.durable(now_us, seq) for i, seq, _ in writing.positions if not i.judged]",
        ),
        scenarios=_SCENARIOS,
        seed=4,
    ),
    "decisions leave once they are on the owner's disk": Mistake(
        area="durability",
        about="Output leaves without the word of the secondaries. Who takes over decides otherwise, and "
        "readers have "
        "rows that never come again, or others twice.",
        edits=edit(
            "nodes.fragment.durability:Secondaries.released",
            "return min(self._decided.values(), default=ALL)",
            "return ALL",
        ),
        scenarios=_SCENARIOS,
        seed=4,
    ),
    "what a checkpoint holds back leaves at a restart": Mistake(
        area="durability",
        about="Output that waited for a secondary is in the owner's checkpoint; an owner that comes back "
        "sends it at once.",
        edits=edit(
            "nodes.fragment.outputs:outputs_of",
            "guarded=guarded,",
            "guarded=False,",
        ),
        scenarios=_SCENARIOS,
        seed=20,
    ),
    "a stale owner doesn't step down": Mistake(
        area="succession",
        about="An owner that hears that another node has its fragment goes on with it.",
        edits=edit(
            "nodes.recovery.succession:Succession.decided",
            "case Step.STEP_DOWN if hosted is not None:",
            "case Step.STEP_DOWN if hosted is not None and hosted.frozen:",
        ),
        scenarios=_SCENARIOS,
        seed=9,
    ),
    "its own vote counts before it is on disk": Mistake(
        area="agreement",
        about="A proposer counts what it has said itself before its disk has it. It dies, votes otherwise "
        "in its next "
        "life, and one number has two configurations.",
        edits=edit(
            "nodes.agreement.agreement:Agreement._ask",
            "self._own.append((self._voter.token(query), own))",
            "self._own.append((0, own))",
        ),
        scenarios=_SCENARIOS,
        seed=1,
    ),
    "a vote leaves before it is on disk": Mistake(
        area="agreement",
        about="A voter answers before its disk has what it says.",
        edits=edit(
            "nodes.agreement.agreement:Agreement._asked",
            "self._saver.send(peer, vote, after=self._voter.token(vote.query))",
            "self._outbox.send(peer, vote)",
        ),
        scenarios=_SCENARIOS,
        seed=1,
    ),
    "half of the voters decide": Mistake(
        area="agreement",
        about="Half of the voters are enough, so two halves decide two things.",
        edits=edit(
            "wire.messages.configuration:Configuration.majority",
            "return len(self.voters) // 2 + 1",
            "return (len(self.voters) + 1) // 2",
        ),
        scenarios=_SCENARIOS,
        seed=11,
    ),
    "those that were heard lately decide": Mistake(
        area="agreement",
        about="More than half of the voters that the proposer doesn't suspect are enough.",
        edits=edit(
            "nodes.agreement.bid:Bid.won",
            ">= current.majority",
            ">= (len(current.voters) - len(self.suspects)) // 2 + 1",
        ),
        scenarios=_SCENARIOS,
        seed=11,
    ),
    "one of two nodes decides alone": Mistake(
        area="agreement",
        about="Where only two nodes vote, one that hears the other no more takes over. Both run when only "
        "the link between "
        "them is broken.",
        edits=edit(
            "wire.messages.configuration:Configuration.majority",
            "return len(self.voters) // 2 + 1",
            "return len(self.voters) // 2 + (len(self.voters) > 2)",
        ),
        scenarios=_SCENARIOS,
        seed=24,
    ),
    "an old configuration is followed": Mistake(
        area="agreement",
        about="A node goes by what it was told last, whatever the number: an announcement that comes late "
        "puts a place back "
        "in charge that has been counted out.",
        edits=(
            Edit(
                "nodes.agreement.agreement:Agreement._configured",
                "elif current is None or told.number > current.number:",
                "elif current is None or told.number != current.number:",
            ),
            Edit(
                "nodes.agreement.agreement:Agreement._learn",
                "old.number >= new.number",
                "old.number == new.number",
            ),
        ),
        scenarios=_SCENARIOS,
        seed=1,
    ),
    "a secondary lets go what its owner hasn't": Mistake(
        area="replication",
        about="What a secondary makes counts as sent at once. When it takes over it shows what another "
        "secondary doesn't "
        "have.",
        edits=edit(
            "nodes.migration.standby:StandbyFragment.__init__",
            "self.durability.require((owner,))",
            "pass",
        ),
        scenarios=_SCENARIOS,
        seed=2,
    ),
    "who was proposed is forgotten": Mistake(
        area="succession",
        about="An owner proposes a secondary, loses it, and goes on without its word, though voters may yet "
        "decide that it "
        "counts.",
        edits=edit(
            "nodes.recovery.succession:Succession.undecided",
            "return [node for node in self._offered.get(replicas.fragment, ()) if node not in "
            "replicas.secondaries]",
            "return []",
        ),
        scenarios=_SCENARIOS,
        seed=15,
    ),
    "a node is counted as soon as it is near": Mistake(
        area="succession",
        about="A node is proposed as secondary before it has all that was shown and acknowledged until then.",
        edits=edit(
            "nodes.recovery.proposals:Proposals._joining",
            "return [node for node in self._coming(replicas) if hosted.stands_in(node)]",
            "return self._coming(replicas)",
        ),
        scenarios=_SCENARIOS,
        seed=1,
    ),
    "an owner that wakes drops what its successor hasn't got": Mistake(
        area="succession",
        about="Who hears that another node was chosen drops the fragment at once. That one may have lost "
        "what it followed by then, and nobody has the state.",
        edits=edit(
            "nodes.recovery.succession_table:role_of",
            "return Role.PREDECESSOR if node in replicas.predecessors and knows else Role.OTHER",
            "return Role.OTHER",
        ),
        tests="tests/nodes/recovery/test_given_back.py"
        "::test_the_owner_before_goes_on_with_what_it_kept[nodes-between]",
    ),
    "who has lost its disk gives the fragment back": Mistake(
        area="succession",
        about="An owner that doesn't know whether it has begun gives the fragment to the one before it, "
        "whose state is older than rows that may have been shown.",
        edits=edit(
            "nodes.catalog.catalog:Catalog.never_owned",
            "return self.is_whole and self.ownership.stood_by.get(fragment, epoch) < epoch",
            "return True",
        ),
        beside=edit(
            "nodes.recovery.succession:Succession.lost",
            'self._say_without_state(replicas, "the disk of this node, its owner, was lost", began=True)',
            'self._say_without_state(replicas, "the disk of this node, its owner, was lost", began=False)',
        ),
        tests="tests/nodes/recovery/test_given_back.py"
        "::test_who_has_lost_its_disk_may_have_begun_and_gives_nothing_back",
    ),
    "who takes over says at once that it has begun": Mistake(
        area="succession",
        about="The configuration that chooses a successor names no owner before it, so that one drops what "
        "it has before its successor's disk knows.",
        edits=edit(
            "nodes.agreement.changes:taken_from",
            "owned_by(replicas, owner, left, (replicas.owner, *replicas.predecessors))",
            "owned_by(replicas, owner, left)",
        ),
        tests="tests/nodes/recovery/test_given_back.py"
        "::test_the_owner_before_goes_on_with_what_it_kept[nodes-later]",
    ),
    "a restarted owner needs nobody's word": Mistake(
        area="succession",
        about="An owner that comes back lets go what it decides without its secondaries, until it hears the "
        "next "
        "configuration.",
        edits=edit(
            "nodes.recovery.succession:Succession._require",
            "dict.fromkeys((*replicas.secondaries, *self.undecided(replicas)))",
            "replicas.secondaries if self._replication._links else ()",
        ),
        scenarios=_SCENARIOS,
        seed=138,
        tests="tests/nodes/test_taken_over.py"
        "::test_an_owner_that_comes_back_acknowledges_what_its_secondary_has_and_no_more",
    ),
    "who takes over begins before its disk says so": Mistake(
        area="succession",
        about="A successor feeds and sends before its catalog says that the fragment is its own. It dies, "
        "and nobody has it.",
        edits=edit(
            "nodes.recovery.succession:Succession._look",
            "if self._saver.durable < each.token:",
            "if self._saver.durable < 0:",
        ),
        scenarios=_SCENARIOS,
        seed=2,
    ),
    "taken over in the epoch of before": Mistake(
        area="succession",
        about="Who takes over goes on in the epoch of the lost owner, so nobody can refuse that one.",
        edits=edit(
            "nodes.agreement.changes:owned_by",
            "epoch=replicas.epoch + 1",
            "epoch=replicas.epoch",
        ),
        scenarios=_SCENARIOS,
        seed=2,
    ),
    "one that joined late counts as having all": Mistake(
        area="durability",
        about="A new secondary's word counts as said for all that was decided before it said anything.",
        edits=edit(
            "nodes.fragment.durability:Secondaries.require",
            "self._decided = {each: self._decided.get(each, 0) for each in secondaries}",
            "self._decided = {each: self._decided.get(each, 1 << 40) for each in secondaries}",
        ),
        scenarios=_SCENARIOS,
        seed=4,
    ),
    "who reads in the place of another has it all": Mistake(
        area="rewiring",
        about="When a reader of a stream is replaced, rows that the lost one had received but not stored "
        "are forgotten.",
        edits=edit(
            "nodes.migration.rerouting:Rerouting.succeeded",
            "sender.expect(new, None if view is None else view.durable)",
            "sender.expect(new, None if view is None else view.acked)",
        ),
        scenarios=_SCENARIOS,
        seed=6,
    ),
    "fencing by place instead of by configuration": Mistake(
        area="fencing",
        about="Rows are kept for whoever asks for them, by whichever configuration. An owner that wakes "
        "after it was replaced reads in its old place, and who sends to it keeps rows for it for ever.",
        edits=edit(
            "nodes.recovery.query_fence:QueryFence.refusal",
            "if ours == theirs or not ours or not theirs:",
            "if True:",
        ),
        # That the plan names its readers keeps it out too, once who sends has heard of the takeover.
        beside=edit(
            "nodes.security.sessions:check_reader",
            "if attach.plain or (attach.name and client):",
            "if True:",
        ),
        scenarios=_SCENARIOS,
        seed=18,
        shows="SimulationError: fenced",
        tests="tests/nodes/recovery/test_query_fence.py",
    ),
}
"""By name."""


COORDINATORS: dict[str, Mistake] = {
    "two coordinators: who was replaced goes on": Mistake(
        area="recovery",
        about="A coordinator that hears that another node has its role keeps its plan. Both answer for the "
        "query, and each removes or installs what the other doesn't know of.",
        edits=edit(
            "nodes.recovery.coordination:Coordination.decided",
            "elif new.coordinator != self._me and deployment is not None",
            "elif False and deployment is not None",
        ),
        scenarios=("coordinators",),
        seed=3,
        shows="SimulationError: coordinator",
    ),
    "two coordinators: who proposes itself begins at once": Mistake(
        area="recovery",
        about="A voter coordinates before the others have decided so. Another one may be chosen.",
        edits=edit(
            "nodes.recovery.coordination:Coordination._watch",
            "self._agreement.propose(now_us, query, silent.change, suspects=(coordinator,))",
            "self._agreement.propose(now_us, query, silent.change, suspects=(coordinator,)); "
            "self._role.took_over(now_us, query, current.parts)",
        ),
        scenarios=("coordinators",),
        seed=0,
        shows="SimulationError: coordinator",
    ),
    "who comes back is not told that the query was removed": Mistake(
        area="recovery",
        about="A node that was away while a query was removed hears so, and does nothing: what it has of it "
        "stays for ever.",
        edits=edit("nodes.agreement.telling:Announcements.answered", "self._ended(now_us, query)", "pass"),
        scenarios=("coordinators",),
        seed=1,
        shows="SimulationError: liveness",
    ),
    "a coordinator that was replaced is the only one to be obeyed": Mistake(
        area="recovery",
        about="Fragments go on to obey who deployed them: its successor removes the query in vain.",
        edits=edit(
            "nodes.recovery.coordination:Coordination.decided",
            "owners[query] = new.coordinator",
            "owners[query] = owners[query]",
        )
        + edit(
            "nodes.fragments:Fragments.remove",
            "told_apart = message.life != 0 and kept is not None",
            "told_apart = False",
        ),
        scenarios=("coordinators",),
        seed=0,
        shows="SimulationError: liveness",
    ),
}
"""Of who coordinates."""


HANDOVERS: dict[str, Mistake] = {
    "who had it before has no word": Mistake(
        area="durability",
        about="The new owner shows what it decides while the old one is still a secondary and hasn't got "
        "that. If the old one has it back readers see another order.",
        edits=edit(
            "nodes.recovery.succession:Succession._look",
            "self._owned(now_us, each.hosted, replicas.secondaries)",
            "self._owned(now_us, each.hosted, ())",
        ),
        scenarios=("handover",),
        seed=11,
    ),
    "it is said to be done once the target was asked": Mistake(
        area="handovers",
        about="A client hears that a fragment is at another node, which may refuse it or die first.",
        edits=edit(
            "nodes.recovery.handovers:Handovers._ask",
            "self._outbox.send(order.to, move)",
            "self._outbox.send(order.to, move); self._done(order, 0)",
        ),
        scenarios=("handover",),
        seed=5,
        shows="SimulationError: moves",
    ),
    "who is asked counts the owner out": Mistake(
        area="succession",
        about="The target proposes itself as if the owner were silent, so voters that hear the owner refuse.",
        edits=edit(
            "nodes.recovery.proposals:Proposals._successions",
            "wanted[query] = ()",
            "wanted[query] = (replicas.owner,)",
        )
        + edit(
            "nodes.recovery.proposals:Proposals._succeeding",
            "wanted = not suspects and self._wanted(each)",
            "wanted = self._wanted(each)",
        ),
        scenarios=("handover",),
        seed=0,
        shows="SimulationError: moves",
    ),
}
"""Of fragments that are moved to those that stand by for them."""


BY_METHOD: dict[str, Mistake] = {
    "input is acknowledged before the secondary holds it": Mistake(
        area="passive standby",
        about="Senders forget what the owner's own disk has. What its machine had alone is lost with it.",
        edits=edit(
            "nodes.fragment.durability:Secondaries.covers",
            "return all(moment.token <= at for at in self._covered.values())",
            "return True",
        ),
        scenarios=("passive",),
        seed=0,
        shows="SimulationError: trimmed",
    ),
    "a checkpoint on a wrong base": Mistake(
        area="passive standby",
        about="Files that didn't come are taken from whatever checkpoint is held, whether they fit or not.",
        edits=edit(
            "nodes.recovery.held_checkpoint:CheckpointReceiver._check_base",
            "if self._manifest.files.get(name) != facts[name]:",
            "if False:",
        )
        + edit(
            "nodes.recovery.checkpoint_shipping:CheckpointSender._frames",
            "if known is not None and known.nbytes == len(view) and known.crc == crc32c(view):",
            "if known is not None and known.nbytes == len(view):",
        ),
        scenarios=("passive",),
        seed=3,
        shows="",
    ),
    "a delta on a wrong base": Mistake(
        area="passive standby",
        about="A delta is put on another one than it stands on: that makes the state of no moment.",
        edits=edit(
            "nodes.recovery.checkpoint_shipping:CheckpointSender._frames",
            "deltas = (*held.deltas, *deltas)",
            "deltas = (*held.deltas[:-1], *deltas)",
        )
        + edit(
            "nodes.recovery.held_checkpoint:CheckpointReceiver._check_deltas",
            "deltas[: len(held)] != held or not new or ends != wanted or new[-1].token != token",
            "False",
        ),
        scenarios=("passive",),
        seed=2,
        shows="",
    ),
    "a delta is left out": Mistake(
        area="passive standby",
        about="Of the deltas since what the secondary holds only the newest goes.",
        edits=edit(
            "runtime.store.checkpoint_copy:read_copy",
            "tuple(found) if stands else ()",
            "tuple(found[-1:]) if stands else ()",
        ),
        tests="tests/runtime/test_node_deltas.py::test_a_copy_on_a_base_has_all_deltas_since",
    ),
    "output released before it is covered": Mistake(
        area="passive standby",
        about="Output leaves once the checkpoint with its decision went, and not once it is held.",
        edits=edit(
            "nodes.recovery.checkpoint_shipping:CheckpointSender.copied",
            "self._moved_us = now_us",
            "self._moved_us, self.decided = now_us, self._feed.arrived()",
        ),
        tests="tests/nodes/recovery/test_shipped_deltas.py::test_output_waits_until_a_checkpoint_is_held",
    ),
    "rows that were held are not counted": Mistake(
        area="amnesia",
        about="Whoever goes on counts what was lost before, and not what was held: a gap nobody tells of.",
        edits=edit(
            "nodes.diskless.host:MemoryOnlyFragmentHost._start",
            "self.known_lost = base.lost + max(base.held, 0)",
            "self.known_lost = base.lost",
        ),
        scenarios=("amnesia",),
        seed=3,
        shows="SimulationError: counted",
    ),
    "rows that are lost are counted for another source": Mistake(
        area="amnesia",
        about="What a union held is all of its first source: the other one's gap isn't told.",
        edits=edit(
            "runtime.engine_host.host:EngineHost._run", "running.holding.feeds(effect.stream)", "pass"
        ),
        scenarios=("amnesia",),
        seed=4,
        shows="SimulationError: by source",
    ),
    "a secondary's checkpoint counted twice": Mistake(
        area="durability",
        about="Of two secondaries the one that is further counts for both: senders forget too much.",
        edits=edit(
            "nodes.fragment.durability:Secondaries.covers",
            "return all(moment.token <= at for at in self._covered.values())",
            "return not self._covered or any(moment.token <= at for at in self._covered.values())",
        ),
        scenarios=("standby",),
        seed=4,
        shows="SimulationError: trimmed",
    ),
    "a secondary's decisions counted twice": Mistake(
        area="durability",
        about="Of two secondaries the one with more decisions counts for both: the other lacks what left.",
        edits=edit(
            "nodes.fragment.durability:Secondaries.released",
            "return min(self._decided.values(), default=ALL)",
            "return max(self._decided.values(), default=ALL)",
        ),
        scenarios=("standby",),
        seed=4,
        shows="SimulationError: decided",
    ),
}
"""Of how others stand by: by checkpoints, by computing the same, or by nothing."""
