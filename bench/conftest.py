"""``make bench`` = ``pytest bench --benchmark-enable``: options, shared data, and where results go."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bench import machine, report

RESULTS = Path(__file__).parent / "results"
TRAIN_ROWS = 65_536


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("medusa bench")
    group.addoption("--quick", action="store_true", help="engines: 1,000,000 events instead of 10,000,000")
    group.addoption("--full-size", action="store_true", help="growth and latency: the real sizes")
    group.addoption("--peers", default="", help="engines: streaming peers too, e.g. streamz,bytewax")
    group.addoption("--results", type=Path, default=RESULTS, help="folder for tables and plots")


def pytest_benchmark_update_json(config: pytest.Config, benchmarks: Any, output_json: dict[str, Any]) -> None:
    output_json["medusa"] = machine.describe()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Keep what was measured, also without --benchmark-json."""
    benchmarks = getattr(session.config, "_benchmarksession", None)
    if benchmarks is None or benchmarks.disabled or not benchmarks.benchmarks:
        return
    found: dict[str, Any] = {
        **machine.describe(),
        "benchmarks": [bench.as_dict(include_data=False, flat=False) for bench in benchmarks.benchmarks],
    }
    folder = session.config.getoption("--results")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "micro.json").write_text(json.dumps(found, indent=1, default=str) + "\n")
    (folder / "micro.md").write_text(report.micro_table(found))
    report.micro_plot(found, folder / "micro.svg")


@pytest.fixture(scope="session")
def train() -> pa.RecordBatch:
    """65,536 rows: time over 10 s, 1,000 keys as int64 and as text, value."""
    rng = np.random.default_rng(7)
    key = rng.integers(0, 1_000, TRAIN_ROWS)
    return pa.record_batch(
        {
            "time": np.arange(TRAIN_ROWS, dtype=np.int64) * 10_000_000 // TRAIN_ROWS,
            "key": key,
            "text": [f"user-{number:06d}" for number in key],
            "value": rng.random(TRAIN_ROWS),
        }
    )


@pytest.fixture
def peer(benchmark: Any, request: pytest.FixtureRequest) -> Any:
    """``benchmark`` with its group and the rows it handles, for the tables."""
    benchmark.group = request.module.__name__.rpartition(".")[2].removeprefix("test_")
    benchmark.extra_info["rows"] = TRAIN_ROWS
    return benchmark
