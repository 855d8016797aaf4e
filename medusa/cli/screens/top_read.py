"""What ``medusa top`` shows: the boxes of a node, or of a run that serves its metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from medusa.decoders import converter
from medusa.errors import LinkError
from medusa.wire.status_and_metrics import BoxFigures, ConsistencyStatus

__all__ = ["Box", "Looked", "StreamRow", "reading"]

BYTES_MAX = 64 << 20
SERVES = "md.start(q, metrics='127.0.0.1:9100') serves there, or a node with metrics = \"127.0.0.1:9100\""
ADDRESSES = "tcp://127.0.0.1:5555 or ipc:///path of a node, http://127.0.0.1:9100 of what serves metrics"


class Box(BoxFigures, frozen=True, kw_only=True):
    """One box, and where it is."""

    query: str
    node: str = ""
    fragment: str = ""
    attached: str = ""
    box: str


class StreamRow(ConsistencyStatus, frozen=True, kw_only=True):
    """A stream with ``delay``, where it leaves and how it is."""

    query: str
    node: str = ""
    fragment: str = ""
    stream: str


class Looked(NamedTuple):
    """What is there at a moment; a run in a program has no such streams, and trades nothing.

    Attributes:
        market: lines of nodes that trade load.
        shedding: lines of nodes that leave rows out.
    """

    boxes: list[Box]
    streams: list[StreamRow]
    market: Sequence[str] = ()
    shedding: Sequence[str] = ()


_BOXES = converter(list[Box])
_STREAMS = converter(list[StreamRow])
_LINES = converter(list[str])


@contextmanager
def reading(
    address: str,
    timeout_s: float,
    *,
    all_nodes: bool = False,
    key: str | None = None,
    server_key: str | None = None,
) -> Iterator[Callable[[], Looked]]:
    """A function that asks what is at an address how its boxes and streams do.

    Args:
        address: ``tcp://`` or ``ipc://`` of a node, ``http://`` of what serves metrics.
        all_nodes: of a node: those of its participant too.
        key, server_key: for a node with keys, as for ``connect``.

    Raises:
        LinkError: no address, nobody is there, or something else; so does the function.
    """
    if address.startswith(("tcp://", "ipc://")):
        from medusa.runtime.client.client import connect

        with connect(address, f"{round(timeout_s * 1000)}ms", key=key, server_key=server_key) as fed:
            yield lambda: _looked(_status_rows(fed.statuses(all=all_nodes)), address)
        return
    url = _url(address)
    if all_nodes:
        hint = "give the address of one: tcp://HOST:PORT or ipc://PATH"
        raise LinkError(f"{address}: --all is for nodes", hint=hint, code="link.address")
    if key is not None or server_key is not None:
        raise LinkError(f"{address}: keys are for nodes", hint="leave them out", code="link.keys")
    yield lambda: _looked(_stats(url, address, timeout_s), address)


def _url(address: str) -> str:
    refused = LinkError(f"{address[:200]!r} is no address", hint=ADDRESSES, code="link.address")
    try:
        parts = urlsplit(address)
        known = parts.port is not None and parts.hostname and parts.path in ("", "/", "/metrics", "/stats")
    except ValueError:
        raise refused from None
    if parts.scheme != "http" or not known or not address.isprintable() or " " in address:
        raise refused
    return f"http://{parts.netloc}/stats"


def _status_rows(statuses: Sequence[Mapping[str, Any]]) -> Any:
    from medusa.cli.screens.market_rows import top_lines
    from medusa.cli.screens.shedding_rows import top_shedding_lines
    from medusa.runtime.client.status.overview import whole
    from medusa.runtime.exposition.server import status_rows, stream_rows

    nodes = [whole(status) for status in statuses]
    boxes = [row for node in nodes for row in status_rows(node)]
    streams = [row for node in nodes for row in stream_rows(node)]
    lines = {"market": list(top_lines(nodes)), "shedding": list(top_shedding_lines(nodes))}
    return {"boxes": boxes, "streams": streams, **lines}


def _stats(url: str, address: str, timeout_s: float) -> Any:
    # What the command line must not load for its other commands.
    import http.client
    import urllib.error
    import urllib.request

    # Straight there: what is on this machine is not behind a proxy.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=timeout_s) as answer:
            content = answer.read(BYTES_MAX + 1)
        return msgspec.json.decode(content[:BYTES_MAX])
    except urllib.error.HTTPError as error:
        with error:
            said = error.read(200).decode("ascii", "replace").strip()
        if error.code == 503:
            raise LinkError(f"{address}: {_plain(said)}", hint="", code="link.answer") from None
        raise _stranger(address, f"HTTP {error.code}") from None
    except (TimeoutError, urllib.error.URLError) as error:
        why = error.reason if isinstance(error, urllib.error.URLError) else error
        if isinstance(why, TimeoutError):
            raise LinkError(
                f"{address}: no answer in {timeout_s:g}s", hint="a long push may hold it", code="link.timeout"
            ) from None
        text = getattr(why, "strerror", None) or why
        raise LinkError(f"nobody answers at {address}: {text}", hint=SERVES, code="link.refused") from None
    except (msgspec.DecodeError, OSError, http.client.HTTPException):
        raise _stranger(address, "its answer can't be read") from None


def _looked(said: Any, address: str) -> Looked:
    try:
        # Earlier releases say nothing of streams, and what serves metrics nothing of the market.
        return Looked(
            _BOXES(said["boxes"]),
            _STREAMS(said.get("streams", [])),
            _LINES(said.get("market", [])),
            _LINES(said.get("shedding", [])),
        )
    except (KeyError, TypeError, AttributeError):
        raise _stranger(address, "its answer can't be read") from None
    except msgspec.ValidationError as error:
        raise _stranger(address, str(error)) from None


def _stranger(address: str, why: str) -> LinkError:
    text = f"{address} is not what serves metrics of medusa, or another version: {why}"
    return LinkError(text, hint=SERVES, code="link.answer")


def _plain(text: str) -> str:
    return "".join(letter if letter.isprintable() else " " for letter in text)
