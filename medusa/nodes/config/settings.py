"""The configuration of a node: text in, checked settings out. Reads no file.

name = "edge-1"
listen = "tcp://127.0.0.1:5555"      # or tcp://127.0.0.1:* for a free port, or ipc:///path
data = "state/edge-1"

[peers]
core = "tcp://127.0.0.1:5557"

[limits]
retention = "64 MiB"
checkpoint_every = "1s"
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from medusa.errors import ConfigError
from medusa.nodes.config.config_file import NAME, NAME_RULE, ConfigFile
from medusa.nodes.config.endpoint import check_endpoint, is_loopback
from medusa.nodes.config.fields import described, duration, number, read_fields, size
from medusa.nodes.config.settings_delay import DelayRules, read_delay
from medusa.nodes.config.settings_dht import DhtRules, read_dht
from medusa.nodes.config.settings_links import LinkRules, read_links
from medusa.nodes.config.settings_load import LoadRules, read_load
from medusa.nodes.config.settings_market import MarketRules, read_market
from medusa.nodes.config.settings_offers import OfferRules, read_offers
from medusa.nodes.config.settings_recovery import RecoveryRules, read_recovery
from medusa.nodes.config.settings_scale import ScaleSettings, read_scale
from medusa.nodes.config.settings_security import FIELDS as SECURITY_FIELDS
from medusa.nodes.config.settings_security import Security, address_of, read_security
from medusa.nodes.config.settings_spark import SparkRules, read_spark
from medusa.nodes.config.settings_store import forgets, read_store
from medusa.nodes.config.settings_streams import StreamRule, read_streams, stream_settings
from medusa.units import size_text
from medusa.wire.link.automaton import LinkSettings

__all__ = ["NAME", "Limits", "Settings", "check_address", "link_settings", "parse", "stream_link"]

IPC_PATH_MAX = 107
"""Bytes of a path that a Unix socket can have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of a node."""

    credit_bytes: int = size("8 MiB", "5 MiB", "1 GiB")
    """Bytes a peer may have in flight to us per stream. Too small: a link of r seconds round trip carries at
    most credit/r bytes per second (8 MiB at 100 ms: 84 MB/s). Too large: that much memory per stream, and
    control messages wait behind it."""

    memory_bytes: int = size("1 GiB", "16 MiB", "1024 GiB")
    """Bytes that all incoming streams together may have in flight to us. A fragment or publisher whose credit
    would go beyond it is refused."""

    backups_bytes: int = size("256 MiB", "1 MiB", "1024 GiB")
    """States that are held for other nodes' fragments (`method="state_backup"`), of all of them together.
    What goes beyond it is refused, and its owner looks for another node or goes on with its own disk alone.
    Too small: fragments are without a backup; too large: that much memory."""

    query_memory_bytes: int = size("128 MiB", "1 MiB", "1024 GiB")
    """What the fragments of one query may hold here: their graphs as they run, state, rows that wait, and
    what an element makes before it is kept or sent. A fragment that would go beyond it isn't taken; a query
    that does ends (`E_MEMORY`). Half of it bounds the output of a fragment that is kept. Too small: queries
    end that would have got through. Too large: one takes the memory of the others."""

    owner_memory_bytes: int = size("1 GiB", "1 MiB", "1024 GiB")
    """What all queries of one participant may hold here; at least `query_memory`. Beyond it that one of its
    queries ends that holds most."""

    piece_time_us: int = duration("5s", "100ms", "10 min")
    """CPU time that a fragment may take in one piece, while all others wait. A query that takes more ends
    (`E_BUSY`), once the piece has ended."""

    retention_bytes: int = size("64 MiB", "1 MiB", "64 GiB")
    """Bytes kept per outgoing stream until its receivers hold them durably. Too small: the fragment waits for
    its receivers' checkpoints (a rate of at most retention/checkpoint_every). Too large: that much memory,
    and as much in each checkpoint."""

    checkpoint_every_us: int = duration("1s", "50ms", "10 min")
    """Stream output becomes durable this often. Too small: the disk is busy with checkpoints. Too large:
    upstream keeps, and after a crash resends, what came since the last one. A deployment may say otherwise
    of its fragments (`checkpoint_every=`)."""

    subscriber_timeout_us: int = duration("10s", "100ms", "1d")
    """A plain subscriber that doesn't read for so long is cut off."""

    deploy_timeout_us: int = duration("5s", "100ms", "10 min")
    """A deployment that not all nodes have answered by then is undone."""

    connections_per_address: int = number(256, 1, 65536, keyed=True)
    """With keys: open at once from one address. Too small: clients behind one router are refused. Too large:
    one stranger holds so many descriptors, each for up to 2 s (the limit of a handshake)."""

    calls_at_once: int = number(512, 1, 1000000, keyed=True)
    """With keys: new connections from one address: so many at once, then so many each second as `calls_per_s`
    says. Too small: a peer whose link flaps is refused. Too large: each handshake takes the node some
    milliseconds."""

    calls_per_s: int = number(50, 1, 100000, keyed=True)
    """With keys: see `calls_at_once`."""

    connections_unheard: int = number(256, 1, 65536, keyed=True)
    """With keys: open at once, from all addresses together, before their first message. One more ends the
    oldest of them. Too small: during a flood a peer is ended before its handshake is through. Too large:
    strangers hold so many descriptors, each for up to 2 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a node needs to know about itself and its peers."""

    name: str
    listen: str
    data: str
    peers: Mapping[str, str] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    participant: str = "local"
    metrics: tuple[str, int] | None = None
    """Host and port where figures are served over HTTP; None: nowhere."""
    functions: tuple[str, ...] = ()
    """Modules that register functions, imported when the node starts."""
    links: LinkRules = field(default_factory=LinkRules)
    """By how many connections streams go to each peer."""
    load: LoadRules = field(default_factory=LoadRules)
    """When it has too much to do."""
    recovery: RecoveryRules = field(default_factory=RecoveryRules)
    """How long a lost owner is waited for."""
    delay: DelayRules = field(default_factory=DelayRules)
    """What outputs with ``delay`` may hold while a failure lasts."""
    offers: Mapping[str, OfferRules] = field(default_factory=dict)
    """Participant -> what its nodes may have us keep and run (``remote``)."""
    streams: tuple[StreamRule, ...] = ()
    """What is said of single streams; see ``settings_streams.stream_settings``."""
    store: str = "disk"
    """Where state is kept: a key of ``settings_store.STORES``. ``data`` says where there, if need be."""
    dht: DhtRules | None = None
    """How it takes part in the catalog between participants; None: it doesn't."""
    market: MarketRules | None = None
    """How it trades load with other participants; None: it doesn't."""
    security: Security | None = None
    """Keys and rules; None: who reaches the node, on this machine alone, may do everything."""
    spark: SparkRules | None = None
    """Its fragments run on Spark; None: here."""
    scale: ScaleSettings | None = None
    """When it splits and merges boxes of the queries that it coordinates; None: never by itself."""

    @property
    def forgets(self) -> bool:
        """It keeps nothing over its end, as with ``store = "memory"``."""
        return forgets(self.store)

    @property
    def own_peers(self) -> tuple[str, ...]:
        """The peers of our participant; without keys all are."""
        if self.security is None:
            return tuple(self.peers)
        whose = self.security.peers
        return tuple(peer for peer in self.peers if whose[peer].participant == self.participant)


