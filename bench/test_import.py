"""Question: what does ``import medusa`` cost a program that only starts?

A fresh interpreter per round, import included, beside Python alone and ``import pyarrow``.
Not shown: what the first query loads (pyarrow, sqlglot); ``first query`` is that.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

PROGRAMS = {
    "python alone": "pass",
    "medusa": "import medusa",
    "medusa, first query": (
        "import medusa as md; q = md.Query('a'); s = q.source('s', {'t': 'int64'}, time='t', unit='s'); "
        "q.sink('o', s.filter('t > 0')); md.collect(q, s={'t': [0, 1]})"
    ),
    "pyarrow": "import pyarrow",
    "polars": "import polars",
    "duckdb": "import duckdb",
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_start(peer: Any, program: str) -> None:
    peer.extra_info["rows"] = 1
    command = [sys.executable, "-c", PROGRAMS[program]]
    done = peer.pedantic(subprocess.run, (command,), {"check": True}, rounds=7, warmup_rounds=1)
    assert done.returncode == 0
