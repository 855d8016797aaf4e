"""Which fragments a participant on Spark takes: those whose boxes run there, in the time that is asked for.

``reason`` is where contracts and prices will be weighed too; today it looks at the boxes and the latency.
"""

from __future__ import annotations

from medusa.errors import QueryError
from medusa.nodes.spec.fragment_spec import Fragment
from medusa.query.boxes import Graph, Sink, Source
from medusa.query.codec import refuse_unregistered
from medusa.query.graph import label_of, reads_dead_of_several
from medusa.query.user_registry import registered
from medusa.spark import support
from medusa.units import duration_text

__all__ = ["KINDS", "reason", "worth_until_us"]

KINDS = tuple(
    sorted(kind for kind, way in support.WAYS.items() if way is not support.Way.REFUSED and kind != "union")
)
"""Boxes that are taken, as the catalog lists them."""


def reason(spec: Fragment, *, latency_us: int) -> tuple[str, str]:
    """Why a fragment isn't taken, and what can be done about it; empty: it is taken.

    Args:
        latency_us: so much later results come there, but for one in a hundred.
    """
    graph = spec.graph
    try:
        support.check(graph, support.read_ports(graph), judged=True)
        refuse_unregistered(graph, "Spark")
    except QueryError as error:
        return error.message, error.hint or "leave it at a node that runs its fragments itself"
    return _undecided(graph) or _of_program(graph) or _too_late(graph, latency_us) or ("", "")


def _undecided(graph: Graph) -> tuple[str, str] | None:
    """What depends on more than the rows of each input."""
    for box in graph.boxes:
        if isinstance(box, Source) and box.idle_us is not None and not box.judged:
            text = f"{label_of(box)} has idle=, which the clock of its node decides"
            return text, "publish boundaries where a stream is known to be silent"
        if box.determinism == "arbitrary" or (reads_dead_of_several(graph) and len(box.inputs) > 1):
            text = f"what {label_of(box)} sends depends on how its inputs interleave, which its node logs"
            return text, "sunion merges streams in the same order everywhere"
    return None


def _of_program(graph: Graph) -> tuple[str, str] | None:
    for box in graph.boxes:
        for function in box.functions:
            made = registered(function.name, function.version)
            if getattr(made, "__module__", "__main__") == "__main__":
                text = (
                    f"{label_of(box)}: function {function.name!r} is in no module that workers could import"
                )
                return text, "put it in a module, and name that in `functions` of the configuration"
    return None


def _too_late(graph: Graph, latency_us: int) -> tuple[str, str] | None:
    for box in graph.boxes:
        if not isinstance(box, Sink):
            continue
        until_us = worth_until_us(box)
        if until_us is not None and latency_us >= until_us:
            text = (
                f"{label_of(box)} wants its rows before {duration_text(until_us)}, and here 1 in 100 comes "
                f"{duration_text(latency_us)} later"
            )
            return text, "leave it at a node, or ask for less: qos=md.QoS(latency=...)"
    return None


def worth_until_us(sink: Sink) -> int | None:
    """The delay from which on its rows are worth least; None: nobody said, or it is all the same."""
    points = None if sink.qos is None else sink.qos.latency
    if points is None or points[0][1] == points[-1][1]:
        return None
    return next(delay_us for delay_us, worth in points if worth == points[-1][1])
