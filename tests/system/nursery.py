"""Node processes by fork, of one that has imported everything: started in hundredths of a second.

``python -m tests.system.nursery`` reads orders from standard input, one JSON object a line, and answers
each by a number: ``{"config": ..., "options": [...], "out": ..., "log": ...}`` by the pid of a new node,
``{"wait": pid}`` by its exit code. When the input ends, so do all that it started.
``{"program": module, "arguments": [...]}`` instead of ``config`` runs the ``main`` of a module.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import signal
import sys
import traceback
from typing import Any

from medusa import _native


def run(order: dict[str, Any]) -> int:
    """What a child does: the command, with its output in files; the exit code."""
    from medusa.cli.main import main

    new = os.O_WRONLY | os.O_CREAT
    for number, path, mode in (
        (0, os.devnull, os.O_RDONLY),
        (1, order["out"], new | os.O_TRUNC),
        (2, order["log"], new | os.O_APPEND),
    ):
        os.dup2(os.open(path, mode, 0o600), number)
    _native.keys_secret(int.from_bytes(os.urandom(8), "little"))  # each process has its own
    try:
        if "program" in order:
            importlib.import_module(order["program"]).main(*order["arguments"])
            return 0
        sys.argv = ["medusa", "node", order["config"], *order.get("options", [])]
        main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def serve() -> None:
    import medusa.cli.main
    import medusa.runtime.node.process  # noqa: F401  (all that a node needs)

    gc.collect()
    gc.freeze()
    alive: set[int] = set()
    for line in sys.stdin:
        order = json.loads(line)
        if "wait" in order:
            answer = os.waitstatus_to_exitcode(os.waitpid(order["wait"], 0)[1])
            alive.discard(order["wait"])
        else:
            answer = os.fork()
            if answer == 0:
                code = 1
                try:
                    code = run(order)
                finally:
                    sys.stdout.flush()
                    os._exit(code)
            alive.add(answer)
        print(answer, flush=True)
    for pid in alive:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    serve()
