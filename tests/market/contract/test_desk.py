"""Two desks: how a contract comes to count at both, and that it never hangs, whatever the network does."""

from __future__ import annotations

import random

import msgspec
import pytest

from medusa.errors import ContractError, LocalProtocolError, RemoteProtocolError, StateError
from medusa.market.contract.desk import AGAIN_US, GIVEN_UP_US, OPEN_FOR_US_MAX, OPEN_MAX, ContractDesk
from medusa.market.contract.messages import (
    ContractAgreed,
    ContractEnded,
    ContractFinalized,
    ContractProposed,
    ContractRevoked,
    ContractRevokedNoted,
    ContractSigned,
    ContractVerified,
)
from medusa.market.contract.register import ContractRegister
from medusa.market.contract.signed import (
    ContractDocument,
    RevocationDocument,
    check_signatures,
    opened_document,
    sign_document,
)
from medusa.market.contract.states import NegotiationState as State
from medusa.ports import SKEW_US
from tests.market.contract.parties import (
    DAY_US,
    FEDERATION,
    NOW_US,
    PLAIN,
    SECOND_US,
    VERIFY,
    key_of,
    keys,
    terms,
)

HOUR_US = 3_600 * SECOND_US
OTHER = {"acme": "bigco", "bigco": "acme"}


class Two:
    """acme (the provider of ``PLAIN``) and bigco, with a network between them that is told what to do."""

    def __init__(self) -> None:
        self.now_us = NOW_US
        self.registers: dict[str, ContractRegister] = {}
        self.desks: dict[str, ContractDesk] = {}
        for name in OTHER:
            self.start(name)

    def start(self, name, kept=b"") -> None:
        """Begin, or begin again with what was kept."""
        self.registers[name] = ContractRegister(name)
        self.desks[name] = ContractDesk(
            name,
            federation=FEDERATION,
            signer=key_of(name),
            verify=VERIFY,
            keys=keys("acme", "bigco", "carol"),
            register=self.registers[name],
        )
        if kept:
            self.desks[name].restore(kept)

    def propose(self, name="bigco", contract=PLAIN, within_us=HOUR_US) -> None:
        self.desks[name].propose(self.now_us, contract, within_us=within_us)

    def take(self, name):
        letters = self.desks[name].take()
        assert all(letter.partner == OTHER[name] for letter in letters)
        return [letter.message for letter in letters]

    def give(self, name, message) -> None:
        self.desks[name].receive(self.now_us, OTHER[name], message)

    def deliver(self) -> list[str]:
        """All letters, until there are none; what they were."""
        seen = []
        while letters := [(name, each) for name in OTHER for each in self.take(name)]:
            for name, message in letters:
                seen.append(type(message).__name__)
                self.give(OTHER[name], message)
            assert len(seen) < 100
        return seen

    def state(self, name, id="c1"):
        return next(each.state for each in self.desks[name].status() if each.contract.id == id)

    def counts(self, name):
        return self.registers[name].in_force(self.now_us)

    def tick(self, later_us=0) -> None:
        self.now_us += later_us
        for desk in self.desks.values():
            desk.tick(self.now_us)


@pytest.fixture
def two() -> Two:
    return Two()


def finalized(two) -> None:
    two.propose()
    two.deliver()
    two.desks["acme"].accept(two.now_us, "bigco", "c1")
    two.deliver()
    assert two.counts("acme") == two.counts("bigco") == (PLAIN,)


def test_the_consumer_proposes_and_the_provider_signs(two):
    two.propose()
    assert two.deliver() == ["ContractProposed"]
    assert two.state("acme") is two.state("bigco") is State.REQUESTED
    assert two.counts("acme") == two.counts("bigco") == ()
    two.desks["acme"].accept(two.now_us, "bigco", "c1")
    assert two.state("acme") is State.AGREED
    assert two.deliver() == ["ContractSigned", "ContractVerified", "ContractFinalized"]
    assert two.state("acme") is two.state("bigco") is State.FINALIZED
    assert two.counts("acme") == two.counts("bigco") == (PLAIN,)


def test_the_provider_proposes_and_the_consumer_signs(two):
    two.propose("acme")
    two.deliver()
    assert two.state("acme") is two.state("bigco") is State.OFFERED
    two.desks["bigco"].accept(two.now_us, "acme", "c1")
    assert two.state("bigco") is State.ACCEPTED
    assert two.deliver() == ["ContractSigned", "ContractAgreed", "ContractVerified", "ContractFinalized"]
    assert two.counts("acme") == two.counts("bigco") == (PLAIN,)


