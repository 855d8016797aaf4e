"""Whole nodes in virtual time, as ``medusa.sim`` has them."""

from __future__ import annotations

from medusa.sim.client import Client
from medusa.sim.federation import Federation

__all__ = ["Client", "Federation"]
