"""What a node does about a guarded fragment once it hears a configuration: a table.

``Succession`` (succession.py) looks every fragment up here, the tests walk over it, and docs/standby.md shows
it.
"""

from __future__ import annotations

from enum import Enum

from medusa.wire.messages.configuration import Replicas

__all__ = ["SUCCESSION", "Here", "Role", "Step", "role_of"]


class Role(Enum):
    """What this node is to a fragment by the configuration."""

    OWNER = "owns it"
    ENDED = "owned it, and it was split or merged"
    SECONDARY = "stands by"
    PREDECESSOR = "owned it before, and no owner since is known to have begun"
    OTHER = "nothing, or may be seeded"


class Here(Enum):
    """What this node has of it."""

    RUNS = "runs, in the epoch that was decided"
    STALE = "runs, in an earlier epoch"
    RESTS = "rests"
    NOTHING = "doesn't run"


class Step(Enum):
    """What it does."""

    GO_ON = "goes on, with the secondaries that were decided"
    TAKE_BACK = "goes on with what rests, once its disk says so"
    TAKE_OVER = "goes on with what it followed, once its disk says so; or says that it has nothing"
    REST = "rests, and keeps what it has"
    STEP_DOWN = "tells its clients where it is, and drops what it has"
    FOLLOW = "nothing: it follows, or will be asked to"
    END = "rests: others have its place here"


_R, _H, _S = Role, Here, Step

SUCCESSION: dict[Role, dict[Here, Step]] = {
    _R.OWNER: {
        _H.RUNS: _S.GO_ON,
        _H.STALE: _S.TAKE_BACK,
        _H.RESTS: _S.TAKE_BACK,
        _H.NOTHING: _S.TAKE_OVER,
    },
    _R.ENDED: dict.fromkeys(Here, _S.END),
    _R.SECONDARY: {_H.RUNS: _S.REST, _H.STALE: _S.REST, _H.RESTS: _S.REST, _H.NOTHING: _S.FOLLOW},
    _R.PREDECESSOR: {_H.RUNS: _S.REST, _H.STALE: _S.REST, _H.RESTS: _S.REST, _H.NOTHING: _S.FOLLOW},
    _R.OTHER: {
        _H.RUNS: _S.STEP_DOWN,
        _H.STALE: _S.STEP_DOWN,
        _H.RESTS: _S.STEP_DOWN,
        _H.NOTHING: _S.FOLLOW,
    },
}


def role_of(node: str, replicas: Replicas, *, knows: bool) -> Role:
    """What a node is to a fragment.

    Args:
        knows: its catalog is the newest that it wrote. If not it may have stepped down since, and what is
            here is older than what it would have to have.
    """
    if replicas.owner == node:
        return Role.ENDED if replicas.gone else Role.OWNER
    if node in replicas.secondaries and knows:
        return Role.SECONDARY
    return Role.PREDECESSOR if node in replicas.predecessors and knows else Role.OTHER
