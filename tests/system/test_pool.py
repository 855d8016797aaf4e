"""``medusa pool`` over real processes: a spare is started as it is lacked, and ended when it has nothing."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

import medusa as md
from medusa.cli.main import main
from medusa.errors import LinkError
from tests.system.nodes import ROOT, until
from tests.system.slow_sum import query

pytestmark = pytest.mark.system

DEADLINE_S = 180


def config(folder: Path, name: str, peer: str) -> str:
    return (
        f'name = "{name}"\nlisten = "ipc://{folder}/{name}.s"\ndata = "{name}"\n'
        'functions = ["tests.system.slow_sum"]\n'
        f'[peers]\n{peer} = "ipc://{folder}/{peer}.s"\n[load]\nhalf_life = "500ms"\nhigh = 1.0\n'
        '[scale]\nevery = "500ms"\ncooldown = "1s"\nhigh = 0.5\nlow = 0.02\nparts_max = 2\n'
    )


class Processes:
    """Commands of ``medusa`` that run, each with a file of what it says."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, *command: str) -> None:
        with open(self.folder / f"{name}.said", "ab") as said:
            self.running[name] = subprocess.Popen(
                [sys.executable, "-m", "medusa", *command], cwd=ROOT, stdout=said, stderr=said
            )

    def said(self, name: str) -> str:
        return (self.folder / f"{name}.said").read_text()

    def close(self) -> None:
        for each in self.running.values():
            each.kill()
            each.wait()


