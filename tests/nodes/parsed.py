"""Does what the thread beside a node's loop does."""

from __future__ import annotations

from medusa.errors import QueryError
from medusa.nodes.reports import Parsed


def done(brain, now_us, effect):
    """Read what a ``Parse`` is about, and tell the brain."""
    try:
        found, error = effect.read(), None
    except QueryError as refusal:
        found, error = None, refusal
    brain.report(now_us, Parsed(effect.token, found, error))
