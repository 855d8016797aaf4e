"""The catalog between participants over real processes: five owners, a node each; one leaves, one joins."""

from __future__ import annotations

import pyarrow as pa
import pytest

import medusa as md
from medusa.errors import LinkError
from medusa.runtime.keys.key_files import CurveKey, ParticipantKey, read_public, write_key
from medusa.wire.messages.directory import Lookup
from tests.system.nodes import TIMEOUT, ForkedNodes, ordered, until

pytestmark = pytest.mark.system

NAMES = ["a", "b", "c", "d", "e"]
SCHEMA = {"ts": "timestamp[us, UTC]", "v": "int64"}


class Owners(ForkedNodes):
    """Each node has a participant of its own, who publishes what it runs."""

    def __init__(self, folder, names):
        super().__init__(folder, names)
        write_key(folder / "client.key", "client", CurveKey.new())
        for name in names:
            write_key(folder / f"{name}.key", "node", CurveKey.new())
            write_key(folder / f"of-{name}.key", "participant", ParticipantKey.new())
        for name in names:
            self.config(name).write_text(self.text(name))

    def public(self, name):
        return read_public(self.folder / f"{name}.pub")

    def text(self, name):
        lines = [f'name = "{name}"', f'listen = "{self.addresses[name]}"', f'data = "{name}.data"']
        lines += ['federation = "fed"', f'participant = "of-{name}"', "[keys]", f'node = "{name}.key"']
        lines += ["[dht]", f'key = "of-{name}.key"', 'publish = ["q*"]']
        for other in self.names:
            lines += [f"[participants.of-{other}]", f'key = "{self.public(f"of-{other}")}"']
            if other != name:
                lines += [f"[peers.{other}]", f'address = "{self.addresses[other]}"']
                lines += [f'participant = "of-{other}"', f'key = "{self.public(other)}"']
        lines += ["[clients.client]", f'key = "{self.public("client")}"', "status = true"]
        lines += ['deploy = ["*"]', 'publish = ["*"]', 'subscribe = ["*"]']
        return "\n".join(lines) + "\n"

    def connect(self, name):
        keys = {"key": self.folder / "client.key", "server_key": self.folder / f"{name}.pub"}
        return md.connect(self.addresses[name], timeout=TIMEOUT, **keys)

    def finds(self, name, full):
        """The node that ``name`` says has a stream; empty: nothing."""
        with self.connect(name) as fed:
            try:
                return fed._home.ask(lambda number: Lookup(request=number, name=full))["node"]
            except LinkError as error:
                if error.code != "E_STREAM":
                    raise
                return ""


@pytest.fixture
def owners(tmp_path):
    made = Owners(tmp_path, NAMES)
    yield made
    made.close()


def query(name):
    q = md.Query(name)
    q.sink("out", q.source("rows", SCHEMA, time="ts").filter("v > 0"))
    return q


def test_one_member_leaves_and_one_joins(owners):
    """What was published is found by every node, also by one that came later, and after the node that was
    nearest to the entry is gone; rows are read by a name of another participant."""
    owners.start("a", "b", "c", "d")
    with owners.connect("a") as fed:
        fed.deploy(query("qa"))
        for name in ("b", "c", "d"):
            until(lambda name=name: owners.finds(name, "of-a/qa.out") == "a", what=f"{name} finds it")
        assert owners.finds("b", "of-a/qz.out") == ""
        with owners.connect("b") as other:
            # On a busy machine a node may have no answer of all others in time, and finds nothing then.
            unheard = ["E_STREAM"]
            found = ordered(lambda: other.find("of-a/qa.out"), again=unheard)
            assert found["holders"] == ["a"]
            with ordered(lambda: other.subscribe("of-a/qa.out", from_="oldest"), again=unheard) as trains:
                times = pa.array([1, 2, 3], pa.timestamp("us", "UTC"))
                fed.publish("qa.rows", {"ts": times, "v": [0, 1, 2]})
                assert trains.next("60s").batch["v"].to_pylist() == [1, 2]
                fed.flush()  # Later it is undeployed: what isn't durable then is told.
        owners.start("e")
        assert owners.stop("b") == 0
        owners.kill("c")
        for name in ("d", "e"):
            until(lambda name=name: owners.finds(name, "of-a/qa.out") == "a", what=f"{name} finds it then")
        fed.undeploy("qa")
        for name in ("d", "e"):
            until(lambda name=name: not owners.finds(name, "of-a/qa.out"), what=f"{name} hears it is gone")