def test_a_counter_proposal_has_a_higher_version_and_takes_its_place(two):
    two.propose()
    two.deliver()
    dearer = terms(version=2, price_micro=30_000)
    two.propose("acme", dearer)
    two.deliver()
    assert two.state("acme") is two.state("bigco") is State.OFFERED
    with pytest.raises(LocalProtocolError, match="our own proposal"):
        two.desks["acme"].accept(two.now_us, "bigco", "c1")
    two.desks["bigco"].accept(two.now_us, "acme", "c1")
    two.deliver()
    assert two.counts("acme") == two.counts("bigco") == (dearer,)
    with pytest.raises(ContractError, match="write version 3"):
        two.propose("acme", terms(version=2, price_micro=40_000))


def test_a_new_version_is_negotiated_while_the_old_one_counts(two):
    finalized(two)
    two.tick(DAY_US)
    cheaper = terms(version=2, price_micro=10_000, begins_us=two.now_us)
    two.propose("acme", cheaper)
    two.deliver()
    assert two.counts("acme") == two.counts("bigco") == (PLAIN,)
    two.desks["bigco"].refuse(two.now_us, "acme", "c1", "no")
    two.deliver()
    assert two.counts("acme") == two.counts("bigco") == (PLAIN,)
    two.propose("acme", terms(version=3, price_micro=10_000, begins_us=two.now_us))
    two.deliver()
    two.desks["bigco"].accept(two.now_us, "acme", "c1")
    two.deliver()
    assert [each.version for each in (*two.counts("acme"), *two.counts("bigco"))] == [3, 3]


def test_a_new_version_that_could_never_be_billed_is_not_proposed_nor_taken(two):
    """It begins with the one before: the ledger would have no interval for that one."""
    finalized(two)
    cheaper = terms(version=2, price_micro=10_000)
    with pytest.raises(ContractError, match="let it begin later"):
        two.propose("bigco", cheaper)
    two.give("acme", proposed(cheaper))
    (answer,) = two.take("acme")
    assert (type(answer), answer.code) == (ContractEnded, "version")
    assert two.counts("acme") == two.counts("bigco") == (PLAIN,)


def test_a_refusal_is_told_with_its_reason(two):
    two.propose()
    two.deliver()
    two.desks["acme"].refuse(two.now_us, "bigco", "c1", "too cheap")
    two.deliver()
    (status,) = two.desks["bigco"].status()
    assert (status.state, status.code, status.text) == (State.TERMINATED, "refused", "too cheap")
    with pytest.raises(LocalProtocolError, match="TERMINATED already"):
        two.desks["acme"].refuse(two.now_us, "bigco", "c1")


def test_nobody_answers_until_the_deadline(two):
    two.propose()
    said = 0
    while two.state("bigco") is State.REQUESTED:
        messages = two.take("bigco")
        said += len(messages)
        assert all(isinstance(each, ContractProposed) for each in messages)
        wake_us = two.desks["bigco"].wake_at_us()
        assert wake_us is not None
        assert two.now_us < wake_us <= two.now_us + AGAIN_US
        two.tick(wake_us - two.now_us)
    assert said == HOUR_US // AGAIN_US + 1
    assert two.now_us == NOW_US + HOUR_US + 1
    (ended,) = two.take("bigco")
    assert (type(ended), ended.code) == (ContractEnded, "deadline")
    assert two.desks["bigco"].wake_at_us() is None
    two.tick(HOUR_US)
    assert two.take("bigco") == []


def test_what_comes_too_late_is_not_signed(two):
    two.propose()
    (proposed,) = two.take("bigco")
    two.give("acme", proposed)
    two.now_us += HOUR_US + 1
    with pytest.raises(ContractError, match="was open until"):
        two.desks["acme"].accept(two.now_us, "bigco", "c1")
    two.tick()
    assert two.state("acme") is State.TERMINATED
    two.now_us += HOUR_US
    two.take("acme")
    late = Two()
    late.now_us = two.now_us
    late.give("acme", proposed)
    (answer,) = late.take("acme")
    assert (type(answer), answer.code) == (ContractEnded, "deadline")
    assert late.desks["acme"].status() == ()


