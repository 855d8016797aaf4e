"""``medusa spark-participant`` and ``md.spark.participant``: a whole node whose fragments run on Spark."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from medusa.elements import Train
from medusa.engine.fragment import Fragment
from medusa.errors import ConfigError
from medusa.nodes.config.settings import Settings
from medusa.ports import Clock
from medusa.query.builder import Query
from medusa.query.expressions.aggregates import count
from medusa.runtime.embedded_node.node_thread import Node
from medusa.runtime.machine.clock import SystemClock
from medusa.runtime.node.configuration import NodeConfig
from medusa.runtime.node.process import run_node
from medusa.spark.overflow.executor import Executor
from medusa.spark.overflow.participant import Participant, TriggerLatency
from medusa.spark.overflow.remote_fragment import RemoteFragment
from medusa.spark.session import running, session
from medusa.spark.session_setup import quiet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["measure", "participant", "run_participant"]

CONF = {"spark.sql.execution.arrow.maxBytesPerBatch": str(256 << 20)}
"""A worker is given the state of a shard in batches, whose columns can't have 2 GiB."""

WARM, MEASURED = 2, 6
"""Triggers before it listens: the first take seconds, and would say nothing of those that follow."""


def participant(
    config: NodeConfig,
    spark: SparkSession | None = None,
    *,
    report: Callable[[str, str], None] | None = None,
) -> Node:
    """A node inside this program whose fragments run on Spark; ``with md.spark.participant(config):`` runs
    it.

    It is a node as ``md.node`` makes it: links, checkpoints, moves and recovery are the same. Before it
    listens it runs some triggers, so that it knows how long one takes.

    Args:
        config: that of a node, with a table ``spark``; the file, or a dict of the same fields.
        spark: the session; None: the one of this program, or one that is made as ``spark`` says, and stopped
            with the node.
        report: as for ``md.node``.

    Raises:
        ConfigError: from ``start``: there is no table ``spark``, or ``store`` keeps nothing; pyspark or Java
            is missing.
    """
    return Node(config, report=report, elsewhere=partial(_on_spark, spark=spark))


def run_participant(config: str | os.PathLike[str], *, as_json: bool = False) -> None:
    """Run a participant until SIGTERM or SIGINT, as ``run_node`` runs a node. Raises as that.

    Raises:
        ConfigError: besides: no table ``[spark]``; pyspark or Java is missing.
    """
    run_node(config, as_json=as_json, elsewhere=_on_spark)


def _on_spark(settings: Settings, spark: SparkSession | None = None) -> Participant:
    rules = settings.spark
    if rules is None:
        raise ConfigError(
            f"node {settings.name!r} has no table [spark]",
            hint='add [spark] with master = "local[2]"; without it, it is one for medusa node',
            code="config.spark",
        )
    if settings.forgets:
        raise ConfigError(
            f"node {settings.name!r} keeps nothing over its end, and what runs on Spark needs checkpoints",
            hint=f'remove store = "{settings.store}", and give `data` a folder',
            code="config.store",
        )
    from medusa.spark.overflow.on_spark import OnSpark

    spark, ended = spark or running(), _nothing
    if spark is None:
        conf = {**CONF, **rules.conf}
        with quiet():
            made = spark = session(
                rules.master, name=f"medusa-{settings.name}", memory=rules.memory, conf=conf
            )
        ended = made.stop
    clock, latency = SystemClock(), TriggerLatency(rules.latency_us)
    try:
        executor = OnSpark(spark, modules=settings.functions)
        shards = executor.cores if rules.shards is None else rules.shards
        measure(executor, latency, clock, shards=shards)
    except BaseException:
        ended()
        raise
    return Participant(executor, node=settings.name, clock=clock, latency=latency, shards=shards, ended=ended)


def _nothing() -> None:
    """The session is somebody else's."""


def measure(executor: Executor, latency: TriggerLatency, clock: Clock, *, shards: int) -> None:
    """How long a trigger takes that has next to nothing to do: what a window asks of each core."""
    q = Query("measured")
    rows = q.source("rows", {"ts": "int64", "k": "int64"}, time="ts", unit="us")
    q.sink("out", rows.group_by("k").running(n=count(), name="counted"))
    away = RemoteFragment(Fragment(q.graph), executor, key="", shards=shards, clock=clock)
    for number in range(WARM + MEASURED):
        times = list(range(100 * number, 100 * number + 100))
        away.give("rows", Train(batch=pa.record_batch({"ts": times, "k": times})))
        begun_us = clock.monotonic_us()
        away.trigger()
        if number >= WARM:
            latency.add(clock.monotonic_us() - begun_us)
    away.close()
