"""Medusa with Spark (``md.spark``): the same query over DataFrames, streams in and out of Spark by a gateway,
archives, a node whose fragments run there, and a session that is set up for it.

``options`` is what Spark's source takes, which ``data_source_reader`` and ``data_source_writer`` are.
``dataframes`` and ``streaming`` run a query in Spark, ``exchange`` is the gateway, ``overflow`` the node.
Names load on first use; pyspark is loaded by what needs it (``pip install 'medusa-streams[spark]'``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from medusa.spark.session import session

if TYPE_CHECKING:
    from medusa.apps.pipeline.archive import archive
    from medusa.apps.pipeline.folder import open_folder as open_archive
    from medusa.apps.pipeline.history import history
    from medusa.apps.pipeline.prepare import prepare
    from medusa.apps.pipeline.replay import replay
    from medusa.apps.pipeline.validate import validate
    from medusa.spark.dataframes.batches import Answers, batch
    from medusa.spark.exchange.gateway import Gateway, gateway
    from medusa.spark.overflow.command import participant
    from medusa.spark.streaming.streaming import Streams, stream

__all__ = [
    "Answers",
    "Gateway",
    "Streams",
    "archive",
    "batch",
    "gateway",
    "history",
    "open_archive",
    "participant",
    "prepare",
    "replay",
    "session",
    "stream",
    "validate",
]

# Name -> where it is. Spark begins a new Python for much of what a data source does, in each trigger: it must
# not load what runs queries. No module here may be called as one of these names.
_HOMES = {
    "Answers": ("medusa.spark.dataframes.batches", "Answers"),
    "Gateway": ("medusa.spark.exchange.gateway", "Gateway"),
    "Streams": ("medusa.spark.streaming.streaming", "Streams"),
    "archive": ("medusa.apps.pipeline.archive", "archive"),
    "batch": ("medusa.spark.dataframes.batches", "batch"),
    "gateway": ("medusa.spark.exchange.gateway", "gateway"),
    "history": ("medusa.apps.pipeline.history", "history"),
    "open_archive": ("medusa.apps.pipeline.folder", "open_folder"),
    "participant": ("medusa.spark.overflow.command", "participant"),
    "prepare": ("medusa.apps.pipeline.prepare", "prepare"),
    "replay": ("medusa.apps.pipeline.replay", "replay"),
    "stream": ("medusa.spark.streaming.streaming", "stream"),
    "validate": ("medusa.apps.pipeline.validate", "validate"),
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    module, own = _HOMES[name]
    return getattr(import_module(module), own)
