"""``medusa pipeline archive`` as a driver of its own, until it is killed in an epoch.

python -m tests.spark.archiving EPOCH FLAG ARGUMENTS of medusa
"""

from __future__ import annotations

import sys
import threading
from typing import Any

from medusa.apps.pipeline.growing import Growing
from medusa.cli.main import main as command


def main(epoch: str, flag: str, *arguments: str) -> None:
    """Archive until the files of this epoch are written, make a file, and wait to be killed before they are
    in the archive."""
    add = Growing.add

    def stopping(self: Growing, number: int, parts: Any) -> Any:
        if number == int(epoch):
            open(flag, "x").close()
            threading.Event().wait()
        return add(self, number, parts)

    Growing.add = stopping  # type: ignore[method-assign]
    command(arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])
