"""The automaton of a deployment, as a table: all nodes take their fragments, or none keeps one.

``Deployment`` (catalog.py) looks every event up here, the tests walk over the table, and docs/nodes.md draws
it.

An order makes a deployment that is deploying. The state is on disk before the first word goes out. What an
operator takes up again (``nodes.repair``) begins as running.
"""

from __future__ import annotations

from enum import Enum

__all__ = ["DEPLOYMENT", "DeploymentEvent", "DeploymentState"]


class DeploymentState(Enum):
    """How far a deployment is; the values stand in catalogs."""

    DEPLOYING = "deploying"  # not every node has said that it has its part
    RUNNING = "running"
    REMOVING = "removing"  # not every node has said that it has forgotten its part
    GONE = "gone"


class DeploymentEvent(Enum):
    """What can happen to it."""

    INSTALLED = "every node has its part"
    UNDO = "a part is missing"
    REMOVE = "a client removes it"
    RESUME = "its coordinator starts"
    FORGOTTEN = "every node has forgotten it"


_S, _E = DeploymentState, DeploymentEvent

# A pair that is missing here is a mistake of the coordinator: a LocalProtocolError.
DEPLOYMENT: dict[DeploymentState, dict[DeploymentEvent, DeploymentState]] = {
    _S.DEPLOYING: {_E.INSTALLED: _S.RUNNING, _E.UNDO: _S.REMOVING, _E.REMOVE: _S.REMOVING},
    _S.RUNNING: {_E.REMOVE: _S.REMOVING},
    _S.REMOVING: {_E.REMOVE: _S.REMOVING, _E.RESUME: _S.REMOVING, _E.FORGOTTEN: _S.GONE},
    _S.GONE: {},
}
