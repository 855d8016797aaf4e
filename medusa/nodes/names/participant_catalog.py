"""A node's part in the catalog between participants: who is a member, what is published, who looks up.

Members are the nodes in ``[peers]`` whose participant is registered in ``[participants]``: strangers are no
members, are asked nothing and answered nothing. A member stands at the place of its participant's key and its
name, so a new CURVE key doesn't move it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from medusa.errors import LinkError
from medusa.nodes.clock.wall_clock import WallClock
from medusa.nodes.config.fields import matches
from medusa.nodes.config.settings import Settings
from medusa.nodes.dht.member import DhtMember
from medusa.nodes.dht.put import PutOutcome
from medusa.nodes.dht.routing_table import place_of
from medusa.nodes.dht.search import SearchOutcome
from medusa.nodes.dht.storage import DhtStorage, StorageQuota
from medusa.nodes.names.lookup import NameLookup
from medusa.nodes.security.registry import Caller, Registry
from medusa.ports import Signer, Verify
from medusa.query.boxes import Field
from medusa.wire import limits
from medusa.wire.dht_entry import DhtEntry, Whereabouts, age_of, opened_entry, sign_entry
from medusa.wire.link.automaton import LinkEvent
from medusa.wire.messages.commands import Reply
from medusa.wire.messages.dht import DhtMessage
from medusa.wire.messages.directory import Lookup
from medusa.wire.outbox import Outbox

__all__ = ["ParticipantCatalog", "Sought"]

LIFETIME_US = 1_800_000_000
"""What is signed counts for so long; it is signed anew after half of it. Too small: a node away for so long
is found no more; too large: what a participant that ended has published stays for so long."""

LOOK_EVERY_US = 1_000_000
"""The published streams are compared with those of the participant so often."""

RATE_PER_S, BURST = 500, 2_000
"""Messages taken of one member; others are dropped."""


Sought = Callable[[int, str, int], None]
"""Takes the time, and the node and epoch that were found."""

_Shape = tuple[tuple[Field, ...], bool, tuple[int, int] | None]
"""Columns, whether rows have a time, and the size and advance of windows whose results they are."""

NOTHING: _Shape = ((), True, None)


def _shape(entry: DhtEntry) -> _Shape:
    return entry.schema, entry.timed, entry.window_us


@dataclass(slots=True)
class _Said:
    """What was published of a name: the entry, signed, and when to sign it anew."""

    entry: DhtEntry
    again_us: int


DEFINED = "out"
"""The sink of a stream defined by name."""


class ParticipantCatalog:
    """Takes part for one node.

    Args:
        settings: with ``dht`` and ``security``.
        names: of the own participant.
        signer: of the own participant; None: nothing is published.
        count: told the code of what is refused.

    Attributes:
        member: of the distributed hash table.
    """

    def __init__(
        self,
        settings: Settings,
        registry: Registry,
        names: NameLookup,
        *,
        outbox: Outbox,
        wall: WallClock,
        verify: Verify,
        signer: Signer | None,
        count: Callable[[str], None],
    ) -> None:
        assert settings.dht is not None
        assert settings.security is not None
        self._settings = settings
        self._rules = settings.dht
        self._federation = settings.security.federation
        self._registry = registry
        self._names = names
        self._outbox = outbox
        self._wall = wall
        self._signer = signer
        self._count = count
        shelf = DhtStorage(
            federation=self._federation, key_of=registry.signing_key, verify=verify, quota=StorageQuota()
        )
        self.member = DhtMember(
            settings.name,
            outbox=outbox,
            shelf=shelf,
            where=self._where,
            wall=wall.at,
            count=count,
            owns=lambda node, participant: self._owner(node) == participant,
        )
        self._said: dict[str, _Said] = {}
        self._budgets: dict[str, tuple[float, int]] = {}
        self._look_at_us: int | None = None
        self._look_ups = {"asked": 0, "found": 0, "not_found": 0, "not_all_answered": 0}

    def _where(self, node: str) -> int | None:
        """The place of a member; None: no registered participant's node."""
        owner = self._owner(node)
        key = self._registry.signing_key(owner) if owner is not None else None
        return None if key is None else place_of(f"{key} {node}")

    def _owner(self, node: str) -> str | None:
        return self._settings.participant if node == self._settings.name else self._registry.owner(node)

    # --- peers ----------------------------------------------------------------------------------------

    def peer_event(self, now_us: int, peer: str, event: LinkEvent) -> None:
        """A node came or went."""
        if event is LinkEvent.PEER_DOWN:
            self.member.lost(now_us, peer)
        elif self._look_at_us is not None and self._where(peer) is not None:
            self.member.meet(now_us, peer)

    def receive(self, now_us: int, peer: str, message: DhtMessage) -> None:
        """Take a message of a node; one of no member changes nothing and is not answered."""
        left, at_us = self._budgets.get(peer, (float(BURST), now_us))
        left = min(BURST, left + (now_us - at_us) * RATE_PER_S / 1e6)
        self._budgets[peer] = (max(left - 1, 0), now_us)
        if left < 1:
            self._count("E_LIMIT")
            return
        self.member.receive(now_us, peer, message)

    def tick(self, now_us: int) -> None:
        """Do what is due."""
        if self._look_at_us is None:
            self._look_at_us = now_us
            self.member.join(now_us, self._rules.join)
        self.member.tick(now_us)
        if now_us >= self._look_at_us:
            self._look_at_us = now_us + LOOK_EVERY_US
            self._publish(now_us)

    def stop(self, now_us: int) -> None:
        """Hand on what is held, and say goodbye."""
        self.member.leave(now_us)

    # --- what is published ------------------------------------------------------------------------------

    def _publish(self, now_us: int) -> None:
        """What stands in the catalog of our participant and is to be found by others."""
        if self._signer is None or self._wall.at(now_us) is None:
            return
        wanted = self._wanted()
        for name, (epoch, nodes, shape) in wanted.items():
            said = self._said.get(name)
            was = None if said is None else said.entry
            same = was is not None and (was.nodes, _shape(was)) == (nodes, shape)
            if said is None or not same or said.entry.gone or now_us >= said.again_us:
                self._say(now_us, name, max(epoch, said.entry.epoch if said else 0), nodes, shape)
        for name, said in list(self._said.items()):
            if name not in wanted and not said.entry.gone:
                self._say(now_us, name, said.entry.epoch, (), NOTHING, gone=True)
            elif name not in wanted and now_us >= said.again_us + LIFETIME_US // 2:
                del self._said[name]  # All that was signed before has expired.
                self.member.withdraw(name)

    def _wanted(self) -> dict[str, tuple[int, tuple[Whereabouts, ...], _Shape]]:
        """Full name -> epoch, nodes and what its rows are."""
        found = {}
        for stream in self._names.streams():
            bare = stream.removesuffix(f".{DEFINED}")  # What is defined is said by its name alone, too.
            if not any(matches(each, stream) or each == bare for each in self._rules.publish):
                continue
            versions = self._names.versions(stream)
            if not versions:
                continue
            nodes = [
                Whereabouts(one["node"], one["address"], one["server_key"], one["stream_version"])
                for one in versions
            ]
            schema = tuple(Field(name=name, type=type) for name, type in versions[0]["columns"])
            epoch = max(one["epoch"] for one in versions)
            found[f"{self._settings.participant}/{stream}"] = (
                epoch,
                tuple(nodes[: limits.DHT_NODES_MAX]),
                (schema, versions[0]["timed"], versions[0]["window_us"]),
            )
        return found

    def _say(
        self,
        now_us: int,
        name: str,
        epoch: int,
        nodes: tuple[Whereabouts, ...],
        shape: _Shape,
        *,
        gone: bool = False,
        sequence: int = 0,
    ) -> None:
        wall_us = self._wall.at(now_us)
        assert wall_us is not None
        assert self._signer is not None
        before = self._said.get(name)
        entry = DhtEntry(
            federation=self._federation,
            participant=self._settings.participant,
            epoch=epoch,
            # By the clock, so that it grows over restarts too.
            sequence=max(wall_us, sequence, 1 + before.entry.sequence if before else 0),
            expiry_us=wall_us + LIFETIME_US,
            name=name,
            kind="stream",
            nodes=nodes,
            schema=shape[0],
            gone=gone,
            timed=shape[1],
            window_us=shape[2],
        )
        self._said[name] = _Said(entry, now_us + LIFETIME_US // 2)
        try:
            data = sign_entry(entry, self._signer)
        except LinkError:  # Its columns are too many: who wants them asks the node.
            data = sign_entry(msgspec.structs.replace(entry, schema=()), self._signer)
        self.member.publish(now_us, data, partial(self._stored, name))

    def _stored(self, name: str, now_us: int, put: PutOutcome) -> None:
        """Where somebody holds a younger one, it is an earlier life's, or of another node of ours."""
        said = self._said.get(name)
        if said is None or not put.newer:
            return
        newer, now = opened_entry(put.newer)[1], said.entry
        if age_of(newer) <= age_of(now) or newer.name != name:
            return
        epoch, sequence = age_of(newer)
        if (newer.nodes, newer.gone) != (now.nodes, now.gone):
            self._say(now_us, name, epoch, now.nodes, _shape(now), gone=now.gone, sequence=sequence + 1)
            return
        # It says the same: ours would be refused in every round. What is said now is signed anew in its time.
        left_us = newer.expiry_us - (self._wall.at(now_us) or newer.expiry_us)
        said.entry = msgspec.structs.replace(now, epoch=epoch, sequence=sequence, expiry_us=newer.expiry_us)
        said.again_us = now_us + left_us - LIFETIME_US // 2
        self.member.publish(now_us, put.newer, partial(self._stored, name))

    # --- who looks up -------------------------------------------------------------------------------------

    def is_foreign(self, name: str) -> bool:
        """Whether a name is one of another registered participant."""
        participant, slash, _ = name.partition("/")
        if not slash or participant == self._settings.participant:
            return False
        return self._registry.signing_key(participant) is not None

    def look_up(self, now_us: int, client: str, message: Lookup, caller: Caller | None) -> None:
        """Look up a name of another participant; the client is answered later.

        Raises:
            LinkError: it may not know (``E_ROLE``), or too many searches are under way (``E_LIMIT``).
        """
        rules = None if caller is None else caller.rules
        name = _stream_of(message.name)
        sees = caller is None or rules is None or rules.status
        sees = sees or any(caller.may("subscribe", each) for each in (message.name, name) if caller)
        if caller is not None and not sees:
            raise LinkError(
                f"client {caller.name!r} may not read {message.name[:100]!r}",
                hint=f"the node's configuration would have to say it in [clients.{caller.name}]",
                code="E_ROLE",
            )
        self.member.find(now_us, name, partial(self._answer, client, message))
        self._look_ups["asked"] += 1

    def seek(self, now_us: int, participant: str, stream: str, then: Sought) -> None:
        """Tell where another participant's stream is; nobody is told where nothing is found."""

        def found(now_us: int, found: SearchOutcome) -> None:
            if found.entry is not None and found.entry.nodes:
                then(now_us, found.entry.nodes[0].node, found.entry.epoch)

        with contextlib.suppress(LinkError):
            self.member.find(now_us, f"{participant}/{stream}", found)

    def _answer(self, client: str, message: Lookup, now_us: int, found: SearchOutcome) -> None:
        entry = found.entry
        self._look_ups["not_found" if entry is None else "found"] += 1
        self._look_ups["not_all_answered"] += not found.whole
        if entry is None or not entry.nodes or message.kind not in ("", entry.kind):
            hint = "" if found.whole else "not all members that should hold it have answered: ask again"
            text = f"no participant has published {message.name[:100]!r}"
            self._outbox.send(client, Reply(request=message.request, code="E_STREAM", text=text, hint=hint))
            return
        self._outbox.send(client, Reply(request=message.request), msgspec.json.encode(_told(entry)))

    def status(self) -> dict[str, Any]:
        """``status()["dht"]``: whom it knows, what it holds, how its clients' look-ups of names ended."""
        return {
            "joined": self.member.joined,
            "members": len(self.member.table),
            "held": len(self.member.shelf),
            "published": sum(not said.entry.gone for said in self._said.values()),
            "look_ups": dict(self._look_ups),
        }


def _stream_of(name: str) -> str:
    """Of another participant what is defined is a stream only: its name stands for that."""
    participant, _, rest = name.partition("/")
    return f"{participant}/{rest}.{DEFINED}" if rest and not {".", "/"} & set(rest) else name


def _told(entry: DhtEntry) -> dict[str, Any]:
    """As clients hear of names of the own participant: the stream's name is that at the node that has it."""
    versions = [
        {
            "name": entry.name.partition("/")[2],
            "kind": entry.kind,
            "participant": entry.participant,
            "epoch": entry.epoch,
            "node": node.node,
            "address": node.address,
            "server_key": node.key,
            "columns": [[field.name, field.type] for field in entry.schema],
            "timed": entry.timed,
            "window_us": entry.window_us,
            "stream_version": node.stream_version,
        }
        for node in entry.nodes
    ]
    return {**versions[0], "holders": [node.node for node in entry.nodes], "versions": versions}
