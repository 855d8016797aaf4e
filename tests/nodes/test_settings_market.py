"""``[market]`` of a node's configuration: what is said counts; what can't be says its line and what to do."""

from __future__ import annotations

import pytest

from medusa.errors import ConfigError
from medusa.market.cost import ClusterCost, PiecewiseCost
from medusa.market.work import ResourceUse
from medusa.nodes.config.settings import parse
from medusa.nodes.config.settings_market import CostRules, MarketPolicyRules, MarketRules, cost_function
from tests.nodes.keyed import ALICE, BOB, curve

BASE = f"""\
name = "a"
listen = "ipc:///a"
data = "d"
participant = "alice"
federation = "fed"
keys = {{node = "a.key"}}
participants = {{alice = {{key = "{ALICE.key}"}}, bob = {{key = "{BOB.key}"}}}}
[peers]
near = {{address = "ipc:///n", key = "{curve("near")}"}}
core = {{address = "ipc:///c", participant = "bob", key = "{curve("core")}"}}
"""
NODE = '[node]\ncapacity = "0.5 cores"\n'
MARKET = '[market]\ncontracts = "signed"\nkey = "alice.key"\ncost = {unit = "0.02"}\n'
PARTNER = '[market.partners.bob]\nnode = "core"\n'
WHOLE = BASE + NODE + MARKET + PARTNER


def slip(text):
    with pytest.raises(ConfigError) as caught:
        parse(text)
    return caught.value


def test_what_is_said_counts_and_the_rest_is_as_documented():
    assert parse(BASE).market is None
    assert parse(WHOLE, folder="/x").market == MarketRules(
        contracts="/x/signed",
        key="/x/alice.key",
        capacity=ResourceUse(cpu_cores=0.5),
        cost=CostRules(unit_micro=20_000, load=0.7),
        partners={"bob": "core"},
        policy=MarketPolicyRules(),
        keep_us=600_000_000,
        hold_us=60_000_000,
        tolerance=0.2,
        shadow=False,
    )
    fields = 'shadow = true\nkeep = "1min"\nhold = "5s"\ntolerance = 0.5'
    more = WHOLE.replace('"0.02"}', f'"0.02", load = 0.5}}\n{fields}')
    more += '[market.policy]\nprefer = ["bob"]\navoid = ["eve"]\nshed_first = ["a/*"]\nnever_move = ["b/*"]\n'
    market = parse(more).market
    assert market is not None
    assert (market.shadow, market.keep_us, market.cost.load) == (True, 60_000_000, 0.5)
    assert (market.hold_us, market.tolerance) == (5_000_000, 0.5)
    assert market.policy == MarketPolicyRules(
        prefer=("bob",), avoid=("eve",), shed_first=("a/*",), never_move=("b/*",)
    )


def test_a_core_second_costs_at_that_load_what_is_said():
    market = parse(WHOLE.replace('"0.5 cores"', '"2 cores"')).market
    assert market is not None
    cost, step = cost_function(market), 1e-6
    for load, micro in ((0.7, 20_000), (0.4, 20_000 * 0.3**2 / 0.6**2), (0.85, 20_000 * 2**2)):
        rise = cost.cost(ResourceUse(cpu_cores=2 * load + step)) - cost.cost(ResourceUse(cpu_cores=2 * load))
        assert rise / step == pytest.approx(micro, rel=1e-3)


def test_points_of_ones_own():
    market = parse(WHOLE.replace('{unit = "0.02"}', '{cpu = [[0, "0"], [0.5, "0"], [1, "1.50"]]}')).market
    assert market is not None
    assert market.cost == CostRules(cpu=((0.0, 0), (0.5, 0), (1.0, 1_500_000)))
    assert isinstance(cost_function(market), PiecewiseCost)
    assert cost_function(market).cost(ResourceUse(cpu_cores=0.75)) == 750_000


def test_what_a_cluster_costs_is_said_where_fragments_run_on_spark():
    clustered = WHOLE.replace('{unit = "0.02"}', '{cluster = "0.01", delay = "0.002"}')
    market = parse(clustered + '[spark]\nmaster = "local[2]"\n').market
    assert market is not None
    assert market.cost == CostRules(cluster_micro=10_000, delay_micro=2_000)
    cost = cost_function(market, lambda: 3_000_000)
    assert isinstance(cost, ClusterCost)
    half = ResourceUse(cpu_cores=0.25)  # of 0.5: a trigger takes twice as long as one without work
    assert cost.cost(half) == pytest.approx(10_000 * 0.25 + 2_000 * 3)
    error = slip(clustered)
    assert "line 16: market.cost.cluster: is of fragments that run on Spark" in error.message


