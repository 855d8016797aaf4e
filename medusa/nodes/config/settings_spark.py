"""The part of a node's configuration that has its fragments run on Spark (``medusa spark-participant``).

[spark]
master = "local[2]"      # or "spark://host:7077"
memory = "1g"            # of the driver
shards = 2               # of the keys of a fragment; as many as the cluster has cores
latency = "1s"           # say no less than this of itself, whatever is measured
conf = {"spark.executor.memory" = "2g"}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from medusa.nodes.config.config_file import ConfigFile
from medusa.nodes.config.fields import duration, number, read_fields, text

__all__ = ["MASTER", "MASTERS", "SHARDS_MAX", "SparkRules", "read_spark"]

MASTER = r"local(\[(\d+|\*)(, ?\d+)?\])?|local-cluster\[\d+, ?\d+, ?\d+\]|yarn|[a-z][a-z0-9+.-]*://\S+"
"""Where Spark runs: in this process, or by the manager of a cluster."""

MASTERS = '"local[2]" or "spark://host:7077"'
"""As a hint says it."""

SHARDS_MAX = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkRules:
    """A Spark session, and how fragments run there."""

    master: str = text("local[2]", MASTER, MASTERS)
    """Where Spark runs."""

    memory: str = text("1g", "\\d+[kmgtKMGT]", '"1g"')
    """Of the driver; of a local session that is all there is."""

    shards: int | None = number(None, 1, SHARDS_MAX)
    """Of the keys of a fragment; by default as many as there are cores."""

    latency_us: int = duration("0s", "0s", "10 min")
    """The least that it says it has, whatever it measures: what its operator knows."""

    conf: Mapping[str, str] = field(default_factory=dict)
    """Further settings of Spark, which win."""


def read_spark(file: ConfigFile) -> SparkRules | None:
    """The table ``[spark]``; None: there is none.

    Raises:
        ConfigError: see ``fields.read_fields``.
    """
    if "spark" not in file.root:
        return None
    table = file.table("spark")
    values = read_fields(file, "spark", table, SparkRules, more=("conf",))
    conf = table.get("conf", {})
    if not isinstance(conf, dict) or not all(isinstance(each, str) for each in conf.values()):
        hint = 'settings of Spark as text: conf = {"spark.executor.memory" = "2g"}'
        raise file.error("spark", f"{conf!r:.80} can't be", hint=hint, within="conf")
    return SparkRules(**values, conf=conf)
