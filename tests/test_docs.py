"""What the README and the documents show runs: Python blocks, docstrings' examples, commands, links.

The Python blocks of a file run in order, as one program, in an empty folder. A block fenced as
``python no-run`` needs something that isn't there (a node, a file) and is only compiled.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import pkgutil
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import medusa
from tests.blocks import blocks

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
MODULES = sorted(m.name for m in pkgutil.walk_packages(medusa.__path__, "medusa.") if "_native" not in m.name)


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def with_python(pages: list[Path]) -> list[Path]:
    return [page for page in pages if blocks(page.read_text(encoding="utf-8"), "python")]


@pytest.mark.parametrize("page", with_python(PAGES), ids=name_of)
def test_python_blocks_run(page: Path, tmp_path: Path) -> None:
    program, last = "", 0
    for block in blocks(page.read_text(encoding="utf-8"), "python"):
        if block.note == "no-run":
            compile(block.text, f"{page}:{block.line}", "exec")
            continue
        # Lines keep their numbers, so that an error points into the page.
        program += "\n" * (block.line - 1 - last) + block.text
        last = block.line - 1 + block.text.count("\n")
    script = tmp_path / page.with_suffix(".py").name
    script.write_text(program, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", script],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, f"{name_of(page)} (line numbers are the page's):\n{done.stderr}"


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        failed, _ = doctest.testmod(import_module(name), optionflags=doctest.ELLIPSIS)
    assert failed == 0, printed.getvalue()


def test_make_targets_that_are_named_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        code = re.findall(r"`([^`\n]+)`", text) + [line for b in blocks(text) for line in b.text.split("\n")]
        for words in (line.split() for line in code if line.startswith("make ")):
            assert words[1] in targets, f"{name_of(page)}: make {words[1]} is no target"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_to_files_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{name_of(page)} links to {target}"
