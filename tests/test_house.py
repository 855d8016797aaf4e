"""Layers, bans and sizes hold in the whole tree, and each rule fires on a planted breach."""

from __future__ import annotations

import pytest

from tests import house
from tests.house import RULES, Rule, Source


def findings(rule: Rule, sources: list[Source]) -> list[str]:
    return [
        f"{source.path}:{line}: {rule.__name__.replace('_', ' ')}: {words}"
        for source in sources
        for line, words in rule(source)
    ]


@pytest.fixture(scope="module")
def sources() -> list[Source]:
    return house.tree()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_tree_keeps(rule: Rule, sources: list[Source]) -> None:
    found = findings(rule, sources)
    assert not found, "\n" + "\n".join(found)


def test_the_tree_is_seen_whole(sources: list[Source]) -> None:
    paths = {source.path for source in sources}
    assert {
        "medusa/__init__.py",
        "native/base/queue.h",
        "bindings/_native.pyx",
        "tests/test_house.py",
        "Makefile",
        "README.md",
        ".ci/run",
        "pyproject.toml",
        "docs/hash_partition.md",
    } <= paths
    assert "bindings/_native.c" not in paths


def test_no_module_imports_itself_round_about(sources: list[Source]) -> None:
    found = [" -> ".join(path) for path in house.cycles(house.import_graph(sources))]
    assert not found, "\n" + "\n".join(found)


def test_what_builds_queries_loads_light(sources: list[Source]) -> None:
    found = house.heavy_when_loaded(sources)
    assert not found, "\n" + "\n".join(found)


def test_every_module_is_used(sources: list[Source]) -> None:
    assert not house.unused(sources), "delete them, or import them where they belong"


def test_the_lists_of_exceptions_only_shrink(sources: list[Source]) -> None:
    texts = {source.path: source.text for source in sources}
    for path in house.ASKS_AGAIN:
        assert "sleep(" in texts.get(path, ""), f"{path} doesn't sleep: take it off ASKS_AGAIN"


KINDS = "from medusa.query.boxes import Join, Route, Sink, Top"