@pytest.mark.parametrize("first", ["acme", "bigco"])
def test_a_message_that_comes_again_changes_nothing_and_is_answered_as_it_was(two, first):
    """Every message of a whole exchange, again at every later moment, in every order."""
    two.propose(first)
    sent = {name: [] for name in OTHER}

    def again() -> None:
        before = [two.state(name) for name in OTHER if two.desks[name].status()]
        counted = [two.counts(name) for name in OTHER]
        for name in OTHER:
            for message in sent[name]:
                two.give(name, message)
        assert [two.state(name) for name in OTHER if two.desks[name].status()] == before
        assert [two.counts(name) for name in OTHER] == counted

    accepted = False
    for _ in range(6):
        for name in OTHER:
            for message in two.take(name):
                if message not in sent[OTHER[name]]:
                    two.give(OTHER[name], message)
                    sent[OTHER[name]].append(message)
                    again()
        if not accepted:
            two.desks[OTHER[first]].accept(two.now_us, first, "c1")
            accepted = True
            again()
    assert two.counts("acme") == two.counts("bigco") == (PLAIN,)


def test_an_answer_that_was_lost_is_given_again(two):
    two.propose()
    (proposed,) = two.take("bigco")
    two.give("acme", proposed)
    two.desks["acme"].accept(two.now_us, "bigco", "c1")
    signed = two.take("acme")
    two.give("acme", proposed)
    assert two.take("acme") == signed
    two.give("bigco", *signed)
    verified = two.take("bigco")
    two.give("bigco", *signed)
    assert two.take("bigco") == verified
    two.give("acme", *verified)
    finalized = two.take("acme")
    two.give("acme", *verified)
    assert two.take("acme") == finalized == [ContractFinalized(contract="c1", version=1)]


def test_who_finalized_alone_hears_that_the_other_gave_up(two):
    """All of the last answers are lost: the consumer ends at the deadline, and says so."""
    two.propose()
    two.deliver()
    two.desks["acme"].accept(two.now_us, "bigco", "c1")
    (signed,) = two.take("acme")
    two.give("bigco", signed)
    (verified,) = two.take("bigco")
    two.give("acme", verified)
    two.take("acme")
    assert two.counts("acme") == (PLAIN,)
    assert two.counts("bigco") == ()
    two.tick(HOUR_US + 1)
    assert two.state("bigco") is State.TERMINATED
    two.deliver()
    assert two.state("acme") is State.TERMINATED
    assert two.counts("acme") == ()


def test_a_provider_can_not_take_a_contract_back_by_saying_so(two):
    finalized(two)
    two.give("bigco", ContractEnded(contract="c1", version=1, code="deadline"))
    assert two.counts("bigco") == (PLAIN,)
    two.give("acme", ContractEnded(contract="c1", version=1, code="refused"))
    assert two.counts("acme") == (PLAIN,)


@pytest.mark.parametrize("code", ["deadline", "unknown"])
def test_a_contract_in_force_is_not_taken_back_by_who_says_it_was_never_signed(two, code):
    finalized(two)
    two.tick(HOUR_US + GIVEN_UP_US + 1)
    two.give("acme", ContractEnded(contract="c1", version=1, code=code))
    assert two.state("acme") is State.FINALIZED
    assert two.counts("acme") == (PLAIN,)
    early = Two()
    finalized(early)
    early.tick(HOUR_US + GIVEN_UP_US)
    early.give("acme", ContractEnded(contract="c1", version=1, code=code))
    assert early.counts("acme") == ()


def test_it_ends_by_itself(two):
    finalized(two)
    assert two.desks["acme"].wake_at_us() == PLAIN.ends_us
    two.tick(PLAIN.ends_us - two.now_us)
    assert [two.state(name) for name in OTHER] == [State.TERMINATED] * 2
    assert two.take("acme") == two.take("bigco") == []
    assert [each.code for each in two.desks["acme"].status()] == ["ended"]


# --- revoking -------------------------------------------------------------------------------------


