"""Builds and runs the C tests and the C example: ``python tests/native/run_c.py [--sanitize] [name ...]``.

Each ``test_*.c`` is linked with the whole of ``native/``, compiled with ``-DMD_ALLOC_TEST`` so that
allocations can be made to fail.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests" / "native"
WARN = ["-std=c11", "-Wall", "-Wextra", "-Werror"]
SANITIZE = ["-O1", "-g", "-fno-omit-frame-pointer", "-fsanitize=address,undefined"]
SANITIZE += ["-fno-sanitize-recover=undefined"]
# A block that is too large must give NULL, as malloc does.
ASAN_OPTIONS = "allocator_may_return_null=1"
INCLUDE = [f"-I{ROOT / 'native'}", f"-I{TESTS}"]


def compiler() -> list[str]:
    return shlex.split(os.environ.get("CC", "cc"))


def run(command: Sequence[str | Path], **options: object) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; its output is text."""
    texts = [str(word) for word in command]
    return subprocess.run(texts, capture_output=True, text=True, check=False, timeout=600, **options)  # type: ignore[call-overload,no-any-return]


def compile_c(sources: Sequence[Path], out: Path, flags: Sequence[str]) -> Path:
    """Compile and link; ends the process with the compiler's words when it refuses."""
    done = run([*compiler(), *WARN, *flags, *INCLUDE, *sources, "-o", out, "-lm"])
    if done.returncode != 0:
        raise RuntimeError(f"{out.name} doesn't compile:\n{done.stderr}")
    return out


def library(out: Path, flags: Sequence[str]) -> list[Path]:
    """The objects of ``native/`` in folder ``out``."""
    sources = sorted((ROOT / "native").glob("*/*.c"))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        made = pool.map(lambda source: compile_c([source], out / f"{source.stem}.o", [*flags, "-c"]), sources)
        return list(made)


def c_tests() -> list[Path]:
    return sorted(TESTS.glob("test_*.c"))


def build_and_run(source: Path, objects: Sequence[Path], out: Path, flags: Sequence[str]) -> str:
    """Run one test program; its output, or RuntimeError with it when it failed."""
    program = compile_c([source, *objects], out / source.stem, flags)
    done = run([program], env={**os.environ, "ASAN_OPTIONS": ASAN_OPTIONS})
    if done.returncode != 0:
        raise RuntimeError(f"{source.name} failed ({done.returncode}):\n{done.stdout}{done.stderr}")
    return done.stdout


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sanitize", action="store_true", help="with ASan and UBSan")
    parser.add_argument("names", nargs="*", help="queue for test_queue.c; all when none is named")
    args = parser.parse_args()
    flags = ["-DMD_ALLOC_TEST", *(SANITIZE if args.sanitize else ["-O2"])]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        objects = library(out, flags)
        chosen = [
            each for each in c_tests() if not args.names or each.stem.removeprefix("test_") in args.names
        ]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            try:
                for said in pool.map(lambda source: build_and_run(source, objects, out, flags), chosen):
                    print(said, end="", flush=True)
            except RuntimeError as error:
                print(error, file=sys.stderr)
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
