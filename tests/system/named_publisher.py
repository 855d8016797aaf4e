"""A program that publishes the numbers from 0 on under a name, and goes on where the node says.

``python -m tests.system.named_publisher ADDRESS ROWS FILE``: in a hurry once there is that file
"""

from __future__ import annotations

import sys
from pathlib import Path

import medusa as md

PIECE = 50


def main(address: str, rows: str, hurry: str) -> None:
    with md.connect(address, timeout="30s") as fed, fed.publisher("q.rows", durable="numbers") as out:
        print(f"from {out.next_row}", flush=True)
        while (at := out.next_row) < int(rows):
            values = list(range(at, min(at + PIECE, int(rows))))
            out.publish({"ts": values, "v": values})
            out.boundary(values[0])
            if values[-1] % (3 * PIECE) == PIECE - 1 and not Path(hurry).exists():
                out.flush("60s")
        out.finish()
        out.flush("60s")


if __name__ == "__main__":
    main(*sys.argv[1:])
