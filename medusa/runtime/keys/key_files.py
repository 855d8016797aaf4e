"""Keys: pairs of CURVE for nodes and clients, Ed25519 for participants, and the files that hold them.

A secret key lies in a file that only its owner may read (mode 0600), its public half in a file beside
it, ``NAME.pub``. Both are short TOML, written whole or not at all; a file that is there is never
written over. A secret never shows in ``repr``, an error or a log, and a key can't be pickled.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import stat
import tomllib
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import zmq

from medusa.errors import ConfigError
from medusa.ports import Buffer, Verify
from medusa.wire.statement import is_curve_key, is_signing_key

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

__all__ = [
    "CurveKey",
    "ParticipantKey",
    "public_path",
    "read_curve_key",
    "read_participant_key",
    "read_public",
    "verifier",
    "write_key",
    "write_new",
]

KINDS = ("node", "client", "participant")
FILE_BYTES_MAX = 4096
SECRET_MODE, PUBLIC_MODE = 0o600, 0o644
_SIGNING_PREFIX = "ed25519:"


class _Secret:
    """What all keys have: a secret that stays where it is."""

    __slots__ = ("_secret",)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a key stays in its process: it can't be pickled or copied")


class CurveKey(_Secret):
    """The CURVE pair of a node or client.

    Attributes:
        public: 40 characters of Z85; also who it is, for everybody else.
    """

    __slots__ = ("public",)

    def __init__(self, secret: str) -> None:
        """
        Args:
            secret: 40 characters of Z85.

        Raises:
            ConfigError: no such key, or this libzmq has no CURVE.
        """
        _check_curve()
        try:
            self.public = zmq.curve_public(secret.encode()).decode()
        except (ValueError, KeyError, zmq.ZMQError, UnicodeError):
            raise ConfigError("the secret key is damaged", code="config.key") from None
        self._secret = secret

    @classmethod
    def new(cls) -> CurveKey:
        """A new one, from the system's random numbers.

        Raises:
            ConfigError: this libzmq has no CURVE.
        """
        _check_curve()
        while (made := cls(zmq.curve_keypair()[1].decode())).public.startswith("-"):
            pass  # Commands would take it for an option.
        return made

    def derived(self, purpose: str) -> bytes:
        """A secret for another purpose, which tells nothing of this one."""
        return blake2b(purpose.encode(), key=self._secret.encode(), digest_size=32).digest()

    def lock(self, socket: zmq.Socket[bytes], *, server_key: str | None) -> None:
        """Put the pair into a socket that is neither bound nor connected yet.

        Args:
            server_key: whom it will call; None: it will be called.
        """
        socket.setsockopt_string(zmq.CURVE_PUBLICKEY, self.public)
        socket.setsockopt_string(zmq.CURVE_SECRETKEY, self._secret)
        if server_key is None:
            socket.setsockopt(zmq.CURVE_SERVER, 1)
        else:
            socket.setsockopt_string(zmq.CURVE_SERVERKEY, server_key)

    def __repr__(self) -> str:
        return f"<CurveKey {self.public}>"


def _check_curve() -> None:
    """Whether libzmq was built with CURVE.

    Raises:
        ConfigError: it wasn't.
    """
    if not zmq.has("curve"):
        raise ConfigError(
            "this libzmq was built without CURVE, so there can be no keys",
            hint="pip install --force-reinstall pyzmq: its wheels have it",
            code="config.key.curve",
        )


class ParticipantKey(_Secret):
    """The Ed25519 pair of a participant; implements ``medusa.ports.Signer``."""

    __slots__ = ("_key",)

    def __init__(self, secret: bytes) -> None:
        """
        Args:
            secret: 32 bytes.

        Raises:
            ConfigError: no such key, or the package cryptography isn't installed.
        """
        with _needs_cryptography():
            from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        try:
            self._secret: Ed25519PrivateKey = Ed25519PrivateKey.from_private_bytes(secret)
        except ValueError:
            raise ConfigError("the secret key is damaged", code="config.key") from None
        self._key = _SIGNING_PREFIX + self._secret.public_key().public_bytes_raw().hex()

    @classmethod
    def new(cls) -> ParticipantKey:
        """A new one, from the system's random numbers."""
        return cls(os.urandom(32))

    @property
    def key(self) -> str:
        """The public half as text: ``ed25519:`` and 64 hexadecimal digits."""
        return self._key

    def sign(self, data: Buffer) -> bytes:
        """64 bytes that only this key makes of these bytes."""
        return self._secret.sign(bytes(data))

    def __repr__(self) -> str:
        return f"<ParticipantKey {self.key}>"


