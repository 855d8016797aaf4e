"""A node that waits ten minutes before silence alone makes a peer count as gone, and hardly says a word.

So what it notices sooner it has from a connection that broke, not from the time that passed, nor from a
heartbeat that couldn't be sent.
"""

from __future__ import annotations

import sys

from medusa.wire.link.session import SessionSettings

PATIENT = SessionSettings(heartbeat_us=500_000_000, timeout_us=600_000_000, hello_us=100_000)


def main(config: str, calls: str) -> None:
    """
    Args:
        calls: ``nobody``: it reaches no peer, and is only called; else as every node.
    """
    from medusa.cli.main import main
    from medusa.runtime.node import assembly
    from medusa.runtime.transport.zeromq import Transport

    assembly.PROMPT = PATIENT
    if calls == "nobody":
        Transport._connect = lambda transport, called: None
    sys.argv = ["medusa", "node", config]
    main()
