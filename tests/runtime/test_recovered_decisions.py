"""What a node takes from its decision logs when it starts: what follows the checkpoint, and nothing else."""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from pathlib import Path

import pytest

import medusa as md
from medusa.engine.fragment import Fragment
from medusa.engine.state.checkpoint import seal
from medusa.nodes.catalog.catalog import CATALOG, Catalog
from medusa.nodes.fragment.checkpoint_record import RECORD, FragmentRecord
from medusa.nodes.fragment.checkpointing import SavedCheckpoint
from medusa.nodes.fragment.input_log_records import JOINED, PROMISE, ROWS, Decision, pack
from medusa.nodes.fragment.upstreams import at_feeds
from medusa.nodes.placement.placement import cut
from medusa.nodes.reports import Logged
from medusa.runtime.engine_host.group_names import group_name, life_names
from medusa.runtime.engine_host.host import EngineHost
from medusa.runtime.machine.clock import SystemClock
from medusa.runtime.repair.startup import recover
from medusa.runtime.store.folder_store import FolderStore
from medusa.runtime.store.journal import FolderJournal
from medusa.wire.outbox import Log, Persist
from tests.runtime.test_host import AtOnce

FED = [
    Decision(JOINED, "left", "c", 0),
    Decision(ROWS, "left", "c", 5),
    Decision(ROWS, "right", "d", 3),
    Decision(PROMISE, "left", "c", 70),
    Decision(ROWS, "left", "c", 9),
]


def spec(**at):
    q = md.Query("u")
    left, right = (q.source(name, {"ts": "timestamp[us]"}, time="ts") for name in ("left", "right"))
    q.sink("rows", left.union(right, name="both"))
    fragments = cut(q.graph, at or {"n": ["left", "right"]}).fragments
    return next(each for each in fragments if each.node == "n")


class Disk:
    """The data folder of a node with one fragment."""

    def __init__(self, folder, of=None):
        self.store, self.journal = FolderStore(folder), FolderJournal(folder)
        self.spec = of or spec()
        catalog = Catalog("n")
        catalog.fragments[self.spec.name] = self.spec
        files = {CATALOG: catalog.to_bytes()}
        self.store.write(group_name("", 1), seal(files, {"fragment": "", "token": 1}))
        for name in life_names(1):
            self.store.write(name, {})
        self.warnings = []

    def checkpoint(self, token, decided):
        record = FragmentRecord(
            token=token,
            fragment=self.spec.name,
            mixed=True,
            inputs=(),
            outputs=(),
            fed_us={},
            decided=decided,
        )
        files = {**Fragment(self.spec.graph).snapshot(), RECORD: record.to_bytes()}
        name = group_name(self.spec.name, token)
        self.store.write(name, seal(files, {"fragment": self.spec.name, "token": token}))

    def log(self, number, first, decisions, name=""):
        self.journal.append(number, pack(name or self.spec.name, first, decisions))

    def found(self):
        """What is to be fed again."""
        found = recover(self.store, SystemClock(), node="n", warn=self.warnings.append, journal=self.journal)
        self.first_token = found.first_token
        saved = found.saved.get(self.spec.name)
        return list(saved.decisions) if saved else []


@pytest.fixture
def disk(tmp_path):
    made = Disk(tmp_path / "n")
    yield made
    made.journal.close()
    made.store.close()


def test_what_was_fed_before_any_checkpoint(disk):
    disk.log(2, 0, FED[:2])
    disk.log(2, 2, FED[2:])
    assert disk.found() == FED
    assert disk.first_token == 3
    assert disk.found() == FED


def test_what_the_checkpoint_holds_is_not_fed_again(disk):
    disk.checkpoint(3, 2)
    disk.log(2, 0, FED[:3])
    disk.log(3, 3, FED[3:])
    assert disk.found() == FED[2:]
    disk.checkpoint(4, 5)
    assert disk.found() == []


def test_a_write_that_was_repeated_in_another_file_counts_once(disk):
    disk.log(2, 0, FED[:2])
    disk.log(3, 0, FED[:4])
    disk.log(3, 4, FED[4:])
    assert disk.found() == FED


def test_a_log_that_is_gone_with_its_mark_is_told(disk, tmp_path):
    disk.checkpoint(3, 2)
    disk.log(3, 2, FED[2:])
    disk.journal.sync(3)
    for name in ("decisions-000000003.log", "decisions-000000003.synced"):
        (tmp_path / "n" / name).unlink()
    assert disk.found() == []
    told, _ = disk.warnings  # and where a copy of what is left was set aside
    assert "decisions-000000003.log is missing or empty, and" in told
    assert "may differ from those that come again" in told
    assert disk.journal.numbers() == []
    disk.warnings.clear()
    assert disk.found() == []
    assert disk.warnings == [], "it was told once"


def test_a_torn_end_is_cut_and_what_follows_goes_on_there(disk):
    disk.log(2, 0, FED[:2])
    disk.journal.append(2, pack(disk.spec.name, 2, FED[2:])[:-3])
    assert disk.found() == FED[:2]
    disk.log(5, 2, FED[3:])
    assert disk.found() == FED[:2] + FED[3:]
    assert disk.warnings == []


