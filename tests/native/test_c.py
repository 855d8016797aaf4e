"""Runs the C tests and the C example as part of ``make test``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.native import run_c


@pytest.fixture(scope="session")
def objects(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return run_c.library(tmp_path_factory.mktemp("objects"), ["-DMD_ALLOC_TEST", "-O2"])


@pytest.mark.parametrize("source", run_c.c_tests(), ids=lambda path: path.stem)
def test_c(source: Path, objects: list[Path], tmp_path: Path) -> None:
    out = run_c.build_and_run(source, objects, tmp_path, ["-DMD_ALLOC_TEST", "-O2"])
    assert "C tests passed" in out


def test_the_runner_sees_a_failing_check(objects: list[Path], tmp_path: Path) -> None:
    source = tmp_path / "test_wrong.c"
    source.write_text(
        '#include "check.h"\n'
        "static int test_wrong(void) { CHECK(1 + 1 == 3); return 0; }\n"
        "TEST_MAIN(TEST(test_wrong))\n"
    )
    with pytest.raises(RuntimeError, match=r"test_wrong.c:2: 1 \+ 1 == 3 \(CHECK_SEED=\d+\)"):
        run_c.build_and_run(source, objects, tmp_path, ["-DMD_ALLOC_TEST", "-O2"])


def test_the_runner_sees_a_leak(objects: list[Path], tmp_path: Path) -> None:
    source = tmp_path / "test_leak.c"
    source.write_text(
        '#include "check.h"\n'
        "static int test_leak(void) { return md_malloc(8) == NULL; }\n"
        "TEST_MAIN(TEST(test_leak))\n"
    )
    with pytest.raises(RuntimeError, match="test_leak: 1 blocks left"):
        run_c.build_and_run(source, objects, tmp_path, ["-DMD_ALLOC_TEST", "-O2"])


def test_the_example_runs_a_window_without_python(tmp_path: Path) -> None:
    """examples/c/window.c over the library without test switches. The answers are worked out by hand."""
    objects = run_c.library(tmp_path, ["-O1"])
    assert run_c.build_and_run(run_c.ROOT / "examples" / "c" / "window.c", objects, tmp_path, ["-O1"]) == (
        "  0 s -  60 s  A   cars 2  speed 60.0\n"
        "  0 s -  60 s  E4  cars 1  speed 100.0\n"
        " 60 s - 120 s  E4  cars 3  speed 110.0\n"
        " 60 s - 120 s  A   cars 1  speed 40.0\n"
        "120 s - 180 s  A   cars 1  speed 60.0\n"
    )
