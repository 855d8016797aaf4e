"""``[links]`` of a node's configuration."""

from __future__ import annotations

import pytest

from medusa.errors import ConfigError
from medusa.nodes.config.settings import parse
from medusa.nodes.config.settings_links import LinkRules

BASE = 'name = "a"\nlisten = "ipc:///tmp/a"\ndata = "d"\n'


def test_one_pinned_connection_unless_said_otherwise():
    assert parse(BASE).links == LinkRules(connections=1, spread="pinned")
    assert not parse(BASE).links.striped


@pytest.mark.parametrize(
    ("text", "rules", "striped"),
    [
        ("connections = 16", LinkRules(connections=16), False),
        ('connections = 4\nspread = "striped"', LinkRules(connections=4, spread="striped"), True),
        ('spread = "striped"', LinkRules(spread="striped"), False),
    ],
)
def test_what_is_said_counts(text, rules, striped):
    links = parse(f"{BASE}[links]\n{text}\n").links
    assert links == rules
    assert links.striped is striped


@pytest.mark.parametrize(
    ("text", "field", "hint"),
    [
        ("connections = 0", "connections", "allowed: 1 to 16"),
        ("connections = 17", "connections", "allowed: 1 to 16"),
        ("connections = true", "connections", "allowed: 1 to 16"),
        ('connections = "2"', "connections", "allowed: 1 to 16"),
        ('spread = "stripe"', "spread", "striped"),
        ("spread = 3", "spread", '"pinned", "striped"'),
        ("lanes = 2", "lanes", "connections"),
    ],
)
def test_what_is_not_allowed_says_line_field_and_what_is(text, field, hint):
    with pytest.raises(ConfigError) as caught:
        parse(f"{BASE}[links]\n{text}\n")
    assert "line 5" in str(caught.value)
    assert field in str(caught.value)
    if field != "lanes":
        assert hint in caught.value.hint
