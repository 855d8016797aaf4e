"""Mistakes in how nodes trade load: in the market on nodes, in what it asks of moves, and in what is paid.

They are those of an engineer who writes ``medusa.nodes.market``, ``medusa.nodes.abroad`` or what they use of
``medusa.market``; ``tests.sim.planting`` plants one, and a seed of ``trading`` or ``deserted`` notices it, or
a unit test: for what only comes about where somebody lies, or at a moment that few seeds meet.
"""

from __future__ import annotations

from tests.sim.planting import Edit, Mistake, edit

__all__ = ["TRADING"]

_IN = ("trading", "deserted")
_JUDGE = "market.negotiation.answers:AnswerJudge.judge"
_WORTHWHILE = "market.negotiation.requests:RequestPlanner.worthwhile"

TRADING: dict[str, Mistake] = {
    "a guest is metered from its first row": Mistake(
        area="metering",
        about="A host meters a guest from the first row of its life instead of the one at which it came: it "
        "bills what its owner had done itself.",
        edits=edit(
            "nodes.market.paid_tasks:PaidTasks._begin_guest",
            "begin_row=word.begin_row",
            "begin_row=0",
        ),
        scenarios=_IN,
        seed=0,
    ),
    "the last part of a stay isn't billed": Mistake(
        area="metering",
        about="A host counts the rows of a guest up to when its owner says from which one on it pays, and "
        "none of those that come then: both book the same, and it isn't paid for most of its work.",
        edits=edit(
            "nodes.market.traded_tasks:TradedTasks.count",
            "theirs = [(deal, guest.row) for deal, guest in self._paying()]",
            "theirs: list[tuple[KeptDeal, int]] = []",
        ),
        scenarios=_IN,
        seed=26,
        shows="SimulationError: bill: ",
    ),
    "the limit of a contract isn't looked at": Mistake(
        area="permits",
        about="Neither the owner nor the host compares a task with what its contract allows at a time: more "
        "runs than both have signed.",
        edits=(
            Edit(_JUDGE, "units <= 0 or units > limit * (1 + _ROUNDING)", "units <= 0"),
            Edit(_WORTHWHILE, "units <= 0 or units > limit * (1 + _ROUNDING)", "units <= 0"),
        ),
        beside=edit(
            "market.negotiation.requests:RequestPlanner.why_not",
            "units <= 0 or units * 1_000 > signed.contract.units_per_s_max_milli",
            "units <= 0",
        ),
        scenarios=("deserted", "trading"),
        seed=2,
    ),
    "a host doesn't compare the price with its cost": Mistake(
        area="prices",
        about="A host takes what is offered for any price of the contract, though it costs it more.",
        edits=edit(
            _JUDGE,
            "(not added < most or price_micro < floor_micro)",
            "price_micro < floor_micro",
        ),
        scenarios=_IN,
        seed=1,
    ),
    "an owner doesn't compare the price with its cost": Mistake(
        area="prices",
        about="An owner gives load away that costs it less at home than it pays.",
        edits=edit(_WORTHWHILE, "self._books.saved(load, task, units) > least", "units > 0"),
        scenarios=_IN,
        tests="tests/market/negotiation/test_random_networks.py",
    ),
    "the price of a contract is booked instead of the agreed one": Mistake(
        area="prices",
        about="An owner books what it lends for the highest price of the contract: it disputes what it has "
        "agreed to, and pays no reading.",
        edits=edit(
            "nodes.market.paid_tasks:PaidTasks.went",
            "price_micro=deal.price_micro",
            "price_micro=deal.contract.price_micro",
        ),
        scenarios=_IN,
        seed=1,
    ),
    "another figure is booked for a row": Mistake(
        area="prices",
        about="An owner books the rate of a task in place of what a row of it takes: it disputes what it has "
        "agreed to.",
        edits=edit(
            "nodes.market.paid_tasks:PaidTasks.went",
            "nano_units_per_row=deal.nano",
            "nano_units_per_row=deal.task.rows_per_s_milli",
        ),
        scenarios=_IN,
        seed=1,
    ),
    "what partners have to know is forgotten at a restart": Mistake(
        area="restarts",
        about="After a restart an owner doesn't say any more from and up to which row it pays: its host "
        "never hears that the task is home.",
        edits=edit("nodes.market.paid_tasks:PaidTasks.__init__", "TaskMarks(kept.marks)", "TaskMarks()"),
        scenarios=_IN,
        seed=1,
    ),
    "what was agreed is forgotten at a restart": Mistake(
        area="restarts",
        about="After a restart a node knows nothing of what is away and what is a guest: permits end, and "
        "nothing of it is paid any more.",
        edits=edit(
            "nodes.market.node_market:NodeMarket._begin",
            "self._tasks.resume(time_us, kept.trades)",
            "self._tasks.resume(time_us, type(kept.trades)())",
        ),
        scenarios=_IN,
        seed=12,
    ),
    "receipts aren't kept": Mistake(
        area="restarts",
        about="What both have signed isn't in the catalog: after a restart the work is billed once more, or "
        "isn't paid.",
        edits=edit(
            "nodes.market.node_market:NodeMarket._keep",
            "self._paid.snapshot() if self._ledger_changed else before.ledger",
            "before.ledger",
        ),
        scenarios=_IN,
        seed=1,
    ),
    "words before the disk": Mistake(
        area="restarts",
        about="A reading is signed and said before it is on disk: after a crash another one of that number "
        "is signed.",
        edits=edit("nodes.market.node_market:NodeMarket._keep", "payload, after=token", "payload, after=0"),
        scenarios=_IN,
        seed=0,
        shows="SimulationError: kept: ",
    ),
    "what came home isn't told": Mistake(
        area="returns",
        about="The market isn't told that a task is home: its permit never ends, and it stays away in the "
        "books.",
        edits=edit(
            "nodes.market.traded_tasks:TradedTasks._is_home",
            "self.trader.handed_back(time_us, deal.task.name)",
            "pass",
        ),
        scenarios=_IN,
        seed=82,
    ),
    "the end of a task isn't told its host": Mistake(
        area="returns",
        about="An owner doesn't say at which row a task came home: both count on to other numbers.",
        edits=edit(
            "nodes.market.paid_tasks:PaidTasks.came_home",
            "self._marks.ended(partner, contract, deal.negotiation, task, row)",
            "pass",
        ),
        scenarios=_IN,
        seed=1,
    ),
    "what was lent isn't written down": Mistake(
        area="returns",
        about="An owner doesn't keep what it lent: what its host sends back is refused, and stays there.",
        edits=edit(
            "nodes.abroad.abroad_moves:AbroadMoves._note_lent",
            "return spec is not None and self._kept.lends(name, digest_of(spec))",
            "return False",
        ),
        scenarios=_IN,
        seed=0,
        tests="tests/nodes/abroad/test_permits.py::test_what_a_host_sends_back_is_what_it_was_lent",
    ),
    "state isn't kept for its owner": Mistake(
        area="returns",
        about="When its contract is over a host drops a guest at once, whether or not its owner has it.",
        edits=edit(
            "nodes.abroad.abroad_moves:AbroadMoves._look_at_guest",
            "now_us - asking.since_us >= permit.keep_us",
            "now_us >= asking.since_us",
        ),
        scenarios=_IN,
        tests="tests/nodes/abroad/test_permits.py::"
        "test_state_is_kept_for_an_owner_that_is_away_and_not_for_longer",
    ),
    "a reading that comes again isn't answered": Mistake(
        area="payments",
        about="A reading that was signed already and comes again isn't answered: its receipt is "
        "never said again, and the host waits for ever.",
        edits=edit(
            "market.ledger.consumer_book:ConsumerBook._receive_reading",
            "if reading.number == self.chain.number - 1 and self._last_receipt is not None:",
            "if False:",
        ),
        scenarios=_IN,
        tests="tests/market/ledger/test_trial.py",
    ),
    "an owner signs whatever a host bills": Mistake(
        area="payments",
        about="A host counts each row of a guest twice, and its owner doesn't compare that with the rows "
        "that it has: both book the same, and it pays for work that nobody did.",
        edits=(
            Edit(
                "market.ledger.consumer_book:ConsumerBook._short",
                "if each.end_row > allowed:",
                "if allowed < 0:",
            ),
            Edit(
                "nodes.market.lent_fragments:LentFragments.guests",
                "row=each.rows_in,",
                "row=2 * each.rows_in,",
            ),
        ),
        scenarios=_IN,
        shows="SimulationError: charge: ",
        seed=0,
    ),
    "a receipt that comes again counts again": Mistake(
        area="payments",
        about="A host enters a receipt as often as it comes. Three checks stand in its way; all are away.",
        edits=(
            Edit(
                "market.ledger.provider_book:ProviderBook._receive_receipt",
                "if reading.number < self.chain.number:\n        return",
                "",
            ),
            Edit("market.ledger.provider_book:ProviderBook._receive_receipt", "if fault:", "if False:"),
            Edit("market.ledger.accounts:Accounts.post", "if entry.number < after:", "if entry.number < 0:"),
        ),
        scenarios=_IN,
        tests="tests/market/ledger/test_trial.py",
    ),
    "a row is booked for twice of what was agreed": Mistake(
        area="prices",
        about="Both sides book a row of a task for twice of what was agreed that it takes: they never "
        "differ.",
        edits=(
            Edit(
                "nodes.market.paid_tasks:PaidTasks.went",
                "nano_units_per_row=deal.nano",
                "nano_units_per_row=2 * deal.nano",
            ),
            Edit(
                "nodes.market.paid_tasks:PaidTasks._begin_guest",
                "terms = seen.nano_units_per_row, seen.price_micro",
                "terms = 2 * seen.nano_units_per_row, seen.price_micro",
            ),
        ),
        scenarios=_IN,
        shows="SimulationError: charge: ",
        seed=0,
    ),
    "what came in at home is paid too": Mistake(
        area="payments",
        about="The market takes the last row of a stay when it looks, and not as it was decided that "
        "the fragment comes home: its host is paid for what its owner did itself.",
        edits=edit(
            "nodes.market.lent_fragments:LentFragments._event",
            "self._home[event.fragment] = event.rows_in",
            "self._home[event.fragment] = self._row(event.fragment) or event.rows_in",
        ),
        scenarios=_IN,
        shows="SimulationError: charge: ",
        seed=33,
    ),
    "nothing follows from a revocation": Mistake(
        area="permits",
        about="A revocation is read, and neither who trades nor the ledger hears of it: work goes on, and is "
        "billed by a contract that is over.",
        edits=(
            Edit(
                "nodes.market.node_market:NodeMarket._take_papers",
                "self._paid.end(paper.id, partner, paper.ends_us)",
                "pass",
            ),
            Edit(
                "nodes.market.node_market:NodeMarket._take_papers",
                "self._tasks.revoked(time_us, paper.id, partner, paper.ends_us)",
                "pass",
            ),
        ),
        scenarios=_IN,
        shows="SimulationError: charge: ",
        seed=2,
    ),
    "what our own disk has is where it was handed over": Mistake(
        area="restarts",
        about="After a restart an owner takes its own last checkpoint for the row at which a fragment was "
        "handed over: its host is paid for rows that had come in at home.",
        edits=edit(
            "nodes.abroad.abroad_moves:AbroadMoves.row_of_host",
            "held = self._followings.held(fragment)\n    return None if held is None else held.rows_in",
            "counted = self.progress(fragment)\n    return None if counted is None else counted[0]",
        ),
        scenarios=_IN,
        seed=31,
        shows="SimulationError: charge: ",
    ),
    "a host rests for ever": Mistake(
        area="restarts",
        about="A host that rests, as work isn't receipted, when its contract is revoked never takes that "
        "back: its node wants to be woken at once from then on, for as long as it lives.",
        edits=edit(
            "market.ledger.provider_book:ProviderBook._stop_where_it_must",
            "self._rests_since_us = None\n        if now_us",
            "if now_us",
        ),
        scenarios=_IN,
        tests="tests/market/ledger/test_books.py",
    ),
}
