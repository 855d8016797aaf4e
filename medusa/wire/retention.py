"""What happens when a stream keeps as much as it may: its source is slowed, or rows are shed and counted.

(Or they go to disk: then only what is in memory counts for the bound, see ``nodes.fragment.spilling``.)
"""

from __future__ import annotations

from medusa.wire.link.automaton import LinkSettings
from medusa.wire.link.output_log import OutputLog
from medusa.wire.outbox import Outbox

__all__ = ["Retention"]

TELL_US = 10_000_000
"""A stream that goes on shedding says so this often."""


class Retention:
    """The policy of one stream at its bound.

    Attributes:
        shed_rows: forgotten at the bound before every receiver held them durably. Those that a receiver
            then missed are counted at both ends as ``lost_rows``; what it had received is no loss
            unless it crashes.
    """

    def __init__(self, stream: str, settings: LinkSettings, outbox: Outbox) -> None:
        self.shed_rows = 0
        self._stream = stream
        self._settings = settings
        self._outbox = outbox
        self._told_us: int | None = None

    def full(self, nbytes: int) -> bool:
        """Whether the source has to wait; one that sheds never does."""
        return self._settings.at_limit != "shed" and nbytes >= self._settings.retained_bytes_max

    def pressed(self, nbytes: int) -> bool:
        """Half of the bound is reached: a checkpoint of the receivers soon would help."""
        return 2 * nbytes >= self._settings.retained_bytes_max

    def shed(self, now_us: int, log: OutputLog, durable: int) -> None:
        """Forget the oldest entries beyond the bound where that is the policy, all but the last.

        Args:
            durable: every receiver holds the rows below it durably.
        """
        if self._settings.at_limit != "shed" or log.nbytes <= self._settings.retained_bytes_max:
            return
        start = max(log.start_seq, durable)
        log.trim_to(self._settings.retained_bytes_max, least=1)
        self.shed_rows += max(log.start_seq - start, 0)
        if self._told_us is None or now_us - self._told_us >= TELL_US:
            self._told_us = now_us
            what = "rows shed: a receiver doesn't keep up"
            self._outbox.report("warning", what, stream=self._stream, rows=self.shed_rows)