def test_a_revocation_ends_it_after_its_notice(two):
    contract = terms(notice_s=86_400)
    two.propose(contract=contract)
    two.deliver()
    two.desks["acme"].accept(two.now_us, "bigco", "c1")
    two.deliver()
    assert two.desks["acme"].revoke(two.now_us, "bigco", "c1", "we move out") == NOW_US + DAY_US
    two.take("acme")
    two.tick(AGAIN_US)
    (again,) = two.take("acme")
    assert isinstance(again, ContractRevoked)
    two.give("bigco", again)
    two.give("bigco", again)
    assert two.deliver() == ["ContractRevokedNoted"] * 2
    two.tick(DAY_US - 2 * AGAIN_US)
    assert two.counts("acme") == two.counts("bigco") == (contract,)
    assert two.take("acme") == []
    two.tick(AGAIN_US)
    assert two.counts("acme") == two.counts("bigco") == ()
    assert [each.code for name in OTHER for each in two.desks[name].status()] == ["revoked"] * 2
    assert two.desks["acme"].revoke(two.now_us, "bigco", "c1") == two.now_us + DAY_US
    assert two.registers["acme"].ends_us("bigco", "c1", 1) == NOW_US + DAY_US
    assert two.take("acme") == []


def test_a_revocation_that_nobody_notes_is_not_said_for_ever(two):
    finalized(two)
    two.desks["acme"].revoke(two.now_us, "bigco", "c1")
    assert two.counts("acme") == ()
    said = len(two.take("acme"))
    while (wake_us := two.desks["acme"].wake_at_us()) is not None:
        assert wake_us - NOW_US < HOUR_US
        two.tick(wake_us - two.now_us)
        said += len(two.take("acme"))
    assert said == 120


def revocation(**changed) -> RevocationDocument:
    plain = RevocationDocument(
        federation=FEDERATION,
        id="c1",
        version=1,
        provider="acme",
        consumer="bigco",
        by="bigco",
        said_us=NOW_US,
        ends_us=NOW_US + DAY_US,
    )
    return msgspec.structs.replace(plain, **changed)


@pytest.mark.parametrize(
    ("changed", "by", "code"),
    [
        ({"ends_us": NOW_US + DAY_US - 1}, "bigco", "contract.notice"),
        ({"said_us": NOW_US + HOUR_US, "ends_us": NOW_US + 2 * DAY_US}, "bigco", "contract.time"),
        ({"by": "acme"}, "acme", "contract.document"),
        ({"federation": "other"}, "bigco", "contract.federation"),
        ({"provider": "carol"}, "bigco", "contract.party"),
    ],
)
def test_what_is_no_revocation_changes_nothing(two, changed, by, code):
    two.propose(contract=terms(notice_s=86_400))
    two.deliver()
    two.desks["acme"].accept(two.now_us, "bigco", "c1")
    two.deliver()
    signed = sign_document(revocation(**changed), key_of(by), by)
    with pytest.raises(RemoteProtocolError) as caught:
        two.give("acme", ContractRevoked(signed=signed.to_bytes()))
    assert caught.value.code == code
    assert two.take("acme") == []
    assert two.registers["acme"].ends_us("bigco", "c1", 1) == PLAIN.ends_us


def noticed(two, notice_s=10 * 86_400) -> None:
    two.propose(contract=terms(notice_s=notice_s))
    two.deliver()
    two.desks["acme"].accept(two.now_us, "bigco", "c1")
    two.deliver()


def revoked_by_bigco(two, **changed) -> None:
    signed = sign_document(revocation(**changed), key_of("bigco"), "bigco")
    two.give("acme", ContractRevoked(signed=signed.to_bytes()))


def test_a_revocation_that_is_dated_back_buys_no_shorter_notice(two):
    noticed(two)
    two.tick(20 * DAY_US)
    revoked_by_bigco(two, said_us=two.now_us - 9 * DAY_US, ends_us=two.now_us + DAY_US)
    assert two.registers["acme"].ends_us("bigco", "c1", 1) == PLAIN.ends_us
    (noted,) = two.take("acme")
    assert noted.ends_us == PLAIN.ends_us
    early = Two()
    noticed(early)
    early.tick(11 * DAY_US)
    revoked_by_bigco(early, said_us=early.now_us - 9 * DAY_US, ends_us=early.now_us + DAY_US)
    assert early.registers["acme"].ends_us("bigco", "c1", 1) == early.now_us + 10 * DAY_US
    early.tick(DAY_US)
    assert early.counts("acme") != ()


def test_a_revocation_that_nobody_would_say_any_more_is_refused(two):
    noticed(two)
    two.tick(11 * DAY_US)
    with pytest.raises(RemoteProtocolError, match="after it was last said") as caught:
        revoked_by_bigco(two, said_us=two.now_us - 11 * DAY_US, ends_us=two.now_us - DAY_US)
    assert caught.value.code == "contract.late"
    assert two.registers["acme"].ends_us("bigco", "c1", 1) == PLAIN.ends_us
    assert two.take("acme") == []


