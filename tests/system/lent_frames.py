"""What a node sends to a host to which it lends a fragment: recorded in virtual time, said over real sockets.

An owner with a key may send any of it, in any order, and changed as it likes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import msgspec
import pytest

from medusa.engine.state.checkpoint import crc32c
from medusa.nodes.migration.fed_together import apart
from medusa.sim.actors.node import NodeMachine
from medusa.wire.codec import decode_frame
from medusa.wire.messages.configuration import Configure
from medusa.wire.messages.links import Attached, Data
from medusa.wire.messages.move import Fed, FedTogether, Move, Piece, Seed, Standing, Whole
from tests.nodes.abroad.lending import HALF, PIECE, Lending, counting

FRAGMENT, SOURCE, OWNER, HOST = "q/kind", "e", "m", "h"


@dataclass(frozen=True, kw_only=True)
class LentFragment:
    """A handover of ``FRAGMENT`` from ``OWNER`` to ``HOST``, as it went once.

    Attributes:
        asks: whether the host could.
        follows, is_fed, owns: what is decided then: the host may follow it, it does, it has it.
        seed: with ``spec``, that the host is to install.
        files: of the checkpoint, in order.
        standing: how far readers are.
        fed: rows that came then, with their payloads.
        attached, rows: how the host is answered that reads ``SOURCE``, and the first rows that it gets.
    """

    asks: Move
    follows: Configure
    is_fed: Configure
    owns: Configure
    seed: Seed
    spec: bytes
    files: dict[str, bytes]
    standing: bytes
    fed: tuple[tuple[Fed, bytes], ...]
    attached: Attached
    rows: tuple[Data, bytes]


@cache
def lent_fragment():
    """Half of the rows have come in before it is lent, and a few come in then."""
    said, fed, read = [], [], []
    deliver = NodeMachine.deliver

    def heard(self, source, frames, *, connection=0):
        if (source, self.name) == (OWNER, HOST):
            message, payload = decode_frame([memoryview(bytes(each)) for each in frames])
            said.append((message, None if payload is None else bytes(payload)))
        if (source, self.name) == (SOURCE, HOST):
            message, payload = decode_frame([memoryview(bytes(each)) for each in frames])
            read.append((message, None if payload is None else bytes(payload)))
        if (source, self.name) == (HOST, OWNER):
            message, payload = decode_frame([memoryview(bytes(each)) for each in frames])
            if isinstance(message, FedTogether):
                fed.extend(
                    (one, None if rows is None else bytes(rows))
                    for one, rows in apart(message, payload, peer=HOST)
                )
            elif isinstance(message, Fed):
                fed.append((message, None if payload is None else bytes(payload)))
        deliver(self, source, frames, connection=connection)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NodeMachine, "deliver", heard)
        run = Lending(counting())
        fragment = run.deploy()
        assert fragment == FRAGMENT
        run.publish(0, HALF)
        run.fed.run(for_us=1_500_000)
        run.lend(fragment)
        run.publish(HALF, HALF + 2 * PIECE)
        run.fed.run(for_us=1_500_000)

    def of(kind):
        return [(message, payload) for message, payload in said if isinstance(message, kind)]

    decided = {message.configuration.number: message for message, _ in of(Configure)}
    follows, is_fed, owns = (decided[number] for number in sorted(decided)[:3])
    files: dict[str, bytes] = {}
    for piece, data in of(Piece):
        files[piece.file] = files.get(piece.file, b"") + (data or b"")
    [(seed, spec)] = of(Seed)
    return LentFragment(
        asks=of(Move)[0][0],
        follows=follows,
        is_fed=is_fed,
        owns=owns,
        seed=seed,
        spec=spec,
        files=files,
        standing=of(Standing)[0][1],
        fed=tuple(fed),
        attached=next(each for each, _ in read if isinstance(each, Attached)),
        rows=next(each for each in read if isinstance(each[0], Data)),
    )


def pieces(files, attempt, ticket):
    """The frames that bring a checkpoint, each with the checksum of what it brings."""
    for frame, (name, data) in enumerate(files.items()):
        yield (
            Piece(
                fragment=FRAGMENT,
                attempt=attempt,
                ticket=ticket,
                frame=frame,
                file=name,
                offset=0,
                nbytes=len(data),
                crc=crc32c(data),
            ),
            data,
        )
    yield Whole(fragment=FRAGMENT, attempt=attempt, ticket=ticket, frame=len(files), files=len(files)), None


def numbered(message, number):
    """The same question by another number."""
    return msgspec.structs.replace(message, request=number)
