"""A Spark session that is set up for Medusa: Java is there, and workers run this Python."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from medusa.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["JAVA_MIN", "running", "session"]

JAVA_MIN = 17
"""What pyspark 4 needs."""

LOCAL = "127.0.0.1"

SETTINGS: Mapping[str, str] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
"""What is set unless the caller says otherwise; ``local[N]`` has N partitions."""


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
    shown in UTC.

    Args:
        master: ``local[2]``: two threads of this process; ``spark://host:port`` a cluster; None: as
            ``spark-submit`` or the configuration says.
        name: of the application.
        memory: of the driver, such as ``"1g"``; for a local session that is all there is.
        conf: further settings of Spark, which win.

    Raises:
        ConfigError: pyspark or Java is missing or too old; says what to install.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise ConfigError(
            "md.spark needs pyspark, which isn't installed",
            hint="pip install 'medusa-streams[spark]'",
            code="spark.missing",
        ) from None
    if SparkSession.getActiveSession() is None:
        check_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = dict(SETTINGS) | {"spark.driver.memory": memory}
    builder = SparkSession.builder.appName(name)
    if master is not None:
        builder = builder.master(master)
        if master.startswith("local"):
            os.environ.setdefault("SPARK_LOCAL_IP", LOCAL)
            settings |= {"spark.driver.host": LOCAL, "spark.driver.bindAddress": LOCAL}
            if found := re.fullmatch(r"local\[(\d+)\]", master):
                settings["spark.sql.shuffle.partitions"] = found[1]
    for key, value in (settings | dict(conf or {})).items():
        builder = builder.config(key, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    return made


def running() -> SparkSession | None:
    """The session of this program, where there is one already."""
    if "pyspark" not in sys.modules:
        return None
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


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
