"""Requests to other nodes that wait for their answers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from medusa.nodes.requests import AGAIN_US, Requests


def test_what_is_not_answered_is_due_again_until_it_is():
    requests: Requests[str] = Requests()
    made = requests.open(10, 1, "a", "go")
    assert list(requests.due(10 + AGAIN_US - 1)) == []
    assert list(requests.due(10 + AGAIN_US)) == [made]
    made.said(10 + AGAIN_US, "b")
    assert (made.to, made.since_us, requests.wake_at_us()) == ("b", 10, 10 + 2 * AGAIN_US)
    requests.close(made)
    assert (requests.wake_at_us(), len(requests)) == (None, 0)


def test_only_who_was_asked_answers_where_that_matters():
    requests: Requests[str] = Requests()
    made = requests.open(0, 7, "a", "go")
    assert requests.get(7, "a") is requests.get(7) is made
    assert requests.get(7, "b") is requests.get(8) is None


def test_what_was_not_said_is_due_at_once():
    requests: Requests[str] = Requests()
    made = requests.open(5, 1, "a", "go", said=False)
    assert requests.wake_at_us() == 5
    assert list(requests.due(5)) == [made]


def test_a_deadline_comes_before_the_next_time_that_it_is_said():
    requests: Requests[str] = Requests()
    made = requests.open(0, 1, "a", "go", deadline_us=AGAIN_US + 1)
    assert requests.wake_at_us() == AGAIN_US
    made.said(AGAIN_US)
    assert not made.expired(AGAIN_US)
    assert requests.wake_at_us() == AGAIN_US + 1
    assert [each.expired(AGAIN_US + 1) for each in requests.due(AGAIN_US + 1)] == [True]


def test_a_command_that_is_repeated_waits_already():
    requests: Requests[str] = Requests()
    requests.open(0, 1, "a", "go", cause=("client", 3))
    requests.open(0, 2, "a", "go")
    assert requests.waits(("client", 3))
    assert not requests.waits(("client", 4))


def test_of_too_many_the_oldest_is_forgotten():
    requests: Requests[int] = Requests(2)
    for number in (1, 2, 3):
        requests.open(0, number, "a", number)
    assert [each.order for each in requests] == [2, 3]


def test_what_is_closed_or_opened_while_others_are_gone_through_is_passed_over():
    requests: Requests[int] = Requests()
    for number in (1, 2, 3):
        requests.open(0, number, "a", number, said=False)
    seen = []
    for each in requests.due(0):
        seen.append(each.order)
        requests.forget(lambda order: order in (1, 2))
        if each.order == 1:
            requests.open(0, 2, "a", 4, said=False)
    assert seen == [1, 3]
    assert sorted(each.order for each in requests) == [3, 4]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["open", "answer", "forget", "tick"]),
            st.integers(0, 5),
            st.integers(0, 2 * AGAIN_US),
        )
    )
)
def test_each_is_said_at_least_once_in_its_time_and_none_after_its_end(steps: list[tuple[str, int, int]]):
    """Who wakes when told to finds exactly those that were said that long ago or have expired."""
    requests: Requests[int] = Requests()
    model: dict[int, tuple[int, int | None]] = {}
    now_us = number = 0
    for step, which, passed_us in steps:
        now_us += passed_us
        if step == "open":
            number += 1
            deadline_us = now_us + which * AGAIN_US // 2 if which else None
            requests.open(now_us, number, "a", number, deadline_us=deadline_us)
            model[number] = now_us, deadline_us
        elif step == "answer" and (found := requests.get(which)) is not None:
            requests.close(found)
            del model[which]
        elif step == "forget":
            gone = {each for each in model if each % 6 == which}
            requests.forget(gone.__contains__)
            model = {each: times for each, times in model.items() if each not in gone}
        elif step == "tick":
            due, over = [], []
            for each, (said_us, deadline_us) in model.items():
                if deadline_us is not None and now_us >= deadline_us:
                    over.append(each)
                elif now_us - said_us >= AGAIN_US:
                    due.append(each)
            found_due, found_over = [], []
            for request in requests.due(now_us):
                (found_over if request.expired(now_us) else found_due).append(request.number)
                if request.expired(now_us):
                    requests.close(request)
                else:
                    request.said(now_us)
            assert (found_due, found_over) == (due, over)
            model = {each: times for each, times in model.items() if each not in over}
            model |= {each: (now_us, model[each][1]) for each in due}
        times_us = [
            said_us + AGAIN_US if end_us is None else min(said_us + AGAIN_US, end_us)
            for said_us, end_us in model.values()
        ]
        assert requests.wake_at_us() == min(times_us, default=None)
        assert {each.number for each in requests} == set(model)
