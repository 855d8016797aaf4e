"""Each planted mistake is noticed by the test that it names, which passes without it."""

from __future__ import annotations

import pytest

from medusa.errors import MedusaError
from tests.market.negotiation.planted import PLANTED, rest, storm
from tests.sim.planting import Mistake, planted


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_mistake_is_noticed(name: str) -> None:
    trade = PLANTED[name]
    with (
        planted(Mistake(area="market", about=trade.about, edits=trade.edits)),
        pytest.raises((AssertionError, MedusaError, pytest.fail.Exception)),
    ):
        trade.noticed_by()


@pytest.mark.full
@pytest.mark.issue(20)
def test_without_a_mistake_nothing_is_noticed() -> None:
    """The random ones: the others are tests of their own."""
    rest()
    storm()
