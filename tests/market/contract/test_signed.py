"""Documents that two sign: nothing in them can be changed, and each signature means one thing only."""

from __future__ import annotations

import string

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medusa.errors import ContractError
from medusa.market.contract.signed import (
    CONTEXT,
    DOCUMENT_BYTES_MAX,
    ContentDocument,
    ContractDocument,
    RevocationDocument,
    SignedDocument,
    check_signatures,
    countersign,
    document_from_text,
    document_to_text,
    is_complete,
    opened_document,
    sign_document,
)
from medusa.market.contract.terms import TaskTerms
from tests.market.contract.parties import DAY_US, FEDERATION, NOW_US, PLAIN, VERIFY, key_of, keys, terms

OFFER = ContractDocument(federation=FEDERATION, until_us=NOW_US + DAY_US, contract=PLAIN)
CONTENT = ContentDocument(
    federation=FEDERATION,
    until_us=NOW_US + DAY_US,
    id="rows",
    version=1,
    provider="acme",
    consumer="bigco",
    begins_us=NOW_US,
    ends_us=NOW_US + DAY_US,
    content="{}",
)
REVOCATION = RevocationDocument(
    federation=FEDERATION,
    id="c1",
    version=1,
    provider="acme",
    consumer="bigco",
    by="bigco",
    said_us=NOW_US,
    ends_us=NOW_US,
    reason="we move out",
)


def both(document) -> SignedDocument:
    return countersign(sign_document(document, key_of("bigco"), "bigco"), key_of("acme"), "acme")


def check(signed, document, *, known=None, federation=FEDERATION, needs=None) -> None:
    known = keys() if known is None else known
    check_signatures(signed, document, verify=VERIFY, keys=known, federation=federation, needs=needs)


@pytest.mark.parametrize("document", [OFFER, CONTENT], ids=["load", "content"])
def test_both_sign_the_same_bytes(document):
    one = sign_document(document, key_of("bigco"), "bigco")
    two = countersign(one, key_of("acme"), "acme")
    assert two.document == one.document
    assert two.consumer == one.consumer
    assert not is_complete(one, document)
    assert is_complete(two, document)
    check(two, document)
    check(one, document, needs=("bigco",))
    assert opened_document(two.to_bytes()) == (two, document)
    assert opened_document(document_from_text(document_to_text(two))) == (two, document)


def test_one_signature_ends_a_contract():
    signed = sign_document(REVOCATION, key_of("bigco"), "bigco")
    assert is_complete(signed, REVOCATION)
    check(signed, REVOCATION)
    with pytest.raises(ContractError, match="'acme' can't sign it"):
        sign_document(REVOCATION, key_of("acme"), "acme")


@pytest.mark.parametrize("document", [OFFER, CONTENT], ids=["load", "content"])
def test_any_changed_byte_is_noticed(document):
    data = both(document).to_bytes()
    for at in range(len(data)):
        for flip in (0x01, 0x80, 0xFF):
            changed = data[:at] + bytes([data[at] ^ flip]) + data[at + 1 :]
            with pytest.raises(ContractError):
                check(*opened_document(changed))


def test_any_cut_or_added_byte_is_noticed():
    data = both(OFFER).to_bytes()
    for changed in (*(data[:end] for end in range(len(data))), data + b"\0", b"\0" + data):
        with pytest.raises(ContractError):
            opened_document(changed)


ALPHABET = string.ascii_uppercase + string.ascii_lowercase + string.digits + "+/"


@pytest.mark.parametrize("id", ["c", "c1", "c10"])
def test_any_changed_character_of_a_file_is_noticed(id):
    """Whatever is left for the last characters of base64, some bits of which say nothing."""
    document = msgspec.structs.replace(OFFER, contract=terms(id=id))
    text = document_to_text(both(document))
    for at, char in enumerate(text[:-1]):
        near = ALPHABET[ALPHABET.index(char) ^ 1] if char in ALPHABET else "A"
        changed = text[:at] + near + text[at + 1 :]
        with pytest.raises(ContractError):
            check(*opened_document(document_from_text(changed)))


names = st.lists(st.text(min_size=1, max_size=20), min_size=1, max_size=4, unique=True).map(tuple)
contracts = st.builds(
    terms,
    id=st.from_regex(r"\A[a-z0-9_-]{1,64}\Z"),
    version=st.integers(1, 1 << 31),
    price_micro=st.integers(4_000, 10**9),
    range_micro=st.integers(0, 4_000),
    bytes_per_unit=st.integers(0, 10**12),
    tasks=st.builds(TaskTerms, streams=names, boxes=names),
    availability_ppm=st.integers(0, 10**6),
    latency_us=st.integers(0, 10**9),
    notice_s=st.integers(0, 86_400),
    standby=st.booleans(),
    shadow=st.booleans(),
)


@given(contracts)
@settings(deadline=None)
def test_what_is_signed_reads_back(contract):
    document = ContractDocument(federation=FEDERATION, until_us=NOW_US, contract=contract)
    if any("*" in each and len(each) > 1 for each in (contract.tasks.streams, contract.tasks.boxes)):
        with pytest.raises(ContractError, match="got both"):
            both(document)
        return
    signed = both(document)
    assert opened_document(signed.to_bytes()) == (signed, document)
    check(signed, document)


def test_a_term_that_has_its_default_is_not_in_the_bytes():
    """So that a term which a later release adds changes nothing of what was signed before."""
    written = msgspec.msgpack.decode(both(OFFER).document)
    assert set(next(each for each in written if isinstance(each, dict))) == {
        "id",
        "provider",
        "consumer",
        "begins_us",
        "ends_us",
        "price_micro",
        "range_micro",
        "units_per_s_max_milli",
    }


