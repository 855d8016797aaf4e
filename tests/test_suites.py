"""`make test`: its two runs, which a test belongs to, and that last line and exit status are of both."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.suites import ROOT, SPARK, split

SPARKS = """
import os
import pytest
def test_good(): pass
def test_left(): pytest.skip("not here")
def test_bad(): assert not os.environ.get("BAD")
def test_dies():
    if os.environ.get("DIES"): os._exit(3)
"""
CONFTEST = "import os\ncollect_ignore = [] if os.environ.get('SPARKS') else ['spark']\n"
OTHERS = "def test_good(): pass\ndef test_window(): pass\n"
PYTHON = '#!/bin/sh\nSPARKS=1 exec {python} "$@"\n'
MADE = "spark-ready:\n\tmkdir -p $(VENV)/bin && cp spark-python $(VENV)/bin/python\n"
JAVA = "#!/bin/sh\necho 'openjdk version \"17.0.1\"' >&2\n"


@pytest.mark.parametrize(
    ("args", "spark", "others"),
    [
        ("", "tests/spark", ""),
        ("-k window -x", "tests/spark -k window -x", "-k window -x"),
        ("-k tests", "tests/spark -k tests", "-k tests"),
        ("tests/wire", None, "tests/wire"),
        ("tests/wire -n 0", None, "tests/wire -n 0"),
        ("bench", None, "bench"),
        ("tests", "tests/spark", "tests"),
        ("-q ./tests/", "-q tests/spark", "-q ./tests/"),
        ("tests/spark", "tests/spark", None),
        ("tests/spark/test_new.py::test_x -q", "tests/spark/test_new.py::test_x -q", None),
        (
            "-q tests/spark/test_page.py tests/wire",
            "-q tests/spark/test_page.py",
            "-q tests/wire",
        ),
    ],
)
def test_paths_go_to_the_run_that_they_belong_to(args: str, spark: str | None, others: str | None) -> None:
    expected = [None if each is None else each.split() for each in (spark, others)]
    assert list(split(args.split())) == expected


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with a few tests, a make that makes an environment of Spark, and a Java."""
    (tmp_path / SPARK).mkdir(parents=True)
    for name in ("suites.py", "outcome.py"):
        shutil.copy(ROOT / "tests" / name, tmp_path / "tests")
    (tmp_path / SPARK / "test_sparks.py").write_text(SPARKS)
    (tmp_path / "tests" / "test_others.py").write_text(OTHERS)
    (tmp_path / "tests" / "conftest.py").write_text(CONFTEST)
    options = "testpaths = tests\naddopts = -ra --import-mode=importlib\n"
    (tmp_path / "pytest.ini").write_text(f"[pytest]\n{options}")
    (tmp_path / "Makefile").write_text(MADE)
    (tmp_path / "java" / "bin").mkdir(parents=True)
    programs = {"spark-python": PYTHON.format(python=sys.executable), "java/bin/java": JAVA}
    for name, script in programs.items():
        (tmp_path / name).write_text(script)
        (tmp_path / name).chmod(0o755)
    return tmp_path


def run(project: Path, *args: str, **env: str) -> tuple[int, list[str]]:
    """The exit status, and the lines printed."""
    given = {**os.environ, "PYTHONPATH": str(ROOT), "JAVA_HOME": str(project / "java")}
    # Other plugins would be most of the time.
    given |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "CI": "", **env}
    for name in ("MAKEFLAGS", "MFLAGS"):  # of a make that runs these tests
        given.pop(name, None)
    command = [sys.executable, "-m", "tests.suites", "sparks", "-p", "no:cacheprovider", "--", *args]
    done = subprocess.run(
        command, cwd=project, env=given, capture_output=True, text=True, check=False, timeout=300
    )
    return done.returncode, done.stdout.splitlines()


def ran(lines: list[str]) -> list[str]:
    """The last lines of the runs, without their times."""
    return [line.strip("= ").split(" in ")[0] for line in lines if line.endswith("=") and " in " in line]


