"""Entries of the catalog between participants: where something with a name is, signed by whose it is.

An entry is kept and answered by nodes of other participants, so its owner's Ed25519 key signs it. Federation,
epoch, sequence and expiry are inside the signed bytes, as in the other statements that travel
(``medusa.wire.statement``): it means nothing elsewhere, and nothing for ever. Of one name the entry with the
highest (epoch, sequence) counts.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from medusa.decoders import msgpack_decoder
from medusa.errors import LinkError, RemoteProtocolError
from medusa.ports import SKEW_US, Signer, Verify
from medusa.query.boxes import Schema
from medusa.wire import limits
from medusa.wire.statement import CURVE_KEY, Name, Number, SigningKey

__all__ = [
    "Age",
    "DhtEntry",
    "SignedEntry",
    "Whereabouts",
    "age_of",
    "check_entry",
    "opened_entry",
    "sign_entry",
]

CONTEXT = b"medusa entry 1\0"
"""Before what is signed, so that a signature of an entry is never one of something else."""

FULL_NAME = r"\A[a-z0-9_-]{1,64}/[!-~]{1,190}\Z"

KEY_OR_NONE = rf"\A(?:{CURVE_KEY[2:-2]})?\Z"

Age = tuple[int, int]
"""(epoch, sequence)."""


class Whereabouts(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A node that has what the entry is about: its name, where it listens, its CURVE key (empty: none), and
    which version of the stream it has."""

    node: Name
    address: Annotated[str, Meta(max_length=limits.NAME_CHARS_MAX)]
    key: Annotated[str, Meta(pattern=KEY_OR_NONE)] = ""
    stream_version: Number = 1


class DhtEntry(
    msgspec.Struct, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True, tag="entry"
):
    """One line of the catalog.

    Attributes:
        federation: where it is said.
        participant: whose it is; its key signs. The name begins with it.
        epoch, sequence: grow with each entry of this name.
        expiry_us: it counts until then, in microseconds since the Unix epoch.
        name: ``participant/entity``.
        kind: of the entity: ``stream``, ``query``.
        nodes: where it is.
        schema: of a stream; empty: ask the node.
        gone: there is nothing of this name any more.
        timed: the rows of a stream have a time.
        window_us: of results of windows, their size and advance.
    """

    federation: Name
    participant: Name
    epoch: Number
    sequence: Number
    expiry_us: Number
    name: Annotated[str, Meta(pattern=FULL_NAME)]
    kind: Name
    nodes: Annotated[tuple[Whereabouts, ...], Meta(max_length=limits.DHT_NODES_MAX)] = ()
    schema: Annotated[Schema, Meta(max_length=limits.COLUMNS_MAX)] = ()
    gone: bool = False
    timed: bool = True
    window_us: tuple[Number, Number] | None = None


class SignedEntry(msgspec.Struct, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True):
    """An entry on its way.

    Attributes:
        entry: canonical bytes: msgpack of the fields in order, each as short as can be.
        key: that signed.
    """

    entry: Annotated[bytes, Meta(max_length=limits.DHT_ENTRY_BYTES_MAX)]
    key: SigningKey
    signature: Annotated[bytes, Meta(min_length=64, max_length=64)]


_encoder = msgspec.msgpack.Encoder()
_entries: msgspec.msgpack.Decoder[DhtEntry] = msgpack_decoder(DhtEntry)
_signed: msgspec.msgpack.Decoder[SignedEntry] = msgpack_decoder(SignedEntry)


def age_of(entry: DhtEntry) -> Age:
    """What the younger of two entries of a name has more of."""
    return entry.epoch, entry.sequence


def sign_entry(entry: DhtEntry, signer: Signer) -> bytes:
    """The bytes of a signed entry.

    Raises:
        LinkError: a field is not as it must be, or it is too large (``E_LIMIT``).
    """
    data = _encoder.encode(entry)
    if len(data) > limits.DHT_ENTRY_BYTES_MAX:
        raise LinkError(
            f"an entry of {len(data):,} bytes",
            hint=f"at most {limits.DHT_ENTRY_BYTES_MAX:,}: leave the schema out",
            code="E_LIMIT",
        )
    try:
        _entries.decode(data)
    except msgspec.ValidationError as error:
        raise LinkError(f"no entry: {error}", code="E_MESSAGE") from None
    return _encoder.encode(SignedEntry(entry=data, key=signer.key, signature=signer.sign(CONTEXT + data)))


def opened_entry(data: bytes) -> tuple[SignedEntry, DhtEntry]:
    """What it says, and nothing about whether it is true.

    Raises:
        RemoteProtocolError: malformed, or not in the one form that counts (``E_MESSAGE``).
    """
    if len(data) > limits.DHT_ENTRY_BYTES_MAX + limits.DHT_SIGNATURE_BYTES_MAX:
        raise RemoteProtocolError(f"an entry of {len(data):,} bytes", code="E_LIMIT")
    try:
        signed = _signed.decode(data)
        entry = _entries.decode(signed.entry)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RemoteProtocolError(f"no entry: {str(error)[:200]}", code="E_MESSAGE") from None
    if _encoder.encode(entry) != signed.entry or _encoder.encode(signed) != data:
        raise RemoteProtocolError("an entry that is not in canonical form", code="E_MESSAGE")
    return signed, entry


def check_entry(
    signed: SignedEntry,
    entry: DhtEntry,
    *,
    verify: Verify,
    key: str | None,
    federation: str,
    wall_us: int,
    lifetime_us: int,
) -> None:
    """Whether an entry counts here and now.

    Args:
        key: Ed25519 key of its participant, as it is registered here; None: it isn't.
        federation: where we are.
        wall_us: microseconds since the Unix epoch.
        lifetime_us: nothing may be said for longer.

    Raises:
        RemoteProtocolError: nobody registered, another's name, or no valid signature (``E_IDENTITY``), of
            another federation (``E_AUDIENCE``), too old or for too long (``E_EXPIRED``). The first of them.
    """
    who = entry.participant
    if key is None or key != signed.key:
        raise RemoteProtocolError(
            f"signed by {signed.key}, which is not the key of participant {who!r} here",
            hint=f"check [participants.{who}] in the configuration",
            code="E_IDENTITY",
        )
    if not entry.name.startswith(f"{who}/"):
        raise RemoteProtocolError(f"{entry.name!r} is not participant {who!r}'s to sign", code="E_IDENTITY")
    if entry.federation != federation:
        raise RemoteProtocolError(
            f"it is for federation {entry.federation!r}, this is {federation!r}", code="E_AUDIENCE"
        )
    if not wall_us - SKEW_US <= entry.expiry_us <= wall_us + lifetime_us + SKEW_US:
        raise RemoteProtocolError(
            f"it expires in {(entry.expiry_us - wall_us) / 1e6:.0f} s, allowed are {lifetime_us / 1e6:.0f}",
            hint="set the clock right",
            code="E_EXPIRED",
        )
    if not verify(signed.key, CONTEXT + signed.entry, signed.signature):
        raise RemoteProtocolError(f"the signature is not that of participant {who!r}", code="E_IDENTITY")
