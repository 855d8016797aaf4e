"""Six nodes of one participant for tests of standby, with and without keys."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import medusa as md
from medusa.runtime.keys.key_files import CurveKey, read_public, write_key
from tests.system.nodes import ForkedNodes, until

NAMES = ["e", "m", "c", "s1", "s2", "w"]
LIMITS = 'checkpoint_every = "100ms"'


STATUS_S = 0.2
"""So often a node is asked for its status, by a new connection each time: a busy one has other work."""


class StandbyNodes(ForkedNodes):
    """e (publishers, coordinator), m (what is guarded), c (readers), s1 and s2 (stand by), w (votes).

    Args:
        keyed: every socket has CURVE.
        limits: of each, and tables behind that one.
    """

    def __init__(self, folder: Path, *, keyed: bool, limits: str = LIMITS) -> None:
        super().__init__(folder, NAMES, limits=limits)
        self.keyed, self._limits = keyed, limits
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
        lines += ['federation = "test"', "[keys]", f'node = "{name}.key"', "[limits]", self._limits]
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
            found = self._secondaries(fragment, self.replicas(fragment)["owner"])
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
            found["secondaries"] = self._secondaries(fragment, found["owner"])
            return [each["state"] for each in found["secondaries"].values()].count("following") >= count

        until(followed, what=lambda: f"{count} follow {fragment}: {found}", every_s=STATUS_S)
        return found["owner"]

    def _secondaries(self, fragment: str, owner: str) -> dict[str, Any]:
        """Who stands by, as the owner says; empty if it isn't."""
        with self.connect(owner) as fed:
            told = next((each for each in fed.status()["fragments"] if each["fragment"] == fragment), {})
        return told.get("replicas", {}).get("secondaries", {})

    def until_taken_over(self, fragment: str, owner: str) -> str:
        """Until another one than this owner has a fragment; who: on a busy machine any that stands by."""
        what = f"{fragment} is taken over"
        until(lambda: self.replicas(fragment)["owner"] != owner, what=what, every_s=STATUS_S)
        return self.replicas(fragment)["owner"]
