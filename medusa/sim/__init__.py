"""Nodes and links in virtual time, under faults: for our tests, and for users' own.

``check`` is what a user's test calls. ``world`` is what may fail, and how (``fault_kinds``); ``actors`` are
the nodes and programs in it, ``trials`` what happens to them by a seed, ``checkers`` what must hold, and
``scenarios`` the table of all trials. Names load on first use.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from medusa.sim.actors.client import Client as Client
    from medusa.sim.actors.federation import Federation as Federation
    from medusa.sim.kit import check as check
    from medusa.sim.scenarios import SCENARIOS as SCENARIOS
    from medusa.sim.scenarios import run_scenario as run_scenario
    from medusa.sim.scenarios import smallest as smallest
    from medusa.sim.script import Script as Script
    from medusa.sim.trials.trial import Outcome as Outcome
    from medusa.sim.world.fault_kinds import KINDS as KINDS
    from medusa.sim.world.fault_kinds import Fault as Fault
    from medusa.sim.world.network import Faults as Faults
    from medusa.sim.world.virtual_time import SimulationError as SimulationError
    from medusa.sim.world.virtual_time import World as World

# Name -> the module that has it.
_HOMES = {
    "Client": "actors.client",
    "Fault": "world.fault_kinds",
    "Faults": "world.network",
    "Federation": "actors.federation",
    "KINDS": "world.fault_kinds",
    "Outcome": "trials.trial",
    "SCENARIOS": "scenarios",
    "Script": "script",
    "SimulationError": "world.virtual_time",
    "World": "world.virtual_time",
    "check": "kit",
    "run_scenario": "scenarios",
    "smallest": "scenarios",
}

__all__ = list(_HOMES)


if not TYPE_CHECKING:  # or type checkers would take any name

    def __getattr__(name: str) -> object:
        from importlib import import_module

        if name not in _HOMES:
            raise AttributeError(f"module 'medusa.sim' has no attribute {name!r}")
        value = getattr(import_module(f"medusa.sim.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