def test_a_default_that_is_written_out_is_not_canonical():
    written = msgspec.msgpack.decode(both(OFFER).document)
    next(each for each in written if isinstance(each, dict))["currency"] = "EUR"
    signed = msgspec.structs.replace(both(OFFER), document=msgspec.msgpack.encode(written))
    with pytest.raises(ContractError, match="canonical"):
        opened_document(signed.to_bytes())


def test_a_length_that_is_written_longer_is_not_canonical():
    data = both(OFFER).to_bytes()
    assert data[:2] == b"\x93\xc4"
    longer = data[:1] + b"\xc5\0" + data[2:]
    assert msgspec.msgpack.decode(longer) == msgspec.msgpack.decode(data)
    with pytest.raises(ContractError, match="canonical"):
        opened_document(longer)


def test_a_signature_counts_for_one_contract_and_one_federation():
    signed, document = both(OFFER), OFFER
    with pytest.raises(ContractError) as caught:
        check(signed, document, federation="other")
    assert caught.value.code == "contract.federation"
    other = ContractDocument(federation=FEDERATION, until_us=OFFER.until_us, contract=terms(id="c2"))
    moved = msgspec.structs.replace(sign_document(other, key_of("bigco"), "bigco"), provider=signed.provider)
    with pytest.raises(ContractError) as caught:
        check(moved, other)
    assert caught.value.code == "contract.signature"


def test_what_is_signed_by_another_is_refused():
    forged = countersign(sign_document(OFFER, key_of("mallory"), "bigco"), key_of("acme"), "acme")
    with pytest.raises(ContractError) as caught:
        check(forged, OFFER)
    assert caught.value.code == "contract.key"
    assert "ask 'bigco'" in caught.value.hint
    with pytest.raises(ContractError) as caught:
        check(both(OFFER), OFFER, known=keys("acme"))
    assert caught.value.code == "contract.key"
    with pytest.raises(ContractError, match="'carol' is no party"):
        sign_document(OFFER, key_of("carol"), "carol")


def test_the_signatures_of_the_two_can_not_be_swapped():
    signed = both(OFFER)
    swapped = SignedDocument(document=signed.document, provider=signed.consumer, consumer=signed.provider)
    with pytest.raises(ContractError) as caught:
        check(swapped, OFFER)
    assert caught.value.code == "contract.key"


def test_a_missing_signature_is_named():
    signed = sign_document(OFFER, key_of("bigco"), "bigco")
    with pytest.raises(ContractError, match="'acme' hasn't signed") as caught:
        check(signed, OFFER)
    assert caught.value.code == "contract.unsigned"


def test_a_signature_of_something_else_is_none():
    """The key signs statements too: what it signs of those begins otherwise."""
    data = both(OFFER).document
    made = key_of("acme").sign(b"medusa statement 1\0" + data)
    provider = msgspec.structs.replace(both(OFFER).provider, signature=made)
    with pytest.raises(ContractError) as caught:
        check(msgspec.structs.replace(both(OFFER), provider=provider), OFFER)
    assert caught.value.code == "contract.signature"
    assert CONTEXT == b"medusa contract 1\0"


def test_what_contradicts_itself_is_neither_signed_nor_opened():
    wrong = ContractDocument(federation=FEDERATION, until_us=0, contract=terms(range_micro=20_001))
    with pytest.raises(ContractError, match="range_micro"):
        sign_document(wrong, key_of("bigco"), "bigco")
    plain = msgspec.msgpack.decode(both(OFFER).document)
    next(each for each in plain if isinstance(each, dict))["range_micro"] = 20_001
    signed = msgspec.structs.replace(both(OFFER), document=msgspec.msgpack.encode(plain))
    with pytest.raises(ContractError, match="range_micro"):
        opened_document(signed.to_bytes())
    for document in (
        msgspec.structs.replace(CONTENT, consumer="acme"),
        msgspec.structs.replace(CONTENT, ends_us=NOW_US),
    ):
        with pytest.raises(ContractError):
            sign_document(document, key_of("acme"), "acme")


def test_a_text_that_is_no_unicode_is_not_signed():
    wrong = ContractDocument(
        federation=FEDERATION, until_us=0, contract=terms(tasks=TaskTerms(streams=("\ud800",)))
    )
    with pytest.raises(ContractError, match="no Unicode"):
        sign_document(wrong, key_of("acme"), "acme")


def test_a_document_has_a_bound_of_its_own():
    long = terms(tasks=TaskTerms(streams=tuple(f"{at:0256}" for at in range(240))))
    document = ContractDocument(federation=FEDERATION, until_us=NOW_US, contract=long)
    signed = both(document)
    assert 1_024 < len(signed.document) <= DOCUMENT_BYTES_MAX
    assert opened_document(document_from_text(document_to_text(signed))) == (signed, document)
    more = terms(tasks=TaskTerms(streams=tuple(f"{at:0256}" for at in range(260))))
    with pytest.raises(ContractError) as caught:
        sign_document(msgspec.structs.replace(document, contract=more), key_of("acme"), "acme")
    assert caught.value.code == "contract.size"
    with pytest.raises(ContractError) as caught:
        opened_document(b"x" * (DOCUMENT_BYTES_MAX + 2_000))
    assert caught.value.code == "contract.size"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        "-----BEGIN MEDUSA CONTRACT-----",
        "-----BEGIN MEDUSA CONTRACT-----\n*\n-----END MEDUSA CONTRACT-----",
    ],
)
def test_a_text_without_a_contract(text):
    with pytest.raises(ContractError, match="no signed contract"):
        document_from_text(text)


@given(st.binary(max_size=400))
@settings(deadline=None)
def test_any_bytes_are_refused_by_an_error_of_ours(data):
    with pytest.raises(ContractError):
        opened_document(data)
