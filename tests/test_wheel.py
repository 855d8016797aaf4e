"""The wheel, installed where nothing of the project is, runs the README's first lines."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from tests.blocks import blocks

ROOT = Path(__file__).resolve().parents[1]
CODE = ("medusa", "pyspark_medusa")
PARTS = (*CODE, "native", "bindings", "setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE")


def run(*command: str | Path, cwd: Path, **variables: str) -> str:
    """Run a command to its end; what it printed."""
    words = [str(word) for word in command]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        words,
        cwd=cwd,
        env={**environment, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, f"{' '.join(words)}:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from a copy of the sources, as a stranger would build it."""
    source = tmp_path_factory.mktemp("source")
    for name in PARTS:
        if (ROOT / name).is_dir():
            shutil.copytree(
                ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "*.so", "_native.c")
            )
        else:
            shutil.copy(ROOT / name, source / name)
    out = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "-q", "--no-build-isolation"]
    run(*pip, "--no-deps", "-w", out, ".", cwd=source)
    (path,) = out.glob("*.whl")
    return path


def first_lines() -> str:
    return blocks((ROOT / "README.md").read_text(encoding="utf-8"), "python")[0].text


def empty_environment(folder: Path, *, with_pip: bool) -> Path:
    """A virtual environment with nothing in it; its Python."""
    venv.create(folder, with_pip=with_pip)
    return folder / "bin" / "python"


def check_first_lines(python: Path, folder: Path) -> None:
    where = run(
        python, "-c", "import medusa, medusa._native as n; print(medusa.__file__, n.__file__)", cwd=folder
    )
    assert all(Path(place).is_relative_to(python.parents[1]) for place in where.split())
    printed = run(python, "-W", "error", "-c", first_lines(), cwd=folder)
    assert printed.strip(), "the README's first lines print nothing"


def test_the_wheel_is_whole(wheel: Path) -> None:
    assert wheel.name.startswith("medusa_streams-")
    assert "-cp311-abi3-" in wheel.name
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    paths = [path for folder in CODE for path in (ROOT / folder).rglob("*.py*")]
    package = {path.relative_to(ROOT).as_posix() for path in paths}
    package = {name for name in package if "__pycache__" not in name}
    assert package | {"medusa/_native.abi3.so", "medusa/py.typed"} <= names
    data = {path.relative_to(ROOT).as_posix() for path in (ROOT / "medusa/apps/workloads/data").iterdir()}
    assert data <= names
    page = {path.relative_to(ROOT).as_posix() for path in (ROOT / "medusa/apps/dashboard/page").iterdir()}
    assert "medusa/apps/dashboard/page/index.html" in page
    assert page <= names
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {*CODE, "medusa_streams"}


def test_the_first_lines_run_from_the_wheel(wheel: Path, tmp_path: Path) -> None:
    """The wheel is really installed; its dependencies are linked from this environment, to be quick."""
    python = empty_environment(tmp_path / "env", with_pip=False)
    purelib = run(
        python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path
    ).strip()
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "install",
        "-q",
        "--no-deps",
        "--no-index",
    ]
    run(*pip, "--target", purelib, wheel, cwd=tmp_path)
    # Each package by itself: this environment's own link to the project must not come along.
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if "medusa" not in entry.name and entry.suffix not in (".pth", ".egg-link"):
            (Path(purelib) / entry.name).symlink_to(entry)
    check_first_lines(python, tmp_path)


@pytest.mark.full
@pytest.mark.issue(2)
def test_the_first_lines_run_where_pip_installed_everything(wheel: Path, tmp_path: Path) -> None:
    python = empty_environment(tmp_path / "env", with_pip=True)
    run(python, "-m", "pip", "--disable-pip-version-check", "install", "-q", wheel, cwd=tmp_path)
    check_first_lines(python, tmp_path)
    listed = run(tmp_path / "env" / "bin" / "medusa", "--help", cwd=tmp_path)
    assert "demo" in listed
