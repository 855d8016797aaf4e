"""A link between nodes that can be cut: bytes go through this process."""

from __future__ import annotations

import contextlib
import socket
import threading
from pathlib import Path


class Wire:
    """Listens at ``path`` and passes on to the socket at ``target``, until it is cut."""

    def __init__(self, path: Path, target: Path) -> None:
        self._target = str(target)
        self._open: list[socket.socket] = []
        self._lock = threading.Lock()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._path = path
        self._whole = True
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """End what is connected, and let nobody connect any more."""
        with self._lock:
            self._whole = False
            for each in (self._listener, *self._open):
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
                each.close()
        self._path.unlink(missing_ok=True)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.socket(socket.AF_UNIX)
                with self._lock:
                    self._open += [near, far]
                    if not self._whole:
                        near.close()
                        return
                try:
                    far.connect(self._target)
                except OSError:  # nobody is there yet: who called tries again
                    near.close()
                    continue
                for one, other in ((near, far), (far, near)):
                    threading.Thread(target=_pass, args=(one, other), daemon=True).start()


def _pass(one: socket.socket, other: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := one.recv(1 << 16):
            other.sendall(data)
    for each in (one, other):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
