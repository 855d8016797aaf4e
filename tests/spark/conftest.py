"""One Spark session for all tests: starting one takes as long as many of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
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


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    session = md.spark.session("local[2]", memory="1g", conf=QUICK)
    yield session
    session.stop()