def verifier() -> Verify:
    """What tells whether a signature is right; implements ``medusa.ports.Verify``.

    Raises:
        ConfigError: the package cryptography isn't installed.
    """
    with _needs_cryptography():
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    def verify(key: str, data: Buffer, signature: bytes) -> bool:
        if not is_signing_key(key):
            return False
        try:
            public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(key.removeprefix(_SIGNING_PREFIX)))
            public.verify(signature, bytes(data))
        except (InvalidSignature, ValueError):
            return False
        return True

    return verify


@contextlib.contextmanager
def _needs_cryptography() -> Iterator[None]:
    try:
        yield
    except ImportError:
        raise ConfigError(
            "keys of participants need the package cryptography",
            hint="pip install 'medusa-streams[federation]'",
            code="config.key.extra",
        ) from None


# --- files ----------------------------------------------------------------------------------------


def public_path(path: str | os.PathLike[str]) -> Path:
    """Where the public half of the key in this file lies: ``edge-1.pub`` for ``edge-1.key``."""
    return Path(path).with_suffix(".pub")


def write_key(path: str | os.PathLike[str], kind: str, key: CurveKey | ParticipantKey) -> None:
    """Write a new key, and its public half beside it.

    Args:
        kind: ``node``, ``client`` or ``participant``.

    Raises:
        ConfigError: one of the files is there already, or can't be written. Then no secret is written.
    """
    target, beside = Path(path), public_path(path)
    if target == beside:
        raise ConfigError(
            f"{target}: .pub is the name of the public half", hint="edge-1.key", code="config.key.file"
        )
    for each in (target, beside):
        if os.path.lexists(each):
            raise _there_already(each)
    if isinstance(key, CurveKey):
        public, secret = key.public, key._secret
    else:
        public, secret = key.key, key._secret.private_bytes_raw().hex()
    fields = f'kind = "{kind}"\npublic = "{public}"\n'
    note = f"# The secret key of a {kind}. Who reads it can pass for its owner: keep mode 0600.\n"
    write_new(beside, f"# The public key of a {kind}: for everybody.\n{fields}", PUBLIC_MODE)
    try:
        write_new(target, f'{note}{fields}secret = "{secret}"\n', SECRET_MODE)
    except ConfigError:
        beside.unlink(missing_ok=True)
        raise


