"""A node that dies, hangs or has a full disk at one moment of a deployment or removal, as a file says.

The file says ``MOMENT HOW``; who comes there takes it away, so that it happens once. Moments: ``asked`` (the
word of the coordinator came), ``done`` (it was done in memory), ``answering`` (it is on disk), ``answered``.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from pathlib import Path
from typing import Any


def main(config: str, doom: str) -> None:
    from medusa.cli import main
    from medusa.nodes.node import NodeMind
    from medusa.runtime.node.loop import NodeLoop
    from medusa.wire.messages.commands import Install, Remove, Reply

    file = Path(doom)
    honest = os.fsync
    receive, send = NodeMind._dispatch, NodeLoop._send
    full = file.with_suffix(".full")

    def comes(moment: str) -> None:
        if not file.exists() or file.read_text().split()[0] != moment:
            return
        how = file.read_text().split()[1]
        file.unlink()
        if how == "full":
            full.touch()
        else:
            os.kill(os.getpid(), signal.SIGSTOP if how == "hangs" else signal.SIGKILL)

    def fsync(number: int) -> None:
        if full.exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        honest(number)

    def doomed_receive(self: Any, heard: Any) -> None:
        ours = isinstance(heard.message, Install | Remove)
        if ours:
            comes("asked")
        receive(self, heard)
        if ours:
            comes("done")

    def doomed_send(self: Any, peer: str, effect: Any) -> None:
        ours = isinstance(effect.message, Reply) and effect.payload is None
        if ours:
            comes("answering")
        send(self, peer, effect)
        if ours:
            comes("answered")

    os.fsync, NodeMind._dispatch, NodeLoop._send = fsync, doomed_receive, doomed_send  # type: ignore[assignment]
    sys.argv = ["medusa", "node", config]
    main.main()
