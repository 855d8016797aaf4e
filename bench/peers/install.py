"""Puts streaming peers into environments of their own, as their requirements don't agree.

    python -m bench.peers.install [NAME ...]

Without names: all. ``<this environment>/peers/NAME`` is each one's place; removing that folder removes it.
Flink and Spark also need a Java of 17 or later.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import venv
from pathlib import Path

PLACES = Path(sys.prefix) / "peers"
NEEDS = {
    "laminardb": ["laminardb", "pyarrow"],
    "pyclink": ["pyclink", "polars"],
    "ubik-sql": ["ubik-sql", "polars", "pyarrow"],
    "streamz": ["streamz", "pandas", "pyarrow"],
    "bytewax": ["bytewax", "pyarrow"],
    "pathway": ["pathway", "pyarrow"],
    "csp": ["csp", "pyarrow"],
    "flink": ["apache-flink", "pyarrow"],
    "spark": ["pyspark", "pyarrow", "pandas"],
}
"""Peer -> what pip installs for it; numpy comes with pyarrow's users."""


def python(engine: str) -> str | None:
    """What an engine runs in: our interpreter, or a streaming peer's own; None where that is absent."""
    if engine not in NEEDS:
        return sys.executable
    found = PLACES / engine / "bin" / "python"
    return str(found) if found.exists() else None


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NEEDS)}")
    names = parser.parse_args().names or list(NEEDS)
    if unknown := [name for name in names if name not in NEEDS]:
        parser.error(f"unknown peer {', '.join(unknown)}; there are {', '.join(NEEDS)}")
    failed = []
    for name in names:
        venv.create(PLACES / name, with_pip=True)
        pip = [
            str(PLACES / name / "bin" / "python"),
            "-m",
            "pip",
            "--disable-pip-version-check",
            "install",
            "-q",
        ]
        print(f"{name}: {' '.join(NEEDS[name])}", flush=True)
        if subprocess.run([*pip, *NEEDS[name], "numpy"], check=False).returncode:
            failed.append(name)
    if failed:
        sys.exit(f"not installed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
