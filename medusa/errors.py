"""What can go wrong, and whose fault it is.

Every error says what happened (the message), which rule was broken (``code``, a stable text for
programs) and what to do next (``hint``). A call that raised one of these changed nothing.
Anything else that escapes from Medusa is a bug of ours.
"""

from __future__ import annotations

__all__ = [
    "CheckpointWarning",
    "ConfigError",
    "ContractError",
    "DataError",
    "DeadRowWarning",
    "FullError",
    "LateWarning",
    "LinkError",
    "LocalProtocolError",
    "MedusaError",
    "QueryError",
    "RemoteProtocolError",
    "StateError",
]


class MedusaError(Exception):
    """The base of all our errors; never raised itself.

    Attributes:
        code: stable dotted name of the rule that was broken, e.g. ``query.expressions.column``.
        hint: what to do about it; empty where the message says it all.
    """

    code = "medusa"

    def __init__(self, message: str, *, hint: str = "", code: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if code:
            self.code = code

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class QueryError(MedusaError):
    """A query that can't be built: says the box, the name or type, what was expected."""

    code = "query"


class DataError(MedusaError):
    """A pushed batch that doesn't fit; it was refused whole and the run goes on."""

    code = "data"


class FullError(MedusaError):
    """Backpressure: nothing of the push entered; take output, then push again."""

    code = "full"


class StateError(MedusaError):
    """A checkpoint that can't be written, read or used; names the file."""

    code = "state"


class LinkError(MedusaError):
    """A node, stream or client that can't be reached, found or agreed with."""

    code = "link"


class ConfigError(MedusaError):
    """The configuration of a node can't be used: says the line, the field and what is allowed."""

    code = "config"


class ContractError(MedusaError):
    """No contract allows this."""

    code = "contract"


class LocalProtocolError(LinkError):
    """We broke a rule of the protocol: the call is refused and changed nothing."""

    code = "protocol.local"


class RemoteProtocolError(LinkError):
    """The peer broke a rule: drop that link and keep the node."""

    code = "protocol.remote"

    def __init__(self, message: str, *, peer: str = "", hint: str = "", code: str = "") -> None:
        super().__init__(f"{message} (peer {peer!r})" if peer else message, hint=hint, code=code)
        self.peer = peer


class LateWarning(UserWarning):
    """The first late row of a live source: names the source, how late, and the slack that keeps it.

    Attributes:
        source, slack: those two as they stand in the message, such as ``cars`` and ``2s``.
    """

    def __init__(self, message: str, *, source: str = "", slack: str = "") -> None:
        super().__init__(message)
        self.source = source
        self.slack = slack


class DeadRowWarning(UserWarning):
    """The first row on which an expression failed: names the box and the error."""


class CheckpointWarning(UserWarning):
    """A checkpoint that fell due couldn't be written: the run goes on and tries again later."""
