"""The desk of one participant: how its contracts with others come to count, and end.

    propose, accept, refuse, revoke (a person decides) ─┐
    receive (a partner says) ───────────────────────────┼─> states (``states``), the register, letters out
    tick (time passes) ─────────────────────────────────┘

Each contract that is negotiated with a partner is one exchange, stepped through the table ``NEGOTIATION``.
Its proposal says until when it may be accepted, and by then the exchange is FINALIZED or TERMINATED, at each
side by its own clock: nothing hangs, and nothing is said again for ever. What a side has TERMINATED it says
to whoever goes on about it, so the two agree as soon as a message gets through. A message that comes again
changes nothing, and is answered as it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from medusa.errors import ContractError, LocalProtocolError, RemoteProtocolError, StateError
from medusa.market.contract.checks import check_counter, check_not_ended, check_notice, check_successor
from medusa.market.contract.exchange import ContractExchange
from medusa.market.contract.messages import (
    ContractAgreed,
    ContractEnded,
    ContractFinalized,
    ContractMessage,
    ContractProposed,
    ContractRevoked,
    ContractRevokedNoted,
    ContractSigned,
    ContractVerified,
)
from medusa.market.contract.records import (
    ContractsKept,
    ExchangeKept,
    RevocationKept,
    SignedKept,
    contracts_bytes,
    read_contracts,
)
from medusa.market.contract.register import ContractRegister
from medusa.market.contract.signed import (
    ContractDocument,
    ContractPaper,
    RevocationDocument,
    SignedDocument,
    check_signatures,
    countersign,
    opened_document,
    sign_document,
)
from medusa.market.contract.standing import check_open
from medusa.market.contract.states import NegotiationEvent, NegotiationState
from medusa.market.contract.terms import Contract
from medusa.ports import SKEW_US, Signer, Verify
from medusa.units import duration_text

__all__ = ["ContractDesk", "ContractLetter", "ExchangeStatus"]

OPEN_MAX = 64
"""Exchanges with one partner that are neither FINALIZED nor TERMINATED."""

ENDED_MAX = 256
"""Exchanges that are TERMINATED and remembered, of all partners; older ones are forgotten."""

AGAIN_US = 5_000_000
"""After so long without an answer something is said again. Shorter costs messages, longer costs time."""

TELL_US = 600_000_000
"""For so long at least a revocation is said again, where its notice is shorter."""

GIVEN_UP_US = 600_000_000
"""So long after its deadline a provider believes a consumer that never saw a contract FINALIZED."""

OPEN_FOR_US_MAX = 90 * 86_400_000_000
"""No proposal is open for longer."""

_S, _E = NegotiationState, NegotiationEvent


class ContractLetter(NamedTuple):
    """A message for a partner; it may be lost."""

    partner: str
    message: ContractMessage


class ExchangeStatus(NamedTuple):
    """How far a contract is.

    Attributes:
        ours: we have proposed it, so the other decides.
        until_us: until then it can be accepted.
        code, text: why it is TERMINATED.
    """

    partner: str
    contract: Contract
    state: NegotiationState
    ours: bool
    until_us: int
    code: str
    text: str


@dataclass(frozen=True, slots=True)
class _Revoking:
    """A revocation that the other hasn't noted yet."""

    message: ContractRevoked
    version: int
    until_us: int  # It isn't said again after that.
    again_us: int


