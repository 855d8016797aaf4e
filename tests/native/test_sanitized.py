"""Runs in ``make sanitize`` only: the extension under test is the sanitized one, not the normal one."""

from __future__ import annotations

from pathlib import Path

import pytest

from medusa import _native

BUILT = Path(_native.__file__)


@pytest.mark.skipif("sanitize" not in BUILT.parts, reason="runs in make sanitize")
def test_the_extension_is_sanitized() -> None:
    code = BUILT.read_bytes()
    assert b"__asan_report_load" in code
    assert b"__ubsan_handle" in code
