"""polars with its streaming engine."""

from __future__ import annotations

from bench.peers import polars_


class Engine(polars_.Engine):
    engine = "streaming"