def test_both_count_a_contract_as_long_where_a_revocation_was_under_way(two):
    noticed(two)
    two.desks["acme"].revoke(two.now_us, "bigco", "c1")
    two.take("acme")
    two.tick(4 * DAY_US)
    two.deliver()
    ends = [two.registers[name].ends_us(OTHER[name], "c1", 1) for name in OTHER]
    assert ends == [NOW_US + 14 * DAY_US] * 2
    assert two.take("acme") == []


def test_who_notes_a_revocation_gets_its_notice_and_no_more(two):
    noticed(two)
    two.desks["acme"].revoke(two.now_us, "bigco", "c1")
    two.give("acme", ContractRevokedNoted(contract="c1", version=1, ends_us=NOW_US + 29 * DAY_US))
    assert two.registers["acme"].ends_us("bigco", "c1", 1) == NOW_US + 10 * DAY_US + SKEW_US
    two.give("acme", ContractRevokedNoted(contract="c1", version=1, ends_us=NOW_US + 29 * DAY_US))
    assert two.registers["acme"].ends_us("bigco", "c1", 1) == NOW_US + 10 * DAY_US + SKEW_US


def test_a_revocation_that_comes_again_after_the_end_is_noted_as_it_was(two):
    noticed(two, 60)
    said = revocation(ends_us=NOW_US + 60 * SECOND_US)
    message = ContractRevoked(signed=sign_document(said, key_of("bigco"), "bigco").to_bytes())
    two.give("acme", message)
    noted = two.take("acme")
    two.tick(DAY_US)
    two.give("acme", message)
    assert two.take("acme") == noted
    assert two.registers["acme"].ends_us("bigco", "c1", 1) == said.ends_us


def test_what_is_not_known_can_not_be_revoked(two):
    with pytest.raises(ContractError, match="no contract 'c1'"):
        two.desks["acme"].revoke(two.now_us, "bigco", "c1")
    signed = sign_document(revocation(), key_of("bigco"), "bigco")
    two.give("acme", ContractRevoked(signed=signed.to_bytes()))
    (answer,) = two.take("acme")
    assert (type(answer), answer.code) == (ContractEnded, "unknown")


# --- what is refused ------------------------------------------------------------------------------


def proposed(contract=PLAIN, by="bigco", **changed) -> ContractProposed:
    document = ContractDocument(federation=FEDERATION, until_us=NOW_US + HOUR_US, contract=contract)
    document = msgspec.structs.replace(document, **changed)
    return ContractProposed(signed=sign_document(document, key_of(by), by).to_bytes())


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (ContractProposed(signed=b"hello"), "contract.document"),
        (proposed(federation="other"), "contract.federation"),
        (proposed(terms(consumer="carol"), by="carol"), "contract.party"),
        (proposed(by="acme"), "contract.unsigned"),
        (ContractSigned(signed=proposed().signed), "contract.unsigned"),
        (ContractRevoked(signed=proposed().signed), "contract.unsigned"),
    ],
)
def test_a_message_that_breaks_a_rule_changes_nothing(two, message, code):
    with pytest.raises(RemoteProtocolError) as caught:
        two.give("acme", message)
    assert caught.value.code == code
    assert two.desks["acme"].status() == ()
    assert two.take("acme") == []


def test_who_goes_on_about_nothing_is_told_so(two):
    for kind in (ContractAgreed, ContractVerified, ContractFinalized):
        two.give("acme", kind(contract="c1", version=1))
        (answer,) = two.take("acme")
        assert (type(answer), answer.code) == (ContractEnded, "unknown")
    two.give("acme", ContractEnded(contract="c1", version=1, code="unknown"))
    two.give("acme", ContractRevokedNoted(contract="c1", version=1))
    assert two.take("acme") == []


def test_a_message_of_the_wrong_side_or_too_early_is_refused(two):
    two.propose()
    two.deliver()
    with pytest.raises(RemoteProtocolError, match="can't say ContractFinalized"):
        two.give("acme", ContractFinalized(contract="c1", version=1))
    with pytest.raises(RemoteProtocolError, match="comes too early"):
        two.give("acme", ContractVerified(contract="c1", version=1))
    with pytest.raises(RemoteProtocolError, match="comes too early"):
        two.give("bigco", ContractAgreed(contract="c1", version=1))
    assert two.state("acme") is two.state("bigco") is State.REQUESTED


