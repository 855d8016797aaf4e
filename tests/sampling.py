"""Which cases of a long list `make test` runs: a stated sample. `make test-ci` runs the others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

__all__ = ["sampled"]


def sampled(cases: Iterable[Any], *, every: int) -> list[Any]:
    """The first of each ``every`` cases as it is; the others marked ``ci``.

    Args:
        cases: a value, a tuple of them, or a ``pytest.param`` each.
        every: at least 1; 1 leaves all in `make test`.
    """
    found = []
    for number, case in enumerate(cases):
        if number % every == 0:
            found.append(case)
        elif isinstance(case, type(pytest.param())):
            found.append(pytest.param(*case.values, marks=[*case.marks, pytest.mark.ci], id=case.id))
        else:
            values = case if isinstance(case, tuple) else (case,)
            found.append(pytest.param(*values, marks=pytest.mark.ci))
    return found
