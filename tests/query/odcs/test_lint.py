"""What we write passes ``datacontract lint``, the official tool of the standard: where `make odcs` put it."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

import medusa as md
from medusa.cli.main import main
from medusa.query.odcs.document import odcs_text
from medusa.query.structs import Field
from medusa.query.types import TYPES
from tests.runtime.contracts.test_content import TEXT

ROOT = Path(__file__).resolve().parents[3]
OWN = ROOT / ".venv-odcs" / "bin" / "datacontract"
LINTER = str(OWN) if OWN.exists() else shutil.which("datacontract")

pytestmark = pytest.mark.skipif(LINTER is None, reason="no datacontract here: `make odcs` installs it")


def linted(folder: Path, text: str) -> tuple[str, list[str]]:
    """What it says of a file in all, and the reasons of what isn't right."""
    (folder / "x.odcs.yaml").write_text(text, encoding="utf-8")
    command = [LINTER, "lint", "x.odcs.yaml", "--output-format", "json", "--output", "x.json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode in (0, 1), done.stderr
    found = json.loads((folder / "x.json").read_text(encoding="utf-8"))
    assert found["checks"]
    return found["result"], [each["reason"] for each in found["checks"] if each["result"] != "passed"]


def test_a_draft_of_rows_passes(tmp_path):
    q = md.Query("clicks")
    q.sink("out", q.source("rows", {"ts": "timestamp", "user": "int32", "page": "utf8"}))
    (tmp_path / "clicks.json").write_text(q.to_json())
    parties = ("--provider", "acme", "--consumer", "bigco", "--price", "5", "--per", "gigabyte")
    command = ["contract", "draft", "--query", str(tmp_path / "clicks.json"), *parties]
    done = CliRunner().invoke(main, command)
    assert done.exit_code == 0, done.output
    assert linted(tmp_path, done.output) == ("passed", [])


def test_a_file_with_all_that_two_can_agree_on_passes(tmp_path):
    assert linted(tmp_path, TEXT) == ("passed", [])


def test_columns_of_all_types_pass(tmp_path):
    types = (*TYPES, "decimal128(10, 2)")
    schema = tuple(Field(f"c{at}", type) for at, type in enumerate(types))
    text = odcs_text(id="c1", version="1.0.0", stream="clicks", schema=schema, time="c0", unit="ms")
    assert linted(tmp_path, text) == ("passed", [])


def test_it_does_look(tmp_path):
    misspelt = linted(tmp_path, TEXT.replace("physicalType: stream", "physicalTyp: stream"))
    assert misspelt[0] == "warning"
    assert "'physicalTyp'" in misspelt[1][0]
    missing = linted(tmp_path, TEXT.replace("version: 2.0.0\n", ""))
    assert missing[0] == "failed"
    assert "'version' is a required property" in missing[1][0]
