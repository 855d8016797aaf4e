"""Owners with a node each, in virtual time: real markets, catalogs and writers; moves kept in memory.

``Fragments`` is the truth: where each fragment is, and how many rows it has had. Its moves do what
``TaskMoves`` says: nothing goes without permits on both sides, a host that is silent loses what it has, and
what is known of a fragment outlives its nodes.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import msgspec

from medusa.errors import LinkError
from medusa.market.contract.signed import (
    ContractDocument,
    RevocationDocument,
    countersign,
    document_to_text,
    sign_document,
)
from medusa.market.contract.terms import Contract
from medusa.market.work import ResourceUse
from medusa.nodes.catalog.catalog import CATALOG, Catalog
from medusa.nodes.catalog.persistence import CatalogWriter
from medusa.nodes.config.settings_market import CostRules, MarketPolicyRules, MarketRules
from medusa.nodes.config.settings_security import PeerKey, Security
from medusa.nodes.market.node_market import NodeMarket
from medusa.nodes.market.tasks_port import (
    FragmentAway,
    HostedGuest,
    TaskHandedOver,
    TaskHome,
    TaskPermit,
    TaskStayed,
)
from medusa.nodes.message_table import Heard
from medusa.nodes.security.registry import Caller
from medusa.nodes.spec.fragment_spec import FragmentSpec
from medusa.query.boxes import Graph
from medusa.wire.messages.commands import Reply
from medusa.wire.outbox import AddReceipt, Outbox, Persist, ReportLine, Send
from medusa.wire.status_and_metrics import MarketStatus, SmoothedLoad
from tests.nodes.keyed import Signer, curve, verify

__all__ = [
    "FEDERATION",
    "SECOND_US",
    "WALL_US",
    "Fragment",
    "Owner",
    "Owners",
    "contract",
    "revoked",
    "signed",
]

SECOND_US = 1_000_000
WALL_US = 1_700_000_000 * SECOND_US
DAY_US = 86_400 * SECOND_US
FEDERATION = "fed"
MOVE_US = 300_000
LINK_US = 5_000
SILENT_US = 3 * SECOND_US
LAG_US = 200_000


@dataclass
class Fragment:
    """One, as it really is.

    Attributes:
        rate: rows a second; ``cpu_ns``: that a row takes.
        host: the node at which it runs.
        row: rows that have come in; ``home_row``: that its owner has durably.
        rows_lent: that came in at partners and that the owner has, so far.
    """

    name: str
    owner: str
    rate: int
    cpu_ns: int
    host: str
    row: int = 0
    home_row: int = 0
    begin_row: int = 0
    came_home_at: int | None = None
    rows_lent: int = 0
    going: str = ""
    coming: bool = False

    @property
    def spec(self) -> FragmentSpec:
        graph = Graph(name=self.name.partition("/")[0], boxes=())
        return FragmentSpec(
            node=self.owner, name=self.name, graph=graph, feeds=(), entries={}, streams={}, readers={}
        )


class Moves:
    """``TaskMoves`` of one node."""

    takes_guests = True

    def __init__(self, world: Owners, node: str) -> None:
        self._world, self._node = world, node
        self.out: dict[str, TaskPermit] = {}
        self.into: dict[str, TaskPermit] = {}
        self.events: list[TaskHandedOver | TaskHome | TaskStayed] = []
        self.why_not: dict[str, str] = {}

    def obstacle(self, fragment: str) -> str:
        return self.why_not.get(fragment, "")

    def permit_out(self, permit: TaskPermit) -> None:
        known = self.out.get(permit.fragment)
        if known is not None and known.node != permit.node:
            raise LinkError("another node may have it", code="E_BUSY")
        self.out[permit.fragment] = permit

    def permit_in(self, permit: TaskPermit) -> None:
        if permit.fragment in self._world.hosted(self._node, own=True):
            raise LinkError("one of that name is here", code="E_BUSY")
        self.into[permit.fragment] = permit

    def end_out(self, fragment: str) -> None:
        self.out.pop(fragment, None)
        self.recall(self._world.now_us, fragment)

    def end_in(self, fragment: str) -> None:
        self.into.pop(fragment, None)
        self.give_back(self._world.now_us, fragment)

    def permitted_out(self) -> tuple[str, ...]:
        return tuple(self.out)

    def permitted_in(self) -> tuple[str, ...]:
        return tuple(self.into)

    def send(self, now_us: int, fragment: str, node: str) -> None:
        found = self._world.fragments[fragment]
        assert found.host == self._node, f"{fragment} isn't here"
        permit = self.out.get(fragment)
        assert permit is not None, f"{fragment} goes without a permit"
        assert permit.node == node, f"{fragment} goes to another than its permit says"
        if not found.going:
            found.going = node
            self._world.at(now_us + MOVE_US, lambda: self._world.arrive(found))

    def recall(self, now_us: int, fragment: str) -> None:
        found = self._world.fragments[fragment]
        if found.host != self._node and not found.coming:
            found.coming = True
            self._world.at(now_us + MOVE_US, lambda: self._world.bring_home(found))

    def give_back(self, now_us: int, fragment: str) -> None:
        found = self._world.fragments[fragment]
        if found.host == self._node and found.owner != self._node and self._world.linked(*self._ends(found)):
            self._world.owners[found.owner].moves.recall(now_us, fragment)

    def _ends(self, found: Fragment) -> tuple[str, str]:
        return found.owner, found.host

    def going(self) -> list[str]:
        found = self._world.fragments.values()
        return [each.name for each in found if each.going and each.host == self._node]

    sending = going

    def giving_back(self) -> dict[str, int]:
        found = self._world.hosted(self._node).values()
        return {each.name: 0 for each in found if each.coming and each.owner != self._node}

    def away(self) -> dict[str, FragmentAway]:
        return {
            each.name: FragmentAway(node=each.host, begin_row=each.begin_row, row=each.home_row)
            for each in self._world.fragments.values()
            if each.owner == self._node != each.host
        }

    def home_row(self, fragment: str) -> int | None:
        return self._world.fragments[fragment].came_home_at

    def guests(self) -> dict[str, HostedGuest]:
        return {
            each.name: HostedGuest(participant=self._world.owners[each.owner].name, row=each.row)
            for each in self._world.hosted(self._node).values()
            if each.owner != self._node
        }

    def take_events(self) -> list[TaskHandedOver | TaskHome | TaskStayed]:
        events, self.events = self.events, []
        return events


class Loads:
    """What a node measures."""

    def __init__(self, world: Owners, node: str) -> None:
        self._world, self._node = world, node
        self.on_processor = 1.0
        self.beside_cores: float | None = None

    def followed_cores(self, without: Collection[str] = ()) -> float:
        return 0.0

    def cpu_cores(self, fragment: str) -> float | None:
        load = self.fragment(fragment)
        return None if load is None else load.busy_share

    def fragment(self, name: str) -> SmoothedLoad | None:
        found = self._world.hosted(self._node).get(name)
        if found is None:
            return None
        return SmoothedLoad(rows_in_per_s=float(found.rate), busy_share=found.rate * found.cpu_ns / 1e9)


@dataclass
class Owner:
    """A participant with one node of the same name and ``-1``."""

    world: Owners
    name: str
    rules: MarketRules
    papers: dict[str, str] = field(default_factory=dict)
    disk: bytes = b""
    life: int = 0
    up: bool = False
    disk_fails: bool = False
    refused: dict[str, int] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    receipts: dict[bytes, str] = field(default_factory=dict)

    @property
    def node(self) -> str:
        return f"{self.name}-1"

    def __post_init__(self) -> None:
        self.moves = Moves(self.world, self.node)
        self.peers: dict[str, str] = dict.fromkeys(self.rules.partners.values(), "silent")

    def start(self) -> None:
        self.life += 1
        catalog = Catalog(self.node)
        if self.disk:
            catalog = Catalog.from_bytes(self.disk, node=self.node, where="disk")
        tokens = iter(range(self.life << 20, 1 << 62))
        numbers = iter(range(self.life << 20, 1 << 62))
        self.outbox = Outbox()
        self.saver = CatalogWriter(catalog, outbox=self.outbox, next_token=lambda: next(tokens))
        self.moves.events.clear()
        self.up, self.alarm_us = True, None
        self.market = NodeMarket(
            self.name,
            self.node,
            self.rules,
            self.world.security,
            self.papers,
            incarnation=self.life,
            catalog=catalog,
            saver=self.saver,
            outbox=self.outbox,
            signer=Signer(self.name),
            verify=verify,
            loads=Loads(self.world, self.node),
            moves=self.moves,
            fragments=lambda: {
                name: each.spec for name, each in self.world.hosted(self.node, own=True).items()
            },
            hosts={},
            content=None,
            whose=lambda node: None,
            streams=SimpleNamespace(unsell=None),
            wall=lambda now_us: WALL_US + now_us,
            peers=self.peers,
            number=lambda: next(numbers),
            count=self._count,
        )
        self.world.link()
        self.market.start(self.world.now_us)
        self.perform()

    def _count(self, code: str) -> None:
        self.refused[code] = self.refused.get(code, 0) + 1

    def die(self) -> None:
        self.up = False
        self.world.link()

    def read_again(self) -> None:
        self.market.rules_read(self.world.now_us, self.world.security, self.papers)
        self.perform()

    def perform(self) -> None:
        while self.up and (effects := self.outbox.take()):
            for effect in effects:
                match effect:
                    case Send():
                        self._send(effect)
                    case Persist():
                        self._persist(effect)
                    case ReportLine():
                        self.lines.append(effect.what)
                    case AddReceipt():
                        self.receipts[effect.data] = effect.kind
        if self.up:
            self._wake()

    def _send(self, effect: Send) -> None:
        if effect.after is not None and effect.after > self.saver.durable:
            self.world.at(self.world.now_us + 1_000, lambda: self.up and self._send(effect))
        else:
            self.world.send(self, effect)

    def _persist(self, effect: Persist) -> None:
        life, data = self.life, bytes(effect.files[CATALOG])

        def done() -> None:
            if not self.up or self.life != life:
                return
            if not self.disk_fails:
                self.disk = data
            self.saver.written(self.world.now_us, effect.token, not self.disk_fails, "full")
            self.market.written(self.world.now_us)
            self.perform()

        self.world.at(self.world.now_us + 500, done)

    def _wake(self) -> None:
        times = (self.market.wake_at_us(self.world.now_us), self.saver.wake_at_us())
        at_us = max(min(each for each in times if each is not None), self.world.now_us + 1)
        if self.alarm_us is None or at_us < self.alarm_us:
            self.alarm_us = at_us
            self.world.at(at_us, lambda: self._ring(at_us))

    def _ring(self, at_us: int) -> None:
        if self.up and self.alarm_us == at_us:
            self.alarm_us = None
            self.saver.tick(self.world.now_us)
            self.market.tick(self.world.now_us)
            self.perform()

    def status(self) -> MarketStatus:
        return self.market.status(self.world.now_us)

    def contract(self, name: str = "c") -> Any:
        return next(each for each in self.status().contracts if each.id == name)


class Owners:
    """All of it.

    Args:
        names: of the participants; each is a partner of all others.
        more: of their rules.
    """

    def __init__(self, *names: str, **more: Any) -> None:
        self.now_us = 0
        self._heap: list[tuple[int, int, Callable[[], object]]] = []
        self._order = 0
        self.fragments: dict[str, Fragment] = {}
        self.cut: set[frozenset[str]] = set()
        self.drops: Callable[[str, Any, bytes], bool] = lambda name, message, payload: False
        """Whether what a participant says is lost."""
        self.said: list[tuple[str, str, object, bytes]] = []
        self.answers: list[tuple[str, Reply]] = []
        nodes = {name: f"{name}-1" for name in names}
        self.security = Security(
            node_key="k",
            federation=FEDERATION,
            participants={name: Signer(name).key for name in names},
            peers={node: PeerKey(participant=name, key=curve(node)) for name, node in nodes.items()},
        )
        self.owners: dict[str, Owner] = {}
        for name in names:
            partners = {each: node for each, node in nodes.items() if each != name}
            self.owners[nodes[name]] = Owner(self, name, rules(partners, **more))

    def __getitem__(self, name: str) -> Owner:
        return self.owners[f"{name}-1"]

    def start(self) -> None:
        for owner in self.owners.values():
            owner.start()

    def at(self, when_us: int, do: Callable[[], object]) -> None:
        heapq.heappush(self._heap, (when_us, self._order, do))
        self._order += 1

    def run(self, seconds: float, *, until: Callable[[], bool] | None = None) -> bool:
        """Let time pass; whether ``until`` has come true."""
        end_us = self.now_us + round(seconds * SECOND_US)
        while self._heap and self._heap[0][0] <= end_us:
            when_us, _, do = heapq.heappop(self._heap)
            self._flow(when_us)
            do()
            self._look()
            if until is not None and until():
                return True
        self._flow(end_us)
        return until is not None and until()

    def _flow(self, when_us: int) -> None:
        """Rows come wherever a fragment runs."""
        passed_us, before_us = when_us - self.now_us, self.now_us
        self.now_us = when_us
        for each in self.fragments.values():
            if passed_us and self.owners[each.host].up:
                each.row += each.rate * when_us // SECOND_US - each.rate * before_us // SECOND_US
            if self.owners[each.owner].up and (each.host == each.owner or self.linked(each.owner, each.host)):
                each.home_row = max(each.home_row, each.row - each.rate * LAG_US // SECOND_US)

    def _look(self) -> None:
        for each in self.fragments.values():
            lost = each.host != each.owner and self.owners[each.owner].up
            if lost and not self.linked(each.owner, each.host) and not each.coming:
                each.coming = True
                self.at(self.now_us + SILENT_US, lambda found=each: self.take_over(found))

    # --- fragments --------------------------------------------------------------------------------

    def add(self, owner: str, name: str, *, rate: int = 10, cpu_ms: int = 20) -> Fragment:
        node = f"{owner}-1"
        self.fragments[name] = Fragment(name, node, rate, cpu_ms * 1_000_000, node)
        return self.fragments[name]

    def hosted(self, node: str, *, own: bool = False) -> dict[str, Fragment]:
        found = self.fragments.values()
        return {each.name: each for each in found if each.host == node and (not own or each.owner == node)}

    def at_home(self, owner: str) -> int:
        return len(self.hosted(f"{owner}-1", own=True))

    def guests_at(self, owner: str) -> int:
        return len(self.hosted(f"{owner}-1")) - self.at_home(owner)

    def arrive(self, found: Fragment) -> None:
        node, found.going = found.going, ""
        source = self.owners[found.owner]
        permit = self.owners[node].moves.into.get(found.name)
        if not source.up:
            return
        if permit is None or not self.linked(found.owner, node) or found.name not in source.moves.out:
            source.moves.events.append(TaskStayed(fragment=found.name, why="E_NO_CONTRACT"))
        else:
            found.host, found.begin_row, found.home_row = node, found.row, found.row
            source.moves.events.append(TaskHandedOver(fragment=found.name))
        self._tell(found.owner)
        self._tell(node)

    def bring_home(self, found: Fragment) -> None:
        found.coming = False
        if found.host != found.owner and self.linked(found.owner, found.host):
            self._home(found, lost=False)

    def take_over(self, found: Fragment) -> None:
        found.coming = False
        apart = not self.linked(found.owner, found.host)
        if found.host != found.owner and apart and self.owners[found.owner].up:
            found.row = found.home_row
            self._home(found, lost=True)

    def _home(self, found: Fragment, *, lost: bool) -> None:
        host = found.host
        found.rows_lent += found.row - found.begin_row
        found.host, found.came_home_at, found.home_row = found.owner, found.row, found.row
        self.owners[found.owner].moves.events.append(TaskHome(fragment=found.name, lost=lost))
        self._tell(found.owner)
        self._tell(host)

    def _tell(self, node: str) -> None:
        """Whatever happens at a node, all its parts are looked at."""
        owner = self.owners[node]
        if owner.up:
            owner.market.tick(self.now_us)
            owner.perform()

    # --- links ------------------------------------------------------------------------------------

    def linked(self, a: str, b: str) -> bool:
        up = all(node in self.owners and self.owners[node].up for node in (a, b))
        return up and frozenset((a, b)) not in self.cut

    def link(self) -> None:
        """Who is there sees who else is."""
        for node, owner in self.owners.items():
            for peer in owner.peers:
                owner.peers[peer] = "up" if self.linked(node, peer) else "silent"

    def part(self, a: str, b: str) -> None:
        self.cut.add(frozenset((f"{a}-1", f"{b}-1")))
        self.link()

    def heal(self) -> None:
        self.cut.clear()
        self.link()

    def send(self, source: Owner, effect: Send) -> None:
        if isinstance(effect.message, Reply):
            self.answers.append((effect.peer, effect.message))
        else:
            self.said.append((source.name, effect.peer, effect.message, bytes(effect.payload or b"")))
        lost = self.drops(source.name, effect.message, bytes(effect.payload or b""))
        if not lost and self.linked(source.node, effect.peer):
            life = self.owners[effect.peer].life
            self.at(self.now_us + LINK_US, lambda: self._deliver(source, effect, life))

    def _deliver(self, source: Owner, effect: Send, life: int) -> None:
        target = self.owners[effect.peer]
        if target.life == life and self.linked(source.node, effect.peer):
            self.hear(source.name, target, effect.message, effect.payload)

    def hear(self, name: str, target: Owner, message: Any, payload: Any, node: str = "") -> None:
        """A node of a participant says this."""
        peer = node or f"{name}-1"
        caller = Caller(name=peer, called=peer, participant=name)
        if isinstance(message, Reply):
            target.market.answered(peer, message)
        else:
            target.market.receive(Heard(self.now_us, peer, message, payload, caller=caller))
        target.perform()


def rules(partners: Mapping[str, str], **more: Any) -> MarketRules:
    """Up to half a core costs nothing, and each core-second beyond that 3."""
    known: dict[str, Any] = {
        "contracts": "contracts",
        "key": "key",
        "capacity": ResourceUse(cpu_cores=1.0),
        "cost": CostRules(cpu=((0.0, 0), (0.5, 0), (1.0, 1_500_000))),
        "policy": MarketPolicyRules(),
        "partners": dict(partners),
    }
    return MarketRules(**{**known, **more})


def contract(provider: str, consumer: str, **changes: Any) -> Contract:
    terms = Contract(
        id="c",
        provider=provider,
        consumer=consumer,
        begins_us=WALL_US - DAY_US,
        ends_us=WALL_US + DAY_US,
        price_micro=2_000_000,
        range_micro=1_000_000,
        units_per_s_max_milli=1_000,
        interval_s=2,
        settlement_s=20,
    )
    return msgspec.structs.replace(terms, **changes)


def signed(terms: Contract, *, federation: str = FEDERATION) -> str:
    """The text of a file that both have signed."""
    paper = ContractDocument(federation=federation, until_us=WALL_US + DAY_US, contract=terms)
    first = sign_document(paper, Signer(terms.consumer), terms.consumer)
    return document_to_text(countersign(first, Signer(terms.provider), terms.provider))


def revoked(terms: Contract, by: str, ends_us: int) -> str:
    """The text of a file that ends a contract."""
    paper = RevocationDocument(
        federation=FEDERATION,
        id=terms.id,
        version=terms.version,
        provider=terms.provider,
        consumer=terms.consumer,
        by=by,
        said_us=ends_us,
        ends_us=ends_us,
    )
    return document_to_text(sign_document(paper, Signer(by), by))