# (rule, path, text of the file, words of the finding); None: nothing may be found.
PLANTED: list[tuple[Rule, str, str, str | None]] = [
    (house.layers, "medusa/query/a.py", "from medusa.engine import run", "medusa.engine.run, which is above"),
    (house.layers, "medusa/query/a.py", "def f():\n    import medusa.engine.run", "above"),
    (house.layers, "medusa/query/a.py", "from ..engine import run", "above"),
    (house.layers, "medusa/wire/a.py", "import medusa", "above"),
    (house.layers, "medusa/runtime/a.py", "from medusa.sim.world.disk import Disk", "above"),
    (house.layers, "medusa/testing/a.py", "import medusa.io.readers", "next door"),
    (
        house.layers,
        "medusa/engine/operators/a.py",
        "from importlib import import_module\nimport_module('medusa.cli.main')",
        "above",
    ),
    (house.layers, "medusa/helpers/a.py", "", "no room of the house"),
    (house.layers, "medusa/nodes/a.py", "from medusa.wire import link\nfrom medusa.errors import X", None),
    (house.layers, "medusa/ports.py", "from medusa.elements import Train", None),
    (house.native_only_in_engine, "medusa/wire/a.py", "from medusa import _native", "medusa/engine"),
    (house.native_only_in_engine, "medusa/engine/a.py", "from medusa._native import Queue", None),
    (house.one_room_each, "medusa/engine/a.py", "def f():\n    import sqlglot", "only medusa/query"),
    (house.one_room_each, "medusa/nodes/a.py", "import zmq.asyncio", "only medusa/runtime"),
    (house.minds_do_no_io, "medusa/wire/a.py", "import time", "imports time"),
    (house.minds_do_no_io, "medusa/nodes/a.py", "def f():\n    from os import path", "imports os.path"),
    (house.minds_do_no_io, "medusa/nodes/a.py", "import logging", "imports logging"),
    (house.minds_do_no_io, "medusa/engine/a.py", "import threading", "imports threading"),
    (house.minds_do_no_io, "medusa/engine/a.py", "open('x')", "calls open()"),
    (house.minds_do_no_io, "medusa/runtime/a.py", "import time, os", None),
    (house.minds_are_deterministic, "medusa/wire/a.py", "for x in {1, 2}: pass", "goes through a set"),
    (house.minds_are_deterministic, "medusa/wire/a.py", "y = [x for x in set(z)]", "goes through a set"),
    (house.minds_are_deterministic, "medusa/wire/a.py", "y = list({1} | z)", "goes through a set"),
    (
        house.minds_are_deterministic,
        "medusa/nodes/a.py",
        "p: set[str] = f()\nfor x in p: pass",
        "goes through a set",
    ),
    (
        house.minds_are_deterministic,
        "medusa/nodes/a.py",
        "self.p = set()\nfor x in self.p: pass",
        "goes through a set",
    ),
    (
        house.minds_are_deterministic,
        "medusa/nodes/a.py",
        "def f(p: frozenset[int]):\n    yield from [*p]",
        "through a set",
    ),
    (house.minds_are_deterministic, "medusa/nodes/a.py", "if hash(x) % 2: pass", "calls hash()"),
    (house.minds_are_deterministic, "medusa/nodes/a.py", "k = id(x)", "calls id()"),
    (
        house.minds_are_deterministic,
        "medusa/nodes/a.py",
        "for x in sorted({1, 2}): pass\ny = len(set(z))",
        None,
    ),
    (house.data_never_becomes_code, "medusa/wire/a.py", "import pickle", "imports pickle"),
    (house.data_never_becomes_code, "medusa/cli/main.py", "def f():\n    eval('1')", "calls eval()"),
    (house.data_never_becomes_code, "medusa/query/a.py", "import re\nre.compile('x')", None),
    (
        house.types_are_read_by_decoders,
        "medusa/wire/a.py",
        "msgspec.convert(1, T)",
        "calls msgspec.convert()",
    ),
    (house.types_are_read_by_decoders, "medusa/wire/a.py", "msgspec.json.Decoder(T)", "Decoder"),
    (house.types_are_read_by_decoders, "medusa/wire/a.py", "msgspec.json.decode(b, type=T)", "decode"),
    (house.types_are_read_by_decoders, "medusa/wire/a.py", "msgspec.json.decode(b)", None),
    (house.types_are_read_by_decoders, "medusa/decoders.py", "msgspec.convert(1, T)", None),
    (
        house.kinds_of_boxes_are_asked,
        "medusa/nodes/a.py",
        f"{KINDS}\nX = (Top, Join, Route, Sink)",
        "Join, Route",
    ),
    (
        house.kinds_of_boxes_are_asked,
        "medusa/nodes/a.py",
        f"{KINDS}\nX = {{Top: 1, Join: 2, Route: 3, Sink: 4}}",
        "apart",
    ),
    (
        house.kinds_of_boxes_are_asked,
        "medusa/engine/a.py",
        "from medusa.query import boxes\nX = {boxes.Top, boxes.Join, boxes.Route, boxes.Sink}",
        "Join, Route, Sink, Top apart",
    ),
    (
        house.kinds_of_boxes_are_asked,
        "medusa/engine/a.py",
        f"{KINDS}\ndef f(b):\n    if isinstance(b, Top | Join):\n        return 1\n"
        "    if isinstance(b, Route):\n        return 2\n    return isinstance(b, Sink)",
        "Join, Route, Sink, Top apart",
    ),
    (
        house.kinds_of_boxes_are_asked,
        "medusa/spark/a.py",
        f"{KINDS}\ndef f(b):\n    match b:\n        case Top() | Join():\n            return 1\n"
        "        case Route() | Sink():\n            return 2",
        "Join, Route, Sink, Top apart",
    ),
    (house.kinds_of_boxes_are_asked, "medusa/nodes/a.py", f"{KINDS}\nX = (Top, Join, Route)", None),
    (
        house.kinds_of_boxes_are_asked,
        "medusa/query/boxes/__init__.py",
        f"{KINDS}\nX = Top | Join | Route | Sink",
        None,
    ),
    (house.dependencies_are_declared, "medusa/engine/a.py", "def f():\n    import requests", "doesn't name"),
    (house.dependencies_are_declared, "medusa/engine/a.py", "import matplotlib.pyplot", "an extra"),
    (
        house.dependencies_are_declared,
        "medusa/engine/a.py",
        "import re, numpy, zmq\ndef f():\n    import matplotlib",
        None,
    ),
    (
        house.mypy_finds_what_is_imported,
        "medusa/engine/a.py",
        "def f():\n    import polars",
        "mypy won't find",
    ),
    (house.mypy_finds_what_is_imported, "medusa/engine/a.py", "import re, numpy, zmq, duckdb, medusa", None),
    (house.tests_do_not_sleep, "tests/a.py", "import time\ntime.sleep(1)", "sleeps"),
    (house.tests_do_not_sleep, "tests/a.py", "await asyncio.sleep(0.1)", "sleeps"),
    (house.files_are_short, "medusa/query/a.py", "\n" * 501, "has 501 lines, more than 500"),
    (house.files_are_short, "native/a.c", "\n" * 501, "has 501 lines"),
    (house.files_are_short, "bindings/a.pxi", "\n" * 251, "more than 250"),
    (house.files_are_short, "medusa/query/a.py", "\n" * 500, None),
    (house.nothing_is_left_over, "docs/a.md", "first\nTO" + "DO: more", "do it, or leave it out"),
    (house.nothing_is_left_over, "native/a.c", "/* FIX" + "ME */", "do it"),
    (house.nothing_is_left_over, "medusa/query/a.py", "raise NotImplemented" + "Error", "do it"),
    (house.no_place_of_this_machine, "docs/a.md", "see /work" + "/main", "no file may lean"),
    (house.no_place_of_this_machine, "tests/a.py", "open('../sha" + "red/data')", "no file may lean"),
    (house.no_place_of_this_machine, "Makefile", "pip -i https://pypi" + ".org/simple", "no file may lean"),
    (house.no_place_of_this_machine, "docs/a.md", "the network and /tmp/x.sock", None),
]


