"""``import medusa`` is light: heavy packages load on first use. (How fast it is stands in bench/.)"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import medusa as md

HEAVY = ("pyarrow", "sqlglot", "zmq", "numpy", "rich", "duckdb", "pandas", "polars", "matplotlib", "msgspec")


def loaded_by(code: str) -> set[str]:
    """Top-level packages that are loaded after ``code``, in a new interpreter."""
    show = "import sys; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{show}"], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_import_medusa_loads_nothing_heavy() -> None:
    loaded = loaded_by("import medusa")
    assert "medusa" in loaded
    assert not loaded & set(HEAVY)


def test_the_check_sees_what_is_loaded() -> None:
    assert "numpy" in loaded_by("import medusa, numpy")


@pytest.mark.parametrize(
    "code",
    [
        "import medusa as md; md.QueryError, md.Train, md.Boundary",
        "import medusa as md; md.Query('q'); md.col('a') > 1; md.count(); md.lit(1)",
    ],
)
def test_building_without_sql_or_data_loads_neither_arrow_nor_sqlglot(code: str) -> None:
    assert not loaded_by(code) & {"pyarrow", "sqlglot", "zmq", "numpy", "rich", "duckdb"}


def test_every_public_name_can_be_had() -> None:
    names = "import medusa as md\nfor name in md.__all__: assert getattr(md, name) is not None, name"
    assert "pyarrow" in loaded_by(names)


def test_no_room_hides_a_public_name() -> None:
    """Importing ``medusa.x`` makes it the attribute ``x`` of the package."""
    rooms = {path.name.removesuffix(".py") for path in Path(md.__file__).parent.iterdir()}
    assert not rooms & set(md.__all__) - {"__version__"}


def test_a_data_source_in_a_worker_of_spark_loads_no_engine() -> None:
    """Spark begins a new Python for much of what a data source does, several in each trigger."""
    modules = ("data_source_reader", "data_source_writer", "options", "column_types")
    code = ", ".join(["import sys", *(f"medusa.spark.{module}" for module in modules)])
    command = [sys.executable, "-c", f"{code}; print(*sys.modules)"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    loaded = set(done.stdout.split())
    assert "medusa.spark.exchange.caller" in loaded
    assert not loaded & {"medusa.engine.fragment", "medusa.query.builder", "asyncio", "pandas", "sqlglot"}


def test_no_module_of_spark_hides_a_public_name() -> None:
    names = "import medusa.spark.dataframes.flow, medusa.spark.dataframes.batches\n"
    names += "import medusa.spark.streaming.streaming, medusa as md\n"
    names += "for name in md.spark.__all__: assert callable(getattr(md.spark, name)), name"
    loaded_by(names)