@pytest.mark.parametrize(
    ("old", "new", "line", "message", "hint"),
    [
        (NODE, "", 11, "[node] has no capacity", 'capacity = "0.5 cores"'),
        ('"0.5 cores"', '"much"', 12, "'much' is no number of cores", 'capacity = "0.5 cores"'),
        ('"0.5 cores"', "0.5", 12, "0.5 is no number of cores", 'capacity = "0.5 cores"'),
        ('"0.5 cores"', '"1 core, 1 MB/s"', 12, "count no bytes", 'capacity = "0.5 cores"'),
        ("capacity", "capasity", 12, "unknown field 'capasity'", "did you mean 'capacity'?"),
        ('contracts = "signed"\n', "", 13, "contracts is missing", 'contracts = "FOLDER"'),
        ('"signed"', "1", 14, "expected a path, got 1", 'contracts = "FOLDER"'),
        ('key = "alice.key"\n', "", 13, "key is missing", 'key = "FILE"'),
        ('"alice.key"', '" "', 15, "expected a path", 'key = "FILE"'),
        ('cost = {unit = "0.02"}\n', "", 13, "cost is missing", 'cost = {unit = "0.02"'),
        ('{unit = "0.02"}', '"0.02"', 16, "expected a table, got '0.02'", 'cost = {unit = "0.02"'),
        ('{unit = "0.02"}', "{load = 0.5}", 16, "neither unit nor cpu", 'cost = {unit = "0.02"'),
        ('"0.02"}', '"0.02", cpu = []}', 16, "both unit and cpu", 'cost = {unit = "0.02"'),
        ('"0.02"}', '"0.02", cluster = "0.01"}', 16, "both unit and cluster", 'cost = {unit = "0.02"'),
        ('"0.02"}', '"0.02", delay = "0.01"}', 16, "says nothing without cluster", "cluster = "),
        ('"0.02"}', '"cheap"}', 16, "'cheap' is no amount", "write it as text"),
        ('"0.02"}', "0.02}", 16, "0.02 is no amount", "write it as text"),
        ('"0.02"}', '"0"}', 16, "'0' is no price", "more than 0"),
        ('"0.02"}', '"0.02", load = 1}', 16, "1 is no such share", "0.05 to 0.98"),
        ('{unit = "0.02"}', '{cpu = [[0, "0"], [1, "2"], [2, "3"]]}', 16, "isn't convex", "each unit more"),
        ('{unit = "0.02"}', '{cpu = [[0, "0"], ["1", "2"]]}', 16, "no number of cores", "cpu = [[0"),
        ('{unit = "0.02"}', '{cpu = [0, "0"]}', 16, "expected points", "cpu = [[0"),
        ("[market]\n", '[market]\nshadow = "yes"\n', 14, "expected true or false", "shadow = true"),
        ("[market]\n", "[market]\nshadov = true\n", 14, "unknown field 'shadov'", "did you mean 'shadow'?"),
        ("[market]\n", '[market]\nkeep = "1ms"\n', 14, "out of range", "1s to 1d"),
        ("[market]\n", '[market]\nhold = "0s"\n', 14, "out of range", "1s to 1d"),
        (PARTNER, "", 13, "no partners", "[market.partners.bob]"),
        ("partners.bob]", "partners.bib]", 17, "'bib' is no participant here", "did you mean 'bob'?"),
        ("partners.bob]", "partners.alice]", 17, "our own participant", "a peer of that participant"),
        ('node = "core"\n', "", 17, "node is missing", "peers of 'bob' here: core"),
        ('node = "core"', 'node = "cora"', 18, "'cora' is no peer", "did you mean 'core'?"),
        ('node = "core"', 'node = "near"', 18, "'near' is a node of 'alice'", "peers of 'bob' here: core"),
        ('node = "core"', 'nide = "core"', 18, "unknown field 'nide'", "did you mean 'node'?"),
    ],
)
def test_what_is_not_allowed_says_line_field_and_what_is(old, new, line, message, hint):
    assert old in WHOLE
    before, _, after = WHOLE.rpartition(old)
    error = slip(before + new + after)
    assert f"line {line}:" in error.message, error.message
    assert message in error.message
    assert hint in error.hint


def test_what_needs_more_than_its_table():
    assert "says nothing without [market]" in slip(BASE + NODE).message
    plain = 'name = "a"\nlisten = "ipc:///a"\ndata = "d"\n'
    assert slip(plain + NODE + MARKET).code == "config.keys"
    assert "isn't registered here" in slip(WHOLE.replace("alice = {key", "carol = {key")).message
    memory = WHOLE.replace('data = "d"', 'store = "memory"')
    assert "has to outlive the process" in slip(memory).hint
    policy = slip(WHOLE + '[market.policy]\nnever = ["x"]\n')
    assert "line 20: market.policy.never: unknown field 'never'" in policy.message
