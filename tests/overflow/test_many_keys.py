"""10^5 keys go elsewhere and come back, whatever remembers them; tests/spark has the same on Spark."""

from __future__ import annotations

import pytest

from tests.overflow.in_process import InProcess
from tests.overflow.many_keys import KINDS, there_and_back


@pytest.mark.parametrize("kind", KINDS)
def test_every_key_is_there_and_back_again(kind: str) -> None:
    there_and_back(kind, InProcess(), keys=10_000 if kind == "process" else 100_000)


@pytest.mark.full
@pytest.mark.issue(7)
def test_every_key_of_a_class_of_users() -> None:
    there_and_back("process", InProcess())
