"""Statements that travel: signed by a participant, carried by anybody, checked by whom they concern.

CURVE says who is at the other end of a link. It says nothing of who said first what comes over that
link, so what is passed on is signed. A statement names its audience (a federation, and one node of
it or all), and has an epoch, a sequence number and an expiry, all inside the signed bytes: it means
nothing elsewhere, nothing a second time and nothing for ever.

Of each *subject* (a node, or a key) a signer's statements are numbered by (epoch, sequence): what is
not beyond the last one is a replay. A statement itself, said again, is none: it is known already.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from hashlib import blake2b
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from medusa.decoders import msgpack_decoder
from medusa.errors import LinkError, RemoteProtocolError
from medusa.ports import SIGNING_KEY, SKEW_US, Signer, Verify
from medusa.wire import limits

__all__ = [
    "Certificate",
    "Place",
    "Revocation",
    "Signed",
    "Statement",
    "check",
    "client_key",
    "client_name",
    "from_text",
    "is_curve_key",
    "is_signing_key",
    "opened",
    "sign",
    "to_text",
]

CONTEXT = b"medusa statement 1\0"
"""Before what is signed, so that a signature of ours is never one of something else."""

CURVE_KEY = r"\A[0-9A-Za-z.\-:+=^!/*?&<>()\[\]{}@%$#]{40}\Z"
NAME = r"\A[a-z0-9_-]{1,64}\Z"

CurveKey = Annotated[str, Meta(pattern=CURVE_KEY)]
SigningKey = Annotated[str, Meta(pattern=SIGNING_KEY)]
Name = Annotated[str, Meta(pattern=NAME)]
Number = Annotated[int, Meta(ge=0, le=limits.SEQ_MAX)]


class _Statement(msgspec.Struct, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True):
    """What all have.

    Attributes:
        federation: where it is said.
        participant: who says it; its Ed25519 key signs.
        recipient: the node that it is for; empty: every node of the federation.
        epoch, sequence: grow with each statement about the same subject.
        expiry_us: taken until then, in microseconds since the Unix epoch.
    """

    federation: Name
    participant: Name
    recipient: Annotated[str, Meta(pattern=r"\A[a-z0-9_-]{0,64}\Z")]
    epoch: Number
    sequence: Number
    expiry_us: Number


class Certificate(_Statement, frozen=True, tag="certificate"):
    """This CURVE key belongs to this node of mine. It counts until its expiry, or until it is revoked.

    An earlier one of the same node goes on to count, so that a key can be changed without a break.
    """

    node: Name
    key: CurveKey

    @property
    def subject(self) -> str:
        return f"node {self.node}"


class Revocation(_Statement, frozen=True, tag="revocation"):
    """This CURVE key counts no more, for ever. (The expiry bounds how long the statement is taken.)"""

    key: CurveKey

    @property
    def subject(self) -> str:
        return f"key {self.key}"


Statement: TypeAlias = Certificate | Revocation

Place: TypeAlias = tuple[int, int]
"""(epoch, sequence)."""


class Signed(msgspec.Struct, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True):
    """A statement on its way.

    Attributes:
        statement: canonical bytes: msgpack of the fields in order, each as short as can be.
        key: that signed.
    """

    statement: Annotated[bytes, Meta(max_length=limits.STATEMENT_BYTES_MAX)]
    key: SigningKey
    signature: Annotated[bytes, Meta(min_length=64, max_length=64)]

    def to_bytes(self) -> bytes:
        return _encoder.encode(self)


_encoder = msgspec.msgpack.Encoder()
_statements: msgspec.msgpack.Decoder[Statement] = msgpack_decoder(Statement)
_signed: msgspec.msgpack.Decoder[Signed] = msgpack_decoder(Signed)


def is_curve_key(text: object) -> bool:
    """Whether this can be a CURVE public key: 40 characters of Z85."""
    return isinstance(text, str) and re.search(CURVE_KEY, text) is not None


def is_signing_key(text: object) -> bool:
    """Whether this can be an Ed25519 public key: ``ed25519:`` and 64 hexadecimal digits."""
    return isinstance(text, str) and re.search(SIGNING_KEY, text) is not None


def client_name(key: str, suffix: str = "") -> str:
    """What a client with a CURVE key calls itself: follows from the key, so nobody can take it.

    Args:
        suffix: tells apart the programs that use the key; of ``a-z``, ``0-9``, ``_`` and ``-``.
    """
    made = f"c-{blake2b(key.encode(), digest_size=10).hexdigest()}"
    return f"{made}-{suffix}" if suffix else made


def client_key(name: str) -> str:
    """What all names of clients with one key have in common; of any other name the name itself."""
    found = re.match(r"c-[0-9a-f]{20}(?=-|\Z)", name)
    return name if found is None else found[0]


def sign(statement: Statement, signer: Signer) -> Signed:
    """Sign a statement.

    Raises:
        LinkError: a field is not as it must be.
    """
    data = _encoder.encode(statement)
    try:
        _statements.decode(data)
    except msgspec.ValidationError as error:
        raise LinkError(f"no statement: {error}", code="E_MESSAGE") from None
    return Signed(statement=data, key=signer.key, signature=signer.sign(CONTEXT + data))


def opened(data: bytes) -> tuple[Signed, Statement]:
    """What it says, and nothing about whether it is true.

    Raises:
        RemoteProtocolError: malformed, or not in the one form that counts (``E_MESSAGE``).
    """
    if len(data) > 2 * limits.STATEMENT_BYTES_MAX:
        raise RemoteProtocolError(f"a statement of {len(data):,} bytes", code="E_LIMIT")
    try:
        signed = _signed.decode(data)
        statement = _statements.decode(signed.statement)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RemoteProtocolError(f"no statement: {str(error)[:200]}", code="E_MESSAGE") from None
    if _encoder.encode(statement) != signed.statement or signed.to_bytes() != data:
        raise RemoteProtocolError("a statement that is not in canonical form", code="E_MESSAGE")
    return signed, statement


def check(
    signed: Signed,
    statement: Statement,
    *,
    verify: Verify,
    participants: Mapping[str, str],
    federation: str,
    node: str,
    wall_us: int,
    last: Place | None,
    revoked: bool,
) -> None:
    """Whether a statement counts here and now.

    Args:
        participants: name -> Ed25519 key of those that are believed.
        federation, node: where we are.
        wall_us: microseconds since the Unix epoch.
        last: (epoch, sequence) of the last statement of this signer about this subject.
        revoked: what a certificate is about was revoked.

    Raises:
        RemoteProtocolError: another's or no valid signature (``E_IDENTITY``), meant for others
            (``E_AUDIENCE``), too old (``E_EXPIRED``), not beyond the last one (``E_REPLAY``), of a
            revoked key (``E_REVOKED``). The first of these that holds.
    """
    who = statement.participant
    if participants.get(who) != signed.key:
        raise RemoteProtocolError(
            f"signed by {signed.key}, which is not the key of participant {who!r} here",
            hint=f"check [participants.{who}] in the configuration",
            code="E_IDENTITY",
        )
    if statement.federation != federation or statement.recipient not in ("", node):
        meant = f"{statement.recipient or 'every node'} of federation {statement.federation!r}"
        raise RemoteProtocolError(f"it is for {meant}, this is {node!r} of {federation!r}", code="E_AUDIENCE")
    if wall_us > statement.expiry_us + SKEW_US:
        raise RemoteProtocolError(
            f"it expired {(wall_us - statement.expiry_us) / 1e6:.0f} s ago",
            hint="sign it anew; or set the clock right",
            code="E_EXPIRED",
        )
    if not verify(signed.key, CONTEXT + signed.statement, signed.signature):
        raise RemoteProtocolError(f"the signature is not that of participant {who!r}", code="E_IDENTITY")
    if last is not None and (statement.epoch, statement.sequence) <= last:
        raise RemoteProtocolError(
            f"number {statement.epoch}.{statement.sequence} about {statement.subject}, the last was "
            f"{last[0]}.{last[1]}",
            hint="sign it with a higher sequence",
            code="E_REPLAY",
        )
    if revoked:
        raise RemoteProtocolError(f"about {statement.subject}, whose key was revoked", code="E_REVOKED")


_BEGIN, _END = "-----BEGIN MEDUSA STATEMENT-----", "-----END MEDUSA STATEMENT-----"
TEXT_CHARS_MAX = 4 * limits.STATEMENT_BYTES_MAX


def to_text(signed: Signed) -> str:
    """As a file holds it."""
    body = base64.b64encode(signed.to_bytes()).decode()
    lines = [body[at : at + 64] for at in range(0, len(body), 64)]
    return "\n".join([_BEGIN, *lines, _END, ""])


def from_text(text: str) -> bytes:
    """The bytes of a statement in a file, for ``opened`` and for ``Declare``.

    Raises:
        LinkError: the text holds none.
    """
    found = re.search(f"{_BEGIN}\\s(.*?){_END}", text[:TEXT_CHARS_MAX], re.DOTALL)
    try:
        if found is None:
            raise ValueError
        return base64.b64decode("".join(found[1].split()), validate=True)
    except (ValueError, binascii.Error):
        raise LinkError(
            "no statement in this text", hint=f"it begins with a line {_BEGIN}", code="E_MESSAGE"
        ) from None
