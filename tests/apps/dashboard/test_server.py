"""The server over real sockets: events, slow browsers, the end."""

from __future__ import annotations

import asyncio
import builtins
import json
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any
from xml.etree import ElementTree

import pytest

from medusa.apps.dashboard.hub import Hub
from medusa.apps.dashboard.server import application, event_of, serve, server_of
from medusa.apps.dashboard.watching import Watcher
from medusa.errors import ConfigError
from tests.apps.dashboard.statuses import edges_and_core, guarding, seen
from tests.system.nodes import DEADLINE_S, RUN, first_line
from tests.system.nodes import until as asked_until

ASK = b"GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


@asynccontextmanager
async def serving(hub: Hub):
    """The application without guard at a free port: the port, and the task that serves."""
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        opened.listen()
        opened.setblocking(False)
        server = server_of(application(hub), hub, asyncio.get_running_loop())
        task = asyncio.ensure_future(server.serve(sockets=[opened]))
        try:
            yield opened.getsockname()[1], task
        finally:
            hub.close()
            server.should_exit = True
            await asyncio.wait_for(task, DEADLINE_S)


async def until(condition: Any) -> None:
    await asyncio.to_thread(asked_until, condition)


async def event_from(reader: asyncio.StreamReader) -> bytes:
    """The data of the next event; events are sent in chunks."""
    async with asyncio.timeout(DEADLINE_S):
        found = await reader.readuntil(b"\n\n")
    return found.partition(b"data: ")[2].removesuffix(b"\n\n")


def test_an_event_is_one_line_of_json_that_has_all_the_page_needs() -> None:
    event = event_of(seen(*edges_and_core()), 7)
    head, name, data, *rest = event.decode().split("\n")
    assert (head, name, rest) == ("id: 7", "event: federation", ["", ""])
    document = json.loads(data.removeprefix("data: "))
    assert set(document) == {"svg", "details", "nodes", "links", "standbys", "alone", "unstable"}
    assert [node[1:4] for node in document["nodes"]] == [
        ["edge-1", "alice", "up"],
        ["edge-2", "alice", "up"],
        ["core", "bob", "up"],
    ]
    drawn = {each.get("data-key") for each in ElementTree.fromstring(document["svg"]).iter()}
    assert drawn >= {node[0] for node in document["nodes"]}
    assert document["links"] == [
        ["link core edge-1", "core", "edge-1", "up"],
        ["link core edge-2", "core", "edge-2", "up"],
    ]


def test_an_event_tells_who_stands_by_and_what_nobody_could_take_over() -> None:
    def told(**states: str) -> tuple[list[list[str]], list[str]]:
        document = json.loads(event_of(seen(*guarding(states)), 7).partition(b"data: ")[2])
        assert {row[0] for row in document["standbys"]} <= set(document["details"])
        return document["standbys"], document["alone"]

    rows, alone = told(s="following", t="missing")
    assert rows == [
        ["standby s q/cars", "q/cars", "edge", "s", "following", "following for 12 s, 2 KiB behind"],
        ["standby t q/cars", "q/cars", "edge", "t", "missing", "missing for 12 s"],
    ]
    assert alone == []
    assert told(s="missing")[1] == ["q/cars"]


def test_a_browser_that_does_not_read_holds_up_nobody_and_gets_the_newest() -> None:
    async def scene() -> None:
        hub = Hub()
        async with serving(hub) as (port, _):
            slow_socket = socket.socket()
            slow_socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow_socket.setblocking(False)
            await asyncio.get_running_loop().sock_connect(slow_socket, ("127.0.0.1", port))
            slow, slow_writer = await asyncio.open_connection(sock=slow_socket, limit=1 << 16)
            slow_writer.write(ASK)
            quick, quick_writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
            quick_writer.write(ASK)
            await until(lambda: hub.lookers == 2)
            await quick.readuntil(b"\r\n\r\n")
            for number in range(100):
                hub.publish(b"data: %d %b\n\n" % (number, b"x" * 500_000))
                assert (await event_from(quick)).startswith(b"%d " % number)
            hub.publish(b"data: last\n\n")
            assert await event_from(quick) == b"last"
            # The slow one has missed most; what it reads now ends with the newest.
            got = bytearray()
            async with asyncio.timeout(DEADLINE_S):
                while b"last" not in got[-64:]:
                    got += await slow.read(1 << 20)
            assert got.count(b"data: ") < 60
            for writer in (slow_writer, quick_writer):
                writer.close()

    asyncio.run(scene())


