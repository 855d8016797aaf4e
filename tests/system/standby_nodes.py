"""Six nodes of one participant for tests of standby, with and without keys."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import medusa as md
from medusa.runtime.keys.key_files import CurveKey, read_public, write_key
from tests.system.nodes import DEADLINE_S, ForkedNodes, eventually, ordered, run_to_end, until

NAMES = ["e", "m", "c", "s1", "s2", "w"]
LIMITS = 'checkpoint_every = "100ms"'


STATUS_S = 0.2
"""So often a node is asked for its status, by a new connection each time: a busy one has other work."""

TRIES = 5
"""So often a story is told at most in which a node was missed that nobody had killed."""


class StandbyNodes(ForkedNodes):
    """e (publishers, coordinator), m (what is guarded), c (readers), s1 and s2 (stand by), w (votes).

    Args:
        keyed: every socket has CURVE.
        limits: of each, and tables behind that one.
    """

    def __init__(self, folder: Path, *, keyed: bool, limits: str = LIMITS) -> None:
        super().__init__(folder, NAMES, limits=limits)
        self.keyed = keyed
        if keyed:
            write_key(folder / "client.key", "client", CurveKey.new())
            for name in NAMES:
                write_key(folder / f"{name}.key", "node", CurveKey.new())
            for name in NAMES:
                self.config(name).write_text(self._text(name))

    def public(self, name: str) -> str:
        return read_public(self.folder / f"{name}.pub")

    def _text(self, name: str) -> str:
        lines = [f'name = "{name}"', f'listen = "{self.addresses[name]}"', f'data = "{name}.data"']
        lines += ['federation = "test"', "[keys]", f'node = "{name}.key"', "[limits]", self.limits]
        for other in NAMES:
            if other != name:
                lines += [f"[peers.{other}]", f'address = "{self.addresses[other]}"']
                lines += [f'key = "{self.public(other)}"']
        lines += ["[clients.client]", f'key = "{self.public("client")}"', "status = true"]
        lines += ['deploy = ["*"]', 'publish = ["*"]', 'subscribe = ["*"]']
        return "\n".join(lines) + "\n"

    def connect(self, *names: str) -> contextlib.AbstractContextManager[md.Federation]:
        """To one of these nodes."""
        keys: dict[str, Any] = {}
        if self.keyed:
            keys = {"key": self.folder / "client.key"}
            keys["server_key"] = [self.folder / f"{name}.pub" for name in names]
        return contextlib.closing(md.connect([self.addresses[n] for n in names], timeout="60s", **keys))

    def words(self, name: str) -> list[str]:
        """What the command line needs to reach a node."""
        words = ["--node", self.addresses[name]]
        if self.keyed:
            words += ["--key", str(self.folder / "client.key")]
            words += ["--server-key", str(self.folder / f"{name}.pub")]
        return words

    def replicas(self, fragment: str, *, by: str = "e") -> dict[str, Any]:
        """Who has a fragment, as the coordinator says; ``by``: that is this node."""
        with self.connect(by) as fed:
            return fed.status()["queries"]["q"]["configuration"]["fragments"][fragment]

    def until_guarded(self, fragment: str, *secondaries: str) -> None:
        """Until these may succeed, and follow, as the owner itself says.

        Just after a takeover the configuration may name some that don't follow the new owner yet.
        """

        def guarded() -> bool:
            found = self.secondaries(fragment, self.replicas(fragment)["owner"])
            return all(found.get(each, {}).get("state") == "following" for each in secondaries)

        until(guarded, what=f"{secondaries} follow", every_s=STATUS_S)

    def until_followed(self, fragment: str, count: int = 2) -> str:
        """Until so many follow whoever has a fragment, as that one says itself; who has it.

        On a busy machine a node may have been taken for silent: then another one has it by now, and the
        first one stands by.
        """
        found: dict[str, Any] = {}

        def followed() -> bool:
            found["owner"] = self.replicas(fragment)["owner"]
            found["secondaries"] = self.secondaries(fragment, found["owner"])
            return [each["state"] for each in found["secondaries"].values()].count("following") >= count

        until(followed, what=lambda: f"{count} follow {fragment}: {found}", every_s=STATUS_S)
        return found["owner"]

    def members(self, fragment: str, *, by: str = "e") -> set[str]:
        """Who has a fragment, and who stands by for it."""
        replicas = self.replicas(fragment, by=by)
        return {replicas["owner"], *replicas["secondaries"]}

    def epochs(self, *fragments: str, by: str = "e") -> list[int]:
        """Of each; one more with each owner."""
        return [self.replicas(each, by=by)["epoch"] for each in fragments]

    def move(self, fragment: str, to: str, *, by: str) -> dict[str, Any]:
        """Order a move until it is done, which a busy machine may leave undone; what is told of it."""
        with self.connect(by) as fed:
            return ordered(lambda: fed.move(fragment, to=to))

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """An order of the command line, given at e until it is done; what it says."""

        def done() -> subprocess.CompletedProcess[str]:
            found = run_to_end(*words, *self.words("e"), timeout_s=2 * DEADLINE_S)
            assert found.returncode == 0, found.stderr
            return found

        return eventually(done, deadline_s=2 * DEADLINE_S)

    def secondaries(self, fragment: str, owner: str) -> dict[str, Any]:
        """Who stands by, as the owner says; empty if it isn't."""
        with self.connect(owner) as fed:
            told = next((each for each in fed.status()["fragments"] if each["fragment"] == fragment), {})
        return told.get("replicas", {}).get("secondaries", {})

    def until_taken_over(self, fragment: str, owner: str) -> str:
        """Until another one than this owner has a fragment; who: on a busy machine any that stands by."""
        what = f"{fragment} is taken over"
        until(lambda: self.replicas(fragment)["owner"] != owner, what=what, every_s=STATUS_S)
        return self.replicas(fragment)["owner"]


def undisturbed(story: Callable[[], bool]) -> None:
    """Tell a story until it goes as it was meant to.

    Args:
        story: false: a node was missed that did nothing but stand still, as on a busy machine; nothing that
            was seen is wrong.
    """
    for _ in range(TRIES):
        if story():
            return
    raise AssertionError(f"in {TRIES} tries nodes were missed each time that nobody had killed")
