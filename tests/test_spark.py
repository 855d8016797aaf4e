"""Of md.spark what needs no Spark: refusals, the table of its page, Java that is missing, lazy loading.

tests/spark has the rest, in an environment with pyspark (make test-spark).
"""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import medusa as md
from medusa.apps.pipeline.watch import watched
from medusa.errors import ConfigError, DataError
from medusa.spark import support
from medusa.spark.overflow.on_spark import OnSpark
from medusa.spark.session import check_connect, check_java, missing_for_connect, running, session
from medusa.spark.session_setup import register
from medusa.spark.support import WAYS, Way
from tests.ports import free_ports

PAGE = Path(__file__).resolve().parents[1] / "docs" / "spark.md"
SCHEMA = {"ts": "timestamp", "k": "int64"}


def test_neither_medusa_nor_its_room_for_spark_loads_pyspark() -> None:
    names = "md.spark.batch, md.spark.stream, md.spark.session"
    program = f"import sys, medusa as md; {names}; print('pyspark' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "False\n"


def test_the_page_lists_the_way_of_every_kind() -> None:
    listed: dict[str, set[str]] = {}
    for way, kinds in re.findall(
        r"^\| ([^|]+) \| (`[^|]+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE
    ):
        listed[way] = set(re.findall(r"`(\w+)`", kinds))
    ran = {way for way in Way if way not in (Way.SOURCE, Way.SINK, Way.REFUSED)}
    assert listed == {way.value: {kind for kind, each in WAYS.items() if each is way} for way in ran}


def test_every_kind_of_box_has_a_way() -> None:
    from typing import get_args

    from medusa.query.boxes import Box

    assert set(WAYS) == {str(kind.__struct_config__.tag) for kind in get_args(Box)}


def refusal(q: md.Query) -> str:
    graph = support.leads_to_sinks(q.graph)
    with pytest.raises(md.QueryError) as caught:
        support.check(graph, support.read_ports(graph))
    return str(caught.value)


def test_what_can_not_run_is_refused_by_name_with_the_reason() -> None:
    async def slow(batch: object) -> object:
        return batch

    q = md.Query("q")
    cars = q.source("cars", SCHEMA, time="ts")
    q.sink("out", cars.window("1s").group_by("k").aggregate(n=md.count(), name="per_k"))
    assert refusal(q.split("per_k", 2)).startswith(
        "key_router 'per_k-router' can't run in Spark: it is part of"
    )
    ahead = md.Query("q")
    ahead.sink("out", ahead.source("cars", SCHEMA, time="ts", ahead="1h"))
    assert "source 'cars' can't run in Spark: with ahead= the arrival" in refusal(ahead)
    calls = md.Query("q")
    calls.sink("out", calls.source("cars", SCHEMA).apply(slow, SCHEMA, in_flight=2))
    assert "its function is async" in refusal(calls)
    dead = md.Query("q")
    left, right = (dead.source(name, SCHEMA, time="ts") for name in "ab")
    dead.sink("out", left.join(right, on={"1 // k": "1 // k"}, within="1s").dead)
    assert "its .dead is read" in refusal(dead)


JAVA = """#!/bin/sh
echo '{} version "{}" 2026-01-01' >&2
"""


def java(folder: Path, version: str) -> None:
    (folder / "bin").mkdir(exist_ok=True)
    program = folder / "bin" / "java"
    program.write_text(JAVA.format("openjdk", version))
    program.chmod(0o755)


def test_java_is_looked_at_before_a_session_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(
        ConfigError, match="needs Java 17, and there is no java in the PATH .*apt install openjdk"
    ):
        check_java()
    java(tmp_path, "1.8.0_392")
    with pytest.raises(ConfigError, match="needs Java 17, and .*java is Java 8"):
        check_java()
    java(tmp_path, "21.0.2")
    assert check_java() == 21
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(ConfigError, match="there is no java in JAVA_HOME=.*nowhere"):
        check_java()


