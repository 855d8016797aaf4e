"""The Makefile on a machine where something is missing: a sentence that says what to install."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TARGETS = (
    *(
        "demo",
        "federation",
        "spark",
        "odcs",
        "test",
        "test-ci",
        "test-full",
        "test-spark",
        "lint",
        "bench",
        "bench-spark",
        "sanitize",
        "sim",
        "docs",
        "wheel",
    ),
    "clean",
)
TOOLS = ("sh", "make", "test", "touch", "sed", "grep", "expand", "rm")

# A Python that answers the Makefile's questions as it is told by the file beside it.
PYTHON = """#!/bin/sh
case "$2" in
*version_info*) grep -q new "$0.is" ;;
*ensurepip*) grep -q venv "$0.is" ;;
*Python.h*) grep -q header "$0.is" ;;
*) exit 1 ;;
esac
"""
COMPILER = "#!/bin/sh\ncat > /dev/null\ngrep -q works {0}.is\n"


def make(folder: Path, *arguments: str) -> tuple[int, str]:
    """Run make with nothing but the programs of ``folder`` on the path."""
    done = subprocess.run(
        [folder / "make", "-C", ROOT, f"VENV={folder / 'venv'}", *arguments],
        env={"PATH": str(folder), "LC_ALL": "C"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A machine with make and a shell, but neither Python nor a compiler."""
    for name in (*TOOLS, "cat"):
        found = shutil.which(name)
        assert found is not None
        (tmp_path / name).symlink_to(found)
    (tmp_path / "venv").mkdir()
    return tmp_path


def install(folder: Path, name: str, script: str, able: str) -> None:
    path = folder / name
    path.write_text(script.format(path) if "{0}" in script else script)
    path.chmod(0o755)
    (folder / f"{name}.is").write_text(able)


def test_make_alone_lists_each_target_with_a_line(machine: Path) -> None:
    status, printed = make(machine)
    assert status == 0
    listed = re.findall(r"^  ([a-z-]+) +\S", printed, re.MULTILINE)
    assert listed == list(TARGETS)


@pytest.mark.parametrize(
    ("python", "compiler", "sentence"),
    [
        (None, "works", "needs Python 3.11 or later. Install it"),
        ("old", "works", "needs Python 3.11 or later. Install it"),
        ("new", "works", "Install its venv package"),
        ("new venv", "works", "has no Python.h. Install its development package"),
        ("new venv header", None, "needs a C compiler, and there is no 'cc'. Install one"),
        ("new venv header", "broken", "can't build a program. Install the C library's headers"),
    ],
)
def test_what_is_missing_is_named(
    machine: Path, python: str | None, compiler: str | None, sentence: str
) -> None:
    if python is not None:
        install(machine, "python3", PYTHON, python)
    if compiler is not None:
        install(machine, "cc", COMPILER, compiler)
    status, printed = make(machine, "test")
    assert status != 0
    assert sentence in printed
    assert not (machine / "venv" / ".stamp-venv").exists()


def test_a_python_that_is_named_but_too_old_is_refused(machine: Path) -> None:
    install(machine, "python9", PYTHON, "old")
    assert "python9 is older" in make(machine, "PYTHON=python9", "test")[1]
    assert "no Python named nowhere" in make(machine, "PYTHON=nowhere", "test")[1]


MAKE = """#!/bin/sh
target=$2
case "$3" in
OUTCOME=*) grep -qw dies {0}.is || echo kept > "${{3#OUTCOME=}}"; with=" OUTCOME" ;;
BEFORE=*) with=" BEFORE of $(cat "${{3#BEFORE=}}")" ;;
*) with= ;;
esac
echo "made $target$with" >> {0}.log
echo "== 3 things in $target =="
tr " " "\n" < {0}.is | grep -qx "$target" || exit 0
echo "make: *** [Makefile:1: $target] Error 1" >&2
exit 2
"""


