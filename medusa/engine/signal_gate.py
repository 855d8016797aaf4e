"""Defers signal handlers for a while: the native gate, for the room that knows of signals."""

from __future__ import annotations

from medusa._native import SignalGate

__all__ = ["SignalGate"]