def test_a_server_of_connect_is_looked_for_before_pyspark_tries_for_minutes(monkeypatch: Any) -> None:
    module = import_module("medusa.spark.session")
    for url in ("sc:/host", "sc://", "sc://host:port", "sc://[::1"):
        with pytest.raises(ConfigError, match="is no address of a Spark Connect server"):
            check_connect(url)
    monkeypatch.setattr(module, "missing_for_connect", lambda: ["grpc"])
    with pytest.raises(ConfigError, match="needs grpc, which .*medusa-streams.spark-connect"):
        check_connect("sc://127.0.0.1")
    monkeypatch.setattr(module, "missing_for_connect", list)
    (port,) = free_ports(1)
    with pytest.raises(ConfigError, match=f"no Spark Connect server listens at 127.0.0.1:{port}"):
        check_connect(f"sc://127.0.0.1:{port}/;use_ssl=false")
    with socket.create_server(("127.0.0.1", port)):
        check_connect(f"sc://127.0.0.1:{port}")
    monkeypatch.undo()
    assert set(missing_for_connect()) <= {"pandas", "grpc", "grpc_status", "google.rpc", "zstandard"}


def test_what_keeps_state_in_its_driver_refuses_a_session_without_one(tmp_path: Path) -> None:
    """Of what a session of Spark Connect is, its class says all that is looked at."""
    session = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    with pytest.raises(ConfigError, match="in its driver, and a session of Spark Connect has none here"):
        OnSpark(session)
    with pytest.raises(ConfigError, match="by its driver, and a session of Spark Connect has none here"):
        md.spark.archive("a.out", session, tmp_path / "archive", gateway="tcp://127.0.0.1:1")
    assert list(tmp_path.iterdir()) == []


class Context:
    """Of a Spark that isn't there: what a session tells of it."""

    def __init__(self, master: str, conf: dict[str, str], cores: int) -> None:
        self.master, self.conf, self.defaultParallelism = master, conf, cores
        self._jsc: Any = SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: False))

    def setLogLevel(self, level: str) -> None:
        """Nothing logs."""

    def getConf(self) -> Any:
        return SimpleNamespace(contains=self.conf.__contains__)


class Pretended:
    """``SparkSession``, as far as ``md.spark.session`` asks for it."""

    def __init__(self, cores: int) -> None:
        self.cores = cores
        self.options: dict[str, str] = {}
        self.made: Any = None

    @property
    def builder(self) -> Any:
        self.options = {}
        return self

    def appName(self, name: str) -> Any:
        return self

    def master(self, master: str) -> Any:
        return self.config("spark.master", master)

    def config(self, key: str, value: str) -> Any:
        self.options[key] = value
        return self

    def getOrCreate(self) -> Any:
        if self.made is None:
            context = Context(self.options["spark.master"], dict(self.options), self.cores)
            self.made = SimpleNamespace(sparkContext=context, conf=Conf(self.options))
        else:
            self.made.conf.update(self.options)
        return self.made

    def active(self) -> Any:
        """The one that was made, in whichever thread."""
        if self.made is None:
            raise PySparkRuntimeError
        return self.made


class PySparkRuntimeError(Exception):
    pass


class Conf(dict[str, str]):
    def set(self, key: str, value: str) -> None:
        self[key] = value


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> Pretended:
    made = Pretended(cores=6)
    errors = SimpleNamespace(PySparkRuntimeError=PySparkRuntimeError)
    for name, module in (
        ("pyspark", SimpleNamespace()),
        ("pyspark.sql", SimpleNamespace(SparkSession=made)),
        ("pyspark.errors", errors),
    ):
        monkeypatch.setitem(sys.modules, name, module)
    for name in ("PYSPARK_PYTHON", "SPARK_LOCAL_IP"):  # which a session sets
        monkeypatch.setenv(name, "kept")
    monkeypatch.setitem(session.__globals__, "check_java", lambda: 17)  # its module has its name
    return made


PARTITIONS = "spark.sql.shuffle.partitions"


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*]", "local[*,3]", "local[4,2]"])
def test_a_local_session_has_as_many_partitions_as_cores(master: str, pretended: Pretended) -> None:
    made: Any = session(master)
    assert made.conf[PARTITIONS] == "6", "as Spark counts them"
    assert made.conf["spark.driver.host"] == "127.0.0.1"


def test_who_says_how_many_partitions_there_are_has_the_last_word(pretended: Pretended) -> None:
    made: Any = session("local[*]", conf={PARTITIONS: "3"})
    assert made.conf[PARTITIONS] == "3"
    made.conf[PARTITIONS] = "9"  # the program's own session
    assert session("local[2]") is made
    assert made.conf[PARTITIONS] == "9"


@pytest.mark.parametrize("master", ["spark://host:7077", "yarn", "local-cluster[2,1,1024]"])
def test_a_cluster_is_asked_for_partitions_by_nobody(master: str, pretended: Pretended) -> None:
    made: Any = session(master)
    assert PARTITIONS not in made.conf, "two would leave most of it idle"


