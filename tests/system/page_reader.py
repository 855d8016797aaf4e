"""Somebody who does what a page says: writes its files and runs its commands, line by line."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner, Result

from medusa.cli.main import main
from tests.ports import free_ports
from tests.system.nodes import DEADLINE_S, RUN, first_line, until

__all__ = ["Reader", "medusa"]


def medusa(words: list[str]) -> str:
    """What a command prints; it is given again where nobody has answered in time, as on a busy machine."""
    tried: list[Result] = []

    def done() -> bool:
        tried.append(CliRunner().invoke(main, words))
        late = "waited " in tried[-1].output
        was_done = len(tried) > 1 and "is deployed already" in tried[-1].output
        return was_done or not late

    until(done, what=lambda: f"{words}\n{tried[-1].output}")
    assert tried[-1].exit_code == 0 or "is deployed already" in tried[-1].output, (
        f"{words}\n{tried[-1].output}"
    )
    return tried[-1].output


class Reader:
    """Somebody who does what the page says, in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = dict(zip(("5555", "5557"), map(str, free_ports(2)), strict=True))
        self.nodes: dict[str, subprocess.Popen[str]] = {}
        self.printed: dict[str, str] = {}

    def here(self, text: str) -> str:
        for shown, port in self.ports.items():
            text = text.replace(f":{shown}", f":{port}")
        return text

    def write(self, text: str) -> None:
        def key(found: re.Match[str]) -> str:
            public = (self.folder / found[1]).read_text()
            return f'key = "{re.search(r"public = .(.+).$", public, re.MULTILINE)[1]}"'

        name = text.splitlines()[0].removeprefix("# ")
        (self.folder / name).write_text(re.sub(r'key = "\.\.\."  # (\S+)', key, self.here(text)))

    def do(self, line: str) -> None:
        words = shlex.split(self.here(line))
        if words[-1] == "&":
            self._start(words[:-1])
            return
        if words[0] == "medusa":
            self.printed[" ".join(words[1:3])] = medusa(words[1:])
            return
        subprocess.run(words, timeout=DEADLINE_S, check=True)

    def _start(self, words: list[str]) -> None:
        with open(self.folder / f"{len(self.nodes)}.log", "w") as log:
            command = [sys.executable, "-c", RUN, *words[1:]]
            made = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        self.nodes[words[2]] = made
        assert "listening" in first_line(made), Path(log.name).read_text()

    def close(self) -> None:
        for made in self.nodes.values():
            made.kill()
            made.wait(DEADLINE_S)
            made.stdout.close()