def link_settings(settings: Settings) -> LinkSettings:
    """The knobs of the links of a node."""
    limits = settings.limits
    return LinkSettings(
        window_bytes=limits.credit_bytes,
        retained_bytes_max=limits.retention_bytes,
        keep_bytes=limits.retention_bytes,
        fragment_bytes_max=limits.query_memory_bytes // 2,
        idle_us=limits.subscriber_timeout_us,
        tentative_bytes_max=settings.delay.tentative_bytes,
        waiting_bytes_max=settings.delay.memory_bytes,
        waiting_disk_bytes_max=settings.delay.disk_bytes,
    )


def stream_link(settings: Settings, stream: str) -> LinkSettings:
    """Those of a stream that leaves the node."""
    of = stream_settings(settings, stream)
    return replace(
        link_settings(settings),
        retained_bytes_max=of.retention_bytes,
        keep_bytes=of.retention_bytes,
        at_limit=of.at_limit,
    )


_FIELDS = (
    "name",
    "listen",
    "data",
    "store",
    "participant",
    "functions",
    "metrics",
    "metrics_public",
    "peers",
    "limits",
    "links",
    "load",
    "recovery",
    "delay",
    "offers",
    "dht",
    "node",
    "market",
    "streams",
    "spark",
    "scale",
    *SECURITY_FIELDS,
)


