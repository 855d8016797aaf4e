"""The keys of a node, from the files that its configuration names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from medusa.errors import ConfigError, MedusaError
from medusa.nodes.config.settings import Settings
from medusa.nodes.config.settings_security import Security
from medusa.ports import Buffer, Verify
from medusa.runtime.keys.key_files import (
    CurveKey,
    ParticipantKey,
    read_curve_key,
    read_participant_key,
    verifier,
)
from medusa.wire.statement import TEXT_CHARS_MAX, Certificate, from_text, opened

__all__ = ["NodeKeys", "load_keys"]


@dataclass(frozen=True, slots=True)
class NodeKeys:
    """What a node needs of keys; all None or empty without ``[keys]``.

    Attributes:
        certificate: a signed statement about ``own``, as it is said to peers.
        signer: the key of the participant, where the node publishes or trades for it.
    """

    own: CurveKey | None = None
    verify: Verify | None = None
    certificate: bytes = b""
    signer: ParticipantKey | None = None


def load_keys(settings: Settings) -> NodeKeys:
    """Read the files in ``[keys]``.

    Raises:
        ConfigError: one can't be read or used, or isn't about this node; the message says the fix.
    """
    security = settings.security
    if security is None:
        return NodeKeys()
    own = read_curve_key(security.node_key, "node")
    certificate = b""
    if security.certificate:
        certificate = _certificate(Path(security.certificate), settings, own)
    signs = bool(security.participants or certificate)
    verify = verifier() if signs else _nobody_signs
    return NodeKeys(own, verify, certificate, _signer(settings, security))


def _signer(settings: Settings, security: Security) -> ParticipantKey | None:
    """The key of the participant: it publishes by it, and signs what is owed."""
    files = [settings.dht.key] if settings.dht is not None and settings.dht.key else []
    files += [settings.market.key] if settings.market is not None else []
    who, key = settings.participant, None
    for file in files:
        key = read_participant_key(file)
        if key.key != security.participants[who]:
            raise ConfigError(
                f"{file} holds the key {key.key}, that of participant {who!r} is another",
                hint=f"compare it with [participants.{who}]",
                code="config.key.participant",
            )
    return key


def _nobody_signs(key: str, data: Buffer, signature: bytes) -> bool:
    """Without participants in the configuration no statement counts, and nothing has to be installed."""
    return False


def _certificate(path: Path, settings: Settings, own: CurveKey) -> bytes:
    try:
        data = from_text(path.read_bytes()[:TEXT_CHARS_MAX].decode("ascii", "replace"))
        _, statement = opened(data)
    except OSError as error:
        raise ConfigError(f"{path} can't be read: {error.strerror}", code="config.key.file") from None
    except MedusaError as error:
        raise ConfigError(f"{path}: {error.message}", hint=error.hint, code="config.key") from None
    if not isinstance(statement, Certificate) or (statement.node, statement.key) != (
        settings.name,
        own.public,
    ):
        raise ConfigError(
            f"{path} is no certificate of node {settings.name!r} and its key {own.public}",
            hint="sign this key: medusa keygen certificate --help",
            code="config.key.certificate",
        )
    return data