def test_both_are_in_the_last_line_and_a_red_one_makes_all_red(project: Path) -> None:
    status, lines = run(project)
    assert (status, ran(lines)) == (0, ["3 passed, 1 skipped", "5 passed, 1 skipped"])
    assert any(line.startswith("tests/spark, counted below: 3 passed, 1 skipped") for line in lines)
    status, lines = run(project, BAD="1")
    assert (status, ran(lines)[-1]) == (1, "1 failed, 4 passed, 1 skipped")
    assert f"FAILED {SPARK}/test_sparks.py::test_bad" in "\n".join(lines[-5:])
    status, lines = run(project, "-x", BAD="1")
    assert (status, len(ran(lines))) == (1, 1)


def test_what_failed_in_a_worker_is_told_again_by_a_later_run(project: Path) -> None:
    (project / "tests" / "test_bad.py").write_text("def test_bad(): assert 0, 'told'\n")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "tests.outcome", "tests"]
    given = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    for more in (["-p", "xdist.plugin", "-n1", "--outcome=kept"], ["--before=kept", "-k", "window"]):
        done = subprocess.run(
            [*command, *more],
            cwd=project,
            env=given,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == 1
        assert "AssertionError: told" in done.stdout
    assert ran(done.stdout.splitlines()) == ["1 failed, 3 passed, 2 deselected"]


def test_a_choice_of_one_run_is_none_of_the_other(project: Path) -> None:
    assert run(project, "-k", "window")[0] == 0
    status, lines = run(project, "-k", "bad")
    assert (status, ran(lines)[-1]) == (0, "1 passed, 2 deselected")
    assert run(project, "-k", "nowhere")[0] == 5
    status, lines = run(project, f"{SPARK}/test_sparks.py::test_bad", BAD="1")
    assert (status, ran(lines)) == (1, ["1 failed"])
    status, lines = run(project, "tests/test_others.py")
    assert (status, ran(lines)) == (0, ["2 passed"])


def test_without_java_it_says_so_and_goes_on(project: Path) -> None:
    missing = str(project / "none")
    status, lines = run(project, JAVA_HOME=missing)
    assert (status, ran(lines)) == (0, ["2 passed"])
    (said,) = {line for line in lines if "left out" in line}
    assert "Spark needs Java 17, and there is no java in JAVA_HOME" in said
    assert "install Java 17" in said
    assert run(project, "-q", SPARK, JAVA_HOME=missing) == (5, [said])
    status, lines = run(project, JAVA_HOME=missing, CI="true")
    assert (status, ran(lines)) == (1, ["2 passed"])
    assert said in lines[-5:]


def test_a_run_that_ends_before_its_summary_is_not_green(project: Path) -> None:
    status, lines = run(project, DIES="1")
    assert (status, ran(lines)) == (1, ["2 passed"])
    assert lines[-2] == "tests/spark ended before its summary, with exit status 3"
    (project / "Makefile").write_text("spark-ready:\n\tfalse\n")
    status, lines = run(project)
    assert (status, ran(lines)) == (1, ["2 passed"])
    assert lines[-2] == "tests/spark is left out: sparks can't be made"


LITTERS = """
from pathlib import Path
def test_litters():
    Path("checkpoint").mkdir()
    Path("checkpoint/0").touch()
"""
PLUGIN = """
from pathlib import Path
from tests.left_behind import LeftBehind

def pytest_configure(config):
    config.pluginmanager.register(LeftBehind(Path(__file__).parent))
"""


@pytest.mark.parametrize(("ci", "test", "status"), [("1", LITTERS, 1), ("", LITTERS, 0), ("1", OTHERS, 0)])
def test_a_file_that_a_test_leaves_in_the_tree_is_named(
    tmp_path: Path, ci: str, test: str, status: int
) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "conftest.py").write_text(PLUGIN)
    (tmp_path / "test_it.py").write_text(test)
    (tmp_path / ".gitignore").write_text("__pycache__/\n")
    (tmp_path / "notes").write_text("of the programmer, before the run")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist"]
    environment = {**os.environ, "CI": ci, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == status, ran.stdout
    assert ("left in the tree: ?? checkpoint/0" in ran.stdout) is (test is LITTERS)
    assert "notes" not in ran.stdout
