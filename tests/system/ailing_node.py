"""A node whose disk is as a file says: while that is there, syncing ``fails`` or ``hangs``.

``at once``: told to end it waits half a second for its disk, else as every node.
"""

from __future__ import annotations

import errno
import os
import sys
import threading
from pathlib import Path


def main(config: str, ill: str, ends: str) -> None:
    from medusa.cli import main
    from medusa.runtime.node import assembly

    if ends == "at once":
        assembly.STOP_TIMEOUT_US, assembly.ENDING_S = 500_000, 0.1
    honest = os.fsync

    def fsync(number: int) -> None:
        if Path(ill).exists():
            if Path(ill).read_text() == "hangs":
                threading.Event().wait()
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        honest(number)

    os.fsync = fsync
    sys.argv = ["medusa", "node", config]
    main.main()
