"""Rows that fragments put out, by number, whether or not anybody had them before their node was lost."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from medusa.nodes.fragment.outputs import FragmentOutput
from medusa.sim.actors.node import NodeMachine
from medusa.sim.world.virtual_time import SimulationError
from medusa.wire.codec import TrainCodec
from medusa.wire.link.output_log import OutputLog
from medusa.wire.messages.links import Data

__all__ = ["OutputRows"]


class OutputRows:
    """Of some streams.

    Args:
        streams: their names.
    """

    def __init__(self, streams: Collection[str]) -> None:
        self._streams = streams
        self._rows: dict[str, dict[int, Mapping[str, Any]]] = {each: {} for each in streams}
        self._logs: dict[tuple[str, str], tuple[OutputLog, int]] = {}
        """Node and stream -> the log that was looked at last, and the index of the next entry."""

    def look(self, node: NodeMachine) -> None:
        """A node has had a turn: what has it put out? Whoever begins anew gives numbers once more that nobody
        has seen: the rows that came last have them."""
        for hosted in node.brain.fragments.values() if node.alive else ():
            for output in hosted.outputs.values():
                if output.stream in self._streams:
                    self._take(node.name, output)

    def _take(self, node: str, output: FragmentOutput) -> None:
        log, stream = output.sender.log, output.stream
        before, begin = self._logs.get((node, stream), (log, log.base))
        rows = self._rows[stream]
        for index in range(max(begin, log.base) if before is log else log.base, log.end):
            entry = log[index]
            if entry.payload is None:
                continue
            message = Data(
                stream=stream, epoch=0, frame=0, seq=entry.seq, rows=entry.end - entry.seq, late=entry.late
            )
            codec = TrainCodec(output.sender.schema, timed=output.sender.timed)
            train = codec.decode(message, entry.payload)
            rows.update(enumerate(train.batch.to_pylist(), entry.seq))
        self._logs[node, stream] = log, log.end

    def numbered(self, stream: str, gaps: Iterable[tuple[int, int]]) -> list[Mapping[str, Any]]:
        """The rows with these numbers, from each first one to before the second.

        Raises:
            SimulationError: none had one of them.
        """
        rows, numbers = self._rows[stream], [n for first, end in gaps for n in range(first, end)]
        if never := [number for number in numbers if number not in rows]:
            raise SimulationError(f"counted: row {never[0]} of {stream} is told lost, and there was none")
        return [rows[number] for number in numbers]
