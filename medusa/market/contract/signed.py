"""Documents that two parties sign: a contract, or the end of one.

    one signs ──> an offer, which counts for nothing ──> the other signs the same bytes ──> it counts

Both signatures are of the same canonical bytes, in which stand the federation, the two parties and until when
an offer may be accepted: it means nothing elsewhere, to nobody else, and not for ever. Who accepts gives back
what was offered, byte by byte, with a signature more.

A term of a contract that has its default isn't in the bytes, so a later release may add one: what was signed
before it goes on to count. Defaults never change for that reason.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from medusa.decoders import msgpack_decoder
from medusa.errors import ContractError
from medusa.market.contract.checks import check_terms
from medusa.market.contract.terms import Contract, ContractId, PartyName, TaskTerms
from medusa.ports import SIGNING_KEY, Signer, Verify

__all__ = [
    "DOCUMENT_BYTES_MAX",
    "SIGNED_BYTES_MAX",
    "ContentDocument",
    "ContractDocument",
    "ContractPaper",
    "PartySignature",
    "RevocationDocument",
    "SignedDocument",
    "check_signatures",
    "countersign",
    "document_from_text",
    "document_to_text",
    "is_complete",
    "opened_document",
    "sign_document",
]

CONTEXT = b"medusa contract 1\0"
"""Before what is signed, so that a signature of ours is never one of something else."""

DOCUMENT_BYTES_MAX = 64 * 1024
"""What is signed is no longer than that."""

SIGNED_BYTES_MAX = DOCUMENT_BYTES_MAX + 1024
TEXT_CHARS_MAX = 2 * SIGNED_BYTES_MAX

CHANGED = "it was changed or cut short after it was signed: have it sent again by who signed it"
"""What to do about bytes that nobody can have signed."""

Federation = Annotated[str, Meta(pattern=r"\A[a-z0-9_-]{1,64}\Z")]
SigningKey = Annotated[str, Meta(pattern=SIGNING_KEY)]
Count = Annotated[int, Meta(ge=0, le=1 << 62)]
Version = Annotated[int, Meta(ge=1, le=1 << 31)]


class _Document(msgspec.Struct, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True):
    """What all have; ``federation``: where it counts."""

    federation: Federation


class ContractDocument(_Document, frozen=True, tag="contract"):
    """The terms under which load is moved. An offer of them is open until ``until_us``."""

    until_us: Count
    contract: Contract

    @property
    def id(self) -> str:
        return self.contract.id

    @property
    def version(self) -> int:
        return self.contract.version

    @property
    def parties(self) -> tuple[str, str]:
        """The provider, and the consumer."""
        return self.contract.provider, self.contract.consumer

    @property
    def begins_us(self) -> int:
        return self.contract.begins_us

    @property
    def ends_us(self) -> int:
        return self.contract.ends_us


class ContentDocument(_Document, frozen=True, tag="content"):
    """The terms under which one party gives another rows of a stream: a file of the Open Data Contract
    Standard.

    Attributes:
        until_us: an offer is open until then.
        begins_us, ends_us: it counts from the one to before the other.
        content: the whole file as canonical JSON: keys ascending, no blanks. What stands beside it here
            stands in it too, and whoever reads it compares.
    """

    until_us: Count
    id: ContractId
    version: Version
    provider: PartyName
    consumer: PartyName
    begins_us: Count
    ends_us: Count
    content: Annotated[str, Meta(min_length=2, max_length=DOCUMENT_BYTES_MAX)]

    @property
    def parties(self) -> tuple[str, str]:
        """The provider, and the consumer."""
        return self.provider, self.consumer


class RevocationDocument(_Document, frozen=True, tag="revocation"):
    """A party ends a contract before its time: all versions up to this one. One signature is enough.

    Attributes:
        by: the party who says so, and signs.
        said_us: when.
        ends_us: from then on it counts no more; the notice of the contract lies between the two.
    """

    id: ContractId
    version: Version
    provider: PartyName
    consumer: PartyName
    by: PartyName
    said_us: Count
    ends_us: Count
    reason: Annotated[str, Meta(max_length=1_000)] = ""

    @property
    def parties(self) -> tuple[str, str]:
        """The provider, and the consumer."""
        return self.provider, self.consumer


ContractPaper: TypeAlias = ContractDocument | ContentDocument | RevocationDocument


class PartySignature(msgspec.Struct, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True):
    """The signature of one party, and the key that made it."""

    key: SigningKey
    signature: Annotated[bytes, Meta(min_length=64, max_length=64)]


class SignedDocument(msgspec.Struct, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True):
    """A document with the signatures that it has so far.

    Attributes:
        document: canonical bytes: msgpack of the fields in order, each as short as can be.
    """

    document: Annotated[bytes, Meta(max_length=DOCUMENT_BYTES_MAX)]
    provider: PartySignature | None = None
    consumer: PartySignature | None = None

    def to_bytes(self) -> bytes:
        return _encoder.encode(self)


_KINDS = {"contract": ContractDocument, "content": ContentDocument, "revocation": RevocationDocument}
_encoder = msgspec.msgpack.Encoder()
_documents: msgspec.msgpack.Decoder[ContractPaper] = msgpack_decoder(ContractPaper)
_signed: msgspec.msgpack.Decoder[SignedDocument] = msgpack_decoder(SignedDocument)


def _bytes_of(document: ContractPaper) -> bytes:
    plain = msgspec.to_builtins(document)
    if isinstance(document, ContractDocument):
        place = 1 + document.__struct_fields__.index("contract")  # Behind the tag.
        plain[place] = _without_defaults(document.contract)
    return _encoder.encode(plain)


def _without_defaults(terms: Contract | TaskTerms) -> dict[str, object]:
    """By name, in order. (``omit_defaults`` would ask whether a value *is* the default.)"""
    found = {}
    for field in msgspec.structs.fields(terms):
        value = getattr(terms, field.name)
        if value != field.default:
            found[field.name] = _without_defaults(value) if isinstance(value, TaskTerms) else value
    return found


def sign_document(document: ContractPaper, signer: Signer, party: str) -> SignedDocument:
    """A document with the first signature.

    Args:
        party: who signs; its name in the document.

    Raises:
        ContractError: its terms contradict themselves, it is too long, or ``party`` isn't one of its parties.
    """
    _check_document(document)
    try:
        data = _bytes_of(document)
    except UnicodeEncodeError:
        raise ContractError("a text in the document is no Unicode", code="contract.document") from None
    if len(data) > DOCUMENT_BYTES_MAX:
        raise ContractError(
            f"a document of {len(data):,} bytes: at most {DOCUMENT_BYTES_MAX:,} can be signed",
            hint="name fewer streams, boxes, columns and definitions",
            code="contract.size",
        )
    try:
        _documents.decode(data)
    except msgspec.ValidationError as error:
        raise ContractError(f"no document: {error}", code="contract.document") from None
    return _with_signature(SignedDocument(document=data), document, signer, party)


def countersign(signed: SignedDocument, signer: Signer, party: str) -> SignedDocument:
    """The same bytes with the signature of a party beside those it has; one of its own is made anew.

    Raises:
        ContractError: as ``sign_document``; or the bytes are no document.
    """
    document = _read_document(signed.document)
    _check_document(document)
    return _with_signature(signed, document, signer, party)


def _check_document(document: ContractPaper) -> None:
    if isinstance(document, ContractDocument):
        check_terms(document.contract)
    elif document.provider == document.consumer:
        raise ContractError(f"consumer: {document.consumer!r} is both parties", code="contract.terms")
    elif isinstance(document, ContentDocument) and document.ends_us <= document.begins_us:
        raise ContractError("ends_us: expected an end after the begin", code="contract.terms")


def _with_signature(
    signed: SignedDocument, document: ContractPaper, signer: Signer, party: str
) -> SignedDocument:
    role = _role(document, party)
    if isinstance(document, RevocationDocument) and party != document.by:
        raise ContractError(
            f"by: this revocation is said by {document.by!r}, {party!r} can't sign it", code="contract.party"
        )
    made = PartySignature(key=signer.key, signature=signer.sign(CONTEXT + signed.document))
    return msgspec.structs.replace(signed, **{role: made})


def _role(document: ContractPaper, party: str) -> str:
    provider, consumer = document.parties
    if party not in (provider, consumer):
        raise ContractError(
            f"{party!r} is no party of contract {document.id!r}: those are {provider!r} (provider) and"
            f" {consumer!r} (consumer)",
            hint="only a party signs",
            code="contract.party",
        )
    return "provider" if party == provider else "consumer"


def opened_document(data: bytes) -> tuple[SignedDocument, ContractPaper]:
    """What it says, and nothing about whether anybody signed it.

    Raises:
        ContractError: malformed, too long, or not in the one form that counts; or its terms contradict
            themselves.
    """
    if len(data) > SIGNED_BYTES_MAX:
        raise ContractError(
            f"a signed document of {len(data):,} bytes, at most {SIGNED_BYTES_MAX:,}", code="contract.size"
        )
    try:
        signed = _signed.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        fields = SignedDocument.__struct_fields__, PartySignature.__struct_fields__
        raise ContractError(
            f"no signed document: {_fault(error, *fields)}", hint=CHANGED, code="contract.document"
        ) from None
    document = _read_document(signed.document)
    if signed.to_bytes() != data:
        text = "a signed document that isn't in canonical form"
        raise ContractError(text, hint=CHANGED, code="contract.document")
    try:
        _check_document(document)
    except ContractError as error:  # Nobody signs that: see sign_document.
        raise ContractError(error.message, hint=CHANGED, code=error.code) from None
    return signed, document


def _read_document(data: bytes) -> ContractPaper:
    try:
        document = _documents.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ContractError(
            f"no document: {_fault(error, _fields_of(data))}", hint=CHANGED, code="contract.document"
        ) from None
    if _bytes_of(document) != data:
        text = "a document that isn't in canonical form"
        raise ContractError(text, hint=CHANGED, code="contract.document")
    return document


def _fields_of(data: bytes) -> tuple[str, ...]:
    """Names of what stands in a document, as far as it says of which kind it is."""
    try:
        kind = msgspec.msgpack.decode(data)[0]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, LookupError, TypeError):
        return ("kind",)
    found = _KINDS.get(kind) if isinstance(kind, str) else None
    return ("kind", *(found.__struct_fields__ if found is not None else ()))


def _fault(error: Exception, *levels: tuple[str, ...]) -> str:
    """What a decoder says, with the name of the field: it knows only the place in a list.

    Args:
        levels: names of what is in the list, then of what is in each of these.
    """
    text, _, place = str(error)[:300].partition(" - at `$")
    path = []
    for depth, (number, name) in enumerate(re.findall(r"\[(\d+)\]|\.(\w+)", place)):
        names = levels[depth] if number and depth < len(levels) else ()
        path.append(name or (names[int(number)] if int(number) < len(names) else number))
    return f"{'.'.join(path)}: {text}" if path else text


def is_complete(signed: SignedDocument, document: ContractPaper) -> bool:
    """Whether it has the signatures that it needs. Whether they are right, ``check_signatures`` says."""
    if isinstance(document, RevocationDocument):
        return _signature_of(signed, document, document.by) is not None
    return signed.provider is not None and signed.consumer is not None


def check_signatures(
    signed: SignedDocument,
    document: ContractPaper,
    *,
    verify: Verify,
    keys: Mapping[str, str],
    federation: str,
    needs: tuple[str, ...] | None = None,
) -> None:
    """Whether the parties said this, here. A signature that is there and wrong is refused, needed or not.

    Args:
        keys: party -> Ed25519 key of those that are believed.
        federation: where we are.
        needs: parties whose signature must be there; None: all that it takes to count.

    Raises:
        ContractError: it is of another federation (``contract.federation``), a signature is missing
            (``contract.unsigned``), made by another's key (``contract.key``) or of other bytes
            (``contract.signature``). The first of these that holds.
    """
    if document.federation != federation:
        raise ContractError(
            f"contract {document.id!r} is of federation {document.federation!r}, this is {federation!r}",
            hint="a contract counts in one federation: have it signed for this one",
            code="contract.federation",
        )
    if needs is None:
        needs = (document.by,) if isinstance(document, RevocationDocument) else document.parties
    for party in document.parties:
        made = _signature_of(signed, document, party)
        if made is None:
            if party in needs:
                raise ContractError(
                    f"{party!r} hasn't signed contract {document.id!r}",
                    hint="send it to them: medusa contract accept",
                    code="contract.unsigned",
                )
            continue
        if keys.get(party) != made.key:
            known = keys.get(party) or "none that is known here"
            raise ContractError(
                f"contract {document.id!r} is signed for {party!r} by {made.key}, whose key is {known}",
                hint=f"ask {party!r}, not over the same way, which key is theirs",
                code="contract.key",
            )
        if not _fits(verify, signed, made):
            other = signed.consumer if made is signed.provider else signed.provider
            what = (
                "terms in this file were" if other is None or not _fits(verify, signed, other) else "it was"
            )
            raise ContractError(
                f"the signature under contract {document.id!r} is not that of {party!r}: what was signed has"
                f" other bytes, so {what} changed after {party!r} signed",
                hint=f"ask {party!r} for the file that they signed",
                code="contract.signature",
            )


def _fits(verify: Verify, signed: SignedDocument, made: PartySignature) -> bool:
    return verify(made.key, CONTEXT + signed.document, made.signature)


def _signature_of(signed: SignedDocument, document: ContractPaper, party: str) -> PartySignature | None:
    return signed.provider if party == document.parties[0] else signed.consumer


_BEGIN, _END = "-----BEGIN MEDUSA CONTRACT-----", "-----END MEDUSA CONTRACT-----"


def document_to_text(signed: SignedDocument) -> str:
    """As a file holds it."""
    body = base64.b64encode(signed.to_bytes()).decode()
    lines = [body[at : at + 64] for at in range(0, len(body), 64)]
    return "\n".join([_BEGIN, *lines, _END, ""])


def document_from_text(text: str) -> bytes:
    """The bytes of a signed document in a file, for ``opened_document``.

    Raises:
        ContractError: the text holds none.
    """
    lines = [line.strip() for line in text[:TEXT_CHARS_MAX].splitlines()]
    if _BEGIN not in lines:
        raise _no_contract(f"it has no line {_BEGIN}", "give the file that medusa contract propose wrote")
    first = lines.index(_BEGIN) + 1
    if _END not in lines[first:]:
        raise _no_contract(f"its last line, {_END}, is missing", CHANGED)
    body = lines[first : lines.index(_END, first)]
    data = _plain(body)
    if data is None:
        wrong = next((at for at, line in enumerate(body) if _plain([line]) is None), len(body) - 1)
        raise _no_contract(f"line {first + 1 + max(wrong, 0)} is no base64", CHANGED)
    return data


def _plain(body: list[str]) -> bytes | None:
    """What base64 says; None: it is none, or not in its one form: some characters say nothing, and may say
    anything."""
    text = "".join("".join(body).split())
    try:
        data = base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        return None
    return data if data and base64.b64encode(data).decode() == text else None


def _no_contract(why: str, hint: str) -> ContractError:
    return ContractError(f"no signed contract in this text: {why}", hint=hint, code="contract.document")
