"""The two ends of a chain of nodes, each a process that says what it does and goes on when it is told to.

    python -m tests.system.stalled_ends publish ADDRESS STREAM PACED ROWS
    python -m tests.system.stalled_ends read ADDRESS STREAM PACED

Both say ``begun``, wait for a line, move ``PACED`` rows of which only some are ever under way, say ``paced``
and wait again. The publisher then goes on to ``ROWS`` as fast as it may: it says ``full N`` once row N could
not be taken within its timeout, goes on trying, and says ``done N`` when all rows are durable at its node.
The reader says ``read N`` when N rows came to the end of the stream, all in order and each once, or else
what was wrong.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

import numpy as np
import pyarrow as pa

import medusa as md

SCHEMA = {"n": "int64", "text": "binary"}
TRAIN_ROWS = 256
ROW_BYTES = 1000
UNDER_WAY = 16 * TRAIN_ROWS
TIMEOUT = "500ms"


def publish(address: str, stream: str, paced: str, rows: str) -> None:
    text = pa.array([bytes([i % 251]) * ROW_BYTES for i in range(TRAIN_ROWS)], pa.binary())

    def train(at: int) -> pa.RecordBatch:
        return pa.record_batch({"n": pa.array(np.arange(at, at + TRAIN_ROWS)), "text": text})

    def taken(at: int) -> bool:
        try:
            fed.publish(stream, train(at))
        except md.LinkError as error:
            if error.code != "link.timeout":
                raise
            return False  # Not yet: the node is slow to take the stream.
        return True

    with connected(address) as fed:
        say("begun")
        sys.stdin.readline()
        for at in range(0, int(paced), TRAIN_ROWS):
            while not taken(at):
                pass
            if at % UNDER_WAY == 0:
                fed.flush("60s")
        fed.flush("60s")
        say("paced")
        sys.stdin.readline()
        at, told = int(paced), False
        while at < int(rows):
            try:
                at += TRAIN_ROWS * taken(at)
            except md.FullError:
                if not told:
                    say(f"full {at}")
                told = True
        while not finished(fed, stream):
            pass
        fed.flush("60s")
        say(f"done {at}")


def connected(address: str) -> md.Federation:
    """A client that waits for nothing longer than ``TIMEOUT``; to be let in takes what it takes."""
    while True:
        try:
            return md.connect(address, timeout=TIMEOUT)
        except md.LinkError as error:
            if error.code != "link.timeout":
                raise


def finished(fed: md.Federation, stream: str) -> bool:
    try:
        fed.finish(stream)
    except md.LinkError as error:
        if error.code != "link.timeout":
            raise
        return False
    return True


def read(address: str, stream: str, paced: str) -> None:
    with md.connect(address, timeout="60s") as fed, fed.subscribe(stream, from_="oldest") as trains:
        say("begun")
        sys.stdin.readline()
        came = 0
        for train in trains:
            check(train.batch["n"].to_pylist(), came)
            came += len(train)
            if came == int(paced):
                say("paced")
                sys.stdin.readline()
        say(f"read {came}" if not trains.lost_rows else f"lost {trains.lost_rows}")


def check(numbers: Iterable[int], first: int) -> None:
    for expected, number in enumerate(numbers, start=first):
        if number != expected:
            say(f"row {number} came, row {expected} was next")
            raise SystemExit(1)


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    {"publish": publish, "read": read}[sys.argv[1]](*sys.argv[2:])
