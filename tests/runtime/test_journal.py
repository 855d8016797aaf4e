"""A decision log counts as written only when the disk has it: the file, and its name in the folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import medusa as md
from medusa.engine.recovery.synced_length import SLOT_BYTES
from medusa.engine.state.checkpoint import crc32c
from medusa.nodes.reports import Logged, Stats
from medusa.query.builder import Query
from medusa.runtime.engine_host.host import EngineHost
from medusa.runtime.store.journal import FolderJournal
from medusa.sim.world.disk import Disk
from medusa.wire.outbox import Log
from tests.runtime.test_host import AtOnce, Clock


def graph() -> Any:
    q = Query("q")
    q.sink("out", q.source("rows", {"v": "int64"}, time=None))
    return q.graph


def test_the_name_of_a_new_file_and_what_is_in_it_are_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    def spy(name: str) -> None:
        real = getattr(os, name)

        def told(file: int) -> None:
            done.append(f"{name} {Path(os.readlink(f'/proc/self/fd/{file}')).name}")
            real(file)

        monkeypatch.setattr(os, name, told)

    spy("fsync")
    spy("fdatasync")
    journal = FolderJournal(tmp_path)
    for _ in range(2):
        journal.append(3, b"x")
        journal.sync(3)
    journal.close()
    log = "fdatasync decisions-000000003.log"
    assert done == [f"fsync {tmp_path.name}", log, log]


def test_a_host_says_that_it_is_written_when_it_is_synced() -> None:
    disk = Disk("d")
    host = EngineHost(disk, Clock(), wake=lambda: None, worker=AtOnce, journal=disk.journal)
    host.open("q/f", graph())
    host.log(Log(fragment="q/f", number=2, data=b"decided"))
    assert [each for each in host.finished() if not isinstance(each, Stats)] == [Logged("q/f", True)]
    disk.crash()
    assert bytes(disk.journal.read(2)) == b"decided"


class Later(AtOnce):
    """A slow thread: what it is given is done when somebody says so."""

    jobs: list[Any] = []  # noqa: RUF012  (of the test, both threads)

    def give(self, job: Any) -> None:
        self.jobs.append(job)


def test_a_fragment_of_the_same_name_hears_nothing_of_the_writes_of_the_one_before() -> None:
    """It would take its own decisions for durable."""
    Later.jobs.clear()
    disk = Disk("d")
    host = EngineHost(disk, Clock(), wake=lambda: None, worker=Later, journal=disk.journal)
    host.open("q/f", graph())
    host.log(Log(fragment="q/f", number=2, data=b"before"))
    host.close("q/f")
    host.open("q/f", graph())
    host.log(Log(fragment="q/f", number=9, data=b"after"))
    while Later.jobs:
        Later.jobs.pop(0)()
    assert [each for each in host.finished() if not isinstance(each, Stats)] == [Logged("q/f", True)]
    assert disk.journal.numbers() == [9], "the log of the one before went with it"


def test_the_mark_says_what_was_synced_and_no_more(tmp_path: Path) -> None:
    journal = FolderJournal(tmp_path)
    journal.append(3, b"one")
    assert journal.synced(3) == (0, 0)
    for data in (b"", b"two", b"three"):
        journal.append(3, data)
        journal.sync(3)
        whole = (tmp_path / "decisions-000000003.log").read_bytes()
        assert journal.synced(3) == (len(whole), crc32c(whole))
        journal.append(3, b"more")
        assert journal.synced(3) == (len(whole), crc32c(whole))
    journal.close()
    again = FolderJournal(tmp_path)  # of another life, which goes on with it
    assert again.synced(3) == (len(whole), crc32c(whole))
    again.sync(3)
    assert again.synced(3) == (len(whole) + 4, crc32c(whole + b"more"))
    again.cut(3, 5)
    assert again.synced(3) == (5, crc32c(whole[:5]))
    again.append(3, b"!")
    again.sync(3)
    assert again.synced(3) == (6, crc32c(whole[:5] + b"!"))
    again.close()


def test_one_damaged_slot_of_a_mark_leaves_the_other(tmp_path: Path) -> None:
    journal = FolderJournal(tmp_path)
    for data in (b"one", b"two"):
        journal.append(3, data)
        journal.sync(3)
    journal.close()
    file = tmp_path / "decisions-000000003.synced"
    good = file.read_bytes()
    assert len(good) == 2 * SLOT_BYTES
    found = set()
    for at in range(len(good)):
        damaged = bytearray(good)
        damaged[at] ^= 1 << at % 8
        file.write_bytes(damaged)
        found.add(FolderJournal(tmp_path).synced(3))
    assert found == {(3, crc32c(b"one")), (6, crc32c(b"onetwo"))}
    for length in range(2 * SLOT_BYTES):
        file.write_bytes(good[:length])
        mark = FolderJournal(tmp_path).synced(3)
        assert mark in ((3, crc32c(b"one")), (6, crc32c(b"onetwo"))) if length >= SLOT_BYTES else mark is None
    file.write_bytes(good)
    file.rename(tmp_path / "decisions-000000004.synced")
    assert FolderJournal(tmp_path).synced(4) is None, "it is of another log"
    assert FolderJournal(tmp_path).synced(3) is None


def test_a_log_that_is_gone_is_known_by_its_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = FolderJournal(tmp_path)
    for number in (3, 4):
        journal.append(number, b"one")
        journal.sync(number)
    (tmp_path / "decisions-000000003.log").unlink()
    assert journal.numbers() == [3, 4]
    assert bytes(journal.read(3)) == b""
    journal.remove(3)
    assert journal.numbers() == [4]
    with pytest.raises(md.StateError, match="decisions-000000003.log can't be read: No such file"):
        journal.read(3)
    gone: list[str] = []
    unlink = os.unlink

    def watched(name: str, **options: Any) -> None:
        gone.append(name)
        unlink(name, **options)

    monkeypatch.setattr(os, "unlink", watched)
    journal.remove(4)
    assert gone == ["begun-000000004.decisions", "decisions-000000004.synced", "decisions-000000004.log"], (
        "a killed remover loses nothing"
    )
    journal.close()


def test_a_log_that_is_gone_with_its_mark_is_known_by_the_note_of_its_beginning(tmp_path: Path) -> None:
    journal = FolderJournal(tmp_path)
    journal.append(3, b"")
    journal.sync(3)
    assert not (tmp_path / "begun-000000003.decisions").exists(), "nothing was synced"
    for number, data in ((3, b"one"), (3, b"two"), (4, b"four")):
        journal.append(number, data)
        journal.sync(number)
    journal.close()
    log, mark, begun = (
        tmp_path / name
        for name in ("decisions-000000003.log", "decisions-000000003.synced", "begun-000000003.decisions")
    )
    mark.unlink()
    assert FolderJournal(tmp_path).synced(3) is None, "how much there was after the first sync nobody knows"
    log.write_bytes(b"on")
    assert FolderJournal(tmp_path).synced(3) == (3, crc32c(b"one"))
    log.unlink()
    again = FolderJournal(tmp_path)
    assert again.numbers() == [3, 4]
    assert bytes(again.read(3)) == b""
    assert again.synced(3) == (3, crc32c(b"one"))
    begun.write_bytes(b"")
    assert again.synced(3) is None
    assert bytes(again.read(3)) == b"", "a note that can't be read doesn't stop a start"
    again.remove(3)
    assert again.numbers() == [4]
    again.cut(4, 2)
    (tmp_path / "decisions-000000004.log").unlink()
    (tmp_path / "decisions-000000004.synced").unlink()
    assert FolderJournal(tmp_path).synced(4) == (2, crc32c(b"fo"))
    again.close()


def test_the_mark_of_a_log_is_synced_when_the_next_one_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    real = os.fdatasync

    def told(file: int) -> None:
        done.append(Path(os.readlink(f"/proc/self/fd/{file}")).name)
        real(file)

    monkeypatch.setattr(os, "fdatasync", told)
    journal = FolderJournal(tmp_path)
    for number in (3, 4):
        journal.append(number, b"x")
        journal.sync(number)
    journal.close()
    assert done == ["decisions-000000003.log", "decisions-000000003.synced", "decisions-000000004.log"]
