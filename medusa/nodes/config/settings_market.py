"""The part of a node's configuration that lets it trade load with other participants, under contracts.

[node]
capacity = "0.5 cores"       # for its own load and that of others; nothing is taken beyond it

[market]
contracts = "contracts"      # folder with files that both parties have signed
key = "alice.key"            # of its participant: with it, it signs readings and receipts

[market.cost]
unit = "0.02"                # what a core-second costs at that share of the capacity
load = 0.7

[market.partners.bob]
node = "bob-1"               # the peer of ours that trades for bob

[market.policy]
never_move = ["billing/*"]

[market.suggest]
"cars.out" = "carol"         # who reads this stream by a contract is told that carol has it too

In place of ``unit``, ``cpu`` has points of the owner's own: ``cpu = [[0, "0"], [0.5, "0"], [1, "1.50"]]``.
Where fragments run on Spark, ``cluster`` is what a core-second of it costs, and ``delay`` what results cost
that come a second later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from medusa.errors import ConfigError, ContractError
from medusa.market.cost import ClusterCost, CostFunction, PiecewiseCost, QueueingCost
from medusa.market.money import micro_of
from medusa.market.work import ResourceUse, resource_use_of
from medusa.nodes.config.config_file import NAME, NAME_RULE, ConfigFile
from medusa.nodes.config.fields import duration, flag, names, read_fields, share
from medusa.nodes.config.settings_security import Security
from medusa.nodes.config.settings_store import forgets
from medusa.query.suggest import did_you_mean

__all__ = ["CostRules", "MarketPolicyRules", "MarketRules", "cost_function", "read_market"]

POINTS_MAX = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class CostRules:
    """What load costs the owner. It is private: others see only which offers are made and taken.

    Attributes:
        unit_micro: of a core-second at ``load``, in millionths of the currency; 0: another one counts.
        cpu: (cores, millionths of the currency a second), from (0, 0) on.
        cluster_micro: of a core-second of what ``[spark]`` names; 0: another one counts.
        delay_micro: of each second by which results come later there, a second.
    """

    unit_micro: int = 0
    load: float = share(0.7, 0.05, 0.98)
    """The share of `capacity` at which a core-second costs `unit`: less below it, more and more above it. Too
    small: nothing is taken; too large: nothing is shed before the machine is full."""

    cpu: tuple[tuple[float, int], ...] = ()
    cluster_micro: int = 0
    delay_micro: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MarketPolicyRules:
    """What the owner wants beside profit."""

    prefer: tuple[str, ...] = names('["bob"]', noun="names")
    """Partners, best first: these are asked before the others, whatever they cost."""

    avoid: tuple[str, ...] = names('["mallory"]')
    """Partners to whom nothing is given, and from whom nothing is taken."""

    shed_first: tuple[str, ...] = names('["batch/*"]')
    """Fragments, as `query/box`: those that fit an earlier one go before the rest."""

    never_move: tuple[str, ...] = names('["billing/*"]')
    """Fragments that stay."""

    follow: tuple[str, ...] = names('["acme"]', noun="names")
    """Partners that may suggest another source of a stream that they sell us: it is read there from then on,
    if a contract in force sells it there too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MarketRules:
    """How a node trades.

    Attributes:
        contracts: path of the folder with the signed contracts.
        key: path of the file with its participant's secret Ed25519 key.
        capacity: of the node, for its own load and that of others.
        partners: participant -> the peer that trades for it.
        suggest: stream that is sold -> the participant at which its readers are to read it.
    """

    contracts: str
    key: str
    capacity: ResourceUse
    cost: CostRules
    policy: MarketPolicyRules = field(default_factory=MarketPolicyRules)
    partners: Mapping[str, str] = field(default_factory=dict)
    suggest: Mapping[str, str] = field(default_factory=dict)
    keep_us: int = duration("10 min", "1s", "1d")
    """So long a guest that is to go home is kept where its owner doesn't take it. Too small: an owner that is
    away for longer has only what it holds itself; too large: that much memory and disk for so long."""

    hold_us: int = duration("1 min", "1s", "1d")
    """So long a fragment stays where it went or came to, unless that is too full. Too small: fragments go to
    and fro, and each way costs; too large: what is cheaper at home comes home late."""

    tolerance: float = share(0.2, 0, 10)
    """By so much a row of a guest may take more here than its owner said; beyond it the guest goes home, and
    nothing is taken from its owner for `hold`. Too small: on a machine that is slower than the owner's, or
    that others use as well, guests go home again; too large: so much work isn't paid for."""

    shadow: bool = flag(False)
    """The node offers and takes nothing; status says what it would offer. What is away already stays there
    until it comes home."""


