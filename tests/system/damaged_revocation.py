"""A node process that is killed within a second of a revocation; one of its files is damaged; it starts."""

from __future__ import annotations

import random
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from medusa.errors import LinkError
from medusa.runtime.keys.key_files import read_public
from medusa.wire.statement import Revocation
from tests.runtime.damaged import KINDS, harm
from tests.runtime.test_keyed_node import Place, said_by, signed
from tests.runtime.test_process import query
from tests.system.nodes import Forked, Nursery, until


class Revoked:
    """The folder of a node that has a query, and was told that the key of a client is revoked.

    Args:
        folder: short, for there is a socket in it.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self.place = Place(folder)
        self.dice = random.Random(f"revoked {seed}")
        self._nursery = Nursery()
        self._data, self._saved, self._log = folder / "data", folder / "saved", folder / "a.log"
        try:
            with self.running(), self.place.connect("maker") as maker:
                maker.deploy(query())
                maker.publish("q.rows", {"ts": [1, 2], "v": [1, 2]})
                maker.flush()
                with self.place.connect("writer"):
                    pass  # Its key counts.
                key = read_public(folder / "writer.pub")
                hour_us = time.time_ns() // 1000 + 3_600_000_000
                told = Revocation(key=key, **said_by("alice", expiry_us=hour_us))
                maker.declare(signed(self.place, told))
                threading.Event().wait(self.dice.choice([0, 0.01, 0.1, 0.5]))
            shutil.copytree(self._data, self._saved)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._nursery.close()

    @contextmanager
    def running(self) -> Iterator[None]:
        """The node runs until ``kill -9``."""
        self._log.write_text("")
        node = Forked(self._nursery, self.place.folder / "a.toml", self._log)
        try:
            until(
                lambda: node.said() or "\nerror:" in f"\n{self._log.read_text()}", what="it listens, or ends"
            )
            yield
        finally:
            if node.said():
                node.kill()
            node.wait()
            node.stdout.close()

    def _refuses(self) -> bool:
        """The node says why it doesn't start."""
        return "\nerror:" in f"\n{self._log.read_text()}"

    def damaged(self, seed: int) -> tuple[str, str]:
        """What was damaged, and what became of the revocation: ``stands``, ``told`` or ``forgotten``."""
        dice = random.Random(f"revocation {seed}")
        shutil.rmtree(self._data)
        shutil.copytree(self._saved, self._data)
        what = harm(self._data, dice, dice.choice(KINDS), lambda file: None)
        with self.running():
            if self._refuses():
                return what, "told"
            with self.place.connect("maker") as maker:
                assert maker.status()["node"] == "a"
            try:
                with self.place.connect("writer"):
                    pass
            except LinkError as error:
                if error.code not in ("link.not_admitted", "E_REVOKED"):
                    raise
                return what, "stands"
            return what, "told" if "the newest catalog was lost" in self._log.read_text() else "forgotten"
