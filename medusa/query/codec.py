"""A graph as JSON text and as msgpack bytes, and back with every check."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from medusa.decoders import json_decoder, msgpack_decoder
from medusa.errors import QueryError
from medusa.query.boxes import FORMAT_VERSION, Graph
from medusa.query.graph import check_graph, label_of

__all__ = [
    "graph_from_json",
    "graph_from_msgpack",
    "graph_to_json",
    "graph_to_msgpack",
    "graph_values",
    "refuse_unregistered",
]

BYTES_MAX = 8 << 20
"""Of a graph in either form."""


class _Head(msgspec.Struct):
    version: int


_FROM_JSON = json_decoder(_Head).decode, json_decoder(Graph).decode
_FROM_MSGPACK = msgpack_decoder(_Head).decode, msgpack_decoder(Graph).decode


def graph_to_json(graph: Graph) -> str:
    """JSON text, indented.

    Raises:
        QueryError: a box runs a function that isn't registered.
    """
    refuse_unregistered(graph, "to_json")
    return msgspec.json.format(msgspec.json.encode(graph), indent=2).decode()


def graph_values(graph: Graph) -> Any:
    """As JSON values, to stand in a larger document: what ``graph_from_json`` reads of their text."""
    return msgspec.to_builtins(graph)


def graph_to_msgpack(graph: Graph) -> bytes:
    """Msgpack bytes: the form on links.

    Raises:
        QueryError: a box runs a function that isn't registered.
    """
    refuse_unregistered(graph, "to_msgpack")
    return msgspec.msgpack.encode(graph)


def graph_from_json(text: str | bytes) -> Graph:
    """Read and check a graph.

    Raises:
        QueryError: too large, no JSON, unknown or missing parts, a later version, or a graph that
            doesn't hold.
    """
    if not isinstance(text, str | bytes):
        raise QueryError(f"query: expected JSON text, got {type(text).__name__}", code="query.codec")
    _check_size(len(text))
    return _checked("JSON", text, *_FROM_JSON)


def graph_from_msgpack(data: bytes | bytearray | memoryview) -> Graph:
    """Read and check a graph.

    Raises:
        QueryError: as ``graph_from_json``.
    """
    if not isinstance(data, bytes | bytearray | memoryview):
        raise QueryError(f"query: expected bytes, got {type(data).__name__}", code="query.codec")
    _check_size(len(data))
    return _checked("msgpack", data, *_FROM_MSGPACK)


def _check_size(size: int) -> None:
    if size > BYTES_MAX:
        raise QueryError(f"query: has {size:,} bytes, at most {BYTES_MAX:,}", code="query.limit")


def _checked(form: str, data: Any, head: Callable[[Any], _Head], whole: Callable[[Any], Graph]) -> Graph:
    try:
        # The version first: of a later one nothing else can be told.
        version = head(data).version
        if version > FORMAT_VERSION:
            raise QueryError(
                f"query: its format has version {version}, this program reads {FORMAT_VERSION}",
                hint="a newer Medusa wrote it",
                code="query.version",
            )
        graph = whole(data)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise QueryError(f"query: not the {form} of a query: {error}", code="query.codec") from None
    except RecursionError:
        raise QueryError("query: nested too deeply", code="query.limit") from None
    refuse_unregistered(graph, f"the {form} of a query")
    check_graph(graph)
    return graph


def refuse_unregistered(graph: Graph, what: str) -> None:
    """Raises QueryError where a box runs a function that only this program knows.

    Args:
        what: what needs a name for it, for the message.
    """
    for box in graph.boxes:
        if any(not function.name for function in box.functions):
            raise QueryError(
                f"{label_of(box)}: its function is not registered, which {what} needs",
                hint='write @md.register("name", version=1) above it; without, the query runs embedded only,'
                " without checkpoint=",
                code="query.function",
            )
