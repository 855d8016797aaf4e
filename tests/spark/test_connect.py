"""A server of Spark Connect: what asks it has neither Java nor a driver."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import medusa as md
from medusa.spark.session import missing_for_connect
from tests.blocks import blocks
from tests.spark import where
from tests.spark.servers import ROOT, connect_server, environment

EXAMPLE = ROOT / "examples" / "spark_pipeline"


def test_a_program_has_sessions_of_one_kind(spark: Any) -> None:
    with pytest.raises(md.MedusaError, match="has a session with its own driver, and pyspark takes no other"):
        md.spark.session("sc://127.0.0.1:1")
    assert md.spark.session() is spark


@pytest.mark.full
@pytest.mark.issue(7)
@pytest.mark.system
@pytest.mark.skipif(bool(missing_for_connect()), reason="the extra spark-connect isn't installed")
def test_all_of_it_over_connect(tmp_path: Path) -> None:
    with connect_server(tmp_path, {"spark.sql.shuffle.partitions": "2"}) as server:
        command = [sys.executable, "-m", "tests.spark.elsewhere", server, str(tmp_path), "{}"]
        env = environment(tmp_path, JAVA_HOME=str(tmp_path))  # where there is no Java
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=800)
    assert done.returncode == 0, done.stderr[-3000:]
    assert set(where.processes(tmp_path / "where")) == {"server"}


@pytest.mark.full
@pytest.mark.issue(7)
@pytest.mark.system
@pytest.mark.skipif(bool(missing_for_connect()), reason="the extra spark-connect isn't installed")
def test_the_example_of_a_declarative_pipeline(tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLE / "run.py")]
    env = environment(tmp_path) | {"TMPDIR": str(tmp_path)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=800)
    assert done.returncode == 0, done.stderr[-3000:]
    page = (ROOT / "docs" / "spark.md").read_text(encoding="utf-8")
    command_line = "$ python examples/spark_pipeline/run.py\n"
    (shown,) = (block.text for block in blocks(page, "text") if block.text.startswith(command_line))
    assert done.stdout == shown.removeprefix(command_line)