def processes_with(text: str) -> list[int]:
    """Those whose command line has it."""
    found = []
    for each in Path("/proc").iterdir():
        if each.name.isdecimal() and int(each.name) != os.getpid():
            with contextlib.suppress(OSError):
                if text.encode() in (each / "cmdline").read_bytes():
                    found.append(int(each.name))
    return found


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Short enough for a socket; whatever nodes a test left running from it are gone in the end."""
    folder = tmp_path_factory.mktemp("p")
    yield folder
    for pid in processes_with(str(folder)):
        os.kill(pid, signal.SIGKILL)


@pytest.fixture
def commands(folder: Path) -> Iterator[Processes]:
    made = Processes(folder)
    yield made
    made.close()


def test_a_spare_comes_as_the_load_rises_and_its_process_ends_as_it_falls(
    folder: Path, commands: Processes
) -> None:
    for name, peer in (("gate", "spare"), ("spare", "gate")):
        (folder / f"{name}.toml").write_text(config(folder, name, peer))
    (folder / "pool.toml").write_text(
        f'node = "ipc://{folder}/gate.s"\nevery = "500ms"\nidle = "3s"\n[nodes]\nspare = "spare.toml"\n'
    )
    ends_s = time.monotonic() + DEADLINE_S
    rows: list[dict[str, list[int]]] = []
    got: list[pa.RecordBatch] = []
    commands.start("gate", "node", str(folder / "gate.toml"))
    with md.connect(f"ipc://{folder}/gate.s", timeout="60s") as fed:
        commands.start("pool", "pool", str(folder / "pool.toml"), "--json")
        fed.deploy(query())
        out = fed.subscribe("cars.out", from_="oldest")

        def scaling() -> dict[str, Any]:
            found: dict[str, Any] = fed.status()["queries"]["cars"]
            return found.get("scaling") or {"last": "", "outcome": "", "lacks": None}

        def acts() -> list[dict[str, str]]:
            lines = [json.loads(line) for line in commands.said("pool").splitlines()]
            return [each for each in lines if each["what"] in ("acquire", "release")]

        def publish() -> None:
            first = 24 * len(rows)
            numbers = range(first, first + 24)
            rows.append(
                {"ts": [n // 24 for n in numbers], "seg": [n % 17 for n in numbers], "v": list(numbers)}
            )
            fed.publish("cars.cars", rows[-1])

        def take(timeout: str = "100ms") -> None:
            with contextlib.suppress(LinkError):  # Nothing came.
                if (train := out.next(timeout)) is not None:
                    got.append(train.batch)

        def reads_until(done: Callable[[], bool], meanwhile: Callable[[], None] = lambda: None) -> None:
            while not done():
                assert time.monotonic() < ends_s, (scaling(), commands.said("pool"))
                meanwhile()
                take()

        reads_until(lambda: bool(scaling()["lacks"]) or bool(acts()), publish)
        dry = CliRunner().invoke(main, ["pool", str(folder / "pool.toml"), "--dry-run"])
        assert dry.exit_code == 0, dry.output
        assert dry.output.startswith("node spare: ")
        reads_until(lambda: scaling()["last"].startswith("move") and scaling()["outcome"] == "done", publish)
        assert [(each["what"], each["node"]) for each in acts()] == [("acquire", "spare")]
        assert "query cars lacks a node with room" in acts()[0]["why"]
        reads_until(lambda: scaling()["last"] == "merge per_seg at gate" and scaling()["outcome"] == "done")
        reads_until(lambda: [each["what"] for each in acts()] == ["acquire", "release"])
        assert "it has had nothing for " in acts()[1]["why"]
        reads_until(lambda: processes_with(str(folder / "spare.toml")) == [])
        fed.finish("cars.cars")
        while not out.ended:
            take("60s")
        # Its removal waits for the word of whoever had a part of it: the pool starts that for a while.
        with contextlib.suppress(LinkError):
            fed.undeploy("cars")
        until(lambda: fed.queries() == [], what=lambda: commands.said("pool"))
        assert "query cars is being removed" in acts()[2]["why"]
    pool = commands.running["pool"]
    pool.send_signal(signal.SIGINT)
    assert pool.wait(60) == 0, commands.said("pool")
    want = md.collect(query(), cars=pa.concat_tables([pa.table(each) for each in rows]))["out"]
    assert pa.Table.from_batches(got).to_pylist() == want.to_pylist()


@pytest.mark.parametrize("at_end", ["leave", "stop"])
def test_what_becomes_of_nodes_once_the_pool_ends(folder: Path, commands: Processes, at_end: str) -> None:
    """One that is kept warm, so that it is started at once."""
    for name, peer in (("gate", "spare"), ("spare", "gate")):
        (folder / f"{name}.toml").write_text(config(folder, name, peer))
    (folder / "pool.toml").write_text(
        f'node = "ipc://{folder}/gate.s"\nevery = "200ms"\nwarm = 1\nat_end = "{at_end}"\n'
        '[nodes]\nspare = "spare.toml"\n'
    )
    commands.start("gate", "node", str(folder / "gate.toml"))
    with md.connect(f"ipc://{folder}/gate.s", timeout="60s") as fed:
        commands.start("pool", "pool", str(folder / "pool.toml"))
        until(
            lambda: fed.status()["peers"] == {"spare": "up"} and "up, has nothing" in commands.said("pool"),
            what=lambda: commands.said("pool"),
        )
    pool = commands.running["pool"]
    pool.send_signal(signal.SIGTERM)
    assert pool.wait(60) == 0, commands.said("pool")
    left = processes_with(str(folder / "spare.toml"))
    assert len(left) == (1 if at_end == "leave" else 0)
    assert ("leaves nodes running: spare" in commands.said("pool")) is (at_end == "leave")


def test_a_node_that_cannot_start_is_told_with_its_last_words(folder: Path, commands: Processes) -> None:
    (folder / "gate.toml").write_text(config(folder, "gate", "spare"))
    (folder / "spare.toml").write_text("name = 5\n")
    (folder / "pool.toml").write_text(
        f'node = "ipc://{folder}/gate.s"\nevery = "200ms"\nwarm = 1\n[nodes]\nspare = "spare.toml"\n'
    )
    commands.start("gate", "node", str(folder / "gate.toml"))
    with md.connect(f"ipc://{folder}/gate.s", timeout="60s"):
        commands.start("pool", "pool", str(folder / "pool.toml"))
        until(lambda: "not tried for" in commands.said("pool"), what=lambda: commands.said("pool"))
    assert "it ended with 1: " in commands.said("pool")
