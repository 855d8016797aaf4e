"""Says which processes run Medusa's steps: workers of Spark import it, as a module of a query's functions.

In the folder of ``MEDUSA_TEST_FOLDER`` a file then bears the name of Spark's worker
(``MEDUSA_TEST_WORKER``) and the number of the process.
"""

from __future__ import annotations

import os
from pathlib import Path

FOLDER, WORKER = "MEDUSA_TEST_FOLDER", "MEDUSA_TEST_WORKER"
MODULE = __name__

if WORKER in os.environ:
    (Path(os.environ[FOLDER]) / f"{os.environ[WORKER]}-{os.getpid()}").touch()


def processes(folder: Path) -> dict[str, set[int]]:
    """Spark's worker -> the processes there."""
    found: dict[str, set[int]] = {}
    for path in folder.iterdir():
        worker, _, number = path.name.rpartition("-")
        found.setdefault(worker, set()).add(int(number))
    return found
