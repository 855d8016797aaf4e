"""A cluster of two workers, each a process with an executor of its own: the same answers as everywhere."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark import where
from tests.spark.servers import LOOPBACK, SMALL, environment, standalone

pytestmark = [pytest.mark.full, pytest.mark.issue(7), pytest.mark.system]

CONF = LOOPBACK | {
    "spark.sql.shuffle.partitions": "2",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": SMALL,
    "spark.driver.extraJavaOptions": SMALL,
    # Not before both are there: else the first takes all the tasks of a short job.
    "spark.cores.max": "2",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "240s",
}


def test_shards_in_several_processes(tmp_path: Path) -> None:
    with standalone(tmp_path) as master:
        command = [sys.executable, "-m", "tests.spark.elsewhere", master, str(tmp_path), json.dumps(CONF)]
        done = subprocess.run(
            command, env=environment(tmp_path), capture_output=True, text=True, check=False, timeout=800
        )
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads((tmp_path / "told.json").read_text())
    assert {"0", "1"} <= {executor for stages in told.values() for stage in stages for executor in stage}
    for what in ("batch", "stream", "source and sink"):
        assert ["0", "1"] in told[what], f"{what}: stages ran at {told[what]}"
    ran = where.processes(tmp_path / "where")
    assert set(ran) == {"a", "b"}, "Medusa's steps ran in Python processes of both workers"
