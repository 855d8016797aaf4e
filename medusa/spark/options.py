"""The options of Spark's data source ``medusa``: names in any case, values as text, each with its default.

``pyspark_medusa`` has the class that Spark loads; how many rows a batch takes is applied there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from medusa.errors import ConfigError
from medusa.nodes.config.config_file import NAME, NAME_RULE
from medusa.query.suggest import did_you_mean
from medusa.spark.exchange.caller import Endpoint
from medusa.units import byte_count, duration_us
from medusa.wire.statement import is_curve_key

__all__ = ["OPTIONS", "READING", "SPARKS_OWN", "WRITING", "Options", "options_from"]

READING = (
    *("reader", "startingPosition", "maxRowsPerBatch", "bytesPerPartition"),
    *("meta", "boundary", "failOnDataLoss"),
)
WRITING = ("writer", "epoch")
OF_BOTH = ("endpoint", "stream", "key", "serverKey", "timeout")
OPTIONS = (*OF_BOTH, *READING, *WRITING)
"""Every option stands in one of the three: it is refused where it means nothing."""

SPARKS_OWN = ("checkpointlocation", "queryname", "schema", "outputmode", "mode", "format")
"""What Spark hands on besides; it means nothing to us."""

BYTES_PER_PARTITION = 16 << 20


@dataclass(frozen=True, slots=True)
class Options:
    """What was said, checked.

    Attributes:
        stream: to read, or the source to write to.
        reader: whose position counts.
        start: ``oldest``, ``now`` or the number of a row: where a query without a checkpoint begins.
        batch_rows: of a micro-batch; None: all that is there.
        part_bytes: of a task that reads.
        meta: columns ``_seq`` and ``_late``.
        boundary: a column ``_boundary``.
        fail_on_loss: rows that are gone fail what reads; else they are passed over.
        writer: whose epochs count; empty: told by Spark's query.
        epoch: of a batch write.
        said: the names of the options that were given.
    """

    endpoint: Endpoint
    stream: str
    reader: str = "spark"
    start: str = "oldest"
    batch_rows: int | None = None
    part_bytes: int = BYTES_PER_PARTITION
    meta: bool = False
    boundary: bool = False
    fail_on_loss: bool = True
    writer: str = ""
    epoch: int | None = None
    said: frozenset[str] = frozenset()

    def only(self, names: tuple[str, ...], what: str) -> Options:
        """These, for reading or writing.

        Raises:
            ConfigError: one is for the other.
        """
        for name in (*READING, *WRITING):
            if name in self.said and name not in names:
                raise ConfigError(
                    f"format('medusa'): option {name!r} means nothing when {what}",
                    hint="leave it out",
                    code="spark.option",
                )
        return self


def options_from(given: Mapping[str, str]) -> Options:
    """The options that a user gave.

    Raises:
        ConfigError: one is missing, unknown or wrong; says what it may be.
    """
    known = {name.lower(): name for name in OPTIONS}
    said: dict[str, str] = {}
    for name, value in given.items():
        lower = name.lower()
        if lower in known:
            said[known[lower]] = value
        elif lower == "path":
            raise ConfigError(
                f"format('medusa') has no path, came {value!r:.80}",
                hint='.option("stream", "netmon.counts"), and load(), save() or start() without one',
                code="spark.option",
            )
        elif lower not in SPARKS_OWN and not lower.startswith("spark."):
            raise ConfigError(
                f"format('medusa') has no option {name!r}",
                hint=did_you_mean(name, OPTIONS),
                code="spark.option",
            )
    for name, example in (("endpoint", "tcp://127.0.0.1:7777"), ("stream", "netmon.counts")):
        if not said.get(name):
            raise ConfigError(
                f"format('medusa') needs the option {name!r}",
                hint=f'.option("{name}", "{example}")'
                + (": where `medusa gateway` listens" if name == "endpoint" else ""),
                code="spark.option",
            )
    if is_curve_key(key := said.get("key", "")) and not os.path.exists(key):
        raise ConfigError(  # Without the text: options are in plans, logs and Spark's pages.
            "option 'key': expected the file of a secret key, got the text of a key",
            hint="medusa keygen client spark.key writes one; it lies on the driver and every executor",
            code="spark.option",
        )
    reader = said.get("reader", "spark")
    if not NAME.fullmatch(reader):
        raise _wrong("reader", reader, NAME_RULE)
    start = said.get("startingPosition", "oldest").lower()
    if not re.fullmatch(r"oldest|now|\d{1,18}", start):
        raise _wrong("startingPosition", start, '"oldest", "now" or the number of a row')
    size: str | int = said.get("bytesPerPartition", BYTES_PER_PARTITION)
    writer = said.get("writer", "")
    if len(writer) > 400:
        raise _wrong("writer", writer, "at most 400 characters")
    return Options(
        endpoint=Endpoint(
            said["endpoint"],
            said.get("key", ""),
            said.get("serverKey", ""),
            duration_us(said.get("timeout", "60s"), what="timeout", minimum_us=1000, error=ConfigError),
        ),
        stream=said["stream"],
        reader=reader,
        start=start,
        batch_rows=_count(said, "maxRowsPerBatch"),
        part_bytes=max(byte_count(size, what="bytesPerPartition", error=ConfigError), 1),
        meta=_flag(said, "meta"),
        boundary=_flag(said, "boundary"),
        fail_on_loss=_flag(said, "failOnDataLoss", "true"),
        writer=writer,
        epoch=_count(said, "epoch", least=0),
        said=frozenset(said),
    )


def _wrong(name: str, value: str, hint: str) -> ConfigError:
    return ConfigError(f"option {name!r}: {value[:80]!r} can't be", hint=hint, code="spark.option")


def _flag(said: Mapping[str, str], name: str, default: str = "false") -> bool:
    value = said.get(name, default).lower()
    if value not in ("true", "false"):
        raise _wrong(name, value, '"true" or "false"')
    return value == "true"


def _count(said: Mapping[str, str], name: str, *, least: int = 1) -> int | None:
    if name not in said:
        return None
    plain = said[name].replace("_", "")
    if not re.fullmatch(r"\d{1,18}", plain) or int(plain) < least:
        raise _wrong(name, said[name], f"a whole number from {least} up")
    return int(plain)
