"""What the README and the documents show runs: Python blocks, docstrings' examples, commands, links.

The Python blocks of a file run in order, as one program, in an empty folder. What a block prints stands
in the block below it, word for word. A block fenced as ``python no-run`` needs something that isn't
there (a node, a file) and is only compiled.
"""

from __future__ import annotations

import contextlib
import doctest
import importlib.util
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
from tests.blocks import Block, blocks

ROOT = Path(__file__).resolve().parents[1]
MARK = "-- end of block "
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
MODULES = sorted(m.name for m in pkgutil.walk_packages(medusa.__path__, "medusa.") if "_native" not in m.name)


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def with_python(pages: list[Path]) -> list[Path]:
    return [page for page in pages if blocks(page.read_text(encoding="utf-8"), "python")]


def program_of(page: Path, examples: list[Block]) -> str:
    """The blocks as one program, which prints ``MARK`` and a number behind each."""
    program, last = "", 0
    for number, block in enumerate(examples):
        if block.language != "python":
            continue
        if block.note == "no-run":
            compile(block.text, f"{page}:{block.line}", "exec")
            continue
        # Lines keep their numbers, so that an error points into the page; the mark stands for the fence.
        program += "\n" * (block.line - 1 - last) + block.text + f"print('{MARK}{number}')\n"
        last = block.line + block.text.count("\n")
    return program


def check_prints(page: Path, examples: list[Block], printed: str) -> None:
    """Each block's output is the next block of the page."""
    parts = re.split(rf"{MARK}(\d+)\n", printed)
    assert not parts[-1].strip()
    for text, number in zip(parts[::2], map(int, parts[1::2]), strict=False):
        if text:
            shown = examples[number + 1] if number + 1 < len(examples) else None
            where = (
                f"{name_of(page)}, line {examples[number].line}: what this prints isn't the block below it"
            )
            assert shown is not None, where
            assert shown.language in ("", "text"), where
            assert text.rstrip() == shown.text.rstrip(), where


# tests/spark runs them, in the environment that has pyspark and in the session of its tests.
SPARK = ROOT / "docs" / "spark.md"
ON_SPARK = (SPARK, ROOT / "docs" / "pipeline.md")


@pytest.mark.parametrize("page", with_python([page for page in PAGES if page not in ON_SPARK]), ids=name_of)
def test_python_blocks_run_and_print_what_stands_below_them(page: Path, tmp_path: Path) -> None:
    examples = blocks(page.read_text(encoding="utf-8"))
    script = tmp_path / page.with_suffix(".py").name
    script.write_text(program_of(page, examples), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", script],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, f"{name_of(page)} (line numbers are the page's):\n{done.stderr}"
    check_prints(page, examples, done.stdout)


def test_output_that_differs_is_found() -> None:
    page = ROOT / "README.md"
    examples = [Block("python", "", 2, "print(1)\n"), Block("text", "", 5, "1\n")]
    assert program_of(page, examples) == f"\nprint(1)\nprint('{MARK}0')\n"
    check_prints(page, examples, f"1\n{MARK}0\n")
    for wrong, printed in ((examples, f"2\n{MARK}0\n"), (examples[:1], f"1\n{MARK}0\n")):
        with pytest.raises(AssertionError, match="line 2: what this prints isn't the block below it"):
            check_prints(page, wrong, printed)


def test_the_pictures_are_what_the_examples_give() -> None:
    spec = importlib.util.spec_from_file_location("pictures", ROOT / "docs" / "pictures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    files = {
        path.name: path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "pictures").glob("*.svg")
    }
    assert module.pictures() == files, "python docs/pictures.py draws them anew"


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
