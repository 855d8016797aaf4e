"""The checker of who may have a fragment whose state is backed up."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from medusa.sim.checkers.backup_owners import check_handed_on
from medusa.sim.world.virtual_time import SimulationError
from medusa.wire.messages.configuration import Configuration, Replicas

OF = Replicas(fragment="q/a", owner="m", epoch=1, secondaries=("u",), members=("m", "u", "s"))


def decided(replicas: Replicas) -> Configuration:
    return Configuration(
        query="q", number=1, coordinator="m", voters=("m", "u", "s"), life=7, fragments=(replicas,)
    )


def nodes(method: str = "state_backup") -> list[Any]:
    spec = SimpleNamespace(name="q/a", method=method, backup_nodes=("u",))
    brain = SimpleNamespace(fragments={"q/a": SimpleNamespace(spec=spec)})
    return [SimpleNamespace(alive=True, brain=brain)]


def after(**changes: Any) -> Configuration:
    return decided(msgspec.structs.replace(OF, epoch=2, **changes))


def test_one_that_is_lost_is_counted_out() -> None:
    check_handed_on(decided(OF), after(owner="u", secondaries=()), nodes())


def test_one_that_only_held_it_hands_it_on() -> None:
    held = msgspec.structs.replace(OF, owner="u", secondaries=("s",))
    check_handed_on(decided(held), after(owner="s", secondaries=("u",)), nodes())


def test_an_owner_that_is_there_keeps_it() -> None:
    spare = msgspec.structs.replace(OF, secondaries=("s",))
    with pytest.raises(SimulationError, match="backup: s has q/a from m, which is there; only u would"):
        check_handed_on(decided(spare), after(owner="s", secondaries=("m",)), nodes())


def test_by_other_methods_it_is_moved() -> None:
    spare = msgspec.structs.replace(OF, secondaries=("s",))
    check_handed_on(decided(spare), after(owner="s", secondaries=("m",)), nodes("passive_standby"))
