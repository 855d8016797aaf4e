"""Node configurations: what is read, and how each slip is answered."""

from __future__ import annotations

import pytest

from medusa.errors import ConfigError
from medusa.nodes.config.settings import Limits, check_address, parse

GOOD = """
name = "edge-1"
listen = "tcp://127.0.0.1:5555"
data = "state/edge-1"

[peers]
core = "tcp://127.0.0.1:5557"
other = "ipc:///tmp/other.sock"

[limits]
retention = "128 MiB"
checkpoint_every = "250ms"
"""


def test_a_full_configuration():
    settings = parse(GOOD)
    assert (settings.name, settings.listen, settings.data) == (
        "edge-1",
        "tcp://127.0.0.1:5555",
        "state/edge-1",
    )
    assert settings.peers == {"core": "tcp://127.0.0.1:5557", "other": "ipc:///tmp/other.sock"}
    assert settings.limits.retention_bytes == 128 << 20
    assert settings.limits.checkpoint_every_us == 250_000
    assert settings.limits.credit_bytes == Limits().credit_bytes
    assert settings.participant == "local"


def change(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (change('name = "edge-1"\n', ""), "name is missing"),
        (
            change('name = "edge-1"', 'name = "Edge 1"'),
            "line 2: name: 'Edge 1' is no name (names are 1 to 64",
        ),
        (change('name = "edge-1"', "name = 7"), "line 2: name: expected text, got 7"),
        (change("name =", "nmae ="), "line 2: nmae: unknown field 'nmae' (did you mean 'name'?)"),
        (
            "retention = '9 MiB'\n" + GOOD,
            "line 1: retention: unknown field 'retention' (it belongs below [limits])",
        ),
        (change('data = "state/edge-1"', 'data = ""'), "line 4: data: data is empty"),
        (change('data = "state/edge-1"', 'data = "x"\nstore = "memory"'), "line 4: data: a node with store"),
        (change('data = "state/edge-1"', 'data = "x"\nstore = "tape"'), "'tape' is no store"),
        (
            change("127.0.0.1:5555", "0.0.0.0:5555"),
            "line 3: listen: '0.0.0.0' is not an address of this machine",
        ),
        (change("127.0.0.1:5555", "192.168.1.5:5555"), "without keys anyone who reaches"),
        (change("127.0.0.1:5555", "127.0.0.1:99999"), "port 99999 is not between 1 and 65535"),
        (change("tcp://127.0.0.1:5555", "127.0.0.1"), "'127.0.0.1' is no address"),
        (change("127.0.0.1:5557", "example.org:5557"), "line 7: peers.core: 'example.org' is not an address"),
        (change("127.0.0.1:5557", "127.0.0.1:*"), "line 7: peers.core: 'tcp://127.0.0.1:*' names no port"),
        (change('core = "tcp', 'edge-1 = "tcp'), "line 7: peers.edge-1: 'edge-1' is this node itself"),
        (change('core = "tcp://127.0.0.1:5557"', "core = 5557"), "line 7: peers.core: expected an address"),
        (
            change('"128 MiB"', '"128 parsecs"'),
            "line 11: limits.retention: '128 parsecs' is no number of bytes",
        ),
        (change('"128 MiB"', '"1 KiB"'), "out of range (allowed: 1 MiB to 64 GiB)"),
        (
            change('"250ms"', "250"),
            "line 12: limits.checkpoint_every: 250 has no unit (write checkpoint_every",
        ),
        (
            change('"250ms"', '"1us"'),
            "line 12: limits.checkpoint_every: '1us' is out of range (allowed: 50ms to",
        ),
        (change("retention =", "retension ="), "did you mean 'retention'?"),
        (change("[limits]", '[limits]\ncredit = "1 GiB"\nmemory = "16 MiB"'), "credit is larger than memory"),
        ('name = "a"\nname = "b"\n', "line 2: Cannot overwrite a value"),
        ("peers = 3\n" + change("[peers]", "[piers]"), "unknown field 'piers' (did you mean 'peers'?)"),
    ],
)
def test_a_slip_is_named_with_its_line(text, says):
    with pytest.raises(ConfigError) as caught:
        parse(text, where="edge.toml")
    assert says in str(caught.value)
    assert str(caught.value).startswith("edge.toml")


def test_a_node_that_keeps_nothing():
    assert parse(GOOD).store == "disk"
    settings = parse(change('data = "state/edge-1"', 'store = "memory"'), folder="/etc")
    assert (settings.store, settings.data) == ("memory", "")


def test_modules_of_functions():
    base = 'name = "a"\nlisten = "tcp://127.0.0.1:0"\ndata = "d"\n'
    assert parse(base).functions == ()
    assert parse(base + 'functions = ["one", "two.three"]').functions == ("one", "two.three")
    for wrong in ('"one"', "[1]", '["a b"]', '[""]', '["../up"]'):
        with pytest.raises(ConfigError, match="are no names of modules"):
            parse(f"{base}functions = {wrong}")


@pytest.mark.parametrize(
    ("address", "used"),
    [
        ("tcp://127.0.0.1:0", "tcp://127.0.0.1:*"),
        ("tcp://localhost:*", "tcp://localhost:*"),
        ("tcp://[::1]:80", "tcp://[::1]:80"),
        ("tcp://127.8.8.8:80", "tcp://127.8.8.8:80"),
        ("ipc:///run/a.sock", "ipc:///run/a.sock"),
    ],
)
def test_addresses_of_this_machine(address, used):
    assert check_address(address, bind=True) == used


@pytest.mark.parametrize(
    "address", ["ipc://", "ipc://@abstract", "ipc://" + "x" * 200, "udp://127.0.0.1:1", "tcp://:1"]
)
def test_addresses_that_are_none(address):
    with pytest.raises(ConfigError):
        check_address(address, bind=True)


NODE = 'name = "a"\nlisten = "tcp://127.0.0.1:*"\ndata = "d"\n'


def test_metrics() -> None:
    assert parse(NODE).metrics is None
    assert parse(NODE + 'metrics = "127.0.0.1:9100"').metrics == ("127.0.0.1", 9100)
    assert parse(NODE + 'metrics = "[::1]:0"').metrics == ("::1", 0)
    assert parse(NODE + 'metrics_public = true\nmetrics = "0.0.0.0:9100"').metrics == ("0.0.0.0", 9100)


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ('metrics = "0.0.0.0:9100"', "config.metrics.public", "metrics_public = true"),
        ('metrics = "9100"', "config.metrics", "HOST:PORT"),
        ("metrics = 9100", "config.value", "expected text"),
        ('metrics_public = "yes"', "config.value", "true or false"),
    ],
)
def test_metrics_that_are_refused(line: str, code: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(NODE + line)
    assert caught.value.code == code
    assert "line 4" in caught.value.message
    assert words in f"{caught.value.message} {caught.value.hint}"
