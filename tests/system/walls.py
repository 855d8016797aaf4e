"""A wall between clients and a node: what the node says doesn't come through while it is shut."""

from __future__ import annotations

import contextlib
import socket
import threading
from pathlib import Path


class Wall:
    """Passes on the bytes of all connections to a node at an ipc address, both ways. Any thread may call.

    Args:
        path: where it listens.
        behind: where the node does.
    """

    def __init__(self, path: Path, behind: Path) -> None:
        self.address = f"ipc://{path}"
        self._behind = str(behind)
        self._shut = threading.Event()
        self._made: list[socket.socket] = []
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(path))
        self._listening.listen()
        self._threads = [threading.Thread(target=self._listen)]
        self._threads[0].start()

    def shut(self) -> None:
        """From now on nobody hears the node; it hears them, and their connections stand while it lives."""
        self._shut.set()

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                far = socket.socket(socket.AF_UNIX)
                self._made += [near, far]
                try:
                    far.connect(self._behind)
                except OSError:
                    near.close()
                    continue
                for ways in ((near, far, False), (far, near, True)):
                    thread = threading.Thread(target=self._pass, args=ways)
                    self._threads.append(thread)
                    thread.start()

    def _pass(self, source: socket.socket, target: socket.socket, of_node: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if not (of_node and self._shut.is_set()):
                    target.sendall(data)
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End all connections."""
        for each in (self._listening, *self._made):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for each in (self._listening, *self._made):
            each.close()
