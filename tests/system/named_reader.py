"""A program that reads under a name and stores rows and position in one transaction.

``python -m tests.system.named_reader ADDRESS DATABASE``
"""

from __future__ import annotations

import sqlite3
import sys

import medusa as md
from medusa.errors import LinkError
from medusa.runtime.client.federation import Federation
from medusa.runtime.client.subscription import Subscription
from tests.system.nodes import until


def subscribed(fed: Federation, at: int) -> Subscription | None:
    """None while the one that was killed isn't noticed yet."""
    try:
        return fed.subscribe("q.out", from_=at, durable="results")
    except LinkError as error:
        if error.code != "E_TAKEN":
            raise
        return None


def acknowledged(fed: Federation) -> int:
    [output] = fed.status()["fragments"][0]["outputs"]
    [named] = output["named"]
    return named["acknowledged_row"]


def main(address: str, path: str) -> None:
    store = sqlite3.connect(path)
    with store:
        store.execute("create table if not exists results (number integer, value integer)")
        store.execute("create table if not exists place (row integer)")
    [at] = store.execute("select coalesce(max(row), 0) from place").fetchone()
    with md.connect(address, timeout="30s") as fed:
        trains = until(lambda: subscribed(fed, at), what="nobody else reads")
        for train in trains:
            end = train.first_seq + len(train)
            rows = enumerate(train.batch["v"].to_pylist(), start=train.first_seq)
            with store:
                store.executemany("insert into results values (?, ?)", rows)
                store.execute("insert into place values (?)", (end,))
            trains.ack(end)
        assert trains.lost_rows == 0
        # What is acknowledged just before the connection is closed may not be heard.
        until(lambda: acknowledged(fed) == trains.acked_row, what="the node has heard it")
        trains.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