def parse(given: str | Mapping[str, Any], *, where: str = "node.toml", folder: str = "") -> Settings:
    """Read the configuration of a node.

    Args:
        given: TOML, or its fields.
        where: what to call it in messages.
        folder: what a relative ``data`` is relative to.

    Raises:
        ConfigError: no TOML, an unknown field, a missing one, or a value that is not allowed; the
            message begins with ``where`` and the line.
    """
    return _Reader(given, where, folder).settings()


class _Reader(ConfigFile):
    """One reading of one text."""

    def __init__(self, given: str | Mapping[str, Any], where: str, folder: str) -> None:
        super().__init__(given, where)
        self._folder = folder

    def settings(self) -> Settings:
        self.known("", self.root, _FIELDS, {"limits": [each.key for each in described(Limits)]})
        name = self.name("name")
        store, data = read_store(self, folder=self._folder)
        listen = self._address("", "listen", self.text("listen"), bind=True)
        participant = self.name("participant") if "participant" in self.root else "local"
        peers = self._peers(name)
        security = read_security(self, participant=participant, folder=self._folder)
        return Settings(
            name=name,
            listen=listen,
            data=data,
            store=store,
            peers=peers,
            limits=self._limits(),
            participant=participant,
            functions=self._functions(),
            metrics=self._metrics(),
            links=read_links(self),
            load=read_load(self, peers),
            recovery=read_recovery(self),
            delay=read_delay(self),
            offers=read_offers(self, own=participant, participants=tuple(self.table("participants"))),
            streams=read_streams(self, store=store),
            dht=read_dht(self, participant=participant, folder=self._folder, peers=peers, security=security),
            market=read_market(
                self,
                participant=participant,
                folder=self._folder,
                peers=peers,
                security=security,
                store=store,
            ),
            security=security,
            spark=read_spark(self),
            scale=read_scale(self, own=name, peers=peers, abroad=_abroad(security, participant)),
        )

    def _peers(self, own: str) -> dict[str, str]:
        table = self.table("peers")
        peers: dict[str, str] = {}
        for peer, given in table.items():
            if not NAME.fullmatch(peer):
                raise self.error("peers", f"peer name {peer!r}", hint=NAME_RULE, within=peer)
            if peer == own:
                raise self.error("peers", f"{peer!r} is this node itself", hint="remove it", within=peer)
            address = address_of(self, peer, given)
            if not isinstance(address, str):
                raise self.error(
                    "peers", f"expected an address, got {address!r}", hint=_ADDRESS_RULE, within=peer
                )
            peers[peer] = self._address("peers", peer, address, bind=False)
        return peers

    def _limits(self) -> Limits:
        table = self.table("limits")
        limits = Limits(**read_fields(self, "limits", table, Limits))
        if limits.credit_bytes > limits.memory_bytes:
            raise self.error("limits", "credit is larger than memory", hint="lower credit", within="credit")
        if limits.query_memory_bytes > limits.owner_memory_bytes:
            within = "query_memory" if "query_memory" in table else "owner_memory"
            hint = f"owner_memory is {size_text(limits.owner_memory_bytes)}: one query has no more than all"
            raise self.error("limits", "query_memory is larger than owner_memory", hint=hint, within=within)
        return limits

    def _metrics(self) -> tuple[str, int] | None:
        public = self.root.get("metrics_public", False)
        if not isinstance(public, bool):
            why = f"expected true or false, got {public!r}"
            raise self.error("metrics_public", why, hint="write metrics_public = true")
        if "metrics" not in self.root:
            return None
        try:
            return check_endpoint(self.text("metrics"), public=public, allow="metrics_public = true")
        except ConfigError as error:
            raise self.error(
                "metrics", error.message.removeprefix("metrics: "), hint=error.hint, code=error.code
            ) from None

    def _functions(self) -> tuple[str, ...]:
        modules = self.root.get("functions", [])
        if not isinstance(modules, list) or not all(
            isinstance(each, str) and all(part.isidentifier() for part in each.split(".")) for each in modules
        ):
            raise self.error(
                "functions", f"{modules!r} are no names of modules", hint='functions = ["my_module"]'
            )
        return tuple(modules)

    def _address(self, table: str, key: str, address: str, *, bind: bool) -> str:
        try:
            return check_address(address, bind=bind, keyed="keys" in self.root)
        except ConfigError as error:
            raise self.error(
                table or key, error.message, hint=error.hint, within=key, code=error.code
            ) from None


