"""Who may see the page: the Host that a browser names, a token, and headers that keep other pages out.

A name that leads to us by a trick (DNS rebinding) is another Host than ours, so it is refused. An address
in digits can't be such a name.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Collection, Mapping
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING

from medusa.nodes.config.endpoint import is_loopback

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["HEADERS", "RequestGuard", "host_of", "is_allowed"]

POLICY = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
NEEDS_TOKEN = "This page needs its token: open the address that medusa dashboard printed.\n"
OTHER_HOST = "This server goes by another name: use the address that medusa dashboard printed.\n"
TOKEN_BYTES_MAX = 512


def host_of(header: str) -> str:
    """The name in a ``Host`` header, without port and brackets; empty: there is none."""
    if header.startswith("["):
        inside, bracket, _ = header[1:].partition("]")
        return inside.lower() if bracket else ""
    name, colon, port = header.partition(":")
    return name.lower().rstrip(".") if not colon or port.isdecimal() else ""


def is_allowed(header: str, *, loopback: bool, names: Collection[str]) -> bool:
    """Whether a browser that names this host may be answered.

    Args:
        loopback: we listen there, so no other host leads to us.
        names: further ones that we go by.
    """
    host = host_of(header)
    if not host:
        return False
    if host in names or is_loopback(host):
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return not loopback


class RequestGuard:
    """Stands before an application."""

    def __init__(
        self, app: ASGIApp, *, loopback: bool, names: Collection[str], token: str, cookie: str
    ) -> None:
        """Guard it.

        Args:
            token: who knows it is let in; empty: everybody is.
            cookie: the name of the cookie that a browser keeps the token in.
        """
        self._app = app
        self._loopback = loopback
        self._names = frozenset(name.lower() for name in names)
        self._token = token.encode()
        self._cookie = cookie

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        from starlette.datastructures import Headers, QueryParams
        from starlette.responses import PlainTextResponse, RedirectResponse, Response

        headers = Headers(scope=scope)
        answer: ASGIApp | Response = self._app
        if not is_allowed(headers.get("host", ""), loopback=self._loopback, names=self._names):
            answer = PlainTextResponse(OTHER_HOST, 403)
        elif self._token and not self._is_known(headers):
            given = QueryParams(scope["query_string"]).get("token", "") if scope["path"] == "/" else ""
            if self._fits(given):
                answer = RedirectResponse("/", 303)
                answer.set_cookie(self._cookie, given, path="/", httponly=True, samesite="strict")
            else:
                answer = PlainTextResponse(NEEDS_TOKEN, 401, {"WWW-Authenticate": "Bearer"})
        await answer(scope, receive, _with_headers(send))

    def _is_known(self, headers: Mapping[str, str]) -> bool:
        """By a header, or by a cookie that we have set."""
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self._fits(given.strip()):
            return True
        try:
            found = SimpleCookie(headers.get("cookie", "")).get(self._cookie)
        except CookieError:
            return False
        return found is not None and self._fits(found.value)

    def _fits(self, given: str) -> bool:
        """In a time that doesn't depend on how much of it is right."""
        data = given.encode("utf-8", "replace")
        return len(data) <= TOKEN_BYTES_MAX and hmac.compare_digest(data, self._token)


def _with_headers(send: Send) -> Send:
    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            from starlette.datastructures import MutableHeaders

            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers[name] = value
            headers.setdefault("Cache-Control", "no-store")
        await send(message)

    return sent
