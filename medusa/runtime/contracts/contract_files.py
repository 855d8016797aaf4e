"""Signed contracts in files: read, written, and written back with a signature more."""

from __future__ import annotations

import os
from pathlib import Path

from medusa.errors import ContractError
from medusa.market.contract.signed import (
    TEXT_CHARS_MAX,
    ContractPaper,
    SignedDocument,
    document_from_text,
    document_to_text,
    opened_document,
)
from medusa.runtime.keys.key_files import PUBLIC_MODE, write_new

__all__ = ["read_signed", "read_text_file", "replace_signed", "write_signed"]


def read_text_file(path: Path, chars_max: int = TEXT_CHARS_MAX) -> str:
    """A text of at most so many bytes.

    Raises:
        ContractError: it can't be read, or is longer.
    """
    try:
        with path.open("rb") as file:
            data = file.read(chars_max + 1)
        text = data.decode()
    except OSError as error:
        raise ContractError(f"{path} can't be read: {error.strerror}", code="contract.file") from None
    except UnicodeDecodeError:
        raise ContractError(f"{path} is no text", code="contract.file") from None
    if len(data) > chars_max:
        raise ContractError(f"{path} has more than {chars_max:,} bytes", code="contract.size")
    return text


def read_signed(path: Path) -> tuple[SignedDocument, ContractPaper]:
    """A signed document, and what it says; whether anybody signed it is not looked at.

    Raises:
        ContractError: it can't be read, or is none; names the file.
    """
    text = read_text_file(path)
    try:
        return opened_document(document_from_text(text))
    except ContractError as error:
        raise ContractError(f"{path}: {error.message}", hint=error.hint, code=error.code) from None


def write_signed(path: Path, signed: SignedDocument) -> None:
    """Write a file that isn't there yet.

    Raises:
        ConfigError: it is there already, or can't be written.
    """
    write_new(path, document_to_text(signed), PUBLIC_MODE)


def replace_signed(path: Path, signed: SignedDocument) -> None:
    """Write a file in the place of the one that is there, whole or not at all.

    Raises:
        ConfigError, ContractError: it can't be written; the one that is there stays.
    """
    draft = path.with_name(f".{path.name}.signed")
    draft.unlink(missing_ok=True)
    write_new(draft, document_to_text(signed), PUBLIC_MODE)
    try:
        os.replace(draft, path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise ContractError(f"{path} can't be written: {error.strerror}", code="contract.file") from None