@pytest.mark.parametrize(("rule", "path", "text", "words"), PLANTED)
def test_a_planted_breach_is_found(rule: Rule, path: str, text: str, words: str | None) -> None:
    found = findings(rule, [Source(path, text)])
    if words is None:
        assert found == []
    else:
        assert len(found) == 1
        assert words in found[0]
        assert found[0].startswith(f"{path}:")


def test_every_rule_has_a_planted_breach() -> None:
    assert {rule for rule, _, _, words in PLANTED if words is not None} == {*RULES, *house.NOTICES}


def test_planted_cycles_and_dead_modules_are_found() -> None:
    round_about = [
        Source("medusa/query/a.py", "from medusa.query.b import x"),
        Source("medusa/query/b.py", "def f():\n    from medusa.query import c"),
        Source("medusa/query/c.py", "import medusa.query.a"),
        Source("medusa/query/d.py", "from medusa.query.a import y"),
    ]
    assert house.cycles(house.import_graph(round_about)) == [
        ["medusa.query.a", "medusa.query.b", "medusa.query.c", "medusa.query.a"]
    ]
    assert house.unused(round_about) == ["medusa.query.d"]
    straight = [Source("medusa/query/a.py", "from medusa.query.b import x"), Source("medusa/query/b.py", "")]
    assert house.cycles(house.import_graph(straight)) == []


def test_planted_heavy_imports_are_found() -> None:
    sources = [
        Source(
            "medusa/query/builder.py", "from medusa.query import a\ndef f():\n    from medusa.query import b"
        ),
        Source(
            "medusa/query/a.py", "import re\nif TYPE_CHECKING:\n    import zmq\ndef f():\n    import duckdb"
        ),
        Source("medusa/query/b.py", "import sqlglot"),
    ]
    assert house.heavy_when_loaded(sources) == []
    sources.append(Source("medusa/query/c.py", "try:\n    import pyarrow as pa\nfinally:\n    pass"))
    sources[1] = Source("medusa/query/a.py", "import medusa.query.c")
    (found,) = house.heavy_when_loaded(sources)
    assert found.startswith("medusa/query/c.py:2: light path: ")
    assert "medusa.query.builder -> medusa.query.a -> medusa.query.c -> pyarrow: import it" in found
