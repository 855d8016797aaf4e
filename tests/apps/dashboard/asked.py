"""Asks an ASGI application in this process: no sockets, no client library."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass


@dataclass
class Answer:
    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str:
        return next((value for key, value in self.headers if key == name.lower()), "")


def ask(
    app, path: str = "/", *, method: str = "GET", host: str | None = "127.0.0.1:8080", **headers: str
) -> Answer:
    """One request; headers with _ for -."""
    return asyncio.run(ask_async(app, path, method=method, host=host, **headers))


async def ask_async(
    app, path: str, *, method: str = "GET", host: str | None = None, **headers: str
) -> Answer:
    path, _, query = path.partition("?")
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    if host is not None:
        given["host"] = host
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in given.items()],
        "server": ("127.0.0.1", 8080),
        "client": ("127.0.0.1", 50000),
    }
    sent: list[dict] = []

    async def receive() -> dict:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict) -> None:
        sent.append(message)

    await app(scope, receive, send)
    start = next(each for each in sent if each["type"] == "http.response.start")
    body = b"".join(each.get("body", b"") for each in sent if each["type"] == "http.response.body")
    return Answer(start["status"], [(k.decode(), v.decode()) for k, v in start["headers"]], body)