@pytest.mark.parametrize(
    ("harm", "says", "stays"),
    [
        (lambda path, first: path.unlink(), "is missing or empty", 0),
        (lambda path, first: path.write_bytes(b""), "is missing or empty", 0),
        (lambda path, first: os.truncate(path, first), "ends at byte", 2),  # as it was before: older
        (lambda path, first: os.truncate(path, path.stat().st_size - 1), "is damaged at byte", 2),
        (lambda path, first: zeroed(path, first + 9), "is damaged at byte", 2),
        (lambda path, first: zeroed(path, 9), "is damaged at byte 0", 0),
    ],
    ids=["deleted", "emptied", "older", "shorter", "zeroed", "zeroed from the first record on"],
)
def test_what_was_synced_and_is_gone_is_told_and_what_is_left_of_it_is_used(disk, harm, says, stays):
    """A torn end was never synced; this was, and what came of it may have left the node."""
    disk.log(2, 0, FED[:2])
    disk.journal.sync(2)
    path = Path(disk.journal.where(2))
    first = path.stat().st_size
    disk.log(2, 2, FED[2:])
    disk.journal.sync(2)
    disk.journal.close()
    harm(path, first)
    disk.journal = FolderJournal(disk.store.where(""))
    assert disk.found() == FED[:stays]
    assert says in disk.warnings[0]
    assert "can't be used" in disk.warnings[0]
    assert "a copy is kept as" in disk.warnings[-1]


def zeroed(path, at):
    """All bytes from here on."""
    data = path.read_bytes()
    path.write_bytes(data[:at] + bytes(len(data) - at))


def test_what_comes_behind_a_gap_is_never_used(disk):
    disk.checkpoint(2, 1)
    disk.log(3, 2, FED[2:])
    assert disk.found() == []
    warning, kept = disk.warnings
    assert "comes 1 decisions too late" in warning
    assert "a copy is kept as" in kept
    assert disk.journal.numbers() == []
    assert disk.first_token == 4


def test_logs_of_others_and_of_inputs_that_are_not_there_are_removed(disk):
    disk.log(2, 0, FED, name="u/other")
    disk.journal.append(3, b"nothing")
    assert disk.found() == []
    assert disk.journal.numbers() == []
    disk.log(4, 0, [Decision(ROWS, "middle", "c", 5)])
    assert disk.found() == []
    warning, kept = disk.warnings
    assert "names inputs that it doesn't have" in warning
    assert "a copy is kept as" in kept
    assert disk.journal.numbers() == []


def test_what_was_fed_before_a_stream_moved_is_fed_again_from_where_it_is_now(tmp_path):
    """The catalog names the new node of ``right``; the log was written while it came from the old one."""
    disk = Disk(tmp_path / "n", spec(n=["left", "both", "rows"], new=["right"]))
    [feed] = disk.spec.feeds
    fed = [Decision(ROWS, feed.source, "old", 3), Decision(ROWS, "left", "c", 5)]
    disk.log(2, 0, fed)
    assert disk.found() == fed
    assert disk.warnings == []
    assert disk.journal.numbers() == [2]
    saved = at_feeds(disk.spec, SavedCheckpoint(record=None, logs={}, decisions=fed))
    assert saved.decisions == [replace(fed[0], peer="new"), fed[1]]
    disk.journal.close()
    disk.store.close()


def test_the_host_logs_and_lets_go_of_files_that_no_checkpoint_needs(disk):
    name = disk.spec.name
    host = EngineHost(disk.store, SystemClock(), wake=lambda: None, worker=AtOnce, journal=disk.journal)
    host.open(name, disk.spec.graph)
    for number in (2, 3, 4):
        record = FragmentRecord(token=number, fragment=name, mixed=True, inputs=(), outputs=(), fed_us={})
        host.persist(Persist(token=number, fragment=name, files={RECORD: record.to_bytes()}))
        host.log(Log(fragment=name, number=number, data=pack(name, number, FED[:1])))
    assert host.finished().count(Logged(name, True)) == 3
    assert disk.journal.numbers() == [3, 4]  # The last two checkpoints are kept, with what follows them.
    host.persist(Persist(token=5, fragment=name, files={RECORD: record.to_bytes()}))
    assert disk.journal.numbers() == [4]
    host.close(name)
    assert disk.journal.numbers() == []


def test_a_log_that_cant_be_written_is_told(disk):
    name = disk.spec.name
    host = EngineHost(disk.store, SystemClock(), wake=lambda: None, worker=AtOnce, journal=disk.journal)
    host.open(name, disk.spec.graph)
    disk.journal.close()
    with contextlib.suppress(md.StateError):
        host.log(Log(fragment=name, number=2, data=b"x"))
    (logged,) = [done for done in host.finished() if isinstance(done, Logged)]
    assert not logged.ok
    assert "decisions-000000002.log" in logged.why
