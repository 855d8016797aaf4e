"""WHAT is asked: types, expressions, boxes and graphs; building, checking, writing and drawing them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from medusa.query.builder import Query as Query
    from medusa.query.builder import Stream as Stream

__all__ = ["Query", "Stream"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'medusa.query' has no attribute {name!r}")
    from medusa.query import builder

    return getattr(builder, name)
