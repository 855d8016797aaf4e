"""The part of a node's configuration that has its fragments run on Spark (``medusa spark-participant``).

[spark]
master = "local[2]"      # or "spark://host:7077"
memory = "1g"            # of the driver
shards = 2               # of the keys of a fragment; as many as the cluster has cores
latency = "1s"           # say no less than this of itself, whatever is measured
conf = {"spark.executor.memory" = "2g"}
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from medusa.errors import ConfigError
from medusa.nodes.config.config_file import ConfigFile
from medusa.units import duration_us

__all__ = ["FIELDS", "MASTER", "MASTERS", "SHARDS_MAX", "SparkRules", "read_spark"]

FIELDS = ("master", "memory", "shards", "latency", "conf")
MASTER = r"local(\[(\d+|\*)(, ?\d+)?\])?|local-cluster\[\d+, ?\d+, ?\d+\]|yarn|[a-z][a-z0-9+.-]*://\S+"
"""Where Spark runs: in this process, or by the manager of a cluster."""

MASTERS = '"local[2]" or "spark://host:7077"'
"""As a hint says it."""

SHARDS_MAX = 256
LATENCY_US_MAX = 600_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkRules:
    """A Spark session, and how fragments run there."""

    master: str = "local[2]"
    """As Spark has it."""

    memory: str = "1g"
    """Of the driver; of a local session that is all there is."""

    shards: int | None = None
    """In [1, 256]; None: as many as there are cores."""

    latency_us: int = 0
    """The least that it says it has, whatever it measures, in [0, 10 min]: what its operator knows."""

    conf: Mapping[str, str] = field(default_factory=dict)
    """Further settings of Spark, which win."""


def read_spark(file: ConfigFile) -> SparkRules | None:
    """The table ``[spark]``; None: there is none.

    Raises:
        ConfigError: says the line, the field and what is allowed.
    """
    if "spark" not in file.root:
        return None
    table = file.table("spark")
    file.known("spark", table, FIELDS)
    values: dict[str, Any] = {}
    if "master" in table:
        values["master"] = _text(file, "master", table["master"], MASTER, MASTERS)
    if "memory" in table:
        values["memory"] = _text(file, "memory", table["memory"], r"\d+[kmgtKMGT]", '"1g"')
    if "shards" in table:
        shards = table["shards"]
        if type(shards) is not int or not 1 <= shards <= SHARDS_MAX:
            hint = f"a whole number from 1 to {SHARDS_MAX}"
            raise file.error("spark", f"{shards!r:.80} can't be", hint=hint, within="shards")
        values["shards"] = shards
    if "latency" in table:
        values["latency_us"] = _latency(file, table["latency"])
    conf = table.get("conf", {})
    if not isinstance(conf, dict) or not all(isinstance(each, str) for each in conf.values()):
        hint = 'settings of Spark as text: conf = {"spark.executor.memory" = "2g"}'
        raise file.error("spark", f"{conf!r:.80} can't be", hint=hint, within="conf")
    return SparkRules(**values, conf=conf)


def _text(file: ConfigFile, key: str, value: Any, form: str, hint: str) -> str:
    if not isinstance(value, str) or not re.fullmatch(form, value):
        raise file.error("spark", f"{value!r:.80} can't be", hint=f"write {key} = {hint}", within=key)
    return value


def _latency(file: ConfigFile, value: Any) -> int:
    hint = 'write latency = "1s"; allowed: 0s to 10 min'
    if not isinstance(value, str):
        raise file.error("spark", f"{value!r:.80} has no unit", hint=hint, within="latency")
    try:
        found = duration_us(value, what="latency", error=ConfigError)
    except ConfigError as error:
        why = error.message.removeprefix("latency: ")
        raise file.error("spark", why, hint=hint, within="latency") from None
    if not 0 <= found <= LATENCY_US_MAX:
        raise file.error("spark", f"{value!r:.80} is out of range", hint=hint, within="latency")
    return found
