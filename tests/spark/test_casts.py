"""Text that is cast to each type: what would become another value is told."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from medusa.apps.pipeline import traces
from medusa.query.types import normalise

TEXTS: dict[str, tuple[list[str], list[str]]] = {
    "decimal128(5, 2)": (
        ["1.23", "1.2300", "-.5", "7.", "999.99", "1.2e1", "100e-2", "123000e-3", "0.000", " 1 "],
        ["1.239", "1.0000000000000000000000000000000000000000000001", "1e-3", "123400e-5", "1000", "x"],
    ),
    "decimal128(38, 0)": (["9" * 38, "1e37"], ["9" * 38 + ".1", "0.4"]),
    "int64": (["7", str(2**63 - 1)], ["1.239", "1e3", str(2**63)]),
    "float32": (
        ["0.1", "16777216", "16777218", "3.0000001", "inf", "-Infinity", "nan", "-0", "1e10"],
        ["16777217", "1e39", "-1e39", "x"],
    ),
    "float64": (
        [
            "0.10000000000000001",
            "9007199254740992",
            str(2**60),
            str(-(2**63)),
            "12345678901234567000",
            "1e300",
        ],
        ["9007199254740993", "1e400", "12345678901234567001", "1" * 40],
    ),
    "date32": (
        ["2020-01-01", "2020-01-01 00:00:00", "2020-01-01T00:00:00.000Z", "2020-1-2"],
        ["2020-01-01 12:34:56", "2020-01-01T00:00:01", "2020-01-01 00:00:00.001", "2020-13-01"],
    ),
    "timestamp": (
        ["2020-01-01 00:00:00.123456", "2020-01-01T00:00:00.123456000Z", "2020-01-01"],
        ["2020-01-01 00:00:00.123456789Z", "2020-01-01T00:00:00.1234560001", "12:34:56", "T12:34:56"],
    ),
    "duration": (
        ["INTERVAL '1 00:00:00.123456' DAY TO SECOND"],
        ["INTERVAL '1 00:00:00.123456789' DAY TO SECOND", "1"],
    ),
    "bool": (["true", "f"], ["2"]),
    "binary": (["00fF"], ["0g"]),
}


def test_text_that_would_become_another_value_is_told(spark: Any) -> None:
    """All at once: a column for each text."""
    from pyspark.sql import functions as F

    cases = [
        (normalise(type), text, wrong)
        for type, each in TEXTS.items()
        for wrong in (0, 1)
        for text in each[wrong]
    ]
    frame = spark.createDataFrame(pa.table({f"i{n}": [text] for n, (_, text, _) in enumerate(cases)}))
    frame = frame.select(
        *(
            traces.lost(F.col(f"i{n}"), traces.tried(F.col(f"i{n}"), type, "string"), type, "string")
            for n, (type, _, _) in enumerate(cases)
        )
    )
    told = dict(zip(cases, frame.head(), strict=True))
    assert [case for case, lost in told.items() if lost is not bool(case[2])] == []
