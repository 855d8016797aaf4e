"""What ``medusa move`` tells while it waits."""

from __future__ import annotations

import threading

import pytest

from medusa.cli import move

FRAGMENT = "q/x"


class Fed:
    """A node whose status is asked for again and again."""

    def __init__(self, *told):
        self.told = [*told, {}]

    def status(self):
        going = self.told[0] if len(self.told) == 1 else self.told.pop(0)
        if len(self.told) == 1:
            self.over.set()
        return {"moves": {"going": {FRAGMENT: going} if going else {}}}


def test_what_was_said_already_is_said_once(monkeypatch: pytest.MonkeyPatch, capsys):
    monkeypatch.setattr(move, "LOOK_EVERY_S", 0.001)
    going = {"to": "b", "state": "preparing", "bytes": 0, "silent": [], "waits_for": ""}
    text = "node 'b' doesn't answer, seen {} s ago"
    away = [{**going, "silent": ["b"], "waits_for": text.format(second)} for second in (7, 8, 9)]
    away.append({**away[0], "state": "running"})
    fed = Fed(going, going, *away, {**going, "state": "copying", "bytes": 1024})
    fed.over = threading.Event()
    move._tell(fed, FRAGMENT, fed.over)
    assert capsys.readouterr().err.splitlines() == [
        "q/x to b: preparing, 0 bytes",
        "q/x to b: preparing, 0 bytes; node 'b' doesn't answer, seen 7 s ago",
        "q/x to b: copying, 1,024 bytes",
    ]