class ContractDesk:
    """One participant's side of all its contracts.

    Args:
        own: its name.
        signer: its key.
        keys: party -> Ed25519 key of those that are believed; looked up anew each time.
        register: where what is FINALIZED goes.
    """

    def __init__(
        self,
        own: str,
        *,
        federation: str,
        signer: Signer,
        verify: Verify,
        keys: Mapping[str, str],
        register: ContractRegister,
    ) -> None:
        self._own, self._federation = own, federation
        self._signer, self._verify, self._keys = signer, verify, keys
        self._register = register
        self._exchanges: dict[tuple[str, str], ContractExchange] = {}
        self._revoking: dict[tuple[str, str], _Revoking] = {}
        self._letters: list[ContractLetter] = []
        self._signed: dict[tuple[str, str, int], SignedDocument] = {}

    # --- what a person decides --------------------------------------------------------------------

    def propose(self, now_us: int, contract: Contract, *, within_us: int) -> None:
        """Sign terms and offer them to the other party, for so long; instead of what it proposed, if it did.

        Raises:
            ContractError: its terms contradict themselves, it has ended, it isn't ours, or another version
                of it is in its way.
            LocalProtocolError: we wait for an answer to what we have proposed already.
        """
        if self._own not in (contract.provider, contract.consumer):
            raise ContractError(
                f"contract {contract.id!r} is not between us and another party", code="contract.party"
            )
        if within_us > OPEN_FOR_US_MAX:
            raise ContractError(
                f"within_us: expected at most {duration_text(OPEN_FOR_US_MAX)}, got"
                f" {duration_text(within_us)}",
                hint="propose it again later",
                code="contract.open",
            )
        check_not_ended(contract, now_us)
        provides = contract.provider == self._own
        partner = contract.consumer if provides else contract.provider
        document = ContractDocument(
            federation=self._federation, until_us=now_us + within_us, contract=contract
        )
        signed = sign_document(document, self._signer, self._own)
        state = self._proposed(partner, contract, by_provider=provides)
        made = ContractExchange(
            partner=partner, document=document, signed=signed, ours=True, provides=provides, state=state
        )
        self._say(now_us, made)

    def accept(self, now_us: int, partner: str, id: str) -> None:
        """Sign what a partner has proposed.

        Raises:
            ContractError: it can't be accepted any more.
            LocalProtocolError: there is no such proposal.
        """
        exchange = self._exchange(partner, id)
        if exchange.ours:
            raise LocalProtocolError(f"contract {id!r} is our own proposal: {partner!r} accepts it")
        event = _E.AGREE if exchange.contract.provider == self._own else _E.ACCEPT
        stepped = exchange.stepped(event)
        check_open(exchange.document, now_us)
        signed = countersign(exchange.signed, self._signer, self._own)
        self._say(now_us, replace(stepped, signed=signed))

    def refuse(self, now_us: int, partner: str, id: str, text: str = "") -> None:
        """Let an exchange come to nothing: a proposal of the other, or our own.

        Raises:
            LocalProtocolError: there is none that is open.
        """
        exchange = self._exchange(partner, id)
        if exchange.over:
            raise LocalProtocolError(f"contract {id!r} with {partner!r} is {exchange.state.value} already")
        self._end(exchange, "refused", text, tell=True)

    def revoke(self, now_us: int, partner: str, id: str, reason: str = "") -> int:
        """End a contract that counts, after its notice; returns when.

        Raises:
            ContractError: there is no such contract.
        """
        contract = self._register.newest(partner, id)
        if contract is None:
            raise ContractError(f"there is no contract {id!r} with {partner!r}", code="contract.unknown")
        check_not_ended(contract, now_us)
        ends_us = now_us + contract.notice_s * 1_000_000
        document = RevocationDocument(
            federation=self._federation,
            id=id,
            version=contract.version,
            provider=contract.provider,
            consumer=contract.consumer,
            by=self._own,
            said_us=now_us,
            ends_us=ends_us,
            reason=reason,
        )
        signed = sign_document(document, self._signer, self._own)
        if self._register.revoke(partner, id, contract.version, ends_us):
            message = ContractRevoked(signed=signed.to_bytes())
            until_us = max(ends_us, now_us + TELL_US)
            self._revoking[partner, id] = _Revoking(message, contract.version, until_us, now_us + AGAIN_US)
            self._letters.append(ContractLetter(partner, message))
        return min(ends_us, contract.ends_us)

    # --- what a partner says ----------------------------------------------------------------------

    def receive(self, now_us: int, partner: str, message: ContractMessage) -> None:
        """Take in what a partner says.

        Raises:
            RemoteProtocolError: it breaks a rule; nothing has changed.
        """
        try:
            if isinstance(message, ContractProposed):
                self._take_proposal(now_us, partner, message)
            elif isinstance(message, ContractSigned):
                self._take_signed(now_us, partner, message)
            elif isinstance(message, ContractRevoked):
                self._take_revocation(now_us, partner, message)
            elif isinstance(message, ContractRevokedNoted):
                self._take_noted(now_us, partner, message)
            elif isinstance(message, ContractEnded):
                self._take_end(now_us, partner, message)
            else:
                self._take_step(now_us, partner, message)
        except (ContractError, LocalProtocolError) as error:
            raise RemoteProtocolError(error.message, peer=partner, hint=error.hint, code=error.code) from None

    def _take_proposal(self, now_us: int, partner: str, message: ContractProposed) -> None:
        signed, document = self._opened(partner, message.signed, needs=(partner,))
        if not isinstance(document, ContractDocument) or (signed.provider and signed.consumer):
            raise ContractError(
                "expected the terms of a contract with one signature", code="contract.document"
            )
        contract = document.contract
        current = self._exchanges.get((partner, contract.id))
        if current is not None and current.document == document:
            self._repeat(current)
            return
        if self._register.newest(partner, contract.id) == contract:
            return  # It counts already: this is late.
        why = self._why_not(now_us, partner, document)
        if why is not None:
            self._letters.append(ContractLetter(partner, why))
            return
        state = self._proposed(partner, contract, by_provider=contract.provider == partner)
        self._keep(
            ContractExchange(
                partner=partner,
                document=document,
                signed=signed,
                ours=False,
                provides=contract.provider == self._own,
                state=state,
            )
        )

    def _why_not(self, now_us: int, partner: str, document: ContractDocument) -> ContractEnded | None:
        """Why a proposal needn't be looked at by anybody."""
        contract = document.contract

        def ended(code: str, text: str) -> ContractEnded:
            return ContractEnded(contract=contract.id, version=contract.version, code=code, text=text[:256])

        if now_us > document.until_us + SKEW_US or now_us >= contract.ends_us:
            return ended("deadline", "it comes too late")
        if document.until_us > now_us + OPEN_FOR_US_MAX + SKEW_US:
            return ended("open", f"until_us: it is open for more than {duration_text(OPEN_FOR_US_MAX)}")
        last = self._register.newest(partner, contract.id)
        try:
            if last is not None:
                check_successor(last, contract)
        except ContractError as error:
            return ended("version", error.message)
        current = self._exchanges.get((partner, contract.id))
        if current is not None and not current.over and contract.version <= current.contract.version:
            text = f"version {current.contract.version} is being negotiated: propose a higher one"
            return ended("version", text)
        open_now = sum(each.partner == partner and not each.over for each in self._exchanges.values())
        if (current is None or current.over) and open_now >= OPEN_MAX:
            return ended("limit", f"{open_now} are open already")
        return None

    def _take_signed(self, now_us: int, partner: str, message: ContractSigned) -> None:
        signed, document = self._opened(partner, message.signed, needs=None)
        if not isinstance(document, ContractDocument):
            raise ContractError("expected the terms of a contract", code="contract.document")
        exchange = self._known(partner, document.id, document.version)
        if exchange is None or self._was_answered(exchange, _S.REQUESTED, _S.OFFERED):
            return
        if exchange.document != document or not exchange.ours:
            raise ContractError(
                f"contract {document.id!r}: what is signed is not what was proposed", code="contract.document"
            )
        exchange = replace(exchange, signed=signed)
        if exchange.state is _S.REQUESTED:
            exchange = exchange.stepped(_E.AGREE, _E.VERIFY)
            self._say(now_us, exchange)
        else:
            exchange = exchange.stepped(_E.ACCEPT, _E.AGREE)
            self._say(now_us, exchange)

    def _take_step(
        self, now_us: int, partner: str, message: ContractAgreed | ContractVerified | ContractFinalized
    ) -> None:
        exchange = self._known(partner, message.contract, message.version)
        if exchange is None:
            return
        provides = exchange.contract.provider == self._own
        if provides is not isinstance(message, ContractVerified):
            raise ContractError(f"{partner!r} can't say {type(message).__name__}", code="contract.party")
        if isinstance(message, ContractAgreed):
            if not self._was_answered(exchange, _S.ACCEPTED):
                exchange = exchange.stepped(_E.AGREE, _E.VERIFY)
                self._say(now_us, exchange)
        elif isinstance(message, ContractVerified):
            if not self._was_answered(exchange, _S.AGREED):
                exchange = exchange.stepped(_E.VERIFY, _E.FINALIZE)
                self._count(exchange)
                self._say(now_us, exchange)
        elif exchange.state is not _S.FINALIZED and not self._was_answered(exchange, _S.VERIFIED):
            exchange = exchange.stepped(_E.FINALIZE)
            self._count(exchange)
            self._keep(replace(exchange, again_us=None))

    def _take_end(self, now_us: int, partner: str, message: ContractEnded) -> None:
        self._noted(partner, message.contract, message.version)
        exchange = self._exchanges.get((partner, message.contract))
        if exchange is None or exchange.contract.version != message.version:
            return
        # Only who confirms last can believe it counts where the other has given up: the provider.
        # What is no news any more by then is unsigned, and takes nothing back that both have signed.
        unheard = (
            exchange.contract.provider == self._own
            and message.code in ("deadline", "unknown")
            and now_us <= exchange.document.until_us + GIVEN_UP_US
        )
        if exchange.state is _S.FINALIZED and unheard:
            self._register.withdraw(partner, message.contract, message.version)
            self._signed.pop((partner, message.contract, message.version), None)
        if not exchange.over or (exchange.state is _S.FINALIZED and unheard):
            self._end(exchange, message.code, message.text, tell=False)

    def _take_revocation(self, now_us: int, partner: str, message: ContractRevoked) -> None:
        _, document = self._opened(partner, message.signed, needs=None)
        if not isinstance(document, RevocationDocument) or document.by != partner:
            raise ContractError("expected a revocation by who says it", code="contract.document")
        contract = self._register.newest(partner, document.id)
        if contract is None or contract.version < document.version:
            text = "there is no such contract"
            told = ContractEnded(contract=document.id, version=document.version, code="unknown", text=text)
            self._letters.append(ContractLetter(partner, told))
            return
        check_notice(contract.notice_s, document.said_us, document.ends_us)
        if document.said_us > now_us + SKEW_US:
            raise ContractError(
                "said_us: a revocation of the future", hint="set the clock", code="contract.time"
            )
        known_us = self._register.ends_us(partner, document.id, document.version)
        if known_us is None or known_us > document.ends_us:
            ends_us = self._heard_end(now_us, contract, document)
            self._register.revoke(partner, document.id, document.version, ends_us)
            known_us = self._register.ends_us(partner, document.id, document.version)
        noted = ContractRevokedNoted(contract=document.id, version=document.version, ends_us=known_us or 0)
        self._letters.append(ContractLetter(partner, noted))

    def _heard_end(self, now_us: int, contract: Contract, document: RevocationDocument) -> int:
        """When a contract ends by a revocation that arrives now. Its date is what the partner says, so the
        notice is counted from the arrival where less than that is left."""
        until_us = max(document.ends_us, document.said_us + TELL_US)
        if now_us > until_us + SKEW_US:
            late = duration_text((now_us - until_us) // 1_000_000 * 1_000_000)
            raise ContractError(
                f"said_us: the revocation of contract {document.id!r} comes {late} after it was last said",
                hint="revoke the contract anew",
                code="contract.late",
            )
        least_us = now_us + contract.notice_s * 1_000_000
        return document.ends_us if document.ends_us >= least_us - SKEW_US else least_us

    def _take_noted(self, now_us: int, partner: str, message: ContractRevokedNoted) -> None:
        """The partner counts the contract for its notice from when it heard: so do we, where we still do."""
        revoking = self._revoking.get((partner, message.contract))
        self._noted(partner, message.contract, message.version)
        if revoking is None or revoking.version != message.version:
            return
        ours_us = self._register.ends_us(partner, message.contract, message.version)
        contract = self._register.get_version(partner, message.contract, message.version)
        if ours_us is None or contract is None or ours_us <= now_us:
            return
        most_us = now_us + contract.notice_s * 1_000_000 + SKEW_US
        if ours_us < message.ends_us:
            self._register.postpone(partner, message.contract, message.version, min(message.ends_us, most_us))

    def _opened(
        self, partner: str, data: bytes, *, needs: tuple[str, ...] | None
    ) -> tuple[SignedDocument, ContractPaper]:
        signed, document = opened_document(data)
        if sorted(document.parties) != sorted((self._own, partner)):
            raise ContractError(
                f"contract {document.id!r} is between {' and '.join(document.parties)}", code="contract.party"
            )
        check_signatures(
            signed, document, verify=self._verify, keys=self._keys, federation=self._federation, needs=needs
        )
        return signed, document

    def _known(self, partner: str, id: str, version: int) -> ContractExchange | None:
        """The exchange that a message is about; who goes on about another is told that there is none."""
        exchange = self._exchanges.get((partner, id))
        if exchange is not None and exchange.contract.version == version:
            return exchange
        last = self._register.newest(partner, id)
        if last is None or last.version < version:
            text = "it isn't negotiated here"
            told = ContractEnded(contract=id, version=version, code="unknown", text=text)
            self._letters.append(ContractLetter(partner, told))
        return None

    def _was_answered(self, exchange: ContractExchange, *waits_in: NegotiationState) -> bool:
        """Whether this exchange is beyond what a message is an answer to: then it is answered as it was."""
        if exchange.state in waits_in:
            return False
        order = list(NegotiationState)
        if order.index(exchange.state) < min(map(order.index, waits_in)):
            raise ContractError(
                f"contract {exchange.contract.id!r} is {exchange.state.value}: that comes too early",
                code="contract.state",
            )
        self._repeat(exchange)
        return True

    # --- time -------------------------------------------------------------------------------------

    def tick(self, now_us: int) -> None:
        """Say again what wasn't answered; end what is over its deadline, its end or its revocation."""
        for key, exchange in list(self._exchanges.items()):
            if exchange.state is _S.FINALIZED:
                ends_us = self._register.ends_us(*key, exchange.contract.version)
                if ends_us is None or now_us >= ends_us:
                    code = (
                        "revoked" if ends_us is not None and ends_us < exchange.contract.ends_us else "ended"
                    )
                    self._end(exchange, code, "", tell=False)
            elif exchange.state is not _S.TERMINATED:
                if now_us > exchange.document.until_us:
                    self._end(exchange, "deadline", "it wasn't signed by both in time", tell=True)
                elif exchange.again_us is not None and now_us >= exchange.again_us:
                    self._repeat(exchange)
                    self._keep(replace(exchange, again_us=now_us + AGAIN_US))
        for proof in [each for each in self._signed if self._register.ends_us(*each) is None]:
            del self._signed[proof]  # The register has forgotten it.
        for key, revoking in list(self._revoking.items()):
            if now_us >= revoking.until_us:
                del self._revoking[key]
            elif now_us >= revoking.again_us:
                self._letters.append(ContractLetter(key[0], revoking.message))
                self._revoking[key] = replace(revoking, again_us=now_us + AGAIN_US)

    def wake_at_us(self) -> int | None:
        """When ``tick`` has something to do next; None: never by itself."""
        times = [revoking.again_us for revoking in self._revoking.values()]
        for key, exchange in self._exchanges.items():
            if exchange.state is _S.FINALIZED:
                times.append(self._register.ends_us(*key, exchange.contract.version) or 0)
            elif exchange.state is not _S.TERMINATED:
                times.append(exchange.document.until_us + 1)
                times += [exchange.again_us] if exchange.again_us is not None else []
        return min(times, default=None)

    def take(self) -> list[ContractLetter]:
        """What is to be sent, oldest first; it is gone from here."""
        letters, self._letters = self._letters, []
        return letters

    def signed(self, partner: str, id: str, version: int) -> SignedDocument | None:
        """A version that the register has, with both signatures: what proves it. None: there is none."""
        return self._signed.get((partner, id, version))

    def status(self) -> tuple[ExchangeStatus, ...]:
        """All exchanges that are remembered, by partner and id."""
        return tuple(
            ExchangeStatus(
                each.partner,
                each.contract,
                each.state,
                each.ours,
                each.document.until_us,
                each.code,
                each.text,
            )
            for _, each in sorted(self._exchanges.items())
        )

    # --- what survives a death ----------------------------------------------------------------------

    def snapshot(self) -> bytes:
        """All of it and of its register, to be on disk before the letters since the last one go out."""
        return contracts_bytes(
            ContractsKept(
                versions=self._register.kept(),
                exchanges=tuple(
                    ExchangeKept(
                        partner=each.partner,
                        signed=each.signed.to_bytes(),
                        ours=each.ours,
                        state=each.state,
                        code=each.code,
                        text=each.text,
                    )
                    for each in self._exchanges.values()
                ),
                revocations=tuple(
                    RevocationKept(
                        partner=partner,
                        contract=id,
                        version=each.version,
                        signed=each.message.signed,
                        until_us=each.until_us,
                    )
                    for (partner, id), each in self._revoking.items()
                ),
                signed=tuple(
                    SignedKept(partner=partner, signed=each.to_bytes())
                    for (partner, _, _), each in self._signed.items()
                ),
            )
        )

    def restore(self, data: bytes) -> None:
        """Be as the desk that gave this snapshot, and its register; what waits for an answer is said anew.

        Raises:
            StateError: it is damaged; nothing has changed.
        """
        kept = read_contracts(data)
        both: dict[tuple[str, str, int], SignedDocument] = {}
        for proof in kept.signed:
            signed, document = _kept_contract(proof.signed)
            both[proof.partner, document.id, document.version] = signed
        exchanges: dict[tuple[str, str], ContractExchange] = {}
        for each in kept.exchanges:
            signed, document = _kept_contract(each.signed)
            if each.state is _S.FINALIZED:  # What an earlier release kept has them there alone.
                both.setdefault((each.partner, document.id, document.version), signed)
            exchanges[each.partner, document.id] = ContractExchange(
                partner=each.partner,
                document=document,
                signed=signed,
                ours=each.ours,
                provides=document.contract.provider == self._own,
                state=each.state,
                again_us=0,
                code=each.code,
                text=each.text,
            )
        self._register.restore(kept.versions)
        self._exchanges, self._signed = exchanges, both
        self._revoking = {
            (each.partner, each.contract): _Revoking(
                ContractRevoked(signed=each.signed), each.version, each.until_us, 0
            )
            for each in kept.revocations
        }
        self._letters = []

    def _count(self, exchange: ContractExchange) -> None:
        """Both have signed it: the register has it, and what proves it stays whatever is proposed next."""
        self._register.add(exchange.contract)
        contract = exchange.contract
        self._signed[exchange.partner, contract.id, contract.version] = exchange.signed

    # --- stepping ---------------------------------------------------------------------------------

    def _exchange(self, partner: str, id: str) -> ContractExchange:
        exchange = self._exchanges.get((partner, id))
        if exchange is None:
            raise LocalProtocolError(f"nothing is negotiated with {partner!r} about a contract {id!r}")
        return exchange

    def _proposed(self, partner: str, contract: Contract, *, by_provider: bool) -> NegotiationState:
        """The state after a proposal: of a new exchange, or instead of what was proposed before."""
        last = self._register.newest(partner, contract.id)
        if last is not None:
            check_successor(last, contract)
        current = self._exchanges.get((partner, contract.id))
        if current is None or current.over:
            return _S.OFFERED if by_provider else _S.REQUESTED
        check_counter(current.contract, contract)
        return current.stepped(_E.OFFER if by_provider else _E.REQUEST).state

    def _say(self, now_us: int, exchange: ContractExchange) -> None:
        """Keep an exchange, and say what its state says, to be said again until it is answered."""
        exchange = replace(exchange, again_us=now_us + AGAIN_US)
        self._repeat(exchange)
        self._keep(exchange)

    def _repeat(self, exchange: ContractExchange) -> None:
        if exchange.said is not None:
            self._letters.append(ContractLetter(exchange.partner, exchange.said))

    def _end(self, exchange: ContractExchange, code: str, text: str, *, tell: bool) -> None:
        ended = replace(exchange.stepped(_E.TERMINATE), again_us=None, code=code, text=text[:256])
        self._keep(ended)
        if tell:
            self._repeat(ended)

    def _keep(self, exchange: ContractExchange) -> None:
        """Put an exchange in; TERMINATED ones stand behind the others, and the oldest is forgotten."""
        key = exchange.partner, exchange.contract.id
        if exchange.state is _S.TERMINATED:
            self._exchanges.pop(key, None)
        self._exchanges[key] = exchange
        ended = [key for key, each in self._exchanges.items() if each.state is _S.TERMINATED]
        for old in ended[: max(len(ended) - ENDED_MAX, 0)]:
            del self._exchanges[old]

    def _noted(self, partner: str, id: str, version: int) -> None:
        revoking = self._revoking.get((partner, id))
        if revoking is not None and revoking.version == version:
            del self._revoking[partner, id]


def _kept_contract(data: bytes) -> tuple[SignedDocument, ContractDocument]:
    try:
        signed, document = opened_document(data)
    except ContractError as error:
        raise StateError(f"a contract that was kept: {error.message}", code="state.contracts") from None
    if not isinstance(document, ContractDocument):
        raise StateError("something else than a contract was kept as one", code="state.contracts")
    return signed, document