def cost_function(rules: MarketRules, overhead_us: Callable[[], int] = lambda: 0) -> CostFunction:
    """What load costs by these rules, in micro-units of money a second.

    Args:
        overhead_us: of a trigger, beside the work in it, where fragments run on Spark.
    """
    cost = rules.cost
    if cost.cpu:
        return PiecewiseCost(cpu=cost.cpu)
    if cost.cluster_micro:
        return ClusterCost(rules.capacity.cpu_cores, cost.cluster_micro, cost.delay_micro, overhead_us)
    # The slope of scale * c / (1 - c), for the share c of so many cores, is the price of a unit at ``load``.
    scale_micro = cost.unit_micro * rules.capacity.cpu_cores * (1 - cost.load) ** 2
    return QueueingCost(rules.capacity, scale_micro)


def read_market(
    file: ConfigFile,
    *,
    participant: str,
    folder: str,
    peers: Mapping[str, str],
    security: Security | None,
    store: str,
) -> MarketRules | None:
    """The tables ``[node]`` and ``[market]``; None where there is no ``[market]``.

    Args:
        participant: whose node this is.
        folder: what relative paths are relative to.
        store: where the node keeps its state.

    Raises:
        ConfigError: says the line, the field and what is allowed.
    """
    machine = file.table("node")
    file.known("node", machine, ("capacity",))
    if "market" not in file.root:
        if machine:
            hint = "add [market], or leave [node] out"
            raise file.error("node", "says nothing without [market]", hint=hint, within="capacity")
        return None
    table = file.table("market")
    more = ("contracts", "key", "cost", "partners", "policy", "suggest")
    values = read_fields(file, "market", table, MarketRules, more=more)
    _check_node(file, participant, security, store)
    made = MarketRules(
        contracts=_path(file, table, "contracts", folder, 'contracts = "FOLDER", with signed contracts'),
        key=_path(file, table, "key", folder, 'key = "FILE", the secret key of the participant'),
        capacity=_capacity(file, machine),
        cost=_cost(file, table.get("cost")),
        policy=MarketPolicyRules(**_policy(file, table.get("policy", {}))),
        partners=_partners(file, table.get("partners"), participant, peers, security),
        suggest=_suggest(file, table.get("suggest", {}), table.get("partners")),
        **values,
    )
    try:
        cost_function(made)
    except ContractError as error:
        raise file.error("market", error.message, hint=error.hint or _COST_HINT, within="cost") from None
    return made


_COST_HINT = 'cost = {unit = "0.02", load = 0.7}: what a core-second costs at 70 % of the capacity'


_CLUSTER_HINT = 'cost = {cluster = "0.01", delay = "0.002"}: a core-second of Spark, and a second of delay'
_KINDS_OF_COST = ("unit", "cpu", "cluster")


def _check_node(file: ConfigFile, participant: str, security: Security | None, store: str) -> None:
    if security is None:
        hint = 'add [keys] and node = "FILE", made by medusa keygen'
        raise file.error("market", "says nothing without keys", hint=hint, code="config.keys")
    if participant not in security.participants:
        hint = f'add [participants.{participant}] and key = "ed25519:..."'
        raise file.error("market", f"participant {participant!r} isn't registered here", hint=hint)
    if forgets(store):
        hint = 'store = "disk": what is owed has to outlive the process'
        raise file.error("market", f"a node with store = {store!r} can't trade", hint=hint)


def _path(file: ConfigFile, table: Mapping[str, Any], key: str, folder: str, hint: str) -> str:
    if key not in table:
        raise file.error("market", f"{key} is missing", hint=hint, code="config.missing")
    value = table[key]
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise file.error("market", f"expected a path, got {value!r:.80}", hint=hint, within=key)
    return f"{folder}/{value}" if folder and not value.startswith("/") else value


def _capacity(file: ConfigFile, machine: Mapping[str, Any]) -> ResourceUse:
    hint = 'write [node] and capacity = "0.5 cores"'
    if "capacity" not in machine:
        raise file.error("market", "[node] has no capacity", hint=hint, code="config.missing")
    value = machine["capacity"]
    try:
        found = resource_use_of(value if isinstance(value, str) else "", what="capacity")
    except ConfigError:
        why = f"{value!r:.80} is no number of cores"
        raise file.error("node", why, hint=hint, within="capacity") from None
    if found.bytes_per_s:
        why = f"{value!r:.80}: nodes trade cores, and count no bytes"
        raise file.error("node", why, hint=hint, within="capacity")
    return found


def _cost(file: ConfigFile, given: Any) -> CostRules:
    if not isinstance(given, dict):
        why = "cost is missing" if given is None else f"cost: expected a table, got {given!r:.80}"
        raise file.error("market", why, hint=_COST_HINT, within="" if given is None else "cost")
    values = read_fields(file, "market.cost", given, CostRules, more=(*_KINDS_OF_COST, "delay"))
    said = [kind for kind in _KINDS_OF_COST if kind in given]
    if len(said) != 1:
        why = f"both {' and '.join(said)}" if said else "neither unit nor cpu"
        raise file.error("market", f"{why} are said", hint=_COST_HINT, within="cost")
    if "delay" in given and "cluster" not in given:
        why = "says nothing without cluster"
        raise file.error("market.cost", why, hint=_CLUSTER_HINT, within="delay")
    if "cpu" in given:
        return CostRules(cpu=_points(file, given["cpu"]), **values)
    if "unit" in given:
        return CostRules(unit_micro=_price(file, "unit", given["unit"]), **values)
    if "spark" not in file.root:
        why = "is of fragments that run on Spark, and there is no [spark]"
        raise file.error("market.cost", why, hint=_COST_HINT, within="cluster")
    delay_micro = _amount(file, "delay", given.get("delay", "0"))
    return CostRules(
        cluster_micro=_price(file, "cluster", given["cluster"]), delay_micro=delay_micro, **values
    )


