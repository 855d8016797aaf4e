"""Asking a gateway, from a worker or driver of Spark: one connection for each process, made when needed.

A request that isn't answered is asked again, over a new connection if need be, until the time is over: all
requests can be. Connections are kept by process, since Spark's workers are forked.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from medusa.errors import ConfigError, DataError, LinkError, MedusaError, RemoteProtocolError
from medusa.nodes.config.settings import check_address
from medusa.ports import Buffer
from medusa.runtime.keys.client_keys import ClientKeys, client_keys
from medusa.runtime.transport.link_events import Arrival, LinkDown, LinkRefused, LinkUp
from medusa.runtime.transport.zeromq import Transport
from medusa.spark.exchange import requests as r
from medusa.spark.exchange.requests import Answer, Request, decode_answer, encode

__all__ = ["Endpoint", "GatewayConnection", "caller", "expected"]

A = TypeVar("A")

GATEWAY = "gateway"
ASK_AGAIN_S = 5.0
"""A request that isn't answered for so long is asked again over a new connection."""

REST_MIN_S, REST_MAX_S = 0.02, 0.5
REFUSALS_MAX = 3


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a gateway is, and with which keys it is called.

    Attributes:
        timeout_us: for each request, with all that is asked again.
    """

    address: str
    key: str = ""
    server_key: str = ""
    timeout_us: int = 60_000_000

    def keys(self) -> ClientKeys | None:
        """Raises: LinkError: a key is missing, or can't be read."""
        return client_keys(self.address, self.timeout_us, self.key or None, self.server_key or None, None)


class GatewayConnection:
    """A connection to a gateway. Any thread may ask; one at a time is answered."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._lock = threading.Lock()
        self._number = 0
        keys = endpoint.keys()
        try:
            check_address(endpoint.address, bind=False, keyed=keys is not None)
        except ConfigError as error:
            raise LinkError(f"gateway: {error.message}", hint=error.hint, code=error.code) from None
        if keys is None:
            self._transport = Transport(listen=None, peers={GATEWAY: endpoint.address})
        else:
            self._transport = Transport(
                listen=None,
                peers={GATEWAY: endpoint.address},
                key=keys.own,
                server_keys={GATEWAY: (keys.server,)},
            )
        self._up = self._met = False
        self._refused: LinkRefused | None = None
        self._refusals = 0

    def ask(self, request: Request, payload: Buffer | None = None) -> tuple[Answer, Buffer | None]:
        """The answer of the gateway; ``request.number`` doesn't matter.

        Raises:
            LinkError: no answer in time, or the gateway refused: with its code.
            DataError: rows that were brought don't fit.
        """
        end_s = time.monotonic() + self._endpoint.timeout_us / 1e6
        rest_s = REST_MIN_S
        while True:
            with self._lock:
                answer, found = self._ask(request, payload, end_s)
            if not isinstance(answer, r.Failed):
                return answer, found
            if not answer.again or time.monotonic() + rest_s > end_s:
                kind = DataError if answer.code.startswith("data") else LinkError
                raise kind(
                    f"the gateway at {self._endpoint.address}: {answer.text}",
                    hint=answer.hint,
                    code=answer.code,
                )
            time.sleep(rest_s)
            rest_s = min(rest_s * 2, REST_MAX_S)

    def _ask(self, request: Request, payload: Buffer | None, end_s: float) -> tuple[Answer, Buffer | None]:
        self._number += 1
        frames = encode(msgspec.structs.replace(request, number=self._number), payload)
        again_s = 0.0  # When it is asked, if the connection stands.
        while True:
            now_s = time.monotonic()
            if now_s >= end_s:
                raise self._timed_out(request)
            if self._up and now_s >= again_s:
                if again_s:  # It stands, and says nothing: perhaps nobody is at its other end any more.
                    self._transport.cut(GATEWAY)
                    self._up = False
                else:
                    self._transport.send(GATEWAY, frames)
                    again_s = now_s + ASK_AGAIN_S
            for event in self._transport.wait(max(1, min(round((end_s - now_s) * 1000), 200))):
                match event:
                    case LinkUp():
                        self._up, self._refused, self._refusals = True, None, 0
                        self._met = True
                        again_s = 0.0
                    case LinkDown():
                        self._up, again_s = False, 0.0
                    case LinkRefused():
                        self._refused, self._refusals = event, self._refusals + 1
                        if event.said and self._refusals >= REFUSALS_MAX:
                            raise self._timed_out(request)
                    case Arrival():
                        if (found := self._answer(event)) is not None:
                            return found
            if not self._up:
                again_s = 0.0

    def _answer(self, event: Arrival) -> tuple[Answer, Buffer | None] | None:
        """None: of an earlier time that it was asked, or none at all."""
        try:
            answer, payload = decode_answer(event.frames, self._endpoint.address)
        except RemoteProtocolError:
            self._transport.cut(GATEWAY)
            self._up = False
            return None
        return (answer, payload) if answer.number == self._number else None

    def _timed_out(self, request: Request) -> MedusaError:
        what = type(request).__name__.lower()
        if self._refused is not None:
            return LinkError(
                f"gateway at {self._endpoint.address}: {self._refused.why}",
                hint=self._refused.hint,
                code=self._refused.code,
            )
        return LinkError(
            f"the gateway at {self._endpoint.address} didn't answer `{what}` in time",
            hint=(NO_GATEWAY if self._met else "is `medusa gateway` running there?")
            + " The option `timeout` says how long to wait",
            code="link.timeout",
        )

    def close(self) -> None:
        """End the connection."""
        self._transport.close()


NO_GATEWAY = "something listens there: is it a node, or busy?"

_callers: dict[tuple[int, Endpoint], GatewayConnection] = {}
_making = threading.Lock()


def caller(endpoint: Endpoint) -> GatewayConnection:
    """The connection of this process to a gateway.

    Raises:
        LinkError: no such address, or its keys can't be used.
    """
    with _making:
        # What a parent process made stays with it: its sockets are its own.
        found = _callers.get((os.getpid(), endpoint))
        if found is None:
            found = _callers[os.getpid(), endpoint] = GatewayConnection(endpoint)
        return found


def expected(answer: Answer, kind: type[A]) -> A:
    """The answer, of the kind that belongs to what was asked.

    Raises:
        RemoteProtocolError: it is another.
    """
    if not isinstance(answer, kind):
        raise RemoteProtocolError(f"{type(answer).__name__} is no answer to that", code="E_FRAME")
    return answer
