"""Whether tests can have a network of their own (``medusa.apps.workloads.network``) on this machine."""

from __future__ import annotations

import os

import pytest

from medusa.apps.workloads.network.net import why_not


def needs_network() -> None:
    """Skip, saying why, where there can be no network of our own; in CI that fails."""
    if reason := why_not():
        if os.environ.get("CI"):
            pytest.fail(f"CI has what this needs, yet it {reason}")
        pytest.skip(reason)