def test_what_is_wrong_at_the_start_is_one_line(
    pretended: Pretended, monkeypatch: pytest.MonkeyPatch
) -> None:
    for master in ("local2", "local[two]", "spark:host", "local[2] "):
        with pytest.raises(ConfigError, match="master .* can't be .*local.2"):
            session(master)
    java = type("Py4JJavaError", (Exception,), {"__module__": "py4j.protocol"})
    text = "An error occurred while calling None.org.x.Context.\n: org.x.Exception: no room\n\tat org.x"

    def fails() -> None:
        raise java(text)

    monkeypatch.setattr(pretended, "getOrCreate", fails)
    with pytest.raises(ConfigError, match="as local, with 1g of memory: no room") as caught:
        session("local")
    assert "\n" not in str(caught.value)


def test_an_error_that_java_raises_in_a_job_is_one_line_too() -> None:
    text = "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: medusa. SQLSTATE: 42K02"
    java = type("Py4JJavaError", (Exception,), {"__module__": "py4j.protocol"})
    with pytest.raises(DataError, match="session") as caught, watched(SimpleNamespace(), "archiving", None):  # type: ignore[arg-type]
        raise java(f"An error occurred while calling o5.load.\n: org.x.SparkException: {text}\n\tat org.x")
    assert caught.value.message == f"Spark stopped while archiving: {text}"
    with pytest.raises(KeyError), watched(SimpleNamespace(), "archiving", None):  # type: ignore[arg-type]
        raise KeyError("ours")


class Known(Exception):
    """As pyspark says that a server has the source."""

    def getCondition(self) -> str:
        return "DATA_SOURCE_ALREADY_EXISTS"


def test_the_source_is_registered_where_spark_would_not_find_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registered: list[Any] = []
    spark: Any = SimpleNamespace(dataSource=SimpleNamespace(register=registered.append))
    monkeypatch.setitem(sys.modules, "pyspark_medusa", SimpleNamespace(DefaultSource="ours"))
    monkeypatch.setitem(sys.modules, "pyspark.errors", SimpleNamespace(PySparkException=Known))
    home = str(PAGE.parents[1])
    monkeypatch.setattr(sys, "path", ["/its/own/folder", home])  # installed as a path
    register(spark)
    monkeypatch.setattr(sys, "path", ["/its/own/folder"])  # as a hook, from its own folder
    monkeypatch.chdir(home)
    register(spark)
    assert not registered
    monkeypatch.chdir(tmp_path)
    register(spark)
    monkeypatch.setattr(sys, "path", [home])  # of a program there: workers don't have its folder
    register(spark)
    assert registered == ["ours", "ours"]

    def found(source: Any) -> None:
        raise Known

    spark.dataSource.register = found
    register(spark)


NOISY = """
import subprocess, sys, threading
from medusa.spark.session_setup import quiet
with quiet():
    lines = "WARNING: Using incubator modules: x\\nSetting Spark log level to OFF\\nnot that\\n\\tat one\\n"
    lines += "ERROR SparkContext: Error initializing SparkContext.\\nwhy\\n\\tat x.y\\n"
    child = subprocess.Popen(["sh", "-c", f"read line; printf '{lines}' >&2"], stdin=subprocess.PIPE)
passing = next(each for each in threading.enumerate() if each.name == "medusa-spark-noise")
child.communicate(b"go")
passing.join()
print("nor this: NativeCodeLoader", file=sys.stderr)
"""


def test_of_what_java_writes_only_noise_is_left_out_and_of_ours_nothing() -> None:
    done = subprocess.run([sys.executable, "-c", NOISY], capture_output=True, text=True, timeout=60)
    assert done.stderr.splitlines() == [
        "not that",
        "\tat one",
        "ERROR SparkContext: Error initializing SparkContext.",
        "why",
        "nor this: NativeCodeLoader",
    ]


def test_a_session_that_has_ended_is_none(pretended: Pretended) -> None:
    assert running() is None
    made: Any = session("local")
    assert running() is made
    made.sparkContext._jsc = None
    assert running() is None


@pytest.mark.skipif(find_spec("pyspark") is not None, reason="pyspark is installed here")
def test_without_pyspark_a_session_says_what_to_install() -> None:
    with pytest.raises(
        ConfigError, match=r"needs pyspark, .*pip install 'medusa-streams\[spark\]'.*make spark"
    ):
        session()
