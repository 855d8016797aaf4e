"""Signals and what must be done whole: the native parts, for the room that knows of signals."""

from __future__ import annotations

from medusa._native import Locked, SignalGate

__all__ = ["Locked", "SignalGate"]
