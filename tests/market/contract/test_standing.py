"""Whether a contract counts, from what was signed alone."""

from __future__ import annotations

import pytest

from medusa.errors import ContractError
from medusa.market.contract.signed import (
    ContractDocument,
    RevocationDocument,
    countersign,
    sign_document,
)
from medusa.market.contract.standing import check_open, check_revokes, standing_of
from tests.market.contract.parties import DAY_US, FEDERATION, NOW_US, SECOND_US, VERIFY, key_of, keys, terms

OFFER = ContractDocument(federation=FEDERATION, until_us=NOW_US + DAY_US, contract=terms(notice_s=3_600))
ONE = sign_document(OFFER, key_of("bigco"), "bigco")
BOTH = countersign(ONE, key_of("acme"), "acme")
REVOCATION = RevocationDocument(
    federation=FEDERATION,
    id="c1",
    version=1,
    provider="acme",
    consumer="bigco",
    by="acme",
    said_us=NOW_US,
    ends_us=NOW_US + DAY_US,
)


def why(signed=BOTH, *, known=None, at_us=0, revocation=None) -> tuple[bool, str]:
    found = standing_of(
        signed,
        OFFER,
        verify=VERIFY,
        keys=keys() if known is None else known,
        now_us=NOW_US + at_us,
        revocation=revocation,
    )
    return found.counts, found.why


def test_it_counts_with_both_signatures_of_known_keys_in_its_time():
    assert why() == (True, "for 30d more")
    assert why(ONE) == (False, "acme hasn't signed")
    assert why(at_us=-3 * SECOND_US) == (False, "it begins in 3s")
    assert why(at_us=30 * DAY_US) == (False, "it ended 0s ago")
    assert why(known=keys("acme")) == (
        False,
        "nobody has said that the key that signed for bigco is theirs",
    )


def test_a_revocation_shortens_it():
    assert why(revocation=REVOCATION) == (True, "for 1d more")
    assert why(revocation=REVOCATION, at_us=2 * DAY_US) == (False, "acme has revoked it, 1d ago")


def test_parties_are_told_with_their_keys():
    found = standing_of(ONE, OFFER, verify=VERIFY, keys=keys("bigco"), now_us=NOW_US)
    assert [tuple(each) for each in found.parties] == [
        ("acme", "provider", "", False),
        ("bigco", "consumer", key_of("bigco").key, True),
    ]


def test_a_wrong_signature_is_an_error_whatever_is_known():
    forged = countersign(ONE, key_of("mallory"), "acme")
    assert why(forged, known={}) == (False, "nobody has said that the key that signed for acme is theirs")
    with pytest.raises(ContractError) as caught:
        why(forged)
    assert caught.value.code == "contract.key"


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"federation": "other"}, "contract.document"),
        ({"id": "c2"}, "contract.document"),
        ({"provider": "carol"}, "contract.document"),
        ({"ends_us": NOW_US}, "contract.notice"),
    ],
)
def test_a_revocation_is_of_one_contract(changed, code):
    import msgspec

    check_revokes(REVOCATION, OFFER, 3_600)
    check_revokes(msgspec.structs.replace(REVOCATION, version=2), OFFER, 3_600)
    with pytest.raises(ContractError) as caught:
        check_revokes(msgspec.structs.replace(REVOCATION, **changed), OFFER, 3_600)
    assert caught.value.code == code


def test_an_offer_is_open_until_a_time():
    check_open(OFFER, NOW_US + DAY_US)
    for at_us, code in ((DAY_US + 1, "contract.late"), (30 * DAY_US, "contract.ended")):
        with pytest.raises(ContractError) as caught:
            check_open(OFFER, NOW_US + at_us)
        assert caught.value.code == code
