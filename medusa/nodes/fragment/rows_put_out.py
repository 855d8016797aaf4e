"""How many rows of the streams that feed a fragment there are, as the nodes know that feed it: no host of
another participant has more, whatever it says."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from medusa.nodes.fragment.checkpoint_record import FragmentRecord
from medusa.nodes.fragment.host import FragmentHost
from medusa.nodes.fragment.outputs import FragmentOutput
from medusa.nodes.spec.fragment_spec import FragmentSpec

__all__ = ["put_out_to", "rows_put_out", "why_ahead"]


def _outputs(running: Iterable[FragmentHost]) -> Iterable[tuple[FragmentHost, str, FragmentOutput]]:
    for hosted in running:
        for sink, output in hosted.outputs.items():
            if not hosted.frozen:
                yield hosted, sink, output


def put_out_to(running: Iterable[FragmentHost], nodes: Collection[str]) -> dict[str, int]:
    """Stream -> the number of its next row, of those that some of these nodes read, or are to."""
    found = {}
    for hosted, sink, output in _outputs(running):
        readers = {*hosted.spec.readers.get(sink, ()), *output.sender.receivers}
        if not readers.isdisjoint(nodes):
            found[output.sender.stream] = output.sender.log.next_seq
    return found


def rows_put_out(
    spec: FragmentSpec,
    me: str,
    running: Iterable[FragmentHost],
    said: Callable[[str], Mapping[str, int] | None],
) -> dict[str, int]:
    """Source -> the number of the next row of its stream, where the node that feeds it can say; 0: it has
    nothing of that stream yet, as after a restart.

    Args:
        said: what a node has told as ``put_out_to``; None: it can't say.
    """
    own = {output.sender.stream: output.sender.log.next_seq for _, _, output in _outputs(running)}
    found = {}
    for feed in spec.feeds:
        known = own if feed.node == me or feed.stream in own else said(feed.node)
        if known is not None:
            found[feed.source] = known.get(feed.stream, 0)
    return found


def why_ahead(record: FragmentRecord, put_out: Mapping[str, int]) -> str:
    """Why a checkpoint can't be right yet: it has rows that aren't there. Empty: it can.

    Args:
        put_out: as ``rows_put_out`` has it.
    """
    for each in record.inputs:
        if each.next_seq > (most := put_out.get(each.source, each.next_seq)):
            return f"source {each.source!r} stands at row {each.next_seq}, and its stream ends at {most}"
    return ""
