"""docs/federation.md does what it says: a newcomer's commands, line by line, with nodes as processes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from medusa.cli.main import main
from tests.blocks import blocks
from tests.ports import free_ports
from tests.system.nodes import DEADLINE_S, RUN, first_line, until

PAGE = Path(__file__).resolve().parents[2] / "docs" / "federation.md"
ROOT = PAGE.parents[1]
PORTS = ("5551", "5552", "5553")
SLOW, FAST = "--speed 2 ", "--speed 20 "
"""The page lets two seconds of the file go by each second, we ten times as many."""

ALICES = ("a1", "a2")

pytestmark = pytest.mark.system


def statements(text):
    """The lines of a block; what goes on to an END is one."""
    found = []
    for line in text.splitlines():
        if found and "<<END" in found[-1] and not found[-1].endswith("\nEND"):
            found[-1] += "\n" + line
        else:
            found.append(line)
    return found


class Newcomer:
    """Somebody who does what the page says, in one folder, with one shell."""

    def __init__(self, folder):
        self.folder = folder
        self.ports = dict(zip(PORTS, map(str, free_ports(len(PORTS))), strict=True))
        self.known = ["set -eu"]
        self.processes = {}
        self.printed = ""

    def here(self, text):
        for shown, port in self.ports.items():
            text = text.replace(f":{shown}", f":{port}")
        return text.replace(SLOW, FAST)

    def shell(self, text):
        """What bash prints, which knows what was said before."""
        script = "\n".join([*self.known, text])
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=DEADLINE_S)
        assert done.returncode == 0, f"{text}\n{done.stderr}"
        return done.stdout

    def words(self, text):
        """As the shell makes words of it."""
        return self.shell(f"printf '%s\\0' {text}").split("\0")[:-1]

    def do(self, statement):
        statement = self.here(statement)
        if re.match(r"\w+\(\)", statement) or re.match(r'\w+="', statement):
            self.known.append(statement)
        elif named := re.fullmatch(r"(\w+)=\$!", statement):
            self.known.append(f"{named[1]}={list(self.processes)[-1]}")
        elif statement.endswith("&"):
            self.start(statement[:-1])
        elif statement.startswith("medusa "):
            self.printed = self.medusa(self.words(statement)[1:])
        elif statement.startswith("python "):
            self.printed = self.python(self.words(statement)[1:])
        elif statement.startswith("wait "):
            for pid in self.words(statement)[1:]:
                assert self.processes[int(pid)].wait(DEADLINE_S) == 0
        else:
            self.printed = self.shell(statement)
            if statement.startswith("kill "):
                self.ended(self.words(statement)[1:])

    def medusa(self, words):
        shown = []

        def done():
            shown[:] = [CliRunner().invoke(main, words)]
            output = shown[0].output
            if shown[0].exit_code == 0:  # Who is silent for a moment isn't shown.
                return words[:2] != ["status", "--all"] or all(
                    f"node {each} of alice" in output for each in ALICES
                )
            # What was just deployed or moved is published to others within some seconds; on a machine that is
            # busy a node may have no answer of all others in five, or not answer in time itself.
            return words[0] not in ("find", "remote", "deploy", "move") and "waited " not in output

        until(done, what=" ".join(words))
        assert shown[0].exit_code == 0, f"{words}\n{shown[0].output}"
        return shown[0].output

    def python(self, words):
        done = subprocess.run(
            [sys.executable, *words],
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start(self, text):
        text, *outputs = re.split(r"\s(2>>|2>|>)\s", text)
        files = dict(zip(outputs[::2], outputs[1::2], strict=True))
        words = self.words(text)
        command = [sys.executable, "-c", RUN, *words[1:]]
        node = words[1] == "node"
        with (
            open((files.get("2>") or files.get("2>>") or os.devnull).strip(), "a") as errors,
            open(files.get(">", os.devnull).strip(), "w") as output,
        ):
            made = subprocess.Popen(
                command, stdout=subprocess.PIPE if node else output, stderr=errors, text=True
            )
        self.processes[made.pid] = made
        if node:
            assert "listening" in first_line(made), Path(errors.name).read_text()

    def ended(self, words):
        hard = words[0] == "-9"
        for pid in words[hard:]:
            assert self.processes[int(pid)].wait(DEADLINE_S) == (-9 if hard else 0)

    def close(self):
        for made in self.processes.values():
            made.kill()
            made.wait(DEADLINE_S)
            if made.stdout is not None:
                made.stdout.close()


def test_a_newcomer_runs_a_federation(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    newcomer = Newcomer(tmp_path)
    told = {}
    try:
        for block in blocks(PAGE.read_text(encoding="utf-8")):
            if block.language == "python":
                Path(block.text.splitlines()[0].removeprefix("# ")).write_text(block.text)
            elif block.language == "text":
                assert newcomer.printed == block.text
            for statement in statements(block.text) if block.language == "sh" else ():
                newcomer.do(statement)
                told.setdefault(" ".join(statement.split()[:3]), []).append(newcomer.printed)
            if "&\nB1=$!" in block.text:
                for log in ("alice/a1.log", "alice/a2.log", "bob/b1.log"):
                    until(lambda log=log: Path(log).read_text().count("peer up") >= 2, what=f"{log}: up")
        first, again, second = told["medusa find alice/traffic.out"]
        assert first == again
        assert "from alice/traffic.out, lateness judged there" in told["medusa explain busy.json"][0]
        assert "reads alice/traffic.out" in told["medusa queries $BOB"][0]
        assert len(told["medusa tail busy.out"][0].splitlines()) == 3
        assert first.startswith("stream alice/traffic.out is at a2 tcp://127.0.0.1:")
        assert second.startswith("stream alice/traffic.out is at "), second
        assert [line.split()[1] for line in told["medusa tail alice/traffic.out"][-1].splitlines()]
        (queries,) = told["medusa queries $ALICE"]
        assert re.search(r"traffic/per_road +at a2", queries)
        assert told["medusa find traffic/priced"][0].startswith("fragment traffic/priced is at b1 ")
        (status,) = told["medusa status --all"]
        assert all(f"node {each} of alice" in status for each in ALICES)
        (moved,) = told["medusa move traffic/per_road"]
        assert "is at a1" in moved
        assert "bob" in Path("federation.svg").read_text()
        assert all(made.poll() is not None for made in newcomer.processes.values())
    finally:
        newcomer.close()


def test_what_is_shown_is_what_a_shell_takes(tmp_path):
    text = "\n".join(block.text for block in blocks(PAGE.read_text(encoding="utf-8"), "sh"))
    done = subprocess.run(["bash", "-n", "-c", text], capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 0, done.stderr
    assert statements("cat > a <<END\nx\n\ny\nEND\nls") == ["cat > a <<END\nx\n\ny\nEND", "ls"]