@pytest.mark.parametrize(
    ("failing", "status"),
    [
        ("", 0),
        ("lint", 1),
        ("sanitize", 1),
        ("test", 1),
        ("test-ci", 1),
        ("lint sanitize test", 1),
        ("dies test", 1),
    ],
)
def test_ci_runs_everything_and_ends_with_the_summary_of_the_tests(
    tmp_path: Path, failing: str, status: int
) -> None:
    for name in ("bash", "sed", "grep", "dirname", "mktemp", "rm", "cat", "tr"):
        found = shutil.which(name)
        assert found is not None
        (tmp_path / name).symlink_to(found)
    install(tmp_path, "make", MAKE, failing)
    done = subprocess.run(
        [tmp_path / "bash", ROOT / ".ci" / "run"],
        env={"PATH": str(tmp_path), "CI": "true"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode != 0) == (status != 0)
    made = (tmp_path / "make.log").read_text().split("\n")[:-1]
    for beside in ("spark-packages", "odcs"):  # the others, and before the tests
        made.remove(f"made {beside}")
        assert beside not in done.stdout
    counts_both = "" if "dies" in failing else " BEFORE of kept"
    assert made == ["made lint", "made sanitize", "made test OUTCOME", f"made test-ci{counts_both}"]
    assert done.stdout.split("\n")[-2] == "== 3 things in test-ci =="
    for target in {"lint", "sanitize"} & {*failing.split()}:
        assert f"make {target} FAILED" in done.stdout


def test_a_long_run_finds_its_options_when_it_goes_on(tmp_path: Path) -> None:
    """A path of its own on the line would count as the tests to run, and hide their conftest."""
    # The options of a make that runs these tests are not for this one.
    env = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS", "ARGS")}
    done = subprocess.run(
        ["make", "-n", "-C", ROOT, "test-full", "ISSUE=2"],
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    command = next(line for line in done.stdout.splitlines() if "--full" in line).split()
    after = command[command.index("tests.suites") + 2 :]
    assert all(word.startswith("--") for word in after), after


def test_what_is_chosen_runs_in_processes_too() -> None:
    env = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS", "ARGS")}
    command = ["make", "-n", "-C", ROOT, "test", "ARGS=-k window -n 0"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    words = next(line for line in done.stdout.splitlines() if "-m tests.suites" in line).split()
    # Of options said twice pytest takes the last.
    assert words.index("--numprocesses=auto") < words.index("--") < words.index("-k") < words.index("-n")


def test_modules_are_compiled_once_for_all_processes() -> None:
    """Also where the caller's environment says otherwise, as images of containers do."""
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    command = ["make", "-s", "-C", ROOT, "--eval=probe:;@env", "probe"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert "PATH=" in done.stdout
    assert "PYTHONDONTWRITEBYTECODE" not in done.stdout


def test_the_second_version_of_pyspark_is_the_last_of_the_full_tests_of_its_issue() -> None:
    env = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS", "ARGS")}

    def planned(*words: str) -> list[str]:
        command = ["make", "-n", "-C", ROOT, "test-full", *words]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
        return [line for line in done.stdout.splitlines() if "-m tests.suites" in line]

    for words in ((), ("ISSUE=7",)):
        first, second = planned(*words)
        assert " .venv-spark " in first
        assert " .venv-spark-4.2 --resume=.venv-spark-4.2/" in second
    assert len(planned("ISSUE=2")) == len(planned("ISSUE=7", "ARGS=-k batch")) == 1
    command = ["make", "-n", "-C", ROOT, "VENV=.venv-none", "PYSPARK=4.2", "spark-ready"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert "wanted-spark.txt 'pyspark==4.2.*'" in done.stdout


def test_spark_gets_an_environment_of_its_own_and_installs_are_a_path() -> None:
    """The tests of all else want a newer pandas; Spark doesn't see what an import hook finds."""
    env = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS", "ARGS")}
    command = ["make", "-n", "-C", ROOT, "VENV=.venv-none", "spark"]
    planned = subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout
    assert ".venv-none-spark/wanted-spark.txt" in planned
    assert ".venv-none-spark/wanted-federation.txt" in planned, "a node on Spark sells by contract"
    assert ".venv-none/" not in planned
    assert "wanted-spark-connect.txt" not in planned
    command.append("SPARK_CONNECT=yes")
    more = subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout
    assert ".venv-none-spark/wanted-spark-connect.txt" in more
    assert re.search(r"--config-settings editable_mode=compat -e \. && touch", planned)


def test_the_linter_of_data_contracts_gets_an_environment_of_its_own() -> None:
    env = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS", "ARGS")}
    command = ["make", "-n", "-C", ROOT, "VENV=.venv-none", "odcs"]
    planned = subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout
    assert ".venv-none-odcs/wanted-test-odcs.txt" in planned
    assert ".venv-none/" not in planned


@pytest.mark.skipif(not (ROOT / ".venv" / ".stamp-ready").exists(), reason="no make has installed it")
def test_what_make_installs_is_listed_in_any_folder(tmp_path: Path) -> None:
    """So Spark finds ``pyspark_medusa``: in each folder that a program may run in."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    program = "import pkgutil; print(*(each.name for each in pkgutil.iter_modules()))"
    command = [ROOT / ".venv" / "bin" / "python", "-c", program]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=True)
    assert "pyspark_medusa" in done.stdout.split()
