"""``medusa demo overflow`` as a user runs it: real nodes, a real Spark of its own, keys and a contract."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-m", "medusa.cli.main", "demo", "overflow", "--json"]
DEADLINE_S = 900
"""It waits for what has to happen; on a quiet machine of two cores it takes two minutes."""


@pytest.mark.system
def test_spark_takes_load_and_gives_it_back_and_both_say_what_is_owed(tmp_path: Path) -> None:
    done = subprocess.run(
        [*COMMAND, "--plot", str(tmp_path / "overflow.svg")],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert told["fine"]
    assert {each["what"]: each["held"] for each in told["checks"]} == {
        "alice, who has too much, sheds to Spark": True,
        "and has it at home again once there is room": True,
        "what Spark asks is more than it costs, and within the contract": True,
        "nobody thrashes: no task moves more than 4 times": True,
        "results are those of a run in which nothing moves": True,
        "both ends of each contract say the same": True,
        "what all have earned and paid is nothing in sum": True,
        "what was taken is paid for": True,
    }
    first = told["moves"][0]
    assert (first["giver"], first["taker"]) == ("alice", "cluster")
    assert all(each["equal"] and each["rows"] > 1_000 for each in told["results"])
    (balance,) = told["balances"]
    assert balance["by_consumer_micro"] == balance["by_provider_micro"] > 0
    assert all(11_000 < each["price_micro"] <= 20_000 for each in told["prices"])
    left = [each.name for each in tmp_path.iterdir() if each.name.startswith("medusa-overflow")]
    assert left == []


@pytest.mark.system
def test_without_java_it_says_what_to_install(tmp_path: Path) -> None:
    done = subprocess.run(
        [*COMMAND, "--plot", str(tmp_path / "overflow.svg")],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path), "JAVA_HOME": str(tmp_path)},
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "node 's' ended with 1 before it listened" in done.stderr
    assert "Spark needs Java 17, and there is no java in JAVA_HOME" in done.stderr
    assert "apt install openjdk-17-jre-headless" in done.stderr
    assert [*tmp_path.iterdir()] == []