def test_a_proposal_of_the_same_version_with_other_terms_is_answered(two):
    two.propose()
    two.deliver()
    two.give("acme", proposed(terms(price_micro=30_000)))
    (answer,) = two.take("acme")
    assert (type(answer), answer.code) == (ContractEnded, "version")
    assert two.desks["acme"].status()[0].contract == PLAIN


def test_other_terms_than_were_proposed_are_not_taken_for_them(two):
    two.propose()
    two.deliver()
    other = Two()
    other.propose(contract=terms(price_micro=30_000))
    other.deliver()
    other.desks["acme"].accept(other.now_us, "bigco", "c1")
    (signed,) = other.take("acme")
    with pytest.raises(RemoteProtocolError, match="not what was proposed"):
        two.give("bigco", signed)
    assert two.state("bigco") is State.REQUESTED


def test_a_partner_has_so_many_proposals_open_and_no_more(two):
    for number in range(OPEN_MAX + 1):
        two.give("acme", proposed(terms(id=f"c{number}")))
    (answer,) = two.take("acme")
    assert (answer.code, answer.contract) == ("limit", f"c{OPEN_MAX}")
    assert len(two.desks["acme"].status()) == OPEN_MAX


def test_a_proposal_is_not_open_for_ever(two):
    longest = NOW_US + OPEN_FOR_US_MAX + SKEW_US
    two.give("acme", proposed(until_us=longest + 1))
    (answer,) = two.take("acme")
    assert (type(answer), answer.code) == (ContractEnded, "open")
    assert two.desks["acme"].status() == ()
    two.give("acme", proposed(until_us=longest))
    assert two.state("acme") is State.REQUESTED
    with pytest.raises(ContractError, match="at most 90d, got 91d"):
        two.propose(within_us=91 * DAY_US)
    assert two.desks["bigco"].status() == ()


def test_what_can_not_be_proposed_changes_nothing(two):
    finalized(two)
    for contract, says in [
        (terms(provider="carol", consumer="dave"), "is not between us"),
        (terms(id="c2", ends_us=NOW_US), "ended"),
        (terms(id="c2", range_micro=30_000), "range_micro"),
        (PLAIN, "write version 2"),
    ]:
        with pytest.raises(ContractError, match=says):
            two.propose(contract=contract)
    assert two.take("bigco") == []
    assert len(two.desks["bigco"].status()) == 1
    with pytest.raises(LocalProtocolError, match="nothing is negotiated"):
        two.desks["bigco"].accept(two.now_us, "acme", "c2")


def test_a_request_is_not_changed_before_it_is_answered(two):
    two.propose()
    with pytest.raises(LocalProtocolError, match="REQUESTED"):
        two.propose(contract=terms(version=2))
    assert opened_document(two.take("bigco")[0].signed)[1].version == 1


# --- deaths ---------------------------------------------------------------------------------------


def seen(two, name):
    return two.desks[name].status(), two.registers[name].kept(), two.desks[name].snapshot()


@pytest.mark.parametrize("first", ["acme", "bigco"])
def test_a_desk_goes_on_after_a_death_wherever_it_was(first):
    """One dies with what it was about to say, then the other, then nobody: the rest is said again."""
    two = Two()
    two.propose(first)
    accepted = False
    for turn in range(9):
        for dead in (("acme",), ("bigco",), ())[turn % 3]:
            before = seen(two, dead)
            two.start(dead, two.desks[dead].snapshot())
            assert seen(two, dead) == before
        two.tick(AGAIN_US)
        for name in OTHER:
            for message in two.take(name):
                two.give(OTHER[name], message)
        if not accepted:
            two.desks[OTHER[first]].accept(two.now_us, first, "c1")
            accepted = True
    assert two.counts("acme") == two.counts("bigco") == (PLAIN,)
    two.desks["acme"].revoke(two.now_us, "bigco", "c1", "we move out")
    two.start("acme", two.desks["acme"].snapshot())
    assert two.counts("acme") == ()
    two.tick()
    assert two.deliver() == ["ContractRevoked", "ContractRevokedNoted"]
    assert two.counts("bigco") == ()


