"""Two parties of contracts, their keys, and terms of which tests change something."""

from __future__ import annotations

import functools

import msgspec

from medusa.market.contract.terms import Contract
from medusa.runtime.keys.key_files import ParticipantKey, verifier

DAY_US = 86_400_000_000
SECOND_US = 1_000_000
NOW_US = 1_796_083_200_000_000
FEDERATION = "netmon"
VERIFY = verifier()

PLAIN = Contract(
    id="c1",
    provider="acme",
    consumer="bigco",
    begins_us=NOW_US,
    ends_us=NOW_US + 30 * DAY_US,
    price_micro=20_000,
    range_micro=4_000,
    units_per_s_max_milli=4_000,
)


def terms(**changed: object) -> Contract:
    return msgspec.structs.replace(PLAIN, **changed)


@functools.cache
def key_of(party: str) -> ParticipantKey:
    """Always the same, so that tests are repeated exactly."""
    return ParticipantKey(party.encode().ljust(32, b"."))


def keys(*parties: str) -> dict[str, str]:
    return {party: key_of(party).key for party in parties or ("acme", "bigco")}
