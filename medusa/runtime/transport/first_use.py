"""Trust on first use: a node tells whoever asks its public key, and a client keeps what it heard first.

CURVE needs the key of a node before anything is said, so who asks for it asks over a connection that
proves nothing: whoever sits between can give another key, once. Hence both sides have to ask for this:
the node's configuration, and the caller of ``connect``. From then on the key is pinned, in a file of
lines ``ADDRESS KEY``; the first line of an address counts.
"""

from __future__ import annotations

import os
import re
import select
import shlex
import socket
import stat
import threading
from pathlib import Path

from medusa.errors import LinkError
from medusa.runtime.transport.sockets import listening
from medusa.wire.statement import CURVE_KEY, is_curve_key

__all__ = ["Introduction", "ask", "check_pins", "pin", "pinned"]

LINE_BYTES_MAX = 256
PINS_BYTES_MAX = 1 << 20
ASKING_S_MAX = 5.0
AGAIN_S = 0.05
_LINE = re.compile(rf"medusa ({CURVE_KEY[2:-2]})\n")


class Introduction:
    """Tells a public key to whoever connects, in one line, and closes; hears nothing.

    Args:
        address: ``tcp://host:port``; port ``*`` takes a free one.

    Attributes:
        address: where it listens.

    Raises:
        LinkError: it can't listen there.
    """

    def __init__(self, address: str, key: str) -> None:
        host, port = _place(address)
        try:
            self._listening = listening(lambda: socket.create_server((host, port), family=_family(host)))
        except OSError as error:
            text = f"can't introduce itself at {address}: {error.strerror or error}"
            raise LinkError(text, hint="choose another `introduce`", code="link.listen") from None
        self.address = f"{address.rpartition(':')[0]}:{self._listening.getsockname()[1]}"
        self._line = f"medusa {key}\n".encode()
        self._stop_in, self._stop_out = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="medusa-introduction", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            ready, _, _ = select.select([self._listening, self._stop_in], [], [])
            if self._stop_in in ready:
                return
            try:
                made, _ = self._listening.accept()
                with made:
                    made.setblocking(False)  # One line fits into any buffer: nobody is waited for.
                    made.send(self._line)
            except OSError:
                # The caller is gone; or this process has no descriptor left, and then for a while.
                select.select([self._stop_in], [], [], AGAIN_S)

    def close(self) -> None:
        """Tell nobody any more."""
        self._stop_out.send(b"\0")
        self._thread.join()
        for each in (self._listening, self._stop_in, self._stop_out):
            each.close()


def ask(address: str, timeout_s: float) -> str:
    """The key that is told at this address. Whether it is the node's, nobody can know.

    Raises:
        LinkError: nobody answers there in time, or something else.
    """
    try:
        with socket.create_connection(_place(address), timeout=min(timeout_s, ASKING_S_MAX)) as made:
            said = b""
            while len(said) <= LINE_BYTES_MAX and (more := made.recv(LINE_BYTES_MAX)):
                said += more
    except OSError as error:
        raise LinkError(
            f"nobody introduces itself at {address}: {error.strerror or 'not in time'}",
            hint='the node\'s configuration would have to say introduce = "..." in [keys]',
            code="link.introduction",
        ) from None
    found = _LINE.fullmatch(said.decode("ascii", "replace"))
    if found is None:
        raise LinkError(f"what answers at {address} is no node", code="link.introduction")
    return found[1]


def _place(address: str) -> tuple[str, int]:
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    host = host.strip("[]")
    return ("" if host == "*" else host), 0 if port == "*" else int(port)


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


# --- the file -------------------------------------------------------------------------------------


def pinned(path: Path, address: str) -> str:
    """The key that is pinned for an address; empty: none, or no such file yet.

    Raises:
        LinkError: it can't be read, others can write it, or a line of this address is no pin.
    """
    check_pins(path)
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            lines = file.read(PINS_BYTES_MAX).splitlines()
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise LinkError(f"{path} can't be read: {error.strerror}", code="link.pins") from None
    for number, line in enumerate(lines, start=1):
        words = line.split()
        if words[:1] == [address]:
            if len(words) != 2 or not is_curve_key(words[1]):
                raise LinkError(
                    f"{path} line {number} is no pin", hint="it is: ADDRESS KEY", code="link.pins"
                )
            return words[1]
    return ""


def check_pins(path: Path) -> None:
    """Whether what is in it was put there by its owner, where there is such a file.

    Raises:
        LinkError: others can write it.
    """
    try:
        found = path.stat()
    except FileNotFoundError:
        return
    except OSError as error:
        raise LinkError(f"{path} can't be read: {error.strerror}", code="link.pins") from None
    if found.st_uid != os.geteuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise LinkError(
            f"{path}: others than this user can write whom it trusts",
            hint=f"chmod 600 {shlex.quote(str(path))}, and look what is in it",
            code="link.pins",
        )


def pin(path: Path, address: str, key: str) -> None:
    """Keep a key for an address; of two at once, the first counts.

    Raises:
        LinkError: it can't be written.
    """
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    try:
        number = os.open(path, flags, 0o600)
        try:
            size = os.fstat(number).st_size
            # A line that a crash cut off must not take this one with it: nobody would find the key again.
            begin = "\n" if size and os.pread(number, 1, size - 1) != b"\n" else ""
            os.write(
                number, f"{begin}{address} {key}\n".encode()
            )  # One write: lines of two programs don't mix.
            os.fsync(number)
        finally:
            os.close(number)
    except OSError as error:
        raise LinkError(f"{path} can't be written: {error.strerror}", code="link.pins") from None
