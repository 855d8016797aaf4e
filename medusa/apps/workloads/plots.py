"""Drawing with matplotlib, without its words."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["quietly"]


@contextmanager
def quietly() -> Iterator[None]:
    """Inside, matplotlib logs errors only: which font stands for another one, or that it looks for fonts for
    the first time on this machine, is nothing to a reader of ours. Its import belongs inside too."""
    logger = logging.getLogger("matplotlib")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)