def proves(two, name, contract) -> bool:
    """Whether the desk has these terms with two signatures that are right."""
    signed = two.desks[name].signed(OTHER[name], contract.id, contract.version)
    if signed is None:
        return False
    document = opened_document(signed.to_bytes())[1]
    check_signatures(signed, document, verify=VERIFY, keys=keys("acme", "bigco"), federation=FEDERATION)
    return document.contract == contract


def test_the_signatures_of_each_version_stay_whatever_is_proposed_and_whoever_dies(two):
    finalized(two)
    later = terms(version=2, begins_us=NOW_US + DAY_US, price_micro=10_000)
    two.propose("acme", later)
    two.deliver()
    for name in OTHER:
        assert proves(two, name, PLAIN)
        assert not proves(two, name, later)
    two.desks["bigco"].accept(two.now_us, "acme", "c1")
    two.deliver()
    for name in OTHER:
        two.start(name, two.desks[name].snapshot())
        assert proves(two, name, PLAIN)
        assert proves(two, name, later)
    two.registers["acme"].forget(later.ends_us + 1)
    two.tick()
    assert not proves(two, "acme", PLAIN)
    assert proves(two, "bigco", PLAIN)


def test_what_was_kept_and_is_damaged_changes_nothing(two):
    finalized(two)
    data, before = two.desks["acme"].snapshot(), seen(two, "acme")
    for damaged in (b"", data[:-1], data + b"x", *(data[:at] + b"\xc1" + data[at + 1 :] for at in range(9))):
        with pytest.raises(StateError):
            two.desks["acme"].restore(damaged)
        assert seen(two, "acme") == before


# --- any network ----------------------------------------------------------------------------------


def trial(seed: int) -> bool:
    """Whether it counts in the end. What is on disk when letters go out is what a side has after a death.
    Then the network is whole: what one counts the other does, and nobody says anything any more."""
    chance = random.Random(seed)
    two = Two()
    lost, again = chance.random() * 0.9, chance.random() * 0.5
    flying: list[tuple[int, str, object]] = []
    first = chance.choice(("acme", "bigco"))
    two.propose(first, within_us=2 * 60 * SECOND_US)
    decided = False
    disk: dict[str, bytes] = {}
    dies = chance.choice((0, 0.05))

    def send(*, whole: bool) -> None:
        for name in OTHER:
            disk[name] = two.desks[name].snapshot()
            for message in two.take(name):
                copies = 1 if whole else (chance.random() >= lost) + (chance.random() < again)
                flying.extend(
                    (two.now_us + chance.randrange(0, 10 * SECOND_US), OTHER[name], message)
                    for _ in range(copies)
                )

    for second in range(300):
        whole = second > 200
        two.tick(SECOND_US)
        send(whole=whole)
        for name in OTHER:
            if not whole and chance.random() < dies:
                two.start(name, disk[name])
        for due in sorted((each for each in flying if each[0] <= two.now_us), key=lambda each: each[0]):
            flying.remove(due)
            two.give(due[1], due[2])
        other = OTHER[first]
        waiting = [
            each for each in two.desks[other].status() if each.state in (State.REQUESTED, State.OFFERED)
        ]
        if waiting and not decided and chance.random() < 0.2:
            decided = True
            if chance.random() < 0.8:
                two.desks[other].accept(two.now_us, first, "c1")
            else:
                two.desks[other].refuse(two.now_us, first, "c1", "no")
        if second == 150:
            assert all(
                each.state in (State.FINALIZED, State.TERMINATED)
                for desk in two.desks.values()
                for each in desk.status()
            )
    # Each side brings its last word about it to the other once more, as whatever is done under it would.
    for name in OTHER:
        for each in two.desks[name].status():
            if each.state is State.TERMINATED:
                two.give(OTHER[name], ContractEnded(contract="c1", version=1, code="unknown"))
    assert two.counts("acme") == two.counts("bigco")
    assert flying == []
    for name in OTHER:
        finals = [each.state is State.FINALIZED for each in two.desks[name].status()]
        assert bool(two.counts(name)) == any(finals)
    return any(finals)


@pytest.mark.parametrize("first", range(0, 200, 20))
def test_whatever_is_lost_repeated_or_dies_it_ends_and_both_agree(first):
    outcomes = [trial(seed) for seed in range(first, first + 20)]
    assert 1 <= sum(outcomes) <= 19  # Each of the two comes about.
