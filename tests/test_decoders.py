"""Types are read by many threads at once, also the first time: what isn't so ends the process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import medusa as md
from medusa.decoders import converter, json_decoder, msgpack_decoder
from medusa.nodes.placement.placement import cut
from medusa.nodes.spec.fragment_spec import fragment_to
from medusa.sim.actors.federation import Federation

ROOT = Path(__file__).resolve().parents[1]

AT_ONCE = """
import json, sys, threading
sys.setswitchinterval(1e-6)
from medusa.wire.status_and_metrics import status_of
from medusa.nodes.spec.fragment_spec import fragment_from
from medusa.query.codec import graph_from_json
status, spec, graph = (open(path, "rb").read() for path in sys.argv[1:])
status = json.loads(status)
all_there, done = threading.Barrier(12), []
def read(kind):
    all_there.wait()
    done.append((status_of, fragment_from, graph_from_json)[kind]((status, spec, graph)[kind]))
threads = [threading.Thread(target=read, args=(number % 3,)) for number in range(12)]
for each in threads:
    each.start()
for each in threads:
    each.join()
print(len(done))
"""


def query() -> md.Query:
    q = md.Query("q")
    q.sink("o", q.source("s", {"ts": "int64"}, time="ts", unit="us").filter("ts >= 0"))
    return q


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A status with a fragment in it, the spec of a fragment, a graph."""
    folder = tmp_path_factory.mktemp("read")
    federation = Federation(7, ["a"])
    federation.start()
    client = federation.client("c", "a")
    federation.answer(client, client.deploy(query(), {"a": ["s"]}))
    status = federation.nodes["a"].brain.status(0)
    assert status["fragments"]
    [spec] = cut(query().graph, {"a": ["s"]}).fragments
    (folder / "status").write_text(json.dumps(status))
    (folder / "spec").write_bytes(fragment_to(spec))
    (folder / "graph").write_text(query().to_json())
    return [str(folder / name) for name in ("status", "spec", "graph")]


@pytest.mark.parametrize("turn", range(3))
def test_threads_that_read_types_for_the_first_time_at_once(files: list[str], turn: int) -> None:
    """Without ``medusa.decoders`` 9 of 10 such processes ended with a segmentation fault."""
    command = [sys.executable, "-c", AT_ONCE, *files]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "12"), done.stderr[-2000:]


def test_what_reads_a_type_reads_it_and_nothing_else() -> None:
    class Pair(msgspec.Struct):
        a: int

    assert msgpack_decoder(Pair).decode(msgspec.msgpack.encode({"a": 1})) == Pair(1)
    assert json_decoder(Pair).decode(b'{"a": 1}') == Pair(1)
    assert converter(list[Pair])([{"a": 1}]) == [Pair(1)]
    for read, wrong in ((json_decoder(Pair).decode, b'{"a": "x"}'), (converter(Pair), {"a": "x"})):
        with pytest.raises(msgspec.ValidationError):
            read(wrong)
