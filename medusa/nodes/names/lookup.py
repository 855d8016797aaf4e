"""Where is it? What a node answers to a client that asks by name."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import msgspec

from medusa.errors import LinkError
from medusa.nodes.catalog.catalog import DEPLOYING, ENDED, REMOVING, RUNNING
from medusa.nodes.catalog.directory import CatalogEntry, Directory
from medusa.nodes.catalog.entry_bodies import (
    KINDS,
    DefinitionBody,
    FragmentBody,
    NodeBody,
    QueryBody,
    StreamBody,
    body_from,
    fields_of,
)
from medusa.nodes.names.addresses import reachable
from medusa.nodes.security.registry import Caller, Refusal, no_role
from medusa.nodes.spec.part_locations import having, parted
from medusa.query.suggest import did_you_mean
from medusa.wire import limits
from medusa.wire.messages.directory import Lookup

__all__ = ["NameLookup"]

ORDER = ("definition", "stream", "source", "query", "fragment", "node")
"""Where a name is that of several things, the first of these is meant."""

LISTED_MAX = 10_000

ROLES = {"stream": ("subscribe", "out"), "source": ("publish", "in")}
"""What a client must be allowed to, and the box of a definition by which it is allowed that."""


class NameLookup:
    """Answers by the directory.

    Args:
        participant: of this node: names may begin with it and a slash.
        peers: node -> address, as configured.
        successors: of a fragment, nodes that may have it next, as far as it is known here.
    """

    def __init__(
        self,
        directory: Directory,
        *,
        participant: str,
        peers: Mapping[str, str],
        successors: Callable[[str], Collection[str]] = lambda fragment: (),
    ) -> None:
        self._successors = successors
        self._directory = directory
        self._participant = participant
        self._peers = peers

    def answer(self, name: str, kind: str = "", caller: Caller | None = None) -> bytes:
        """As JSON: the place of a name, or all of a kind; only what the caller may use.

        Raises:
            LinkError: nothing is called so (``E_STREAM``), with the nearest name; or the caller may not
                publish into a source of this name, or read a stream of it, whether or not there is one
                (``E_ROLE``).
        """
        if not name:
            found = [self._told(each) for each in self._known(kind, caller)[:LISTED_MAX]]
            shown = [each for each in found if each is not None]
            content = msgspec.json.encode({"entries": shown})
            if len(content) > limits.PAYLOAD_BYTES_MAX:
                shown = [{key: of for key, of in each.items() if key != "columns"} for each in shown]
                content = msgspec.json.encode({"entries": shown})[: limits.PAYLOAD_BYTES_MAX]
            return content
        short = self.short(name)
        for each in (name, short):
            for one in (kind,) if kind else ORDER:
                versions = [e for e in self._directory.versions(one, each) if _may(e, caller)]
                told = [told for entry in versions if (told := self._told(entry)) is not None]
                if told:
                    holders = self._standing(self._directory.holders(one, each))
                    newest = max(versions, key=lambda entry: entry.epoch)  # As ``Directory.find``.
                    here = next((e for e in holders if e.writer == self._directory.node), newest)
                    place = (self._told(here) or told[0]) | self._parts(one, caller, of=each)
                    if one in ROLES and (next_in_order := self._successors(place["fragment"])):
                        place["successors"] = [self._place(node) for node in next_in_order]
                    nodes = [place["node"]] if one == "definition" else [entry.writer for entry in holders]
                    return msgspec.json.encode({**place, "holders": nodes, "versions": told})
        if kind in ("", "box") and (box := self._box(short, caller)) is not None:
            return msgspec.json.encode(box)
        known = [entry.name for entry in self._known(kind, caller) if entry.kind != "node" or kind]
        near = did_you_mean(short, known)
        if (against := _against(kind, short, caller)) is not None:
            hint = f"{near}; else {against.hint}" if near else against.hint
            raise LinkError(against.text, hint=hint, code=against.code)
        self._check_ended(short)
        raise LinkError(
            f"nothing at participant {self._participant!r} is called {name[:100]!r}",
            hint=near or "nothing is deployed here",
            code="E_STREAM",
        )

    def epoch(self, message: Lookup) -> int:
        """The highest in which what a client asks for is known; 0: it isn't."""
        entry = self._directory.find(message.kind, self.short(message.name))
        return 0 if entry is None else entry.epoch

    def _standing(self, holders: list[CatalogEntry]) -> list[CatalogEntry]:
        """Without peers that are away and in a lower epoch than another: that one has taken over from them,
        and they may never come back to say that they have it no more."""
        newest = max((entry.epoch for entry in holders), default=0)
        there = self._directory.is_there
        return [e for e in holders if e.epoch == newest or e.writer not in self._peers or there(e.writer)]

    def _check_ended(self, name: str) -> None:
        """Raises LinkError: it may be of a query that took more of a node than it may, and ended there."""
        query = name.partition("/")[0].partition(".")[0]
        for entry in self._directory.holders("query", query):
            body = body_from(entry.body, QueryBody)
            if body is not None and body.state == ENDED:
                more = f"a part of query {query!r} took more of its node than it may, and has ended"
                why = f"the status of node {entry.writer!r} says why"
                hint = f"{why}; undeploy {query}, and deploy it with less to do"
                raise LinkError(f"{name[:100]!r} isn't there: {more}", hint=hint, code="E_STREAM")

    def stands(self, name: str, kind: str = "") -> bool:
        """Whether anything of that kind, or of any, is called so."""
        short = self.short(name)
        kinds = (kind,) if kind else ORDER
        known = any(self._directory.versions(one, each) for each in (name, short) for one in kinds)
        return known or (kind in ("", "box") and self._box(short, None) is not None)

    def fragments(self) -> list[str]:
        """Names of the fragments of the participant, each once."""
        return list(dict.fromkeys(entry.name for entry in self._directory.entries("fragment")))

    def fragment_at(self, fragment: str) -> str | None:
        """The node that has a fragment; None: unknown."""
        entry = self._directory.find("fragment", fragment)
        return None if entry is None else entry.writer

    def nodes_of(self, query: str) -> list[str]:
        """The nodes that have a fragment of a query, but those from which another has taken it over."""
        names = (name for name in self.fragments() if name.startswith(f"{query}/"))
        found = (e for name in names for e in self._standing(self._directory.holders("fragment", name)))
        return list(dict.fromkeys(entry.writer for entry in found))

    def streams(self) -> list[str]:
        """Names of the streams of the participant, each once; not of those that a query reads by itself."""
        bodies = ((e.name, body_from(e.body, StreamBody)) for e in self._directory.entries("stream"))
        return list(dict.fromkeys(name for name, body in bodies if body is None or not body.reader))

    def versions(self, stream: str) -> list[dict[str, Any]]:
        """Where a stream is, as ``answer`` tells it; its replicas by version."""
        found = [self._told(entry) for entry in self._directory.versions("stream", stream)]
        return [told for told in found if told is not None]

    def deployed_at(self, query: str) -> str:
        """The other node that has deployed or defined this; empty: none that may still be there.

        Where all its nodes are peers of ours and away, it may be gone with them: then it doesn't count.
        """
        return next((node for node, _ in self._rivals(query)), "")

    def outranks(self, query: str) -> str:
        """The other node that has this name although we are deploying it just now, and goes before us: its
        query runs, or its name comes first; empty: none, as far as is known here."""
        me = self._directory.node
        rivals = ((node, state) for node, state in self._rivals(query) if state != REMOVING)
        return next((node for node, state in rivals if state != DEPLOYING or node < me), "")

    def _rivals(self, query: str) -> Iterator[tuple[str, str]]:
        """The other nodes that have this name and may still be there, and the state of what they have. Who
        took a query over goes before who had it."""
        for kind in ("query", "definition"):
            for entry in sorted(self._directory.holders(kind, query), key=lambda entry: -entry.epoch):
                body = body_from(entry.body, KINDS[kind])
                nodes = entry.writer, *getattr(body, "nodes", ())
                there = (self._directory.is_there(node) or node not in self._peers for node in nodes)
                if entry.writer != self._directory.node and any(there):
                    yield entry.writer, getattr(body, "state", RUNNING)

    def readers_of(self, query: str) -> list[str]:
        """Other queries of the participant that read what this one, or a definition of its name, puts out."""
        full, found = f"{self._participant}/{query}", []
        for entry in self._directory.entries("query"):
            body = body_from(entry.body, QueryBody)
            reads = () if body is None else body.reads
            if any(each == full or each.startswith(f"{full}.") for each in reads) and entry.name != query:
                found.append(entry.name)
        return list(dict.fromkeys(found))

    def short(self, name: str) -> str:
        """Of a full name of our own participant, what comes after it."""
        return name.removeprefix(f"{self._participant}/")

    def _known(self, kind: str, caller: Caller | None) -> list[CatalogEntry]:
        entries = [each for each in self._directory.entries(kind or None) if each.kind in KINDS]
        return [each for each in entries if _may(each, caller)]

    def _told(self, entry: CatalogEntry) -> dict[str, Any] | None:
        body = body_from(entry.body, KINDS[entry.kind])
        if body is None:
            return None
        told = {
            **fields_of(body),
            **self._place(entry.writer),
            "kind": entry.kind,
            "name": entry.name,
            "epoch": entry.epoch,
            "stream_version": entry.stream_version,
        }
        if entry.kind == "query":
            told["fragments"] = self._fragments(entry.name)
        if isinstance(body, DefinitionBody):  # Who wrote it keeps it; its stream may have moved.
            at = self._directory.find("source", body.source) or entry
            told |= {**self._place(at.writer), "epoch": at.epoch, "coordinator": entry.writer}
        return told

    def _box(self, name: str, caller: Caller | None) -> dict[str, Any] | None:
        """Where a box is, called ``query/box``; of one that is split, its router and its parts."""
        query, _, box = name.partition("/")
        listed = [each for each in self._listed(caller) if not each["guest_of"]]
        listed += self._abroad(query, caller)
        split, found = parted(query, box, listed), having(query, box, listed)
        if split is not None:
            first, nodes = split.router, [split.router["node"]]
        elif found:
            first, nodes = found[0], [each["node"] for each in found]
        else:
            return None
        hidden = ("boxes", "streams", "sources", "feeds", "guest_of")
        shown = {key: of for key, of in first.items() if key not in hidden}
        place = {**shown, "kind": "box", "name": name, "fragment": first["name"]}
        return {**place, "parts": {} if split is None else split.parts, "holders": nodes, "versions": [place]}

    def _abroad(self, query: str, caller: Caller | None) -> list[dict[str, Any]]:
        """Fragments of a query of ours that stand at nodes of others, as its coordinator put them there."""
        found: list[dict[str, Any]] = []
        for entry in self._directory.holders("query", query):
            body = body_from(entry.body, QueryBody) if _may(entry, caller) else None
            for name, node, participant, boxes in () if body is None else body.abroad:
                of = FragmentBody(query=query, boxes=boxes, streams=(), sources=())
                told = {**fields_of(of), **self._place(node), "kind": "fragment", "name": name}
                found.append({**told, "epoch": entry.epoch, "stream_version": 1, "participant": participant})
        return found

    def _parts(self, name: str, caller: Caller | None, *, of: str) -> dict[str, dict[str, str]]:
        """Where the parts of a box are that a fragment is called after; nothing unless it is split."""
        query, _, box = name.partition("/")
        split = parted(query, box, self._listed(caller)) if of == "fragment" else None
        return {} if split is None else {"parts": split.parts}

    def _listed(self, caller: Caller | None) -> list[dict[str, Any]]:
        told = [self._told(entry) for entry in self._known("fragment", caller)]
        return [each for each in told if each is not None]

    def _fragments(self, query: str) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for entry in self._directory.entries("fragment"):
            body = body_from(entry.body, FragmentBody) if entry.name.startswith(f"{query}/") else None
            if body is not None and body.query == query and not body.guest_of:
                found[entry.name] = [each.writer for each in self._directory.holders("fragment", entry.name)]
        return found

    def address_of(self, node: str) -> str:
        """Where a node says that it listens; empty: nobody knows."""
        entry = self._directory.find("node", node)
        body = body_from(entry.body, NodeBody) if entry is not None else None
        return "" if body is None else body.address

    def _place(self, node: str) -> dict[str, Any]:
        """Where a node is; one that listens at all addresses of its machine is where it is called."""
        entry = self._directory.find("node", node)
        body = body_from(entry.body, NodeBody) if entry is not None else None
        if body is None:
            return {"node": node, "address": self._peers.get(node, ""), "server_key": ""}
        address = reachable(body.address, self._peers.get(node, ""))
        return {"node": node, "address": address, "server_key": body.server_key}


def _may(entry: CatalogEntry, caller: Caller | None) -> bool:
    """Whether a client may know of it: it may use it."""
    if caller is None or caller.rules is None or caller.rules.status:
        return True
    if entry.kind == "node":
        return True
    query = entry.name.split("/")[0]
    if entry.kind in ("query", "fragment"):
        return caller.may("deploy", query)
    if entry.kind in ROLES:
        return caller.may(ROLES[entry.kind][0], entry.name) or caller.may("deploy", query.split(".")[0])
    return caller.may("publish", f"{query}.in") or caller.may("subscribe", f"{query}.out")


def _against(kind: str, name: str, caller: Caller | None) -> Refusal | None:
    """What stands against a client's use of a source or stream of this name, or of the one that a definition
    of this name has."""
    if caller is None or caller.rules is None or caller.rules.status or kind not in ROLES:
        return None
    role, box = ROLES[kind]
    full = name if "." in name else f"{name}.{box}"
    query = full.partition(".")[0]
    return None if caller.may(role, full) or caller.may("deploy", query) else no_role(caller, role, full)
