"""One contract that is negotiated with one partner, as a value: how far it is, and what was said last."""

from __future__ import annotations

from dataclasses import dataclass, replace

from medusa.automaton import next_state
from medusa.market.contract.messages import (
    ContractAgreed,
    ContractEnded,
    ContractFinalized,
    ContractMessage,
    ContractProposed,
    ContractSigned,
    ContractVerified,
)
from medusa.market.contract.signed import ContractDocument, SignedDocument
from medusa.market.contract.states import NEGOTIATION, NegotiationEvent, NegotiationState
from medusa.market.contract.terms import Contract

__all__ = ["ContractExchange"]

_S = NegotiationState


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractExchange:
    """One exchange, as one of the two knows it.

    Attributes:
        signed: with the signatures that it has so far.
        ours: this participant proposed it; ``provides``: it is the provider.
        again_us: then what was said last is said again; None: no answer is waited for.
        code, text: why it is TERMINATED.
    """

    partner: str
    document: ContractDocument
    signed: SignedDocument
    ours: bool
    provides: bool
    state: NegotiationState
    again_us: int | None = None
    code: str = ""
    text: str = ""

    @property
    def contract(self) -> Contract:
        return self.document.contract

    @property
    def over(self) -> bool:
        """Whether nothing is waited for."""
        return self.state in (_S.FINALIZED, _S.TERMINATED)

    @property
    def said(self) -> ContractMessage | None:
        """What this participant said last, which follows from the state; None: it is the other's turn."""
        id, version = self.contract.id, self.contract.version
        if self.state is _S.TERMINATED:
            return ContractEnded(contract=id, version=version, code=self.code, text=self.text)
        if self.state in (_S.REQUESTED, _S.OFFERED):
            return ContractProposed(signed=self.signed.to_bytes()) if self.ours else None
        if not self.ours and self.state in (_S.ACCEPTED, _S.AGREED):
            return ContractSigned(signed=self.signed.to_bytes())
        if self.state is _S.AGREED:
            return ContractAgreed(contract=id, version=version)
        if self.state is _S.VERIFIED:
            return ContractVerified(contract=id, version=version)
        return ContractFinalized(contract=id, version=version) if self.provides else None

    def stepped(self, *events: NegotiationEvent) -> ContractExchange:
        """The exchange after these.

        Raises:
            LocalProtocolError: the table has no such step.
        """
        state = self.state
        for event in events:
            state = next_state(
                NEGOTIATION, state, event, of=f"contract {self.contract.id!r} with {self.partner!r}"
            )
        return replace(self, state=state)