def test_a_browser_that_goes_is_forgotten() -> None:
    async def scene() -> None:
        hub = Hub()
        async with serving(hub) as (port, _):
            for _ in range(3):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(ASK)
                await until(lambda: hub.lookers == 1)
                writer.close()
                await until(lambda: hub.lookers == 0)
                assert reader is not None

    asyncio.run(scene())


def test_when_too_many_look_the_next_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    from medusa.apps.dashboard import hub as hub_module

    monkeypatch.setattr(hub_module, "LOOKERS_MAX", 1)

    async def scene() -> None:
        hub = Hub()
        async with serving(hub) as (port, _):
            _, first = await asyncio.open_connection("127.0.0.1", port)
            first.write(ASK)
            await until(lambda: hub.lookers == 1)
            second, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(ASK)
            assert b" 503 " in await second.readline()
            first.close()
            writer.close()

    asyncio.run(scene())


def test_stopping_ends_open_streams_at_once() -> None:
    async def scene() -> None:
        hub = Hub()
        async with serving(hub) as (port, task):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(ASK)
            await until(lambda: hub.lookers == 1)
            signal.raise_signal(signal.SIGTERM)
            async with asyncio.timeout(DEADLINE_S):
                assert (await reader.read()).endswith(b"0\r\n\r\n")  # a whole answer, not a broken one
                with suppress(KeyboardInterrupt):
                    await task
            writer.close()

    before = signal.signal(signal.SIGTERM, lambda *_: None)  # uvicorn raises it again when it has ended
    try:
        asyncio.run(scene())
    finally:
        signal.signal(signal.SIGTERM, before)


# --- the whole command ------------------------------------------------------------------------------


@contextmanager
def dashboard(node: str, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """``medusa dashboard`` for a node: the process, and its URL."""
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, "dashboard", "--node", node, "--json", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process, json.loads(first_line(process))["url"]
    finally:
        process.kill()
        process.communicate()


def fetch(url: str, **headers: str) -> tuple[int, str]:
    asked = urllib.request.Request(url, headers=headers)
    try:
        with urllib.request.urlopen(asked, timeout=DEADLINE_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


@pytest.mark.system
def test_the_command_serves_and_ends_in_order_with_a_page_open(node: str) -> None:
    with dashboard(node, "--listen", "127.0.0.1:0") as (process, url):
        assert "token" not in url
        status, page = fetch(url)
        assert status == 200
        assert "dashboard.js" in page
        assert fetch(url, Host="evil.example")[0] == 403
        with urllib.request.urlopen(f"{url}events", timeout=DEADLINE_S) as events:
            lines = [events.readline().decode().strip() for _ in range(3)]
            assert lines[:2] == ["id: 1", "event: federation"]
            while json.loads(lines[2].removeprefix("data: "))["nodes"][0][1:4] != ["here", "local", "up"]:
                lines = [events.readline().decode().strip() for _ in range(4)][1:]
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=DEADLINE_S)
        assert (process.returncode, out, err) == (0, "", "")


@pytest.mark.system
def test_where_others_reach_it_the_url_has_a_token_and_nothing_else_has(node: str) -> None:
    with dashboard(node, "--listen", "0.0.0.0:0") as (process, url):
        at, _, token = url.partition("?token=")
        assert len(token) >= 40
        here = at.replace("0.0.0.0", "127.0.0.1")
        assert fetch(here)[0] == 401
        assert fetch(f"{here}events")[0] == 401
        assert fetch(here, Authorization=f"Bearer {token}")[0] == 200
        assert fetch(here, Authorization=f"Bearer {token}x")[0] == 401
        assert fetch(f"{here}?token=x")[0] == 401
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, out, err) == (0, "", "")


def no_nodes() -> Watcher:
    return Watcher([], lambda address: pytest.fail(address))


def test_a_port_that_is_taken_and_an_address_that_is_none() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"can't listen on 127.0.0.1:{port}: Address already in use"):
            serve(no_nodes(), listen=f"127.0.0.1:{port}", say=pytest.fail)
    for wrong in ("8080", "127.0.0.1", "127.0.0.1:99999", "http://127.0.0.1:80"):
        with pytest.raises(ConfigError, match="dashboard: "):
            serve(no_nodes(), listen=wrong, say=pytest.fail)


@pytest.mark.parametrize("missing", ["starlette", "uvicorn"])
def test_without_the_extra_it_says_what_to_install(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name.split(".")[0] == missing:
            raise ImportError(f"No module named {missing!r}", name=missing)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match=f"the package {missing} is not installed") as caught:
        serve(no_nodes(), listen="127.0.0.1:0", say=pytest.fail)
    assert caught.value.hint == "pip install 'medusa-streams[dashboard]'"
