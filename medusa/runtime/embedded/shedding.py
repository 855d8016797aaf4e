"""Rows that are left out under overload, and what a program sees of them."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from medusa.engine.input.intake import IntakeQueue
from medusa.engine.input.push_arguments import callback
from medusa.engine.overload.controller import OverloadController, has_qos
from medusa.engine.overload.drop_set import SHEDDING_SCHEMA
from medusa.engine.run.gate import RunGate
from medusa.errors import DataError
from medusa.query.suggest import did_you_mean

__all__ = ["Shedding"]


class Shedding:
    """What is left out of a run; nothing is, unless it has a queue, and quality of service at a sink.

    Args:
        sync: makes durable what rows that leave depend on.

    Attributes:
        shedder: None: there is none.
    """

    def __init__(self, gate: RunGate, sync: Callable[[], None]) -> None:
        self._gate = gate
        self._fragment = gate.fragment
        self._sync = sync
        self.shedder: OverloadController | None = None

    def begin(self) -> None:
        """Let a run with a queue shed, where the query that runs now has quality of service."""
        fragment = self._fragment
        if self.shedder is None and has_qos(fragment.graph):
            if fragment.drops is None:
                fragment.shed()
            self.shedder = OverloadController(fragment, fragment.drops)

    def control(self, now_us: int, queue: IntakeQueue) -> None:
        """Decide what is left out of what comes."""
        if self.shedder is not None:
            self.shedder.control(now_us, queue)

    def table(self) -> pa.Table:
        """As ``md.Run.shedding``."""
        with self._gate.asking():
            return SHEDDING_SCHEMA.empty_table() if self.shedder is None else self.shedder.table()

    def on(self, box: str, call: Callable[[pa.Table], object]) -> None:
        """As ``md.Run.on_shed``."""
        with self._gate.turn():
            places = [] if self.shedder is None else self.shedder.drops.boxes
            if self.shedder is None or box not in places:
                raise DataError(
                    f"nothing is ever shed at {box!r:.80}",
                    hint=did_you_mean(str(box), places) if places else "it takes queue= and a sink with qos=",
                    code="data.shed",
                )
            drops = self.shedder.drops
            drops.tap(box, callback(call, f"on_shed({box!r}, ...)"))

    def tell(self) -> None:
        """Before a checkpoint, which takes them for told. As output they hang on what was decided."""
        drops = None if self.shedder is None else self.shedder.drops
        if drops is not None and drops.untold:
            if self._fragment.behind:
                self._sync()
            drops.tell()
