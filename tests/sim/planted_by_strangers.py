"""Mistakes planted by an engineer who didn't write the code; ``tests.sim.planting`` plants one."""

from __future__ import annotations

from tests.sim.planting import Edit, Mistake, edit, planted

__all__ = ["MISTAKES", "Mistake", "planted"]

_CHAINS = ("crash", "chaos", "cut")
_NODES = ("nodes", "union", "spill", "selflinks")

MISTAKES: dict[str, Mistake] = {
    # --- links ------------------------------------------------------------------------------------
    "one row too few is skipped": Mistake(
        area="link",
        about="When a train is resent and its first rows have already arrived, the receiver skips one row "
        "too few and delivers that row twice.",
        edits=edit(
            "wire.link.receiver:Receiver._rows",
            "skip = self.next_seq - message.seq",
            "skip = max(self.next_seq - message.seq - 1, 0)",
        ),
        scenarios=_CHAINS,
        seed=0,
    ),
    "wanted next taken for durable": Mistake(
        area="link",
        about="The sender takes the row that a receiver asks for next as durable there and trims all rows "
        "below it. If the receiver crashes before its next checkpoint, those rows are lost.",
        edits=edit(
            "wire.link.sender:Sender._attach",
            "view.durable = wanted if message.plain else max(min(message.durable, wanted), known_durable)",
            "view.durable = wanted",
        ),
        scenarios=_CHAINS,
        seed=0,
    ),
    "bytes of the attachment before count": Mistake(
        area="link",
        about="A receiver that reattaches doesn't reset its count of received bytes, so it grants more "
        "credit than its window allows: memory grows without bound.",
        edits=edit(
            "wire.link.receiver:Receiver._attach",
            "self._frames = self._received_bytes = 0",
            "self._frames = 0",
        ),
        scenarios=("cut", "chaos", "crash"),
        seed=2,
    ),
    "a silent receiver never probes": Mistake(
        area="link",
        about="A receiver doesn't repeat its acknowledgement after a second of silence. If the sender has "
        "detached it and that message was lost, the receiver waits for rows forever.",
        edits=edit(
            "wire.link.receiver:Receiver._ack_due_us",
            "return probe_us if self._ack_at_us is None else min(self._ack_at_us, probe_us)",
            "return probe_us + (1 << 50) if self._ack_at_us is None else self._ack_at_us",
        ),
        scenarios=("gap", "chaos", "shed", "cut"),
        seed=0,
    ),
    "the log begins with what it forgot": Mistake(
        area="link",
        about="After a trim the output log reports the first row of the last deleted train as its start, "
        "so a reader that was away is promised rows that no longer exist.",
        edits=edit(
            "wire.link.output_log:OutputLog._forget",
            "self.start_seq = gone[-1].end",
            "self.start_seq = gone[-1].seq",
        ),
        scenarios=("gap", "shed", "crash"),
        seed=0,
    ),
    "lost rows uncounted": Mistake(
        area="link",
        about="A receiver passes on a gap without counting it: status says that no rows were lost.",
        edits=edit(
            "wire.link.receiver:Receiver._attached", "self.lost_rows += lost.to_seq - lost.from_seq", "pass"
        ),
        scenarios=("damage", "ruin", "memory", "gap"),
        seed=0,
    ),
    # --- sessions ---------------------------------------------------------------------------------
    "a quick restart goes unnoticed": Mistake(
        area="session",
        about="A peer that restarts within the timeout is taken for the same incarnation: whatever should "
        "end with the old one (attempts to move, fragments of a node without a disk) is kept.",
        edits=edit(
            "wire.link.session:PeerSession._hello",
            "if before is not None and before != message.incarnation:",
            "if before is not None and before != message.incarnation and was is PeerState.SILENT:",
        ),
        scenarios=("memory", "nodes", "move", "chaos"),
        seed=11,
    ),
    "two lives in one second": Mistake(
        area="session",
        about="The incarnation is the clock in seconds and isn't required to exceed the last one. A node "
        "that restarts within a second reuses its incarnation: epochs and request numbers repeat.",
        edits=edit(
            "runtime.repair.startup:_next_life",
            "each.number + 1 for each in old",
            "each.number for each in old",
        ),
        scenarios=("nodes", "union", "move", "deploys"),
        seed=10,
    ),
    # --- hosting, checkpoints, their files ----------------------------------------------------------
    "durable up to what is fed by now": Mistake(
        area="checkpoints",
        about="When a checkpoint is on disk the node acknowledges the rows fed so far, not the rows in "
        "the checkpoint. Rows fed while it was being written are lost in a crash.",
        edits=edit(
            "nodes.fragment.host:FragmentHost._cover",
            "input.receiver.durable(now_us, seq)",
            "input.receiver.durable(now_us, input.fed_seq)",
        ),
        scenarios=_NODES,
        seed=38,
    ),
    "a failed checkpoint isn't tried again": Mistake(
        area="checkpoints",
        about="After a failed checkpoint write no checkpoint is due until new rows arrive: a publisher "
        "that waits for durability waits forever.",
        edits=edit(
            "nodes.fragment.host:FragmentHost.persisted",
            "self.marks.failed(token)\n        self._dirty = True",
            "self.marks.failed(token)",
        ),
        scenarios=("nodes", "union", "comeback"),
        seed=8,
    ),
    "received saved as durable": Mistake(
        area="checkpoints",
        about="A checkpoint records the received position of each receiver as its durable position. After "
        "a restart the sender trims rows that no disk holds yet.",
        edits=edit(
            "wire.link.sender:Sender.durable_positions",
            "return {key: view.durable for",
            "return {key: max(view.acked, view.durable) for",
        ),
        scenarios=("crash", "chaos", "nodes"),
        seed=6,
    ),
    "numbers of checkpoints begin by how many there are": Mistake(
        area="recovery",
        about="After a restart checkpoint numbers continue from the count of groups on disk instead of "
        "the largest number: new checkpoints sort below old ones, and the next start loads an old "
        "one.",
        edits=edit(
            "runtime.repair.startup:NodeFolder.examine",
            "first_token=max(tokens, default=0) + 1",
            "first_token=len(set(tokens)) + 1",
        ),
        scenarios=("nodes", "union", "deploys"),
        seed=38,
    ),
    "older checkpoints go before the new one is there": Mistake(
        area="recovery",
        about="Groups that the new checkpoint makes unnecessary are deleted before it is written. When "
        "writes fail twice, no whole checkpoint is left.",
        edits=(
            Edit(
                "runtime.engine_host.host_disk:HostDisk._write",
                "    try:\n        files:",
                "    running.needed[effect.token] = effect.keep\n"
                "    for old in sorted(running.needed)[:-2]:\n"
                "        del running.needed[old]\n"
                "    kept = {*running.needed, *(t for tokens in running.needed.values() for t in tokens)}\n"
                "    self._groups.sweep(effect.fragment, kept, effect.token)\n"
                "    try:\n        files:",
            ),
        ),
        scenarios=("union", "nodes", "spill"),
        seed=42,
    ),
    # --- the decision log -------------------------------------------------------------------------
    "a checkpoint amid decisions done again": Mistake(
        area="decision log",
        about="A checkpoint is taken while logged decisions are being replayed. Old log files are then "
        "deleted together with decisions not yet replayed, and after another crash rows come in "
        "another order under the same numbers.",
        edits=edit(
            "nodes.fragment.host:FragmentHost._pump",
            "due = self._wanted and self._writing is None and not self._feeding.repeating",
            "due = self._wanted and self._writing is None",
        ),
        scenarios=("union", "comeback", "move"),
        seed=166,
    ),
    "the log goes on in the file of the checkpoint before": Mistake(
        area="decision log",
        about="A checkpoint doesn't begin a new log file. Two checkpoints later the file is deleted, "
        "together with decisions that no checkpoint covers.",
        edits=edit(
            "nodes.fragment.input_log:InputLog.turn",
            "self._file = token",
            "self._file = self._file or token",
        ),
        scenarios=("union", "comeback"),
        seed=220,
    ),
    "files of the log read newest first": Mistake(
        area="decision log",
        about="At start the files of the decision log are read newest first, so the newest seems to "
        "follow a gap and is deleted: rows that were already sent are produced in another order.",
        edits=edit(
            "runtime.repair.found_decisions:find_decisions",
            "for number in journal.numbers():",
            "for number in sorted(journal.numbers(), reverse=True):",
        ),
        scenarios=("union", "comeback", "move"),
        seed=126,
    ),
    "decisions of before the checkpoint done again": Mistake(
        area="decision log",
        about="At start decisions that the checkpoint already covers are replayed too. They don't fit its "
        "state, so the logged order is abandoned.",
        edits=edit(
            "runtime.repair.found_decisions:find_decisions",
            "extend(each.decisions()[-new:] if new else ())",
            "extend(each.decisions())",
        ),
        scenarios=("union", "comeback"),
        seed=24,
    ),
    # --- publishers -------------------------------------------------------------------------------
    "who has a name is forgotten at a restart": Mistake(
        area="publishers",
        about="A checkpoint doesn't record which client holds a publisher's name: after each restart of "
        "the node the rightful holder is refused as if another program had taken the name.",
        edits=edit(
            "nodes.fragment.inputs:FragmentInput.record", 'holder=self.by if self.named else ""', 'holder=""'
        ),
        scenarios=("comeback",),
        seed=11,
    ),
    "a publisher that moves keeps what isn't received": Mistake(
        area="publishers",
        about="A publisher that follows its source to another node drops rows that the old node had "
        "received but not made durable. A crash of the new node loses them.",
        edits=edit(
            "wire.client_mind:ClientPublication.move",
            "self.sender.expect(node, view.durable)",
            "self.sender.expect(node, max(view.durable, view.acked))",
        ),
        scenarios=("splits", "comeback"),
        seed=2,
    ),
    # --- spilling ---------------------------------------------------------------------------------
    "trains of a failed segment go to the end": Mistake(
        area="spilling",
        about="After a failed segment write its trains are queued behind younger ones, so the record of "
        "what is on disk is wrong.",
        edits=edit(
            "nodes.fragment.spilling:OutputSpilling.written",
            "self._fresh.extendleft(reversed(segment.trains))",
            "self._fresh.extend(segment.trains)",
        ),
        scenarios=("spill",),
        seed=344,
        shows="AssertionError: entry was trimmed",
    ),
    # --- nodes without a disk -----------------------------------------------------------------------
    "rows held at death uncounted": Mistake(
        area="memory",
        about="A node without a disk forgets to count the rows that it held when it crashed: they are "
        "missing, and lost_rows is too low.",
        edits=edit(
            "nodes.diskless.host:MemoryOnlyFragmentHost._start",
            "self.known_lost = base.lost + max(base.held, 0)",
            "self.known_lost = base.lost",
        ),
        scenarios=("memory",),
        seed=19,
    ),
    # --- catalog and directory ----------------------------------------------------------------------
    "a failed catalog isn't written again": Mistake(
        area="catalog",
        about="A failed write of the catalog isn't retried: the client waits forever, and a crash forgets "
        "the change.",
        edits=edit(
            "nodes.catalog.persistence:CatalogWriter.written",
            "self._retry = now_us + self._pause_us, self._next_token()",
            "pass",
        ),
        scenarios=("nodes", "deploys", "storage", "move"),
        seed=92,
    ),
    "answers don't wait for the catalog": Mistake(
        area="catalog",
        about="A node answers (installed, removed, expected) as soon as the catalog is handed to the "
        "disk. A crash before the sync breaks what it promised.",
        edits=edit(
            "nodes.catalog.persistence:CatalogWriter.send",
            "if after <= self._durable:",
            "if after <= self._durable or not self.disk_error:",
        ),
        scenarios=("deploys", "move", "splits"),
        seed=136,
    ),
    "news with a gap before it are taken": Mistake(
        area="directory",
        about="A node accepts directory entries that begin beyond what it has seen. What was lost before "
        "them is never requested, so it doesn't find those names.",
        edits=edit(
            "nodes.catalog.replica_state:ReplicaState.take",
            "if run.after > max(writer.seen, run.since - 1):\n        return True\n    ",
            "",
        ),
        scenarios=("move", "splits", "nodes", "deploys"),
        seed=18,
    ),
    "whom it took a fragment from is forgotten": Mistake(
        area="catalog",
        about="After a restart a node has forgotten by which attempt it took a fragment over. It tells "
        "the old owner that it didn't, and both run the fragment.",
        edits=edit(
            "nodes.catalog.catalog:Catalog.from_bytes",
            "made.ownership = saved.ownership",
            "made.ownership = msgspec.structs.replace(saved.ownership, taken={})",
        ),
        scenarios=("move", "splits"),
        seed=35,
    ),
    # --- deployments ------------------------------------------------------------------------------
    "half a deployment stays": Mistake(
        area="deployments",
        about="A coordinator that crashed during a deployment doesn't undo it at start: the nodes keep "
        "fragments of a query that doesn't run.",
        edits=edit(
            "nodes.deploy.coordinator:DeploymentCoordinator.resume",
            "if deployment.state != RUNNING:",
            "if deployment.state == REMOVING:",
        ),
        scenarios=("deploys", "nodes"),
        seed=57,
    ),
    "an order to install after its removal": Mistake(
        area="deployments",
        about="A node obeys an Install that arrives after the Remove of the same query, and keeps a "
        "fragment that no coordinator knows.",
        edits=edit("nodes.deploy.stale_requests:StaleRequests.install", "return True", "return False"),
        scenarios=("deploys",),
        seed=59,
    ),
    "anybody's removal is obeyed": Mistake(
        area="deployments",
        about="A node obeys a Remove from a coordinator other than the query's own: when two deploy the "
        "same name, the one that loses removes parts of the one that wins.",
        edits=edit(
            "nodes.fragments:Fragments.remove",
            "if not same and (late or self._catalog.coordinator_of(query, owner) != owner):",
            "if not same and late:",
        ),
        scenarios=("deploys",),
        seed=14,
    ),
    "deployments told apart by the client alone": Mistake(
        area="deployments",
        about="A client that deploys a different query under a name that it already uses is told that it "
        "runs, while the first one still does.",
        edits=edit(
            "nodes.deploy.coordinator:DeploymentCoordinator.deploy",
            "same = (known.client, known.request) == (client, request)",
            "same = known.client == client",
        ),
        scenarios=("deploys",),
        seed=0,
    ),
    # --- moves ------------------------------------------------------------------------------------
    "rows kept for a target from what was received": Mistake(
        area="moves",
        about="During a move, upstream keeps rows for the target from the received position of the old "
        "owner, not from its durable position. Rows that the target's checkpoint lacks are lost.",
        edits=edit(
            "nodes.migration.rerouting:Rerouting._expect",
            "sender.expect(reader, view.durable)",
            "sender.expect(reader, view.acked)",
        ),
        scenarios=("seams", "move", "returns", "splits"),
        seed=2,
    ),
    "a broken attempt leaves its tap": Mistake(
        area="moves",
        about="An aborted move leaves its tap on the fragment, which then takes no checkpoints and "
        "buffers all of its input.",
        edits=edit("nodes.migration.outgoing:OutgoingMoves._undo", "        order.handing.stop()\n", ""),
        scenarios=("move", "splits", "comeback"),
        seed=21,
    ),
    "moved in the epoch of before": Mistake(
        area="moves",
        about="The old owner announces a move in the epoch before the move. Readers discard it as stale "
        "and keep reading from the node that no longer has the stream.",
        edits=edit(
            "nodes.migration.outgoing:OutgoingMoves._taken",
            "token = self._diverting.left(now_us, hosted, order.to, order.epoch)",
            "token = self._diverting.left(now_us, hosted, order.to, order.epoch - 1)",
        ),
        scenarios=("move", "splits"),
        seed=0,
    ),
    "questions of an earlier attempt count": Mistake(
        area="moves",
        about="A neighbour acts on a stale question: an Unexpect of an earlier attempt removes the target "
        "of the current one, for which no rows are kept then.",
        edits=edit("nodes.migration.rerouting:Rerouting._is_late", "return True", "return False"),
        scenarios=("seams", "move", "returns", "splits"),
        seed=46,
    ),
    # --- splits and merges ------------------------------------------------------------------------
    "what wasn't given again isn't saved": Mistake(
        area="splits",
        about="After a split the checkpoint of a new fragment doesn't record that it is behind what was "
        "already sent. After a crash the rows in between get wrong numbers.",
        edits=edit("nodes.fragment.outputs:FragmentOutput.record", "again=self.rows - self.given", "again=0"),
        scenarios=("seams", "splits"),
        seed=8,
        shows="SimulationError: rules: ",
    ),
    "state cut at even ranges": Mistake(
        area="splits",
        about="A split by weight routes rows by the weighted ranges but cuts the state of the box by even "
        "ones: open groups end up in the wrong part.",
        edits=edit(
            "engine.repartition.tables:StateCut.owners",
            "return part_of(keys, self.made.routers[input].cuts)",
            "from medusa.query.rewrite.key_ranges import even_cuts\n"
            "    return part_of(keys, even_cuts(len(self.made.parts)))",
        ),
        scenarios=("splits",),
        seed=9,
    ),
    "a merge doesn't wait for boundaries": Mistake(
        area="splits",
        about="A merge waits for rows in flight between the parts but not for boundaries: the last one, "
        "which ends the stream, can be dropped.",
        edits=edit(
            "nodes.repartition.job:has_all",
            "(each.fed_seq, each.fed_us) == (sent[each.stream].next_seq, sent[each.stream].boundary_us)",
            "each.fed_seq == sent[each.stream].next_seq",
        ),
        scenarios=("seams", "splits"),
        seed=0,
    ),
}
"""Name: the mistake, in a part of the system that the simulator runs."""
