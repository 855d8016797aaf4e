"""Mistakes in how load is negotiated, each with what notices it. Several are the prototype's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.market.negotiation import test_random_networks as networks
from tests.market.negotiation import test_terms as terms
from tests.market.negotiation import test_trading as trading
from tests.sim.planting import Edit, edit

__all__ = ["PLANTED", "PlantedTrade"]

_IN = "market.negotiation."
SEEDS = 40


@dataclass(frozen=True)
class PlantedTrade:
    """An edit, and the test that fails with it."""

    about: str
    edits: tuple[Edit, ...]
    noticed_by: Callable[[], None]


def rest() -> None:
    """Random traders under constant load."""
    for seed in range(SEEDS):
        networks.comes_to_rest(seed)


def storm() -> None:
    """Random traders under failures."""
    for seed in range(SEEDS):
        networks.survives(seed)


PLANTED = {
    "accepts_what_overloads": PlantedTrade(
        "a provider takes what it has no room for, as the prototype did by its marginal cost of -1",
        edit(
            f"{_IN}answers:AnswerJudge.judge",
            "if reason is None and not self._books.fits(load.plus(task.use)):",
            "if reason is None and False:",
        ),
        rest,
    ),
    "asks_who_is_away_without_end": PlantedTrade(
        "a partner that doesn't answer is asked at once again, for ever",
        edit(
            f"{_IN}requests:RequestPlanner.askable",
            "and not self._rests.rests(now_us, signed.key)",
            "",
        ),
        trading.test_a_partner_that_does_not_answer_is_asked_ever_more_rarely,
    ),
    "asks_who_is_known_to_be_away": PlantedTrade(
        "whether a partner is reachable isn't looked at",
        edit(f"{_IN}requests:RequestPlanner.askable", "self._reachable(signed.partner)", "True"),
        trading.test_one_that_is_known_to_be_away_is_not_asked,
    ),
    "offers_above_the_range": PlantedTrade(
        "a counter-offer is what it costs, whatever the contract says",
        (
            Edit(
                f"{_IN}answers:AnswerJudge._price_for",
                "if not added < self._settings.below(contract.price_micro):",
                "if False:",
            ),
            Edit(
                f"{_IN}answers:AnswerJudge._price_for",
                "return min(above, contract.price_micro)",
                "return above",
            ),
        ),
        rest,
    ),
    "takes_any_counter_offer": PlantedTrade(
        "a consumer takes a counter-offer outside the range",
        edit(
            f"{_IN}consumer:LoadConsumer.on_offer",
            "contract.least_micro <= message.price_micro <= contract.price_micro",
            "True",
        ),
        lambda: terms.test_a_provider_that_breaks_a_rule_changes_nothing(
            "offer", {"price_micro": 1_000_001}, "E_PRICE"
        ),
    ),
    "sells_room_for_less": PlantedTrade(
        "room is sold for less than what is paid for a task that would be cheaper here",
        edit(f"{_IN}provider:LoadProvider.floor_micro", "self._held_micro()", "0"),
        trading.test_room_is_not_sold_for_less_than_what_is_paid_for_a_task_that_is_only_held,
    ),
    "begins_chain_after_chain": PlantedTrade(
        "room is made for one while another one is waited for, and what went for that stays away",
        edit(
            f"{_IN}provider:LoadProvider._chain", "if self.expects_until_us(now_us) is not None:", "if False:"
        ),
        trading.test_while_one_is_expected_for_whom_room_was_made_no_other_chain_is_begun,
    ),
    "keeps_room_for_ever": PlantedTrade(
        "room of a negotiation that is over isn't freed",
        edit(f"{_IN}provider:LoadProvider._end", "self._books.free_room(sale.key)", "pass"),
        terms.test_room_is_free_again_once_its_time_is_over,
    ),
    "resells_without_right": PlantedTrade(
        "a guest goes on wherever it is cheaper",
        edit(f"{_IN}requests:RequestPlanner.why_not", "if not signed.may_follow(guest.signed):", "if False:"),
        trading.test_a_guest_goes_on_only_where_its_owners_contract_allows_it,
    ),
    "resells_to_whoever_resells": PlantedTrade(
        "nobody looks to whom the next one might hand it on",
        edit(
            f"{_IN}contract_book:SignedContract.may_follow",
            "all(each in owners.resale for each in next_ones)",
            "True",
        ),
        trading.test_a_guest_goes_on_only_where_its_owners_contract_allows_it,
    ),
    "judges_guests_by_later_ones": PlantedTrade(
        "what was taken later, for more, makes earlier guests a loss: they go, and come again, to and fro",
        edit(
            f"{_IN}guests:GuestKeeper.shed",
            "load[virtual] = load[virtual].minus(guest.now.use)",
            "pass",
        ),
        trading.test_a_guest_stays_beside_one_that_came_later_and_pays_more,
    ),
    "holds_nothing": PlantedTrade(
        "a task that went is called home in the next round",
        edit(f"{_IN}aways:AwayKeeper.call_home", "if now_us < held_us:", "if False:"),
        trading.test_a_task_comes_home_once_it_is_cheaper_there_and_was_held_long_enough,
    ),
    "epsilon_the_wrong_way": PlantedTrade(
        "what saves a little less than the price is offered: it goes, and comes back",
        edit(f"{_IN}settings:TradeSettings.above", "1 + self", "1 - self"),
        rest,
    ),
    "goes_to_and_fro": PlantedTrade(
        "without hysteresis a task is worth moving both ways",
        (
            Edit(f"{_IN}settings:TradeSettings.above", "1 + self", "1 - self"),
            Edit(f"{_IN}settings:TradeSettings.below", "1 - self", "1 + self"),
            Edit(f"{_IN}aways:AwayKeeper.call_home", "if now_us < held_us:", "if False:"),
        ),
        rest,
    ),
    "answers_as_they_come": PlantedTrade(
        "the best paid isn't the first, as the prototype sorted pointers",
        edit(f"{_IN}provider:LoadProvider.answer", "-each[1].request.price_micro", "0"),
        terms.test_the_best_paid_is_answered_first,
    ),
    "begins_again_what_is_over": PlantedTrade(
        "a request that comes late, again, opens its negotiation anew",
        edit(
            f"{_IN}provider:LoadProvider.on_request",
            "code = self._ended.get(partner, {}).get(message.negotiation)",
            "code = None",
        ),
        terms.test_a_request_that_comes_again_has_the_effect_of_one,
    ),
    "moves_what_was_worth_it_once": PlantedTrade(
        "what was agreed is moved, without looking again whether it is worth its price",
        edit(
            f"{_IN}consumer:LoadConsumer.on_agreed",
            "for task in self._worth(purchase, here, message.price_micro)",
            "for task in here",
        ),
        rest,
    ),
    "waits_for_ever": PlantedTrade(
        "the deadline of a negotiation isn't kept",
        edit(f"{_IN}consumer:LoadConsumer.tick", "if now_us >= purchase.deadline_us:", "if False:"),
        storm,
    ),
    "gives_up_what_is_away": PlantedTrade(
        "tasks at a partner that isn't reached are taken for lost",
        edit(
            f"{_IN}trader:Trader.partner",
            "self._consumer.unreachable(now_us, partner)",
            "self._books.away.clear()",
        ),
        trading.test_after_its_provider_died_a_task_is_away_until_the_driver_says_otherwise,
    ),
    "calls_back_once": PlantedTrade(
        "a recall that was lost isn't said again: the task stays abroad",
        edit(f"{_IN}aways:AwayKeeper.tick", "if now_us >= away.say_at_us and", "if False and"),
        storm,
    ),
    "forgets_at_a_restart": PlantedTrade(
        "after a restart nobody knows what is away",
        edit(
            f"{_IN}trader:Trader.resume", 'self._consumer.resume(now_us, kept.number, parts["ours"])', "pass"
        ),
        storm,
    ),
    "lets_in_what_comes_too_late": PlantedTrade(
        "a task is let in when its room has gone",
        edit(f"{_IN}provider:LoadProvider.admits", "or now_us >= sale.deadline_us", ""),
        lambda: terms.test_what_it_allows_is_agreed_and_room_is_kept({}),
    ),
    "believes_what_is_said": PlantedTrade(
        "what a guest takes isn't compared with what was said",
        edit(f"{_IN}guests:GuestKeeper._judge_guest", "if takes * PPM >", "if False and takes * PPM >"),
        trading.test_a_task_that_takes_more_than_was_said_goes_back_and_its_consumer_rests,
    ),
    "runs_on_without_a_contract": PlantedTrade(
        "the end of a contract isn't noticed",
        edit(
            f"{_IN}trader:Trader._periods",
            "if self._contracts.in_force(now_us, *key) is None:",
            "if False:",
        ),
        trading.test_what_runs_by_a_contract_comes_home_when_it_ends,
    ),
    "moves_by_a_shadow": PlantedTrade(
        "a shadow contract moves tasks",
        edit(f"{_IN}consumer:LoadConsumer.on_agreed", "if purchase.signed.contract.shadow:", "if False:"),
        lambda: trading.test_a_shadow_moves_nothing_and_says_what_would_have_been_paid("a"),
    ),
    "sells_the_same_room_twice": PlantedTrade(
        "room that is kept for one isn't counted when another asks",
        edit(
            f"{_IN}answers:AnswerJudge.load",
            "self._books.load_promised(",
            "self._books.load(",
        ),
        rest,
    ),
}
