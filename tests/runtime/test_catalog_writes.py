"""Catalogs that wait for a slow disk: the newest has all of them, so not each of many is written."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from medusa.engine.state.checkpoint import unseal
from medusa.errors import StateError
from medusa.nodes.catalog.catalog import CATALOG
from medusa.ports import Content
from medusa.runtime.engine_host.group_names import GroupName, catalog_names
from medusa.runtime.engine_host.host_disk import CATALOGS_WAITING_MAX
from medusa.wire.outbox import Persist
from tests.runtime.engine_by_hand import Desk

MANY = 20


@pytest.fixture
def desk() -> Desk:
    made = Desk()
    made.host.resume("", None, {})
    return made


def ask(desk: Desk, *tokens: int) -> None:
    for token in tokens:
        desk.host.persist(Persist(token=token, fragment="", files={CATALOG: b"number %d" % token}))
    desk.hands.engine()


def said(desk: Desk) -> list[tuple[int, bool]]:
    return [(each.token, each.ok) for each in desk.host.finished()]


def written(desk: Desk, monkeypatch: pytest.MonkeyPatch, *, fails: int = 0) -> list[int]:
    """Numbers of what is written from now on, which is both copies of each; one of them fails."""
    found: list[int] = []
    write = desk.store.write

    def noted(name: str, files: Mapping[str, Content]) -> None:
        number = GroupName.of(name).number
        if number == fails:
            raise StateError("no room", code="state.write")
        if name == catalog_names(number)[1]:
            found.append(number)
        write(name, files)

    monkeypatch.setattr(desk.store, "write", noted)
    return found


def test_of_many_that_wait_the_newest_are_written_and_all_are_durable_in_order(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = written(desk, monkeypatch)
    ask(desk, *range(1, MANY + 1))
    desk.hands.disk()
    assert numbers == list(range(MANY - CATALOGS_WAITING_MAX, MANY + 1))
    assert said(desk) == [(token, True) for token in range(1, MANY + 1)]
    for name in catalog_names(MANY):
        assert bytes(unseal(desk.store.read(name))[1][CATALOG]) == b"number %d" % MANY


def test_nothing_is_durable_before_one_that_has_it_is_written(desk: Desk) -> None:
    ask(desk, *range(1, MANY + 1))
    jobs = desk.hands.jobs["medusa-disk"]
    for _ in range(MANY - CATALOGS_WAITING_MAX - 1):
        jobs.popleft()()
        assert said(desk) == []
    jobs.popleft()()
    assert said(desk) == [(token, True) for token in range(1, MANY - CATALOGS_WAITING_MAX + 1)]


def test_few_that_wait_are_all_written(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = written(desk, monkeypatch)
    ask(desk, *range(1, CATALOGS_WAITING_MAX + 2))
    desk.hands.disk()
    ask(desk, MANY)
    desk.hands.disk()
    assert numbers == [*range(1, CATALOGS_WAITING_MAX + 2), MANY]


def test_a_write_that_fails_fails_for_all_that_it_stood_for(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = MANY - CATALOGS_WAITING_MAX
    written(desk, monkeypatch, fails=first)
    ask(desk, *range(1, MANY + 1))
    desk.hands.disk()
    assert said(desk) == [(token, token > first) for token in range(1, MANY + 1)]


def test_a_host_that_stops_writes_the_newest(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = written(desk, monkeypatch)
    ask(desk, *range(1, MANY + 1))
    assert desk.host.stop()
    assert numbers[-1] == MANY
    assert said(desk)[-1] == (MANY, True)
