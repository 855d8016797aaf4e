"""What a configuration says of fragments that are split or merged."""

from __future__ import annotations

import msgspec

from medusa.nodes.recovery.regrouping import crowded, listed
from medusa.wire.messages.configuration import NAMES_BYTES_MAX
from tests.nodes.recovery.test_rewiring import FIRST, SPECS

OLD = SPECS["q/kind"]


def made(count: int) -> list:
    """So many parts instead of ``q/kind``, and two nodes of long names that stand by for each."""
    by = ("s" * 60, "t" * 60)
    return [msgspec.structs.replace(OLD, name=f"q/part-{number}", standby=by) for number in range(count)]


def first_that_is_refused() -> int:
    return next(count for count in range(1, 1000) if crowded(FIRST, made(count), {OLD.name}, lambda name: 2))


def test_what_is_let_in_has_room_for_all_that_will_follow() -> None:
    most = first_that_is_refused() - 1
    after = listed(FIRST, made(most), lambda each: each.fragment == OLD.name, lambda name: 2)
    followed = [
        msgspec.structs.replace(each, secondaries=each.members[1:]) if each.fragment != OLD.name else each
        for each in after.fragments
    ]
    assert msgspec.structs.replace(after, fragments=tuple(followed)).fragments == tuple(followed)
    assert most > 10


def test_what_has_no_room_is_told() -> None:
    why = crowded(FIRST, made(first_that_is_refused()), {OLD.name}, lambda name: 2)
    assert why.endswith((f"at most {NAMES_BYTES_MAX:,}", "at most 256")), why
