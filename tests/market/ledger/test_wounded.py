"""Whatever comes is taken as it was signed, or refused: no other error, and no money moves by it."""

from __future__ import annotations

import random

import msgspec
import pytest

from medusa.market.ledger.messages import LedgerMessage
from tests.market.ledger.pair import Pair


def wounded(chance: random.Random, found):
    """With one byte, number or text of it changed, however deep it lies."""
    if isinstance(found, bytes):
        at = chance.randrange(len(found) or 1)
        return found[:at] + bytes([chance.randrange(256)]) + found[at + 1 :]
    if isinstance(found, int):
        return max(found + chance.choice((-1, 1, 10**6)), 0)
    if isinstance(found, str):
        return found[:-1] + chance.choice("abc")
    fields = [name for name in found.__struct_fields__ if getattr(found, name) not in (b"", "")]
    name = chance.choice(fields)
    return msgspec.structs.replace(found, **{name: wounded(chance, getattr(found, name))})


@pytest.mark.parametrize("seed", range(6))
def test_wounded_messages_are_refused_and_move_nothing(seed):
    chance, pair, said = random.Random(seed), Pair(), []
    for name in ("host", "owner"):
        pair.says[name] = lambda message, name=name: said.append((name, message)) or [message]
    pair.begin()
    decoder = msgspec.msgpack.Decoder(LedgerMessage)
    for seconds in (7, 26, 70, 12):
        pair.run(seconds)
        pair.delivered = chance.choice((1.0, 0.7))
        for sender, message in chance.choices(said, k=150) if said else ():
            try:
                changed = decoder.decode(msgspec.msgpack.encode(wounded(chance, message)))
            except msgspec.ValidationError:
                continue
            before = [pair.ledgers[name].accounts.balances() for name in ("host", "owner")]
            pair.hear("owner" if sender == "host" else "host", sender, changed)
            assert [pair.ledgers[name].accounts.balances() for name in ("host", "owner")] == before
            pair.settle()
    assert len(pair.refused) > 2
    pair.delivered = 1.0
    pair.run(40)
    pair.end()
    pair.run(120)
    assert pair.paid_micro == pair.worth_micro
    assert pair.host.owed_micro == pair.owner.owed_micro == 0
