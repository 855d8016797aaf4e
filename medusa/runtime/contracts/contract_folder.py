"""The folder of signed contracts from which a node trades."""

from __future__ import annotations

from pathlib import Path

from medusa.errors import ConfigError, ContractError
from medusa.runtime.contracts.contract_files import read_text_file

__all__ = ["ENDINGS", "read_folder"]

ENDINGS = (".contract", ".revoked")
"""Of files that are read; whatever else lies there says nothing."""

FILES_MAX = 10_000


def read_folder(folder: str) -> dict[str, str]:
    """The texts of the contracts and revocations in it, by the names of their files. Whether they count, who
    trades by them looks; one that can't be read has no text, and is refused there.

    Raises:
        ConfigError: there is no such folder, or it has too many of them.
    """
    path = Path(folder)
    try:
        names = sorted(each.name for each in path.iterdir() if each.suffix in ENDINGS)
    except OSError as error:
        raise ConfigError(
            f"[market] contracts: {folder} can't be read: {error.strerror}",
            hint="make that folder, and put there what medusa contract accept has written",
            code="config.contracts",
        ) from None
    if len(names) > FILES_MAX:
        raise ConfigError(
            f"[market] contracts: {folder} has {len(names):,} contracts",
            hint=f"at most {FILES_MAX:,}: move those that are over elsewhere",
            code="config.contracts",
        )
    return {name: _text(path / name) for name in names}


def _text(path: Path) -> str:
    try:
        return read_text_file(path)
    except ContractError:
        return ""
