"""Contracts and revocations in the files of a node's folder: which count here, and why others don't.

Whoever put a file there is not believed; who signed it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from medusa.errors import ContractError
from medusa.market.contract.signed import (
    ContentDocument,
    ContractDocument,
    ContractPaper,
    RevocationDocument,
    check_signatures,
    document_from_text,
    opened_document,
)
from medusa.market.contract.terms import Contract
from medusa.ports import Verify

__all__ = ["SignedPapers", "read_papers"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedPapers:
    """What was found.

    Attributes:
        contracts: file -> what both have signed about load, lower versions first; ``contents``: about rows of
            streams.
        revocations: file -> the end of one, signed by who says so.
        refused: file -> why nothing of it counts here.
    """

    contracts: Mapping[str, Contract] = field(default_factory=dict)
    contents: Mapping[str, ContentDocument] = field(default_factory=dict)
    revocations: Mapping[str, RevocationDocument] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)


def read_papers(
    files: Mapping[str, str],
    *,
    own: str,
    federation: str,
    keys: Mapping[str, str],
    verify: Verify,
    partners: Mapping[str, str],
) -> SignedPapers:
    """Read what stands in some files.

    Args:
        files: name -> text.
        own: our participant.
        keys: participant -> Ed25519 key of those that are believed.
        partners: participants for whom a node trades.
    """
    contracts: dict[str, Contract] = {}
    contents: dict[str, ContentDocument] = {}
    revocations: dict[str, RevocationDocument] = {}
    refused: dict[str, str] = {}
    for name, text in sorted(files.items()):
        try:
            signed, paper = opened_document(document_from_text(text))
            check_signatures(signed, paper, verify=verify, keys=keys, federation=federation)
        except ContractError as error:
            refused[name] = f"{error.message}; {error.hint}" if error.hint else error.message
            continue
        if why := _not_traded(paper, own, partners):
            refused[name] = why
        elif isinstance(paper, ContractDocument):
            contracts[name] = paper.contract
        elif isinstance(paper, RevocationDocument):
            revocations[name] = paper
        else:
            contents[name] = paper
    return SignedPapers(
        contracts=dict(sorted(contracts.items(), key=lambda each: (each[1].id, each[1].version))),
        contents=dict(sorted(contents.items(), key=lambda each: (each[1].id, each[1].version))),
        revocations=revocations,
        refused=refused,
    )


def _not_traded(paper: ContractPaper, own: str, partners: Mapping[str, str]) -> str:
    """Why nodes don't act on it; empty: they do."""
    if own not in paper.parties:
        return f"it is between {paper.parties[0]!r} and {paper.parties[1]!r}, this is a node of {own!r}"
    partner = next(each for each in paper.parties if each != own)
    if partner not in partners:
        return f"no node trades for {partner!r}: add [market.partners.{partner}] and node"
    if not isinstance(paper, ContractDocument):
        return ""
    if paper.contract.latency_us:
        return "it promises a latency, which nodes don't measure: sign one without"
    if paper.contract.bytes_per_unit:
        return "it counts bytes, which nodes don't: sign one without bytes_per_unit"
    return ""
