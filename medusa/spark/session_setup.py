"""What a session's start needs besides: our data source found, Spark's errors as one line, less noise."""

from __future__ import annotations

import contextlib
import os
import pkgutil
import re
import sys
import threading
from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING

from medusa.errors import ConfigError
from medusa.nodes.config.settings_spark import MASTER, MASTERS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "NOT_FOUND_HINT",
    "check_master",
    "first_line",
    "is_sparks",
    "quiet",
    "register",
    "started",
]

SOURCE = "pyspark_medusa"

NOT_FOUND_HINT = (
    "take a session of md.spark.session(); on a server or a cluster, install medusa for the Python there"
)
"""Where Spark has no source ``medusa``."""

NOISE = re.compile(
    rb"Using incubator modules|Using Spark's default log4j profile|Setting default log level to"
    rb"|To adjust logging level use|NativeCodeLoader|Setting Spark log level to"
)
"""Of the lines that each start of Spark writes, those that say nothing to who reads them."""


FAILED = b"Error initializing SparkContext"


def check_master(master: str) -> None:
    """Look whether it is one, before Java is started.

    Raises:
        ConfigError: it isn't.
    """
    if not re.fullmatch(MASTER, master):
        raise ConfigError(f"master {master[:200]!r} can't be", hint=MASTERS, code="spark.master")


@contextlib.contextmanager
def started(what: str) -> Iterator[None]:
    """What goes wrong inside, while a session is made, is told as one line.

    Raises:
        ConfigError: Spark doesn't start.
    """
    try:
        yield
    except Exception as error:
        if not is_sparks(error):
            raise
        raise ConfigError(
            f"Spark doesn't start as {what}: {first_line(str(error))}",
            hint="look at master, memory and conf; what Spark itself wrote stands above",
            code="spark.start",
        ) from error


def is_sparks(error: Exception) -> bool:
    """Whether Spark raised it, or Java."""
    return any(kind.__module__.partition(".")[0] in ("py4j", "pyspark") for kind in type(error).__mro__)


def first_line(text: str) -> str:
    """Of an error of Spark or Java its sentence, without the stack."""
    if found := re.search(r"^: (?:[\w.$]+: )?(.+)", text, re.MULTILINE):  # as py4j tells Java's
        return found[1].strip()[:500]
    return text.strip().split("\n")[0][:500]


def _is_listed() -> bool:
    """Whether Spark's workers find our source by themselves: they list all modules, and don't see those of
    an import hook; the folder of this program isn't on their path, the one it runs in is."""
    folders = sys.path if sys.flags.safe_path else [_here(), *sys.path[1:]]
    return any(each.name == SOURCE for each in pkgutil.iter_modules(folders))


def _here() -> str:
    with contextlib.suppress(OSError):  # it was removed
        return os.getcwd()
    return "/"


def register(spark: SparkSession) -> None:
    """Tell Spark of our source, where it wouldn't find it."""
    if _is_listed():
        return
    from pyspark.errors import PySparkException

    try:
        spark.dataSource.register(import_module(SOURCE).DefaultSource)
    except PySparkException as error:  # a server of Spark Connect has found it
        if "ALREADY_EXISTS" not in (error.getCondition() or str(error)):
            raise


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Spark that is started inside writes no ``NOISE`` on standard error; all else goes through, also later.

    Java has the descriptor that it is started with for as long as it lives.
    """
    sys.stderr.flush()
    try:
        real = os.dup(2)
    except OSError:  # it is closed
        yield
        return
    reads, writes = os.pipe()
    os.dup2(writes, 2)
    os.close(writes)
    threading.Thread(target=_filter, args=(reads, real), name="medusa-spark-noise", daemon=True).start()
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(real, 2)


def _filter(reads: int, real: int) -> None:
    """Until all who have the other end are gone."""
    failed = False
    with open(reads, "rb") as lines, contextlib.suppress(OSError):
        for line in lines:
            failed = failed or FAILED in line
            # Of a start that fails the reason stays, which we tell too, and no stack.
            if not NOISE.search(line) and not (failed and line.startswith(b"\tat ")):
                os.write(real, line)
        os.close(real)
