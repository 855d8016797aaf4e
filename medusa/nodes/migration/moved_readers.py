"""Readers that moved while this node wasn't told, or was and has lost it. Pure.

The directory says which nodes have a fragment that reads a box. Where one node of those that a spec names
has none any more, and one that it doesn't name has one, that fragment moved.
"""

from __future__ import annotations

from medusa.nodes.catalog.directory import CatalogEntry, Directory
from medusa.nodes.catalog.entry_bodies import FragmentBody, body_from
from medusa.nodes.spec.fragment_spec import FragmentSpec
from medusa.wire.messages.rerouting import Expect

__all__ = ["followers"]


def followers(spec: FragmentSpec, directory: Directory) -> dict[str, Expect]:
    """By sink what the node that read it would have said before it moved; where two did, nothing: nobody
    knows which follows which."""
    found: dict[str, Expect] = {}
    for sink, named in spec.readers.items():
        stream = spec.streams[sink]
        if sink in spec.guests:
            continue  # Of another query: its coordinator tells.
        reading: dict[str, CatalogEntry] = {}
        for entry in directory.standing("fragment"):
            body = body_from(entry.body, FragmentBody)
            if body is None or body.query != spec.query or body.guest_of:
                continue
            if stream in (f"{spec.query}.{source}" for source in body.feeds):
                reading[entry.writer] = entry
        gone = [reader for reader in named if reader not in reading]
        come = [reader for reader in reading if reader not in named]
        if len(gone) == 1 and not come:  # Both are named: the move was under way when this was written.
            come = [w for w, each in reading.items() if gone[0] in directory.gone_from("fragment", each.name)]
        if len(gone) == len(come) == 1:
            [like], [reader] = gone, come
            found[sink] = Expect(
                request=0,
                query=spec.query,
                stream=stream,
                like=like,
                reader=reader,
                epoch=reading[reader].epoch,
            )
    return found
