"""What a node does that stands by for a fragment: it computes the same, or holds what its owner sends. Pure.

Both ends of a link ask here, each by the configuration that gave the owner its epoch, so they agree.
"""

from __future__ import annotations

from medusa.nodes.spec.fragment_spec import FragmentSpec
from medusa.wire.messages.configuration import Replicas

__all__ = ["is_idle"]


def is_idle(spec: FragmentSpec, replicas: Replicas) -> bool:
    """Whether it computes nothing, and holds checkpoints or marks: as the method says by which the fragment
    is recovered; and while it is abroad in any case. Who lends it would be rid of no work else."""
    return spec.idle_standby or replicas.abroad
