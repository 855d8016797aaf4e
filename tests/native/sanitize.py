"""``make sanitize``: the C tests, and the Python tests of native code and engine, under ASan and UBSan.

The Python part runs in a copy of the project, ``build/sanitize/tree``, with an extension of its own,
so the normal build is left as it is. First two planted bugs must be found, in C and in Python: else
silence would mean nothing. Arguments go to pytest, also those that spread the tests over processes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.native import run_c

TREE = run_c.ROOT / "build" / "sanitize" / "tree"
LOG = run_c.ROOT / "build" / "sanitize" / "report"
COPIED = ("medusa", "native", "bindings", "tests", "docs", "setup.py", "pyproject.toml", "README.md")
TESTS = ("tests/test_native_*.py", "tests/engine/**/test_*.py", "tests/native/test_sanitized.py")
# Kernels of pyarrow; files, clocks and the order of work: under them is no native code that others don't run.
NO_NATIVE = (
    *("test_evaluate", "test_dead_letters", "test_decisions", "test_history", "test_meter", "test_qos"),
    *("test_shedding", "test_stats", "test_utility"),
)
PLANTED = run_c.TESTS / "planted.c"
CALL = "import ctypes; ctypes.CDLL({path!r}).{name}({value})"
BUGS = {
    "planted_overflow": (16, "AddressSanitizer: heap-buffer-overflow"),
    "planted_signed": (2**31 - 1, "signed integer overflow"),
}


def environment() -> dict[str, str]:
    """For a Python that loads sanitized code: the run-time libraries first, every block by malloc.

    Leaks aren't looked for here: Python keeps memory to its end. The C tests do look.
    """
    names = ("libasan.so", "libubsan.so", "libstdc++.so")
    asked = [run_c.run([*run_c.compiler(), f"-print-file-name={name}"]).stdout.strip() for name in names]
    return {
        **os.environ,
        "LD_PRELOAD": ":".join(path for path in asked if os.path.isabs(path)),
        "PYTHONMALLOC": "malloc",
        "ASAN_OPTIONS": f"{run_c.ASAN_OPTIONS}:detect_leaks=0:log_path={LOG}",
        "UBSAN_OPTIONS": f"print_stacktrace=1:log_path={LOG}",
    }


def reports() -> str:
    """What the sanitizers wrote since the last call."""
    text = ""
    for path in sorted(LOG.parent.glob(f"{LOG.name}.*")):
        text += path.read_text(errors="replace")
        path.unlink()
    return text


def check_planted(folder: Path) -> None:
    """Both bugs must end a C program and a Python process, with a report that says where."""
    library = run_c.compile_c(
        [PLANTED], folder / "planted.so", [*run_c.SANITIZE, "-shared", "-fPIC", "-fvisibility=default"]
    )
    for name, (value, words) in BUGS.items():
        source = folder / f"{name}.c"
        source.write_text(f"int {name}(int);\nint main(void) {{ return {name}({value}) & 0; }}\n")
        program = run_c.compile_c([source, PLANTED], folder / name, run_c.SANITIZE)
        in_c = run_c.run([program])
        report = in_c.stdout + in_c.stderr
        if in_c.returncode == 0 or words not in report or "planted.c:" not in report:
            raise RuntimeError(f"{name} was not found in C, so the sanitizers don't work here:\n{report}")
        code = CALL.format(path=str(library), name=name, value=value)
        in_python = run_c.run([sys.executable, "-c", code], env=environment())
        report = in_python.stdout + in_python.stderr + reports()
        if in_python.returncode == 0 or words not in report or "planted.c:" not in report:
            raise RuntimeError(
                f"{name} was not found in Python, so the sanitizers don't work here:\n{report}"
            )
    print("planted bugs: found, in C and in Python")


def build_tree() -> None:
    """Copy what changed and build the extension there; what is gone here goes there too."""
    TREE.mkdir(parents=True, exist_ok=True)
    wanted = {Path("medusa/_native.abi3.so"), Path("bindings/_native.c")}
    for name in COPIED:
        start = run_c.ROOT / name
        for path in [start] if start.is_file() else sorted(start.rglob("*")):
            relative = path.relative_to(run_c.ROOT)
            made = path.suffix == ".so" or "__pycache__" in path.parts or relative.name == "_native.c"
            if not path.is_file() or made:
                continue
            wanted.add(relative)
            target = TREE / relative
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.exists() or target.read_bytes() != path.read_bytes():
                shutil.copy(path, target)
    for path in TREE.rglob("*"):
        relative = path.relative_to(TREE)
        if path.is_file() and relative.parts[0] != "build" and relative not in wanted:
            path.unlink()
    print("building the sanitized extension", flush=True)
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    done = run_c.run(command, cwd=TREE, env={**os.environ, "MEDUSA_SANITIZE": "1"})
    if done.returncode != 0:
        raise RuntimeError(f"the sanitized extension doesn't build:\n{done.stdout}{done.stderr}")


def main() -> int:
    LOG.parent.mkdir(parents=True, exist_ok=True)
    reports()
    try:
        with tempfile.TemporaryDirectory() as folder:
            check_planted(Path(folder))
        # The extension is one long compilation, which leaves the other cores to the C tests.
        with ThreadPoolExecutor(1) as pool:
            built = pool.submit(build_tree)
            print("C tests:", flush=True)
            subprocess.run([sys.executable, run_c.__file__, "--sanitize"], check=True, timeout=900)
            built.result()
    except (RuntimeError, subprocess.SubprocessError) as error:
        print(error, file=sys.stderr)
        return 1
    found_files = [path for pattern in TESTS for path in sorted(TREE.glob(pattern))]
    chosen = [str(path.relative_to(TREE)) for path in found_files if not path.name.startswith(NO_NATIVE)]
    # -s: pytest's capture would eat what a dying process says. Of several processes xdist names the test in
    # which one died; what the sanitizer said stands in its report.
    arguments = ["-m", "pytest", "-s", "-q", "-p", "no:cacheprovider", "--unsampled", *chosen, *sys.argv[1:]]
    status = subprocess.run([sys.executable, *arguments], cwd=TREE, env=environment(), check=False).returncode
    found = reports()
    if found:
        print(found, file=sys.stderr)
    return 1 if status or found else 0


if __name__ == "__main__":
    sys.exit(main())
