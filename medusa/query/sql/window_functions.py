"""The functions that ask for windows in SQL, as the kinds of boxes have them: nothing here lists them."""

from __future__ import annotations

from medusa.query.boxes import KINDS

__all__ = ["TABLE_FUNCTIONS", "WINDOW_BOUNDS", "WINDOW_FUNCTIONS"]

WINDOW_FUNCTIONS = {function.name: function for kind in KINDS for function in kind.window_functions}

TABLE_FUNCTIONS = tuple(name for name, function in WINDOW_FUNCTIONS.items() if function.in_from)
"""Those that stand in FROM: ``TUMBLE(cars, ts, ...)``."""

WINDOW_BOUNDS = {f"{name}_{end}": f"window_{end}" for name in TABLE_FUNCTIONS for end in ("start", "end")}
"""``TUMBLE_START`` and its like: the column that each gives."""
