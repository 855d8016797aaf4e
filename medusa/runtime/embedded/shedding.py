"""What a program sees of rows that are left out under overload."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from medusa.engine.input.push_arguments import callback
from medusa.engine.overload.controller import Shedder
from medusa.engine.overload.drop_set import SHEDDING_SCHEMA
from medusa.errors import DataError
from medusa.query.suggest import did_you_mean
from medusa.runtime.embedded.changing import ChangingRun

__all__ = ["SheddingRun"]


class SheddingRun(ChangingRun):
    """A run that may have a shedder: with ``queue=``, and quality of service at a sink."""

    _sheds: Shedder | None = None

    def shedding(self) -> pa.Table:
        """Where rows can be left out, and what is at this moment; no rows where nothing is ever shed.

        Returns:
            Of each place: ``box`` (a source: behind it; another one: before it), ``how`` (``random``,
            ``value`` or ``windows``), ``sinks`` that miss what is dropped there, the ``share`` that is
            dropped now, rows ``seen`` and ``shed`` so far.
        """
        with self._state:
            self._refuse_closed()
            return SHEDDING_SCHEMA.empty_table() if self._sheds is None else self._sheds.drops.table()

    def on_shed(self, box: str, call: Callable[[pa.Table], object]) -> None:
        """Call back, in the thread of the run, with rows that are left out at a box: see ``shedding``.

        Rows count as told once all callbacks of their box have returned; after one that raised, they
        come again with the next ones, and the next caller is told its error.

        Raises:
            DataError: nothing is ever shed there; says where something may be.
        """
        with self._turn():
            places = [] if self._sheds is None else self._sheds.drops.boxes
            if self._sheds is not None and box in places:
                self._sheds.drops.tap(box, callback(call, f"on_shed({box!r}, ...)"))
                return
            raise DataError(
                f"nothing is ever shed at {box!r:.80}",
                hint=did_you_mean(str(box), places) if places else "it takes queue= and a sink with qos=",
                code="data.shed",
            )

    def _tell_shed(self) -> None:
        """Before a checkpoint, which takes them for told. As output they hang on what was decided."""
        if self._sheds is not None and self._sheds.drops.untold:
            if self._fragment.behind:
                self._sync()
            self._sheds.drops.tell()