def _abroad(security: Security | None, own: str) -> dict[str, str]:
    """Peers of other participants -> whose they are."""
    peers = {} if security is None else security.peers
    return {name: of.participant for name, of in peers.items() if of.participant != own}


_ADDRESS_RULE = (
    'write "tcp://127.0.0.1:5555", "tcp://127.0.0.1:*" (to listen at a free port) or "ipc:///path"'
)


def check_address(address: str, *, bind: bool, keyed: bool = False) -> str:
    """An address that a node may use, in the form ZeroMQ takes.

    Args:
        address: ``tcp://host:port`` with a loopback host, or ``ipc:///path``.
        bind: for listening, where port 0 or ``*`` means a free one.
        keyed: keys say who is there, so any host will do.

    Raises:
        ConfigError: no address, or not on this machine.
    """
    if address.startswith("ipc://"):
        path = address.removeprefix("ipc://")
        if not path or path.startswith("@") or "\0" in path:
            raise ConfigError(f"{address!r} has no path", hint=_ADDRESS_RULE, code="config.address")
        if len(path.encode()) > IPC_PATH_MAX:
            raise ConfigError(
                f"the path of {address!r} has {len(path.encode())} bytes",
                hint=f"a socket's path has at most {IPC_PATH_MAX}; use a shorter folder",
                code="config.address",
            )
        return address
    found = re.fullmatch(r"tcp://(\[[0-9a-fA-F:.]+\]|[^:/\[\]\s]+):(\d{1,5}|\*)", address)
    if found is None:
        raise ConfigError(f"{address[:120]!r} is no address", hint=_ADDRESS_RULE, code="config.address")
    host, port = found[1], found[2]
    if not keyed and not is_loopback(host):
        raise ConfigError(
            f"{host!r} is not an address of this machine alone",
            hint="without keys anyone who reaches a node could command it: use 127.0.0.1 or ipc, or add keys",
            code="config.address.public",
        )
    if port in ("*", "0"):
        if not bind:
            raise ConfigError(f"{address!r} names no port", hint=_ADDRESS_RULE, code="config.address")
        return f"tcp://{host}:*"
    if not 1 <= int(port) <= 65535:
        raise ConfigError(
            f"port {port} is not between 1 and 65535", hint=_ADDRESS_RULE, code="config.address"
        )
    return address
