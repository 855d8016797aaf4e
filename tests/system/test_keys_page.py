"""docs/keys.md does what it says: its files are written and its commands run, line by line."""

from __future__ import annotations

import shlex
import signal
from pathlib import Path

import pytest
from click.testing import CliRunner

import medusa as md
from medusa.cli.main import main
from tests.blocks import blocks
from tests.system.nodes import eventually, until
from tests.system.page_reader import Reader

PAGE = Path(__file__).resolve().parents[2] / "docs" / "keys.md"

pytestmark = pytest.mark.system


def test_two_participants_as_the_page_tells_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    q = md.Query("counts")
    q.sink("out", q.source("rows", {"ts": "int64", "v": "int64"}, time="ts", unit="us").filter("v > 1"))
    (tmp_path / "counts.json").write_text(q.to_json())
    (tmp_path / "rows.csv").write_text("ts,v\n1,1\n2,2\n3,3\n")
    reader = Reader(tmp_path)
    try:
        for block in blocks(PAGE.read_text(encoding="utf-8")):
            if block.language == "toml":
                reader.write(block.text)
            elif block.language == "sh":
                for line in block.text.splitlines():
                    reader.do(line)
            if "&" in block.text:
                logs = [tmp_path / "0.log", tmp_path / "1.log"]
                until(lambda logs=logs: all("peer up" in log.read_text() for log in logs), what="peer up")
        assert reader.printed["tail counts.out"].split() == ["ts=2", "v=2", "ts=3", "v=3"]
        lines = PAGE.read_text(encoding="utf-8").splitlines()
        asks = next(line for line in lines if line.startswith("medusa status"))

        def status_of_core() -> None:
            """On a busy machine edge may be silent for a moment."""
            reader.do(asks)
            status = reader.printed["status --node"]
            assert status.startswith("node core of bob: "), status
            assert "edge  up" in status, status
            assert "counts" not in status, "nothing runs here"

        eventually(status_of_core)
        assert (tmp_path / "1.log").read_text().count("declared by=alice") == 2
        # Who runs a node takes a key out of its configuration and sends SIGHUP.
        config = tmp_path / "alice" / "edge.toml"
        config.write_text(config.read_text().split("[clients.bobs_reader]")[0])
        reader.nodes["alice/edge.toml"].send_signal(signal.SIGHUP)
        until(lambda: "were read again" in (tmp_path / "0.log").read_text(), what="SIGHUP")
        line = next(line for line in lines if line.startswith("medusa tail"))
        refused = CliRunner().invoke(main, shlex.split(reader.here(line))[1:])
        assert refused.exit_code == 1
        assert "doesn't admit this key" in refused.output
    finally:
        reader.close()
