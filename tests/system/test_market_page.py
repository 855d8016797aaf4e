"""docs/market.md does what it says: two owners sign a contract, and their nodes trade by it."""

from __future__ import annotations

import json
import re
import shlex
import signal
from pathlib import Path

import pytest
from click.testing import CliRunner

from medusa.cli.main import main
from tests.blocks import blocks
from tests.system.nodes import until
from tests.system.page_reader import Reader, medusa

PAGE = Path(__file__).resolve().parents[2] / "docs" / "market.md"
KEYS = "--key alice/admin.key --server-key alice/alice-1.pub"
WHERE = f"--node tcp://127.0.0.1:5555 {KEYS}"

pytestmark = pytest.mark.system


def asked(reader, command):
    return medusa(shlex.split(reader.here(f"{command} {WHERE}")))


def market(reader):
    return json.loads(asked(reader, "status --json"))["market"]


def test_two_owners_as_the_page_tells_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    section = PAGE.read_text(encoding="utf-8").partition("## On nodes: setting it up")[2]
    reader = Reader(tmp_path)
    try:
        for block in blocks(section.partition("\n## ")[0]):
            if block.language == "toml":
                reader.write(block.text)
            elif block.language == "sh":
                for line in block.text.splitlines():
                    reader.do(line)
            if "&" in block.text:
                until(
                    lambda: market(reader)["contracts"][0]["room"] is not None, what="bob has said his price"
                )
        (contract,) = market(reader)["contracts"]
        assert (contract["id"], contract["partner"], contract["role"]) == ("alice-at-bob", "bob", "consumer")
        assert contract["ask_micro"] == 16_000, "the lowest price of the range"
        assert "nothing would be offered: nothing runs here" in reader.printed["explain market/"]
        status = asked(reader, "status")
        # What the idle node itself uses: on a busy machine more than the hundredth that the page shows.
        assert re.search(
            r"market: 0\.\d\d of 0\.5 cores, 0 tasks away, 0 guests; nothing runs here", status
        ), status
        assert "alice-at-bob v1" in status, status
        top = f"top tcp://127.0.0.1:5555 --once {KEYS}"
        watched = medusa(shlex.split(reader.here(top)))
        assert "alice-at-bob with bob (consumer): 0 tasks" in watched, watched
        # A revocation that lies in the folder counts once it is read.
        revoke = "contract revoke alice/contracts/alice-at-bob.contract --signer alice/alice.key"
        revoke += " --participant alice --reason over -o alice/contracts/alice-at-bob.revoked"
        assert CliRunner().invoke(main, shlex.split(revoke)).exit_code == 0
        before_us = contract["ends_us"]
        reader.nodes["alice/node.toml"].send_signal(signal.SIGHUP)
        until(lambda: market(reader)["contracts"][0]["ends_us"] < before_us, what="it ends after its notice")
        assert market(reader)["refused_papers"] == {}
    finally:
        reader.close()
