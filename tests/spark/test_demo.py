"""``medusa demo spark`` as a user runs it, in the session of these tests."""

from __future__ import annotations

import json
from importlib import import_module
from typing import Any

import pytest
from click.testing import CliRunner

from medusa.cli.main import main

COMMAND = ["demo", "spark", "--speed", "0", "--json"]


@pytest.mark.full
@pytest.mark.issue(7)
def test_every_check_is_passed(spark: Any) -> None:
    done = CliRunner().invoke(main, COMMAND)
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    checks = {check["what"]: check for step in told["steps"] for check in step["checks"]}
    assert told["fine"]
    assert all(check["fine"] for check in checks.values())
    assert checks["it is complete"]["figures"].startswith("107,251 rows")
    assert checks["late rows are marked"]["figures"] == "106 of them"
    assert checks["a fragment goes to Spark"]["figures"].startswith("netmon/per_src to spark")
    assert checks["it comes back"]["figures"].startswith("netmon/per_src to core")
    assert checks["groups"]["figures"] == "33,498 rows, 0 differ"
    assert not spark.sparkContext._jsc.sc().isStopped(), "a session that ran before stays"


def test_without_java_it_says_what_to_install(monkeypatch: Any, tmp_path: Any) -> None:
    monkeypatch.setattr(import_module("medusa.spark.session"), "running", lambda: None)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    done = CliRunner().invoke(main, COMMAND)
    assert done.exit_code == 1
    assert "Spark needs Java 17, and there is no java in JAVA_HOME" in done.output
    assert "apt install openjdk-17-jre-headless" in done.output
