"""Spark's own servers for a test: a standalone master with its workers, a server of Spark Connect.

Each is one process (and what it starts) at ports of this machine alone, with its files in the test's folder.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.ports import free_ports
from tests.spark import where
from tests.system.nodes import until

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 240.0
SMALL = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

LOOPBACK = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
}


def environment(folder: Path, **more: str) -> dict[str, str]:
    """Of a process of Spark's, or of a program that asks one."""
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))},
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(folder / "spark"),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": SMALL,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),  # executors find medusa as installed, and the tests, which never are
        **more,
    }


@contextlib.contextmanager
def started(name: str, folder: Path, command: list[str], env: Mapping[str, str]) -> Iterator[Any]:
    """A process of Spark's, which ends with all that it started."""
    import pyspark

    program = Path(pyspark.__file__).parent / "bin" / command[0]
    with open(folder / f"{name}.log", "w") as log:
        process = subprocess.Popen(
            [program, *command[1:]],
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            env=dict(env),
            cwd=folder,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(30)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError):
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
        return True
    return False


@contextlib.contextmanager
def standalone(folder: Path, workers: tuple[str, ...] = ("a", "b")) -> Iterator[str]:
    """A master with workers of one core each, named in what ``where`` writes; its address."""
    port, page = free_ports(2)
    address = f"spark://127.0.0.1:{port}"
    spoken = {where.FOLDER: str(folder / "where")}
    (folder / "where").mkdir()
    with contextlib.ExitStack() as stack:

        def start(name: str, kind: str, *arguments: str, **more: str) -> Any:
            command = ["spark-class", f"org.apache.spark.deploy.{kind}", "--host", "127.0.0.1", *arguments]
            env = environment(folder, **spoken, **more)
            return stack.enter_context(started(name, folder, command, env))

        ports = ("--port", str(port), "--webui-port", str(page))
        processes = [start("master", "master.Master", *ports)]
        for name in workers:
            size = ("--cores", "1", "--memory", "800m", "--work-dir", str(folder / f"work-{name}"))
            worker = (*size, "--webui-port", "0", address)
            processes.append(start(f"worker-{name}", "worker.Worker", *worker, **{where.WORKER: name}))

        def there() -> bool:
            assert all(process.poll() is None for process in processes), _logs(folder)
            asked = f"http://127.0.0.1:{page}/json/"
            with contextlib.suppress(OSError), urllib.request.urlopen(asked) as said:
                return int(json.load(said)["aliveworkers"]) == len(workers)
            return False

        until(there, what="the workers are known to the master", deadline_s=DEADLINE_S)
        yield address


@contextlib.contextmanager
def connect_server(folder: Path, conf: Mapping[str, str]) -> Iterator[str]:
    """A server of Spark Connect with two cores; its address."""
    (port,) = free_ports(1)
    settings = LOOPBACK | {
        "spark.master": "local[2]",
        "spark.driver.extraJavaOptions": SMALL,
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
    }
    said = [word for key, value in (settings | dict(conf)).items() for word in ("--conf", f"{key}={value}")]
    (folder / "where").mkdir()
    server = "org.apache.spark.sql.connect.service.SparkConnectServer"
    command = ["spark-submit", "--class", server, *said, "spark-internal"]
    spoken = {where.FOLDER: str(folder / "where"), where.WORKER: "server"}
    env = environment(folder, SPARK_DAEMON_MEMORY="1g", **spoken)  # of this one it is the driver's
    with started("server", folder, command, env) as process:

        def there() -> bool:
            assert process.poll() is None, _logs(folder)
            return _listens(port)

        until(there, what="the server listens", deadline_s=DEADLINE_S)
        yield f"sc://127.0.0.1:{port}"


def _logs(folder: Path) -> str:
    said = []
    for path in sorted(folder.glob("*.log")):
        lines = [line for line in path.read_text().splitlines() if not line.startswith("\tat ")]
        said.append(f"{path.name}: " + "\n".join(lines[-15:]))
    return "\n".join(said)
