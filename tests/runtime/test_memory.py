"""A node keeps freed memory for its next checkpoint."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource, threading
import pyarrow as pa
import medusa as md
from medusa.runtime.memory import keep_freed_memory

assert keep_freed_memory()
q = md.Query("q")
rows = q.source("rows", {"ts": "int64", "k": "int64"}, time="ts", unit="us")
q.sink("out", rows.window("1h").group_by("k").aggregate(n=md.count()))
with md.start(q) as run:
    run.push("rows", pa.table({"ts": [0] * 200_000, "k": range(200_000)}))
    found = []
    def snapshots():
        for _ in range(6):
            before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
            run._fragment.parts()
            found.append(resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before)
    thread = threading.Thread(target=snapshots)
    thread.start()
    thread.join()
print(max(found), min(found[2:]))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is told")
def test_the_state_is_copied_into_memory_that_was_used_before():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    most, least = map(int, done.stdout.split())
    assert most > 1_000  # Two hundred thousand groups, 48 bytes each, in pages that were never touched.
    assert least < most // 4
