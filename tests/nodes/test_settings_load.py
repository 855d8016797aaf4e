"""``[load]`` of a node's configuration."""

from __future__ import annotations

import pytest

from medusa.errors import ConfigError
from medusa.nodes.config.settings import parse
from medusa.nodes.config.settings_load import LoadRules

BASE = 'name = "a"\nlisten = "ipc:///tmp/a"\ndata = "d"\npeers = {core = "ipc:///tmp/c"}\n'


def test_what_is_said_counts_and_the_rest_is_as_documented():
    assert parse(BASE).load == LoadRules()
    text = 'half_life = "2s"\nhigh = 1\nlow = 0.5\nhigh_for = "0s"\nlow_for = "1min"\n'
    text += 'bandwidth = {core = "1 MB"}'
    assert parse(f"{BASE}[load]\n{text}\n").load == LoadRules(
        half_life_us=2_000_000,
        high=1.0,
        low=0.5,
        high_for_us=0,
        low_for_us=60_000_000,
        bandwidth={"core": 1_000_000},
    )
    below = parse(f'{BASE}[load.bandwidth]\ncore = "8 kB"\n').load
    assert below == LoadRules(bandwidth={"core": 8_000})


@pytest.mark.parametrize(
    ("text", "field", "hint"),
    [
        ("hihg = 0.9", "hihg", "did you mean 'high'?"),
        ("high = 1.1", "high", "a share: 0.05 to 1"),
        ("high = nan", "high", "a share: 0.05 to 1"),
        ("high = true", "high", "a share: 0.05 to 1"),
        ("low = -0.1", "low", "a share: 0 to 1"),
        ("low = 0.9", "low", "low is below high: 0.9 and 0.9 are not"),
        ("high = 0.5", "high", "low is below high: 0.7 and 0.5 are not"),
        ("half_life = 5", "half_life", 'write half_life = "5s"'),
        ('half_life = "5 sec ago"', "half_life", "allowed: 100ms to 10 min"),
        ('half_life = "1ms"', "half_life", "allowed: 100ms to 10 min"),
        ('low_for = "1 h"', "low_for", "allowed: 0s to 10 min"),
        ('bandwidth = "1 MB"', "bandwidth", "peers and bytes per second"),
        ('bandwidth = {cor = "1 MB"}', "cor", "did you mean 'core'?"),
        ('bandwidth = {core = "fast"}', "core", 'write "125 MB"'),
        ('bandwidth = {core = "1 B"}', "core", "allowed: "),
    ],
)
def test_what_is_not_allowed_says_line_field_and_what_is(text, field, hint):
    with pytest.raises(ConfigError) as caught:
        parse(f"{BASE}[load]\n{text}\n")
    assert field in caught.value.message
    assert hint in caught.value.hint
    assert "line 6" in caught.value.message or field in ("cor", "core")
