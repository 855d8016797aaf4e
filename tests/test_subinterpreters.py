"""A subinterpreter is refused with a sentence; the main interpreter works afterwards, whatever the order."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

NAME = next(
    (each for each in ("_interpreters", "_xxsubinterpreters") if importlib.util.find_spec(each)), None
)

pytestmark = pytest.mark.skipif(NAME is None, reason="this Python has no subinterpreters")

PROGRAM = """
import importlib
subinterpreters = importlib.import_module({name!r})

def refused(code):
    sub = subinterpreters.create()
    attempt = (
        "try:\\n    " + code + "\\nexcept ImportError as error:\\n    print('refused:', error)\\n"
        "else:\\n    print('not refused')"
    )
    for _ in range(2):
        subinterpreters.run_string(sub, attempt)
    subinterpreters.destroy(sub)

def works():
    import medusa as md
    q = md.Query("q")
    s = q.source("s", {{"ts": "int64", "v": "int64"}}, time="ts", unit="us", slack=0)
    q.sink("o", s.window(2).aggregate(n=md.sum("v")))
    with md.start(q) as run:
        run.push("s", {{"ts": [1, 2, 3], "v": [1, 2, 3]}})
        run.finish()
        print("works:", run.take("o")["n"].to_pylist())

import threading
{order}
thread = threading.Thread(target=works)
thread.start()
thread.join()
"""


@pytest.mark.parametrize("code", ["import medusa", "import medusa._native", "from medusa import start"])
@pytest.mark.parametrize("first", ["main", "sub"])
def test_it_is_refused_and_harms_nobody(code: str, first: str) -> None:
    steps = (
        ["works()", f"refused({code!r})", "works()"] if first == "main" else [f"refused({code!r})", "works()"]
    )
    program = PROGRAM.format(name=NAME, order="\n".join(steps))
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    sentence = "refused: medusa can't be used in a subinterpreter: import it in the main interpreter"
    assert sum(each.startswith(sentence) for each in lines) == 2
    assert lines.count("works: [1, 5]") == len(steps)
    assert len(lines) == 2 + len(steps)


def test_a_thread_is_no_subinterpreter() -> None:
    program = """
import threading
def use():
    import medusa as md
    print(md.Query("q").name)
thread = threading.Thread(target=use)
thread.start()
thread.join()
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.stdout == "q\n", done.stderr
