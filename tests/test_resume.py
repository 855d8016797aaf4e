"""The long run goes on where it stopped, and starts again when the code changes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.resume import ROOT, code_digest

CONFTEST = """
import os
from pathlib import Path
from tests.resume import Resume
def pytest_configure(config):
    config.pluginmanager.register(Resume(Path("passed.json"), code=os.environ["CODE"]))
"""

SOURCE = """
from pathlib import Path
def note(name):
    ran = Path("ran")
    ran.write_text(ran.read_text() + name)
def test_good(): note("good ")
def test_bad():
    note("bad ")
    assert Path("mended").exists()
"""


def run(folder: Path, code: str) -> tuple[int, str, str]:
    """One run; its exit status, which tests ran, and what it printed."""
    (folder / "ran").write_text("")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--import-mode=importlib"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "CODE": code},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.returncode, (folder / "ran").read_text().strip(), done.stdout


def test_only_what_has_not_passed_runs_again(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]")
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_two.py").write_text(SOURCE)
    assert run(tmp_path, "code 1")[:2] == (1, "good bad")
    assert run(tmp_path, "code 1")[:2] == (1, "bad")
    (tmp_path / "mended").touch()
    assert run(tmp_path, "code 1")[:2] == (0, "bad")
    status, ran, printed = run(tmp_path, "code 1")
    assert (status, ran) == (0, "")
    assert "2 tests passed before" in printed
    assert run(tmp_path, "code 2")[:2] == (0, "good bad")
    (tmp_path / "passed.json").write_text('{"code": "co')
    assert run(tmp_path, "code 2")[:2] == (0, "good bad")


def test_the_digest_follows_the_code(tmp_path: Path) -> None:
    (tmp_path / "medusa").mkdir()
    before = code_digest(tmp_path)
    (tmp_path / "medusa" / "a.py").write_text("x = 1")
    after = code_digest(tmp_path)
    (tmp_path / "medusa" / "a.py").write_text("x = 2")
    assert len({before, after, code_digest(tmp_path)}) == 3
