"""The web page of a federation: one page, its assets, and a stream of events with the newest drawing.

Nodes are asked in threads (``watching``); the event loop only hands on what they said.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
from collections.abc import Callable, Collection
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import msgspec

from medusa.apps.dashboard.details import details_of
from medusa.apps.dashboard.guard import RequestGuard
from medusa.apps.dashboard.hub import Hub
from medusa.apps.dashboard.network import NodeView, Seen, StandbyView, network_of
from medusa.apps.dashboard.picture import key_of, svg_of
from medusa.apps.dashboard.watching import EVERY_S, Watcher
from medusa.apps.dashboard.words import plain, secondary
from medusa.errors import ConfigError
from medusa.nodes.config.endpoint import check_endpoint, is_loopback

if TYPE_CHECKING:
    import uvicorn
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp

__all__ = ["application", "event_of", "serve", "server_of"]

ASSETS = {
    "/": ("index.html", "text/html"),
    "/dashboard.js": ("dashboard.js", "text/javascript"),
    "/dashboard.css": ("dashboard.css", "text/css"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
CONNECTIONS_MAX = 128
STOP_S = 2
TOKEN_BYTES = 32
TOO_MANY = "Too many pages look already.\n"


def event_of(seen: list[Seen], number: int) -> bytes:
    """What is known, as one server-sent event."""
    network = network_of(seen)
    document = {
        "svg": svg_of(network),
        "details": details_of(network),
        "nodes": [(key_of("node", each.name), *_words(each)) for each in network.nodes],
        "links": [
            (key_of("link", each.a, each.b), plain(each.a), plain(each.b), each.state)
            for each in network.links
        ],
        "standbys": [
            (key_of("standby", each.node, each.fragment), *_standing(each)) for each in network.standbys
        ],
        "alone": [plain(each.fragment) for each in network.guarded if each.alone],
        "unstable": list(dict.fromkeys(plain(name) for name in network.unstable)),
    }
    return b"id: %d\nevent: federation\ndata: %b\n\n" % (number, msgspec.json.encode(document))


def _words(node: NodeView) -> tuple[str, str, str, float, str]:
    return plain(node.name), plain(node.owner), node.state, node.age_s, plain(node.why)


def _standing(standby: StandbyView) -> tuple[str, str, str, str, str]:
    told = secondary(standby.state, standby.since_us, standby.behind_bytes)
    names = plain(standby.fragment), plain(standby.owner), plain(standby.node)
    return (*names, standby.state, told)


def application(hub: Hub) -> ASGIApp:
    """The page, its assets and ``/events``, without guard."""
    from starlette.applications import Starlette
    from starlette.responses import PlainTextResponse, Response, StreamingResponse
    from starlette.routing import Route

    def asset(name: str, kind: str) -> Callable[[Request], Any]:
        content = files("medusa.apps.dashboard").joinpath("page", name).read_bytes()

        async def answer(request: Request) -> Response:
            return Response(content, media_type=kind, headers={"Cache-Control": "no-cache"})

        return answer

    async def events(request: Request) -> Response:
        if (stream := hub.look()) is None:
            return PlainTextResponse(TOO_MANY, 503)
        return StreamingResponse(stream, media_type="text/event-stream")

    routes = [Route(path, asset(name, kind)) for path, (name, kind) in ASSETS.items()]
    return Starlette(routes=[*routes, Route("/events", events, methods=["GET"])])


def serve(
    watcher: Watcher,
    *,
    listen: str,
    token: bool = False,
    names: Collection[str] = (),
    say: Callable[[str], None],
    every_s: float = EVERY_S,
) -> None:
    """Serve until SIGINT or SIGTERM, which are raised again once all is closed.

    Args:
        listen: ``HOST:PORT``; port 0 takes a free one. Where other machines reach it, a token is made.
        token: make one in any case.
        names: further host names that browsers may use for us.
        say: told the URL, once, when it can be opened.

    Raises:
        ConfigError: no such address, it isn't free, or starlette or uvicorn is missing.
    """
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            f"dashboard: the package {error.name} is not installed",
            hint="pip install 'medusa-streams[dashboard]'",
            code="config.dashboard.extra",
        ) from error
    host, port = check_endpoint(listen, public=True, what="dashboard")
    secret = secrets.token_urlsafe(TOKEN_BYTES) if token or not is_loopback(host) else ""
    with _listening(host, port) as opened, contextlib.closing(watcher):
        port = opened.getsockname()[1]
        hub = Hub()
        guarded = RequestGuard(
            application(hub),
            loopback=is_loopback(host),
            names={*names, host},
            token=secret,
            cookie=f"medusa-{port}",
        )
        watcher.start()
        at = f"[{host}]" if ":" in host else host
        url = f"http://{at}:{port}/" + (f"?token={secret}" if secret else "")
        asyncio.run(_run(guarded, opened, hub, watcher, every_s, lambda: say(url)))


async def _run(
    app: ASGIApp,
    opened: socket.socket,
    hub: Hub,
    watcher: Watcher,
    every_s: float,
    ready: Callable[[], None],
) -> None:
    server = server_of(app, hub, asyncio.get_running_loop())
    telling = asyncio.create_task(_tell(hub, watcher, every_s))
    telling.add_done_callback(lambda _: setattr(server, "should_exit", True))  # it fails: so do we
    ready()  # the socket listens already: who calls now is answered as soon as it serves
    try:
        await server.serve(sockets=[opened])
    finally:
        hub.close()
        telling.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await telling


def server_of(app: ASGIApp, hub: Hub, loop: asyncio.AbstractEventLoop) -> uvicorn.Server:
    """Uvicorn, without its log: what it would say holds addresses of pages, and so tokens."""
    import uvicorn

    class Server(uvicorn.Server):
        """Ends event streams when it is told to stop, so that nothing waits for them."""

        def handle_exit(self, sig: int, frame: Any) -> None:
            super().handle_exit(sig, frame)
            loop.call_soon_threadsafe(hub.close)

    config = uvicorn.Config(
        app,
        http="h11",
        ws="none",
        loop="asyncio",
        lifespan="off",
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=CONNECTIONS_MAX,
        timeout_graceful_shutdown=STOP_S,
    )
    return Server(config)


async def _tell(hub: Hub, watcher: Watcher, every_s: float) -> None:
    """An event for all who look, every second, and at once for who is new."""
    number = 0
    while True:
        hub.wanted.clear()
        if hub.lookers:
            number += 1
            hub.publish(await asyncio.to_thread(event_of, watcher.seen(), number))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(hub.wanted.wait(), every_s)


@contextlib.contextmanager
def _listening(host: str, port: int) -> Any:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    opened = socket.socket(family, socket.SOCK_STREAM)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind((host, port))
        opened.listen(64)
        opened.setblocking(False)
    except OSError as error:
        opened.close()
        raise ConfigError(
            f"dashboard: can't listen on {host}:{port}: {error.strerror or error}",
            hint="port 0 takes a free one",
            code="config.dashboard.listen",
        ) from error
    with opened:
        yield opened
