"""Queries that read streams of other queries, over real processes that are killed; and of another owner."""

from __future__ import annotations

import random
import signal

import pytest

import medusa as md
from medusa.errors import LinkError
from medusa.runtime.keys.key_files import CurveKey, ParticipantKey, read_public, write_key
from tests.system.nodes import PATIENT_READERS, ForkedNodes, ordered, run_to_end, until

pytestmark = pytest.mark.system

SCHEMA = {"ts": "int64", "v": "int64"}
ROWS, STEP, SLACK = 1200, 40, 5
LIMITS = f'checkpoint_every = "50ms"\n{PATIENT_READERS}'


def rows(seed=7):
    """Some come later than the slack allows."""
    dice = random.Random(seed)
    return [(n + dice.randrange(15), dice.randrange(9)) for n in range(ROWS)]


def answer(table):
    """Rows with v > 2 in each window of 10 s; late is a row by the rule, where it enters, only."""
    windows, largest = {}, None
    for ts, v in table:
        late = largest is not None and ts < largest - SLACK
        largest = ts if largest is None else max(largest, ts)
        if not late and v > 2:
            windows[ts // 10] = windows.get(ts // 10, 0) + 1
    return [windows[each] for each in sorted(windows)]


def counting(stream):
    q = md.Query("counting")
    q.sink("out", q.source("cars", of=stream).filter("v > 2").window("10s").aggregate(n=md.count()))
    return q


def flows(fed, reader, name, table, between):
    """Publish in steps, with something between some of them; the counts that were read."""
    with reader.subscribe("counting.out", from_="oldest", timeout="60s") as trains:
        for step in range(0, ROWS, STEP):
            part = table[step : step + STEP]
            fed.publish(name, {"ts": [ts for ts, _ in part], "v": [v for _, v in part]})
            between.get(step // STEP, lambda: None)()
        fed.finish(name)
        return trains.table()["n"].to_pylist()


def test_who_reads_and_who_is_read_are_killed_and_go_on(tmp_path):
    nodes = ForkedNodes(tmp_path, ["home", "up", "down"], limits=LIMITS)
    try:
        nodes.start()

        def again(name):
            nodes.kill(name)
            nodes.start(name)

        with md.connect(nodes.addresses["home"], timeout="60s") as fed:
            until(lambda: set(fed.status()["peers"].values()) == {"up"}, what="all are there")
            q = md.Query("cars")
            given = q.source("given", SCHEMA, time="ts", unit="s", slack=f"{SLACK}s")
            q.sink("all", given.filter("v >= 0", name="some"))
            fed.deploy(q, at={"home": ["given"], "up": ["some"]})
            file = tmp_path / "counting.json"
            file.write_text(counting(fed.stream("cars.all")).to_json())
            at = tmp_path / "at.json"
            at.write_text('{"down": ["cars"]}')
            node = ("--node", nodes.addresses["home"])
            done = run_to_end("deploy", str(file), "--at", str(at), *node)
            assert done.returncode == 0, done.stderr
            assert "reads local/cars.all" in run_to_end("queries", *node).stdout
            assert "reads local/cars.all" in run_to_end("find", "counting", *node).stdout
            assert "from local/cars.all" in run_to_end("explain", str(file)).stdout
            between = {
                5: lambda: again("down"),
                10: lambda: again("up"),
                15: lambda: (nodes.kill("down"), nodes.kill("up"), nodes.start("up", "down")),
                20: lambda: ordered(lambda: fed.move("cars/some", to="down")),
                25: lambda: again("down"),
            }
            table = rows()
            assert flows(fed, fed, "cars.given", table, between) == answer(table)
    finally:
        nodes.close()


OWNERS = {"edge": "alice", "core": "bob", "side": "bob"}


class Owners(ForkedNodes):
    """Alice's node and two of bob's; each has a client that may do everything at its own nodes."""

    def __init__(self, folder):
        super().__init__(folder, list(OWNERS), limits=LIMITS)
        for node in OWNERS:
            write_key(folder / f"{node}.key", "node", CurveKey.new())
        for owner in dict.fromkeys(OWNERS.values()):
            write_key(folder / f"{owner}.key", "participant", ParticipantKey.new())
            write_key(folder / f"of-{owner}.key", "client", CurveKey.new())
        self.offer("")

    def text(self, node):
        owner = OWNERS[node]
        lines = [f'name = "{node}"', f'listen = "{self.addresses[node]}"', f'data = "{node}.data"']
        lines += ['federation = "fed"', f'participant = "{owner}"', "[keys]", f'node = "{node}.key"']
        lines += ["[limits]", self.limits, "[dht]", f'key = "{owner}.key"', 'publish = ["*"]']
        for each in dict.fromkeys(OWNERS.values()):
            lines += [f"[participants.{each}]", f'key = "{self.public(each)}"']
        for other in (each for each in OWNERS if each != node):
            lines += [f"[peers.{other}]", f'address = "{self.addresses[other]}"']
            lines += [f'participant = "{OWNERS[other]}"', f'key = "{self.public(other)}"']
        lines += ["[clients.admin]", f'key = "{self.public(f"of-{owner}")}"', "status = true"]
        lines += ['deploy = ["*"]', 'publish = ["*"]', 'subscribe = ["*"]']
        return "\n".join(lines) + "\n"

    def public(self, name):
        return read_public(self.folder / f"{name}.pub")

    def offer(self, streams):
        """What bob's nodes offer alice from now on."""
        for node, owner in OWNERS.items():
            offers = f"[offers.alice]\nstreams = [{streams}]\n" if owner == "bob" else ""
            self.config(node).write_text(self.text(node) + offers)
            if node in self.processes:
                self.processes[node].send_signal(signal.SIGHUP)

    def connect(self, node):
        keys = {"key": self.folder / f"of-{OWNERS[node]}.key", "server_key": self.folder / f"{node}.pub"}
        return md.connect(self.addresses[node], timeout="60s", **keys)


def test_a_stream_of_another_owner_is_read_as_far_as_it_offers_that(tmp_path):
    owners = Owners(tmp_path)
    try:
        owners.start()
        with owners.connect("core") as bob, owners.connect("edge") as alice:
            until(lambda: set(bob.status()["peers"].values()) == {"up"}, what="all are there")
            until(lambda: set(alice.status()["peers"].values()) == {"up"}, what="all are there")
            bob.define("cars", SCHEMA, time="ts", unit="s", slack=f"{SLACK}s")

            def found():
                try:
                    return alice.stream("bob/cars.out")
                except LinkError:
                    return None

            stream = until(found, what="alice finds it")
            assert (stream.name, stream.timed) == ("bob/cars.out", True)
            q = counting(stream)
            for streams, code in (("", "E_NO_CONTRACT"), ('"vans.*"', "E_NO_CONTRACT"), ('"cars.*"', "")):
                owners.offer(streams)

                def deploys(code=code):
                    try:
                        alice.deploy(q)
                    except LinkError as error:
                        return error.code == code
                    return not code

                until(deploys, what=f"{streams} is {code or 'enough'}")
                assert bool(alice.queries()) == (not code)

            def again(name):
                owners.kill(name)
                owners.start(name)

            between = {
                5: lambda: again("core"),
                10: lambda: again("edge"),
                15: lambda: ordered(lambda: bob.move("cars/in", to="side")),
                20: lambda: (owners.kill("side"), owners.start("side")),
                25: lambda: again("edge"),
            }
            table = rows()
            assert flows(bob, alice, "cars", table, between) == answer(table)
            alice.undeploy("counting")

            def outputs():
                with owners.connect("side") as fed:
                    return [each["stream"] for of in fed.status()["fragments"] for each in of["outputs"]]

            until(lambda: outputs() == ["cars.out"], what="bob keeps nothing more for alice")
    finally:
        owners.close()
