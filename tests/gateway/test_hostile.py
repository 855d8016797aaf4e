"""What may come to a gateway's socket, and what it gets: docs/threats.md."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import wait

import pyarrow as pa
import pytest

import medusa as md
from medusa.elements import Train
from medusa.errors import ConfigError, FullError, LinkError
from medusa.query.boxes import Field
from medusa.query.types import to_arrow
from medusa.spark.data_source_reader import StreamReader, columns_of
from medusa.spark.data_source_writer import StreamWriter
from medusa.spark.exchange import background_calls, registry, staging
from medusa.spark.exchange import requests as r
from medusa.spark.exchange.background_calls import BackgroundCalls, Later
from medusa.spark.exchange.caller import Endpoint, GatewayConnection
from medusa.spark.exchange.requests import encode, token_of
from medusa.spark.options import options_from
from medusa.wire.codec import TrainCodec
from tests.gateway.dying_disk import DyingDisk
from tests.gateway.here import options
from tests.gateway.test_forget import staged, write
from tests.system.nodes import until


def payload(values, type="int64"):
    batch = pa.record_batch({"v": pa.array(values, to_arrow(type))})
    [(made, _, _)] = TrainCodec((Field("v", type),), timed=False).encode(Train(batch=batch))
    return bytes(made)


def test_rows_that_are_not_what_they_claim_are_not_kept(node, tmp_path):
    good = payload([1, 2, 3])
    with md.spark.gateway(node[1], tmp_path / "g", report=str) as gateway:
        asking = GatewayConnection(options(gateway).endpoint)
        try:

            def stage(rows, data):
                token = token_of("w", 0, 0, "0" * 16)
                asking.ask(r.Stage(number=0, stream="q.rows", token=token, chunk=0, rows=rows), data)

            for rows, data in (
                (3, b"no rows"),
                (3, good[: len(good) // 2]),
                (4, good),
                (1 << 20, good),
                (3, payload([1, 2, 3], "int8")),
                (3, payload(["a", "b", "c"], "utf8")),
            ):
                with pytest.raises(LinkError) as caught:
                    stage(rows, data)
                assert caught.value.code.startswith("E_"), caught.value
            assert gateway.status()["staged_bytes"] == 0
            stage(3, good)
            assert gateway.status()["staged_bytes"] == len(good)
        finally:
            asking.close()


@pytest.mark.parametrize(
    "frames",
    [
        [],
        [b"\xc1"],
        [b"\x93" * 100_000],
        encode(r.Listing(number=1), memoryview(b"rows")),
        [bytes(r.HEADER_BYTES_MAX + 1)],
        [
            msg.replace(b"q.out", b"q.o\xff\xff")
            for msg in encode(r.Look(number=1, stream="q.out", reader="a"))
        ],
    ],
    ids=["none", "no msgpack", "deep", "rows where there are none", "too large", "no text"],
)
def test_what_is_no_request_ends_the_connection_of_who_sent_it(node, tmp_path, frames):
    told: list[str] = []
    with md.spark.gateway(node[1], tmp_path / "g", report=told.append) as gateway:
        stranger = GatewayConnection(options(gateway).endpoint)
        try:
            if frames:
                stranger.ask(r.Listing(number=0))  # What is sent before the connection stands is lost.
                stranger._transport.send("gateway", frames)
                until(lambda: told, what="who sent it is cut off")
            assert len(columns_of(options(gateway))) == 1
            assert all("a caller was cut off" in line for line in told)
        finally:
            stranger.close()


def test_ever_more_pieces_and_names_end_at_a_limit(node, tmp_path, monkeypatch):
    monkeypatch.setattr(staging, "GROUPS_MAX", 3)
    small = staged(DyingDisk())
    for number in range(3):
        empty = r.WholeAttempt(token=token_of("w", number, 0, "0" * 16), chunks=0, rows=0)
        small.seal("q.in", empty)
    with pytest.raises(FullError):
        small.seal("q.in", r.WholeAttempt(token=token_of("w", 3, 0, "0" * 16), chunks=0, rows=0))
    monkeypatch.setattr(registry, "READERS_MAX", 1)
    monkeypatch.setattr(registry, "SOURCES_MAX", 1)
    with md.spark.gateway(node[1], tmp_path / "g") as gateway:
        StreamReader(options(gateway)).first_offset()
        with pytest.raises(LinkError, match="has 1 readers") as caught:
            StreamReader(options(gateway, reader="b")).first_offset()
        assert caught.value.code == "E_LIMIT"
        write(gateway, 0, [1])
        writer = StreamWriter(options(gateway, "p.rows"))
        with pytest.raises(LinkError, match="writes to 1 sources"):
            writer.task([], query="id", epoch=0, partition=0)


def test_ever_more_names_to_look_up_take_so_many_threads(monkeypatch):
    monkeypatch.setattr(background_calls, "CALLS_MAX", 2)
    questions, go = BackgroundCalls(), threading.Event()

    def ask(key):
        return questions.result(key, "it", lambda: go.wait(60) and key)

    for key in "ab":
        with pytest.raises(Later, match="is being done"):
            ask(key)
    with pytest.raises(Later, match="2 questions to nodes are waiting"):
        ask("c")
    go.set()
    wait(questions._calls.values())
    with contextlib.suppress(Later):
        assert ask("c") == "c", "nobody came for the others"
        return
    wait(questions._calls.values())
    assert ask("c") == "c"


def test_an_answer_that_nobody_fetched_is_not_that_of_a_later_question(monkeypatch):
    questions, go, answers = BackgroundCalls(), threading.Event(), iter("ab")

    def ask():
        return questions.result("key", "it", lambda: go.wait(60) and next(answers))

    with pytest.raises(Later, match="is being done"):
        ask()
    go.set()
    wait(questions._calls.values())
    monkeypatch.setattr(background_calls, "FETCHED_S", -1.0)
    found = None
    with contextlib.suppress(Later):
        found = ask()
    monkeypatch.setattr(background_calls, "FETCHED_S", 60.0)
    wait(questions._calls.values())
    assert (found or ask()) == "b"


def test_without_keys_it_is_for_this_machine_alone(tmp_path):
    for address in ("tcp://0.0.0.0:*", "tcp://192.0.2.1:7777", "tcp://*:7777"):
        with pytest.raises(LinkError, match=r"is not an address of this machine alone|is no address"):
            md.spark.gateway(f"ipc://{tmp_path}/nobody", tmp_path / "g", listen=address)
    with pytest.raises(LinkError, match="'192.0.2.1' is not an address of this machine alone"):
        GatewayConnection(Endpoint("tcp://192.0.2.1:7777"))
    with pytest.raises(LinkError, match="gateway: 'x' is no address"):
        GatewayConnection(Endpoint("x"))


def test_the_text_of_a_key_is_no_option():
    secret = "JTKVSB%%)wK0E.X)V>+}o?pNmC{O&4W4b!Ni{Lh6"
    with pytest.raises(ConfigError, match="expected the file of a secret key") as caught:
        options_from({"endpoint": "tcp://127.0.0.1:7", "stream": "q.out", "key": secret})
    assert secret not in str(caught.value)
