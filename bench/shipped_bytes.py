"""Question: how many bytes does an owner send a passive secondary for each checkpoint?

    python -m bench.shipped_bytes [--keys 100000] [--checkpoints 34]

Data: a count and a sum for each of so many keys (text); between two checkpoints the rows of 1 % of the keys,
at random. Nodes, disks and the network are those of the simulator, so that the figures are exact and the same
on any machine; all messages between nodes are encoded. The peer: a secondary that takes no deltas, as in
releases before there were any, which is sent whole states. Whole ones are in the mean: one in 17 is.

Exact first: at the end the secondary holds what lies on its owner's disk.
What it does not show: time; states whose tables have to be compared, which send as much.
"""

from __future__ import annotations

import argparse
from random import Random
from unittest.mock import patch

import pyarrow as pa

from medusa.nodes.recovery.held_checkpoint import CheckpointReceiver
from medusa.wire.codec import decode_frame
from medusa.wire.messages.move import Piece, Standing, Whole
from tests.nodes.recovery.test_passive_standby import run_of
from tests.nodes.recovery.test_shipped_deltas import check_held
from tests.nodes.taken_over import Run
from tests.nodes.test_taken_over import WHOLE, counting

SHARE = 100
"""One key of so many changes between two checkpoints."""

TRAIN = 5_000


class Sent:
    """What goes to secondaries: bytes, and checkpoints."""

    def __init__(self, run: Run) -> None:
        self.nbytes = self.checkpoints = 0
        run.fed.network.observe(self._sent)

    def _sent(self, source: str, frames: list) -> None:
        message, _ = decode_frame(frames, peer=source)
        if isinstance(message, Piece | Standing | Whole):
            self.nbytes += sum(memoryview(each).nbytes for each in frames)
            self.checkpoints += isinstance(message, Whole)


def measured(keys: int, checkpoints: int) -> float:
    """Bytes for each checkpoint."""
    dice = Random(keys)
    numbers = [*range(keys), *(dice.randrange(keys) for _ in range(checkpoints * keys // SHARE))]
    times = pa.array([1_000 * n for n in range(len(numbers))], pa.timestamp("us", "UTC"))
    table = pa.table({"ts": times, "k": [f"k{n}" for n in numbers], "v": numbers})
    run, fragment = run_of(counting(), WHOLE, "s1", tables={"rows": table})
    publisher, schema, came = run.publishers["rows"], run.schemas["rows"], 0

    def publish(rows: int) -> None:
        nonlocal came
        for begin in range(came, came + rows, TRAIN):
            part = run.tables["rows"].slice(begin, min(TRAIN, came + rows - begin))
            publisher.publish("q.rows", part, schema)
        came += rows
        run.until(lambda: sum(len(each) for each in run.reader.rows.get("q.out", [])) == came, "they came")

    publish(keys)
    sent = Sent(run)
    for _ in range(checkpoints):
        publish(keys // SHARE)
    check_held(run, fragment, "s1")
    return sent.nbytes / sent.checkpoints


def _takes_none(self: CheckpointReceiver, now_us: int) -> None:
    self._said_held = 0
    _tick(self, now_us)


_tick = CheckpointReceiver.tick


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--checkpoints", type=int, default=34)
    given = parser.parse_args()
    deltas = measured(given.keys, given.checkpoints)
    with patch.object(CheckpointReceiver, "tick", _takes_none):
        whole = measured(given.keys, given.checkpoints)
    print(f"{given.keys:,} keys, 1 % changed: {whole:,.0f} bytes a checkpoint without, {deltas:,.0f} with")
    share = f"{deltas / whole:.1%}"
    print(f"at one checkpoint a second: {whole / 1e6:.2f} and {deltas / 1e6:.2f} MB/s, {share}")


if __name__ == "__main__":
    main()
