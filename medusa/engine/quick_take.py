"""Taking rows, where nothing but the sink changes: without the price of deferring interrupts.

To defer them takes two system calls, longer than a small train waits for the rest. Here they may come between
any two steps. Nothing has changed before the rows are let go, and afterwards the caller either has them or
they are held again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from medusa.elements import Element, Kind, Train
from medusa.engine.operators.sink import SinkBox
from medusa.ports import Briefly

if TYPE_CHECKING:
    from medusa.engine.run import Run

__all__ = ["take_briefly", "to_table"]


def take_briefly(run: Run, briefly: Briefly, sink: str) -> tuple[pa.Table, bool] | None:
    """All rows of a sink, and whether there are any; None: nothing was done, and a turn must be taken.

    Raises:
        DataError: there is no such sink.
        What an interrupt raises: the rows are still held, or again.
    """
    loan: list[tuple[SinkBox, list[Element]]] = []
    try:
        return briefly(_lend, run, sink, loan)
    except BaseException:
        for box, elements in loan:
            with run._interrupts, run._state:
                if not box.lends(elements):
                    box.put_back(elements)
        raise


def _lend(run: Run, sink: str, loan: list[tuple[SinkBox, list[Element]]]) -> tuple[pa.Table, bool] | None:
    fragment = run._fragment
    if run._closed or run._idles or fragment.has_calls or fragment.letters.fresh is not None:
        return None
    box = fragment.sink(sink)
    elements = box.lend()
    if elements is None or (fragment.log is not None and fragment.behind):
        return None
    made, some = box.nothing, bool(box.held_rows)
    if some:
        made = to_table(elements, box.schema)
    if elements:
        loan.append((box, elements))
        box.let_go()
        run._took(elements)
    return made, some


def to_table(elements: list[Element], schema: pa.Schema) -> pa.Table:
    """The final rows among elements."""
    final = [each for each in elements if isinstance(each, Train) and each.kind is Kind.STABLE]
    if not final:
        return schema.empty_table()
    return pa.Table.from_batches([each.batch for each in final], schema)
