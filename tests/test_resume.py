"""The long run goes on where it stopped, and starts again when the code changes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.resume import ROOT, code_digest

CONFTEST = """
import os
from pathlib import Path
from tests.resume import Resume
def pytest_configure(config):
    config.pluginmanager.register(Resume(config, Path("passed.json"), code=os.environ["CODE"]))
"""

SOURCE = """
from pathlib import Path
def note(name):
    with Path("ran").open("a") as ran:
        ran.write(name)
def test_good(): note("good ")
def test_bad():
    note("bad ")
    assert Path("mended").exists()
"""


DIES = """
import os
from pathlib import Path
def test_one(): pass
def test_two(): os._exit(1)
def test_three(): pass
def test_four(): Path("four").touch()
"""


def run(folder: Path, code: str, processes: int = 0) -> tuple[int, str, str]:
    """One run; its exit status, which tests ran (by name), and what it printed."""
    (folder / "ran").write_text("")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "xdist.plugin"),
            *("--import-mode=importlib", f"--numprocesses={processes}", "--dist=worksteal"),
        ],
        cwd=folder,
        # Other plugins would be most of the time: each of many runs starts up to three Pythons.
        env={**os.environ, "PYTHONPATH": str(ROOT), "CODE": code, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    ran = sorted((folder / "ran").read_text().split(), reverse=True)
    return done.returncode, " ".join(ran), done.stdout


@pytest.mark.parametrize("processes", [0, 2])
def test_only_what_has_not_passed_runs_again(tmp_path: Path, processes: int) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]")
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_two.py").write_text(SOURCE)
    assert run(tmp_path, "code 1", processes)[:2] == (1, "good bad")
    assert run(tmp_path, "code 1", processes)[:2] == (1, "bad")
    (tmp_path / "mended").touch()
    assert run(tmp_path, "code 1", processes)[:2] == (0, "bad")
    status, ran, printed = run(tmp_path, "code 1", processes)
    assert (status, ran) == (0, "")
    assert "2 tests passed before" in printed
    assert run(tmp_path, "code 2", processes)[:2] == (0, "good bad")
    (tmp_path / "passed.json").write_text('{"code": "co')
    assert run(tmp_path, "code 2", processes)[:2] == (0, "good bad")


def test_a_process_that_dies_loses_no_test(tmp_path: Path) -> None:
    """The one that takes its place leaves out the same tests, though more have passed by then."""
    (tmp_path / "pytest.ini").write_text("[pytest]")
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_four.py").write_text(DIES)
    status, _, printed = run(tmp_path, "code 1", 2)
    assert (status, (tmp_path / "four").exists()) == (1, True), printed
    assert "1 failed, 3 passed" in printed
    assert "3 tests passed before" in run(tmp_path, "code 1", 2)[2]


def test_the_digest_follows_the_code(tmp_path: Path) -> None:
    (tmp_path / "medusa").mkdir()
    before = code_digest(tmp_path)
    (tmp_path / "medusa" / "a.py").write_text("x = 1")
    after = code_digest(tmp_path)
    (tmp_path / "medusa" / "a.py").write_text("x = 2")
    assert len({before, after, code_digest(tmp_path)}) == 3