def _price(file: ConfigFile, key: str, value: Any) -> int:
    micro = _amount(file, key, value)
    if micro <= 0:
        why = f"{value!r:.80} is no price of a core-second"
        raise file.error("market.cost", why, hint="what it costs you: more than 0", within=key)
    return micro


def _points(file: ConfigFile, given: Any) -> tuple[tuple[float, int], ...]:
    hint = 'cpu = [[0, "0"], [0.5, "0"], [1, "1.50"]]: cores, and what they cost a second'
    pairs = isinstance(given, list) and len(given) <= POINTS_MAX
    if not pairs or not all(isinstance(each, list) and len(each) == 2 for each in given):
        raise file.error("market.cost", f"expected points, got {given!r:.80}", hint=hint, within="cpu")
    if wrong := [cores for cores, _ in given if type(cores) not in (int, float)]:
        raise file.error("market.cost", f"{wrong[0]!r:.80} is no number of cores", hint=hint, within="cpu")
    return tuple((float(cores), _amount(file, "cpu", cost)) for cores, cost in given)


def _amount(file: ConfigFile, key: str, value: Any) -> int:
    try:
        return micro_of(value, what=key)
    except ContractError as error:
        why = f"{value!r:.80} is no amount"
        raise file.error("market.cost", why, hint=error.hint, within=key) from None


def _policy(file: ConfigFile, given: Any) -> dict[str, Any]:
    if not isinstance(given, dict):
        hint = "write [market.policy] and its fields below"
        raise file.error("market", f"expected a table, got {given!r:.80}", hint=hint, within="policy")
    return read_fields(file, "market.policy", given, MarketPolicyRules)


def _partners(
    file: ConfigFile, given: Any, own: str, peers: Mapping[str, str], security: Security | None
) -> dict[str, str]:
    assert security is not None
    hint = 'write [market.partners.bob] and node = "bob-1", a peer of that participant'
    if not isinstance(given, dict) or not given:
        why = "no partners" if not given else f"expected a table, got {given!r:.80}"
        raise file.error("market", why, hint=hint, within="" if given is None else "partners")
    found: dict[str, str] = {}
    for name, of in given.items():
        if not NAME.fullmatch(name):
            raise file.error("market.partners", f"{name[:80]!r} is no name", hint=NAME_RULE, within=name)
        if name == own or name not in security.participants:
            what = "our own participant" if name == own else "no participant here"
            near = "" if name == own else did_you_mean(name, security.participants)
            more = near or f"add [participants.{name}] and its key" if name != own else hint
            raise file.error("market.partners", f"{name!r} is {what}", hint=more, within=name)
        if not isinstance(of, dict):
            raise file.error("market.partners", f"expected a table, got {of!r:.80}", hint=hint, within=name)
        table = f"market.partners.{name}"
        file.known(table, of, ("node",))
        found[name] = _trading_node(file, table, name, of.get("node"), peers, security)
    return found


def _suggest(file: ConfigFile, given: Any, partners: Any) -> dict[str, str]:
    hint = 'write [market.suggest] and "cars.out" = "carol", one of [market.partners]'
    if not isinstance(given, dict):
        raise file.error("market", f"expected a table, got {given!r:.80}", hint=hint, within="suggest")
    for stream, whose in given.items():
        if not isinstance(whose, str) or whose not in partners:
            near = did_you_mean(whose, partners) if isinstance(whose, str) else ""
            why = f"{stream!r:.80}: {whose!r:.80} is no partner"
            raise file.error("market.suggest", why, hint=near or hint, within=stream)
    return dict(given)


def _trading_node(
    file: ConfigFile, table: str, whose: str, node: Any, peers: Mapping[str, str], security: Security
) -> str:
    theirs = [peer for peer in peers if peer in security.peers and security.peers[peer].participant == whose]
    hint = f"peers of {whose!r} here: {', '.join(theirs) or 'none, add one to [peers]'}"
    if node is None:
        raise file.error("market.partners", "node is missing", hint=hint, within=whose)
    if not isinstance(node, str) or node not in peers:
        near = did_you_mean(node, theirs) if isinstance(node, str) else ""
        raise file.error(table, f"{node!r:.80} is no peer", hint=near or hint, within="node")
    if node not in theirs:
        owner = security.peers[node].participant
        raise file.error(table, f"{node!r} is a node of {owner!r}", hint=hint, within="node")
    return node
