"""What is worked out once holds up nobody who works out something else."""

from __future__ import annotations

import threading

from medusa.nodes.spec import fragment_spec
from medusa.nodes.spec.cached_attribute import lazily
from tests.nodes.test_remote import part

DEADLINE_S = 30.0


def test_it_is_worked_out_once_and_again_when_it_was_taken_away():
    class Counting:
        """Counts."""

        asked = 0

        @lazily
        def found(self):
            """What is found."""
            self.asked += 1
            return self.asked

    one = Counting()
    assert (one.found, one.found, one.asked) == (1, 1, 1)
    vars(one).pop("found")
    assert one.found == 2
    assert isinstance(Counting.found, lazily)
    assert Counting.found.__doc__ == "What is found."


def test_a_spec_is_checked_while_another_thread_checks_a_large_one(monkeypatch):
    """As on a node: its loop reads small ones, and a thread beside it large ones."""
    large, small = part(), part()
    begun, go_on = threading.Event(), threading.Event()
    check = fragment_spec.check_fragment

    def slow(fragment):
        if fragment is large:
            begun.set()
            assert go_on.wait(DEADLINE_S)
        return check(fragment)

    monkeypatch.setattr(fragment_spec, "check_fragment", slow)
    beside = threading.Thread(target=large.check, daemon=True)
    beside.start()
    assert begun.wait(DEADLINE_S)
    loop = threading.Thread(target=small.check, daemon=True)
    loop.start()
    loop.join(DEADLINE_S)
    checked = not loop.is_alive() and beside.is_alive()
    go_on.set()
    beside.join(DEADLINE_S)
    loop.join(DEADLINE_S)
    assert checked, "it waited for the other one"
    assert "_checked" in vars(large)
