"""``make test`` as two runs of pytest: the tests of Spark in an environment of their own, then all others.

python -m tests.suites SPARK_VENV [OPTION...] -- [ARG...]

Options are for the second run, but for those of ``make test-full`` and ``make test-ci``, which are for both.
Paths among the arguments go to the run that they belong to. What came out of the first run is counted in the
second one too.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from medusa.errors import ConfigError
from medusa.spark.session import check_java

ROOT = Path(__file__).resolve().parents[1]
SPARK = "tests/spark"
SELECTED = ("--full", "--issue", "--ci")
TAKE_A_WORD = ("-k", "-m", "-n", "-p", "-r", "-W", "-o", "-c", "--deselect", "--ignore", "--basetemp")
# pytest's exit statuses.
FAILED, INTERRUPTED, NONE_RAN = 1, 2, 5
GREEN = (0, NONE_RAN)


def split(args: list[str]) -> tuple[list[str] | None, list[str] | None]:
    """The arguments of the run of Spark's tests and those of the other; None where it has nothing to do."""
    spark: list[str] = []
    others: list[str] = []
    chosen: set[str] = set()
    for before, word in zip(["", *args], args, strict=False):
        path = Path(os.path.normpath(ROOT / word.split("::")[0]))
        inside = path.is_relative_to(ROOT / SPARK)
        if word.startswith("-") or before in TAKE_A_WORD or not (inside or path.exists()):
            spark.append(word)
            others.append(word)
            continue
        if inside:
            spark.append(word)
            chosen.add("spark")
            continue
        others.append(word)
        chosen.add("others")
        if (ROOT / SPARK).is_relative_to(path):
            spark.append(SPARK)
            chosen.add("spark")
    if not chosen:
        return [SPARK, *spark], others
    return spark if "spark" in chosen else None, others if "others" in chosen else None


def why_not() -> str | None:
    """What is missing on this machine."""
    try:
        check_java()
    except ConfigError as error:
        return f"{SPARK} is left out: {error}"
    return None


def run_spark(venv: Path, options: list[str], outcome: Path) -> int:
    """Returns the exit status, and leaves in the file what the other run is to count or say."""
    said, status = why_not(), FAILED if os.environ.get("CI") else NONE_RAN  # CI leaves nothing out.
    if said is None:
        make = ["make", "--no-print-directory", f"VENV={venv}", "BUILT=1", "spark-ready"]
        status = subprocess.run(make, cwd=ROOT, check=False).returncode
        if status == -signal.SIGINT:
            return INTERRUPTED
        if status:
            status = FAILED
            said = f"{SPARK} is left out: {venv} can't be made"
    if said is None:
        command = [str(venv / "bin" / "python"), "-m", "pytest", "-p", "tests.outcome"]
        command += [f"--outcome={outcome}", f"--outcome-of={SPARK}", *options]
        status = subprocess.run(command, cwd=ROOT, check=False).returncode
        if outcome.exists():
            return status
        said = f"{SPARK} ended before its summary, with exit status {status}"
    print(said, flush=True)
    outcome.write_text(json.dumps({"of": SPARK, "status": status, "said": said}))
    return status


def main(venv: Path, options: list[str], args: list[str]) -> int:
    for_spark, for_others = split(args)
    command = [sys.executable, "-m", "pytest", *options]
    if for_spark is None:
        return subprocess.run([*command, *args], cwd=ROOT, check=False).returncode
    both = [f"--resume={venv / 'full-passed.json'}" for each in options if each.startswith("--resume=")]
    both += [each for each in options if each.startswith(SELECTED)]
    with tempfile.TemporaryDirectory() as folder:
        outcome = Path(folder) / "outcome.json"
        status = run_spark(venv, [*both, *for_spark], outcome)
        if for_others is None:
            return status
        if status == INTERRUPTED or (status not in GREEN and {"-x", "--exitfirst"} & set(args)):
            return status
        command += ["-p", "tests.outcome", f"--before={outcome}", *for_others]
        ended = subprocess.run(command, cwd=ROOT, check=False).returncode
    return status if ended == 0 and status not in GREEN else ended


if __name__ == "__main__":
    signal.signal(signal.SIGINT, lambda *_: None)  # pytest takes it, and ends with its summary.
    place = sys.argv.index("--")
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:place], sys.argv[place + 1 :]))
