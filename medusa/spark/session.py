"""A Spark session that is set up for Medusa: Java is there, and workers run this Python."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from medusa.errors import ConfigError
from medusa.spark.session_setup import check_master, register, started

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "INSTALL",
    "JAVA_MIN",
    "ended",
    "is_connect",
    "missing_for_connect",
    "refuse_connect",
    "running",
    "session",
]

JAVA_MIN = 17
"""What pyspark 4 needs."""

INSTALL = "pip install 'medusa-streams[spark]'; in a clone: make spark"

LOCAL = "127.0.0.1"

SETTINGS: Mapping[str, str] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}
"""What any session has unless the caller says otherwise."""

QUIET: Mapping[str, str] = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
"""What one has besides whose driver is here."""

PARTITIONS = "spark.sql.shuffle.partitions"

CONNECT_PORT = 15002
CONNECT_S = 20.0
CONNECT_NEEDS = ("pandas", "grpc", "grpc_status", "google.rpc", "zstandard")
"""What pyspark imports for Spark Connect, and doesn't bring."""


def session(
    master: str | None = "local[2]",
    *,
    name: str = "medusa",
    memory: str = "1g",
    conf: Mapping[str, str] | None = None,
) -> SparkSession:
    """A Spark session; the one that runs already in this process, where there is one.

    It sees to what goes wrong most often: Java is there and new enough; workers run the Python of this
    process (``PYSPARK_PYTHON``, unless it is set); a local session needs no name of this machine; times are
    shown in UTC; ``format("medusa")`` is found, however medusa was installed.

    Args:
        master: ``local[2]``: two threads of this process, and as many partitions, as of ``local[*]`` as there
            are cores (a session that runs already keeps its partitions); ``spark://host:port`` a
            cluster; ``sc://host:port`` a server of Spark Connect, whose Java, workers and memory are its
            own; None: as ``spark-submit`` or the configuration says.
        name: of the application.
        memory: of the driver, such as ``"1g"``; for a local session that is all there is.
        conf: further settings of Spark, which win. A server takes those that can change while it runs.

    Raises:
        ConfigError: pyspark, what it needs for Spark Connect, or Java is missing or too old; says what to
            install. ``master`` can't be, or Spark doesn't start. No server listens there. This process has
            a session of the other kind.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise ConfigError(
            "md.spark needs pyspark, which isn't installed",
            hint=INSTALL,
            code="spark.missing",
        ) from None
    there = running()
    if master is not None and master.startswith("sc:"):
        if there is None:
            check_connect(master)
        elif not is_connect(there):
            raise ConfigError(
                "this program has a session with its own driver, and pyspark takes no other kind beside it",
                hint="stop it first, or connect in another program",
                code="spark.session",
            )
        builder = SparkSession.builder.remote(master)
        made = _configured(builder, dict(SETTINGS) | dict(conf or {})).getOrCreate()
        register(made)
        return made
    if master is not None:
        check_master(master)
    if there is None:
        check_java()
    elif is_connect(there):
        return there
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {**SETTINGS, **QUIET, "spark.driver.memory": memory}
    builder = SparkSession.builder.appName(name)
    if master is not None:
        builder = builder.master(master)
        if master.startswith("local"):
            os.environ.setdefault("SPARK_LOCAL_IP", LOCAL)
            settings |= {"spark.driver.host": LOCAL, "spark.driver.bindAddress": LOCAL}
    with started(f"{master or 'configured'}, with {memory} of memory"):
        made = _configured(builder, settings | dict(conf or {})).getOrCreate()
    register(made)
    context = made.sparkContext
    context.setLogLevel("ERROR")
    # Spark has read what local[*] and local[4,2] mean; a program's own session keeps what it has.
    local = re.fullmatch(r"local(\[.*\])?", context.master)
    if there is None and local and not context.getConf().contains(PARTITIONS):
        made.conf.set(PARTITIONS, str(context.defaultParallelism))
    return made


def _configured(builder: Any, settings: Mapping[str, str]) -> Any:
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder


def is_connect(spark: SparkSession) -> bool:
    """Whether it is a session of Spark Connect: its driver is elsewhere, and has no ``sparkContext`` here."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def running() -> SparkSession | None:
    """The session of this program, where there is one already, whichever thread made it."""
    if "pyspark" not in sys.modules:
        return None
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    try:
        found = SparkSession.active()  # of this thread, or else the one that was made first
    except PySparkRuntimeError:
        return None
    return None if ended(found) else found


def ended(spark: SparkSession) -> bool:
    """Whether it was stopped, or its Java is gone: then nothing will run in it any more."""
    if is_connect(spark):
        return bool(getattr(spark, "is_stopped", False))
    try:
        java = spark.sparkContext._jsc
        return java is None or bool(java.sc().isStopped())
    except Exception:  # nobody answers, whatever py4j calls that
        return True


def refuse_connect(spark: SparkSession, why: str) -> None:
    """For what needs a driver in this program.

    Raises:
        ConfigError: the session is of Spark Connect.
    """
    if is_connect(spark):
        raise ConfigError(
            f"{why}, and a session of Spark Connect has none here",
            hint='md.spark.session("local[2]"), or "spark://host:7077"',
            code="spark.connect",
        )


def check_connect(url: str) -> None:
    """Look whether a server listens there: pyspark would try for minutes.

    Raises:
        ConfigError: it doesn't, the address isn't one, or a package is missing.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or CONNECT_PORT
    except ValueError:
        host, port = None, 0
    if not url.startswith("sc://") or not host:
        raise ConfigError(
            f"{url[:200]!r} is no address of a Spark Connect server",
            hint='"sc://host:15002"',
            code="spark.connect",
        )
    if missing := missing_for_connect():
        raise ConfigError(
            f"Spark Connect needs {missing[0]}, which isn't installed",
            hint="pip install 'medusa-streams[spark-connect]'",
            code="spark.missing",
        )
    try:
        socket.create_connection((host, port), timeout=CONNECT_S).close()
    except OSError as error:
        raise ConfigError(
            f"no Spark Connect server listens at {host}:{port}: {error}",
            hint="start one there (sbin/start-connect-server.sh of Spark), or give its address",
            code="spark.connect",
        ) from None


def missing_for_connect() -> list[str]:
    """The modules that Spark Connect wants and that aren't installed."""
    parents = {name: name.rpartition(".")[0] or name for name in CONNECT_NEEDS}
    return [name for name in CONNECT_NEEDS if find_spec(parents[name]) is None or find_spec(name) is None]


def check_java() -> int:
    """The version of the Java that pyspark will start.

    Raises:
        ConfigError: there is none, or it is too old.
    """
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    where = f"JAVA_HOME={home}" if home else "the PATH"
    hint = f"install Java {JAVA_MIN} (Debian, Ubuntu: apt install openjdk-17-jre-headless), or set JAVA_HOME"
    if program is None or not Path(program).exists():
        raise ConfigError(
            f"Spark needs Java {JAVA_MIN}, and there is no java in {where}", hint=hint, code="spark.java"
        )
    done = subprocess.run([program, "-version"], capture_output=True, text=True, check=False, timeout=60)
    said = done.stderr + done.stdout
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    if done.returncode or found is None:
        raise ConfigError(
            f"{program} -version doesn't tell a version: {said.strip()[:200]!r}", hint=hint, code="spark.java"
        )
    if int(found[1]) < JAVA_MIN:
        raise ConfigError(
            f"Spark needs Java {JAVA_MIN}, and {program} is Java {found[1]}", hint=hint, code="spark.java"
        )
    return int(found[1])
