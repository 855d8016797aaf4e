"""``[scale]`` of a node's configuration."""

from __future__ import annotations

import pytest

from medusa.errors import ConfigError
from medusa.nodes.config.settings import parse
from medusa.nodes.config.settings_scale import ScaleSettings
from tests.nodes.test_settings_security import GOOD

BASE = 'name = "a"\nlisten = "ipc:///tmp/a"\ndata = "d"\npeers = {core = "ipc:///tmp/c"}\n'


def test_it_is_off_without_the_table_and_on_with_an_empty_one() -> None:
    assert parse(BASE).scale is None
    assert parse(f"{BASE}[scale]\n").scale == ScaleSettings()
    text = 'every = "2s"\nhigh = 0.8\nlow = 0.2\nlooks = 3\nparts_max = 4\ncooldown = "1 min"\n'
    assert parse(f'{BASE}[scale]\n{text}nodes = ["a", "core"]\n').scale == ScaleSettings(
        every_us=2_000_000,
        high=0.8,
        low=0.2,
        looks=3,
        parts_max=4,
        cooldown_us=60_000_000,
        nodes=("a", "core"),
    )


@pytest.mark.parametrize(
    ("text", "field", "came", "hint"),
    [
        ("evry = 1", "evry", "unknown field 'evry'", "did you mean 'every'?"),
        ("every = 5", "every", "5 has no unit", 'write every = "5s"; allowed: 100ms to 10 min'),
        ('every = "1ms"', "every", "'1ms' is out of range", "allowed: 100ms to 10 min"),
        ("high = 1.5", "high", "1.5 is no such share", "allowed: a share: 0.05 to 1"),
        ("low = 0.7", "low", "low is not below high", "low is below high: 0.7 and 0.7 are not"),
        ("high = 0.2", "high", "low is not below high", "low is below high: 0.3 and 0.2 are not"),
        ("looks = 0", "looks", "0 is no such number", "allowed: 1 to 100"),
        ("parts_max = 1", "parts_max", "1 is no such number", "allowed: 2 to 256"),
        ("cooldown = -1", "cooldown", "-1 has no unit", "allowed: 0s to 1h"),
        ('nodes = "core"', "nodes", "expected a list of names, got 'core'", 'write nodes = ["b", "c"]'),
        ('nodes = ["cor"]', "nodes", "expected nodes, got 'cor'", "did you mean 'core'?"),
    ],
)
def test_what_is_not_allowed_says_line_field_what_came_and_what_is(
    text: str, field: str, came: str, hint: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(f"{BASE}[scale]\n{text}\n")
    assert caught.value.message.startswith(f"node.toml line 6: scale.{field}: {came}")
    assert hint in caught.value.hint


def test_it_is_a_table() -> None:
    with pytest.raises(ConfigError, match="expected a table, got True"):
        parse(f"scale = true\n{BASE}")


def test_parts_go_to_no_node_of_another_participant() -> None:
    assert parse(f'{GOOD}[scale]\nnodes = ["near", "edge-1"]\n').scale == ScaleSettings(
        nodes=("near", "edge-1")
    )
    with pytest.raises(ConfigError, match="scale.nodes: node 'core' is one of participant 'bob'") as caught:
        parse(f'{GOOD}[scale]\nnodes = ["near", "core"]\n')
    assert "leave it out" in caught.value.hint
