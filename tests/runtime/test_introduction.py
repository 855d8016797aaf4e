"""Trust on first use: only by the flag, pinned, and never silently another key."""

from __future__ import annotations

import socket
import stat

import pytest

import medusa as md
from medusa.errors import ConfigError, LinkError
from medusa.nodes.config.settings import parse
from medusa.runtime.keys.key_files import CurveKey, read_public, write_key
from medusa.runtime.transport.first_use import Introduction, ask, pin, pinned
from tests.runtime.test_keyed_node import PEER, Place, fails, fails_soon
from tests.runtime.test_process import InThread

KEY, OTHER = CurveKey.new().public, CurveKey.new().public


@pytest.fixture
def introduction():
    made = Introduction("tcp://127.0.0.1:*", KEY)
    yield made
    made.close()


def test_the_key_is_told_to_everybody_and_nothing_is_heard(introduction):
    port = int(introduction.address.rsplit(":", 1)[1])
    with (
        socket.create_connection(("127.0.0.1", port)) as silent,
        socket.create_connection(("127.0.0.1", port)),
    ):
        assert ask(introduction.address, 20) == KEY
        silent.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert ask(introduction.address, 20) == KEY


def test_an_introduction_that_is_over_or_taken(introduction):
    with pytest.raises(LinkError, match="can't introduce itself"):
        Introduction(introduction.address, KEY)
    other = Introduction("tcp://127.0.0.1:*", KEY)
    other.close()
    with pytest.raises(LinkError, match=r"nobody introduces itself at tcp://.*refused") as caught:
        ask(other.address, 20)
    assert "introduce =" in caught.value.hint


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 200 OK\r\n", b"medusa short\n", b"medusa " + b"x" * 4000])
def test_something_else_that_answers_is_no_node(said):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        caller = socket.create_connection(listening.getsockname())
        made, _ = listening.accept()
        with made, caller, pytest.MonkeyPatch.context() as patch:
            made.sendall(said)
            made.shutdown(socket.SHUT_WR)
            patch.setattr(socket, "create_connection", lambda *_, **__: caller)
            with pytest.raises(LinkError, match="is no node"):
                ask("tcp://127.0.0.1:1", 1)


def test_who_says_nothing_is_not_waited_for():
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        pytest.raises(LinkError, match="nobody introduces itself .* not in time"),
    ):
        ask(f"tcp://127.0.0.1:{listening.getsockname()[1]}", 0.05)


def test_the_first_pin_of_an_address_counts(tmp_path):
    path = tmp_path / "known"
    assert pinned(path, "tcp://a:1") == ""
    pin(path, "tcp://a:1", KEY)
    pin(path, "tcp://a:1", OTHER)
    pin(path, "tcp://b:1", OTHER)
    assert [pinned(path, f"tcp://{each}") for each in ("a:1", "b:1", "a:11", "c:1")] == [KEY, OTHER, "", ""]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_text("tcp://a:1 nonsense\n")
    with pytest.raises(LinkError, match="line 1 is no pin"):
        pinned(path, "tcp://a:1")
    path.chmod(0o666)
    with pytest.raises(LinkError, match="others than this user") as caught:
        pinned(path, "tcp://b:1")
    assert caught.value.hint.startswith(f"chmod 600 {path}")
    with pytest.raises(LinkError, match="can't be"):
        pinned(tmp_path, "tcp://a:1") or pin(tmp_path, "tcp://a:1", KEY)


def test_a_pin_that_a_crash_cut_off_takes_no_other_with_it(tmp_path):
    path = tmp_path / "known"
    pin(path, "tcp://a:1", KEY)
    for cut in range(1, path.stat().st_size):
        path.write_bytes(f"tcp://a:1 {KEY}\n".encode()[:cut])
        pin(path, "tcp://b:1", OTHER)
        assert pinned(path, "tcp://b:1") == OTHER


@pytest.mark.parametrize("value", ['"ipc:///x"', '"tcp://h"', '"tcp://h:70000"', "7", '""'])
def test_an_introduction_is_at_an_address(value):
    text = 'name = "a"\nlisten = "ipc:///x"\ndata = "d"\nfederation = "f"\n[keys]\nnode = "n"\n'
    with pytest.raises(ConfigError, match=r"line 7: keys.introduce: expected an address"):
        parse(text + f"introduce = {value}\n")
    security = parse(text + 'introduce = "tcp://0.0.0.0:5556"\n').security
    assert security is not None
    assert security.introduce == "tcp://0.0.0.0:5556"
    assert parse(text).security.introduce == ""


@pytest.fixture
def place(tmp_path_factory):
    made = Place(tmp_path_factory.mktemp("i"))
    config = made.folder / "a.toml"
    text = config.read_text().replace("[keys]\n", '[keys]\nintroduce = "tcp://127.0.0.1:*"\n')
    config.write_text(text)
    return made


def test_a_node_is_trusted_at_first_and_another_never(place, monkeypatch, capsys):
    node = InThread(str(place.folder / "a.toml"), monkeypatch)
    where = capsys.readouterr().err.split("introduces itself at ")[1].split()[0]
    pins = place.folder / "known"
    first = {"server_key": None, "trust_first_use": pins}
    fails(lambda: place.connect(**first), "link.pins", f"holds no key for {place.address}")
    assert not pins.exists()
    with place.connect(**first, introduction=where) as fed:
        fed.status()
    assert pins.read_text() == f"{place.address} {read_public(place.folder / 'a.pub')}\n"
    with place.connect(**first) as fed:  # Nobody is asked any more.
        fed.status()
    node.stop()
    # Somebody else at the same address, with another key, who introduces himself readily.
    for name in ("a.key", "a.pub"):
        (place.folder / name).unlink()
    write_key(place.folder / "a.key", "node", CurveKey.new())
    node = InThread(str(place.folder / "a.toml"), monkeypatch)
    where = capsys.readouterr().err.split("introduces itself at ")[1].split()[0]
    error = fails_soon(
        lambda timeout: place.connect(**first, introduction=where, timeout=timeout), "link.server_key"
    )
    assert f"pinned in {pins}" in error.hint
    assert place.address in error.hint
    node.stop()


def test_a_key_that_was_introduced_wrongly_is_not_pinned(place, monkeypatch):
    node = InThread(str(place.folder / "a.toml"), monkeypatch)
    pins = place.folder / "known"
    liar = Introduction("tcp://127.0.0.1:*", PEER.public)
    given = {"server_key": None, "trust_first_use": pins, "introduction": liar.address}
    fails_soon(lambda timeout: place.connect(**given, timeout=timeout), "link.server_key", "waited ")
    assert not pins.exists()
    liar.close()
    node.stop()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"trust_first_use": "known"}, "goes with key="),
        ({"trust_first_use": "known", "server_key": KEY, "key": KEY}, "without server_key="),
        ({"introduction": "tcp://127.0.0.1:9"}, "goes with trust_first_use="),
        (
            {"trust_first_use": "known", "key": OTHER, "introduction": "ipc:///x"},
            "introduction: .*no address",
        ),
    ],
)
def test_flags_that_do_not_fit(given, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LinkError, match=says):
        md.connect("tcp://127.0.0.1:9", timeout="1s", **given)
    assert [*tmp_path.iterdir()] == []
