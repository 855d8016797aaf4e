"""Where figures are served over HTTP: ``127.0.0.1:9100``."""

from __future__ import annotations

import ipaddress
import re

from medusa.errors import ConfigError

__all__ = ["check_endpoint", "is_loopback"]

_RULE = "an address is HOST:PORT, such as 127.0.0.1:9100; port 0 takes a free one"


def check_endpoint(
    address: object, *, public: bool, allow: str = "", what: str = "metrics"
) -> tuple[str, int]:
    """(host, port) of an address to serve at.

    Args:
        public: other machines may reach it.
        allow: how to say so, for the hint.
        what: is served, for messages and codes.

    Raises:
        ConfigError: no address, or other machines reach it and nobody allowed that.
    """
    found = None
    if isinstance(address, str):
        found = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[^:/\[\]\s]+):(\d{1,5})", address)
    if found is None:
        raise ConfigError(f"{what}: {address!r:.100} is no address", hint=_RULE, code=f"config.{what}")
    host, port = found[1].strip("[]"), int(found[2])
    if port > 65535:
        raise ConfigError(
            f"{what}: port {port} is not between 0 and 65535", hint=_RULE, code=f"config.{what}"
        )
    if not public and not is_loopback(host):
        raise ConfigError(
            f"{what}: other machines may reach {host}, and whoever does reads names and counts of the query",
            hint=f"serve at 127.0.0.1, or allow it by {allow}",
            code=f"config.{what}.public",
        )
    return host, port


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a host (a name or an address)."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
