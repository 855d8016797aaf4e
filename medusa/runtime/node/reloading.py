"""Reading again, while a node runs, its contracts, and what it is told of keys and of who may do what."""

from __future__ import annotations

from dataclasses import fields, replace

from medusa.errors import ConfigError
from medusa.nodes.config.settings import Settings
from medusa.nodes.config.settings_dht import DhtRules
from medusa.nodes.config.settings_market import MarketRules
from medusa.runtime.contracts.contract_folder import read_folder
from medusa.runtime.node.configuration import NodeConfig, load_settings, shown

__all__ = ["papers_of", "rules_again"]

HINT = (
    "only [participants], [clients], [offers], [market.suggest], the keys of [peers] and contracts are read"
    " again: restart the node for the rest; deny = true in [participants.NAME] cuts another owner off at once"
)
AGAIN = ("security", "offers")


def rules_again(config: NodeConfig, before: Settings) -> Settings:
    """What the configuration says now; its keys and rules are all that may have changed.

    Args:
        before: what the node runs with.

    Raises:
        ConfigError: something is wrong in it, or something else than keys and rules was changed; the
            node goes on with what it had.
    """
    after = load_settings(config)
    where = shown(config)
    if after.security is None or before.security is None:
        raise ConfigError(f"{where}: [keys] came or went", hint=HINT, code="config.reload")
    own = ("node_key", "certificate", "introduce", "federation")
    changed = [name for name in own if getattr(after.security, name) != getattr(before.security, name)]
    settings = [each.name for each in fields(Settings) if each.name not in AGAIN]
    changed += [name for name in settings if getattr(after, name) != getattr(before, name)]
    if "market" in changed and _but_for_suggestions(before) == _but_for_suggestions(after):
        changed.remove("market")
    if {"peers", "dht"} <= set(changed) and _joins_anew(before) == _joins_anew(after):
        changed.remove("dht")  # It says nothing of whom it joins, so that is all peers.
    if changed:
        raise ConfigError(f"{where}: {', '.join(changed)} changed too", hint=HINT, code="config.reload")
    return after


def papers_of(settings: Settings) -> dict[str, str]:
    """The contracts by which a node trades, as they lie in its folder now: name of the file -> its text.

    Raises:
        ConfigError: there is no such folder.
    """
    return {} if settings.market is None else read_folder(settings.market.contracts)


def _but_for_suggestions(settings: Settings) -> MarketRules | None:
    return None if settings.market is None else replace(settings.market, suggest={})


def _joins_anew(settings: Settings) -> DhtRules | None:
    """How it takes part in the catalog between participants, whoever its peers are."""
    rules = settings.dht
    if rules is None or set(rules.join) != set(settings.peers):
        return rules
    return replace(rules, join=())
