"""The public names, and what writing a query loads."""

from __future__ import annotations

import subprocess
import sys

import pytest

import medusa


def test_a_query_without_text_needs_no_parser_and_no_arrow() -> None:
    program = """
import sys, medusa as md
q = md.Query("q")
cars = q.source("cars", {"ts": "timestamp", "speed": "float64"})
q.sink("out", cars.filter(md.col("speed") > 0).window("5 min").aggregate(n=md.count()))
q.explain(), q.diagram().svg, md.Query.from_json(q.to_json())
print([name for name in ("numpy", "pyarrow", "sqlglot", "zmq", "rich") if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("name", medusa.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(medusa, name) is not None
    assert name in dir(medusa)


def test_a_wrong_name_is_an_attribute_error_with_a_hint() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'Qery' .*did you mean 'Query'"):
        medusa.Qery  # noqa: B018
    with pytest.raises(AttributeError, match=r"no attribute '_hidden'$"):
        medusa._hidden  # noqa: B018
