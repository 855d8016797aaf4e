"""One Spark session for all tests: starting one takes as long as many of them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import medusa as md


def pytest_itemcollected(item: pytest.Item) -> None:
    for name in ("LateWarning", "DeadRowWarning"):  # of the embedded run that answers are compared with
        item.add_marker(pytest.mark.filterwarnings(f"ignore::medusa.errors.{name}"))


# Hundreds of small plans, each run once: compiling them takes longer than running them. Every Java has the
# options, also that of a driver of its own, of a worker or a server.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
QUICK = {"spark.sql.codegen.wholeStage": "false"}


def hide_zip() -> None:
    """Give Spark a folder without the zip of pyspark, which each Python that it starts would compile anew
    (1 s of CPU): they find the same one where it is installed. Clusters, which other tests
    start, have the zip."""
    installed, home = find_spec("pyspark"), Path(sys.prefix) / "spark-home"
    if installed is None or not installed.origin:
        return
    (home / "python" / "lib").mkdir(parents=True, exist_ok=True)
    for name in ("bin", "jars", "sbin"):
        if not (home / name).exists():
            (home / name).symlink_to(Path(installed.origin).parent / name)
    os.environ.setdefault("SPARK_HOME", str(home))


hide_zip()


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    session = md.spark.session("local[2]", memory="1g", conf=QUICK)
    yield session
    session.stop()