def write_new(path: Path, text: str, mode: int) -> None:
    """Write a file that isn't there yet, whole or not at all, also after a power cut.

    Raises:
        ConfigError: it is there already, or can't be written.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        number = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
        try:
            with open(number, "w", encoding="utf-8") as file:
                os.fchmod(number, mode)  # Whatever the umask says.
                file.write(text)
                file.flush()
                os.fsync(number)
            os.link(draft, path)  # Unlike a rename it never replaces.
        finally:
            os.unlink(draft)
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except FileExistsError:
        raise _there_already(path) from None
    except FileNotFoundError:
        hint = f"make it first: mkdir -p {path.parent}"
        text = f"{path} can't be written: there is no folder {path.parent}"
        raise ConfigError(text, hint=hint, code="config.key.file") from None
    except OSError as error:
        raise ConfigError(f"{path} can't be written: {error.strerror}", code="config.key.file") from None


def _there_already(path: Path) -> ConfigError:
    return ConfigError(
        f"{path} is there already, and is never written over",
        hint="choose another name; or move it away, if it is not in use",
        code="config.key.exists",
    )


def read_curve_key(path: str | os.PathLike[str], *kinds: str) -> CurveKey:
    """The CURVE pair in a file.

    Args:
        kinds: what it may be; none: ``node`` or ``client``.

    Raises:
        ConfigError: it can't be read, others can read it too, or it holds no such key.
    """
    fields = _read(Path(path), kinds or ("node", "client"), secret=True)
    with _in_file(Path(path)):
        key = CurveKey(fields["secret"])
        if key.public != fields["public"]:
            raise ConfigError("the public key is not that of the secret one", code="config.key")
    return key


def read_participant_key(path: str | os.PathLike[str]) -> ParticipantKey:
    """The Ed25519 pair in a file.

    Raises:
        ConfigError: as ``read_curve_key``; also where the package cryptography isn't installed.
    """
    fields = _read(Path(path), ("participant",), secret=True)
    with _in_file(Path(path)):
        try:
            secret = bytes.fromhex(fields["secret"])
        except ValueError:
            raise ConfigError("the secret key is damaged", code="config.key") from None
        key = ParticipantKey(secret)
        if key.key != fields["public"]:
            raise ConfigError("the public key is not that of the secret one", code="config.key")
    return key


def read_public(path: str | os.PathLike[str], *kinds: str) -> str:
    """The public key in a file, public or secret.

    Raises:
        ConfigError: it can't be read, or it holds no such key.
    """
    return _read(Path(path), kinds or KINDS, secret=False)["public"]


@contextlib.contextmanager
def _in_file(path: Path) -> Iterator[None]:
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{path}: {error.message}", hint=error.hint, code=error.code) from None


def _read(path: Path, kinds: tuple[str, ...], *, secret: bool) -> dict[str, str]:
    try:
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            found = os.fstat(number)
            if not stat.S_ISREG(found.st_mode):
                raise ConfigError(f"{path} is no file", code="config.key.file")
            data = os.read(number, FILE_BYTES_MAX + 1)
            if b"secret = " in data and secret:
                _only_ours(path, found)
        finally:
            os.close(number)
    except OSError as error:
        hint = "medusa keygen makes keys" if isinstance(error, FileNotFoundError) else ""
        text = f"{path} can't be read: {error.strerror}"
        raise ConfigError(text, hint=hint, code="config.key.file") from None
    return _fields(path, data, kinds, secret=secret)


def _only_ours(path: Path, found: os.stat_result) -> None:
    """A secret that others can read is none; it is not used, so that somebody notices."""
    name = shlex.quote(str(path))
    if found.st_uid != os.geteuid():
        raise ConfigError(
            f"{path}: the secret key belongs to user {found.st_uid}, this is user {os.geteuid()}",
            hint=f"if it is yours: chown {os.geteuid()} {name}",
            code="config.key.owner",
        )
    if found.st_mode & 0o177:
        raise ConfigError(
            f"{path}: others than its owner can use the secret key (mode {found.st_mode & 0o777:04o})",
            hint=f"chmod 600 {name}; if they may have read it, make a new key",
            code="config.key.mode",
        )


def _fields(path: Path, data: bytes, kinds: tuple[str, ...], *, secret: bool) -> dict[str, str]:
    wanted = ("kind", "public", "secret") if secret else ("kind", "public")
    found: dict[str, Any] = {}
    with contextlib.suppress(UnicodeDecodeError, tomllib.TOMLDecodeError):
        found = tomllib.loads(data[:FILE_BYTES_MAX].decode())
    kind = found.get("kind")
    if len(data) > FILE_BYTES_MAX or kind not in KINDS:
        raise ConfigError(f"{path} is no key file", hint="medusa keygen makes them", code="config.key")
    if kind not in kinds:
        expected = " or ".join(kinds)
        raise ConfigError(f"{path} holds the key of a {kind}, expected {expected}", code="config.key.kind")
    if secret and "secret" not in found:
        raise ConfigError(
            f"{path} holds a public key, this needs the secret one",
            hint=f"such as {path.with_suffix('.key')}",
            code="config.key.kind",
        )
    is_key = is_signing_key if kind == "participant" else is_curve_key
    secret_form = r"[0-9a-f]{64}" if kind == "participant" else r"[!-~]{40}"
    fine = is_key(found.get("public")) and all(isinstance(found.get(name), str) for name in wanted)
    if not fine or (secret and not re.fullmatch(secret_form, found["secret"])):
        raise ConfigError(f"{path}: the key is damaged", hint="medusa keygen makes keys", code="config.key")
    return {name: found[name] for name in wanted}
