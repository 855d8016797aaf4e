"""A decision log counts as written only when the disk has it: the file, and its name in the folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from medusa.query.builder import Query
from medusa.runtime.host import FragmentHost, Logged, Stats
from medusa.runtime.journal import FolderJournal
from medusa.sim.disk import Disk
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
    host = FragmentHost(disk, Clock(), wake=lambda: None, worker=AtOnce, journal=disk.journal)
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
    host = FragmentHost(disk, Clock(), wake=lambda: None, worker=Later, journal=disk.journal)
    host.open("q/f", graph())
    host.log(Log(fragment="q/f", number=2, data=b"before"))
    host.close("q/f")
    host.open("q/f", graph())
    host.log(Log(fragment="q/f", number=9, data=b"after"))
    while Later.jobs:
        Later.jobs.pop(0)()
    assert [each for each in host.finished() if not isinstance(each, Stats)] == [Logged("q/f", True)]
    assert disk.journal.numbers() == [9], "the log of the one before went with it"
