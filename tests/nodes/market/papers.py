"""A contract between alice, who pays, and bob, as both have signed it in simulated federations."""

from __future__ import annotations

from medusa.market.contract.signed import ContractDocument, countersign, document_to_text, sign_document
from medusa.market.contract.terms import Contract
from medusa.sim.world.keyring import FEDERATION, Signing

__all__ = ["TERMS", "signed"]

TERMS = Contract(
    id="c",
    provider="bob",
    consumer="alice",
    begins_us=0,
    ends_us=1 << 57,
    price_micro=2_000_000,
    range_micro=1_000_000,
    units_per_s_max_milli=10_000,
    interval_s=1,
)


def signed(terms: Contract) -> str:
    """As a file has it."""
    paper = ContractDocument(federation=FEDERATION, until_us=1 << 57, contract=terms)
    first = sign_document(paper, Signing("alice"), "alice")
    return document_to_text(countersign(first, Signing("bob"), "bob"))
