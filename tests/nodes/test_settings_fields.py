"""Every field of a node's configuration: missing, of another type, misspelt, twice, out of its range."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from medusa.errors import ConfigError
from medusa.nodes.config import settings
from medusa.nodes.config.fields import described
from medusa.nodes.config.settings import Limits, parse
from medusa.nodes.config.settings_delay import DelayRules
from medusa.nodes.config.settings_dht import DhtRules
from medusa.nodes.config.settings_links import LinkRules
from medusa.nodes.config.settings_load import LoadRules
from medusa.nodes.config.settings_market import CostRules, MarketPolicyRules, MarketRules
from medusa.nodes.config.settings_offers import OfferRules
from medusa.nodes.config.settings_recovery import RecoveryRules
from medusa.nodes.config.settings_scale import ScaleSettings
from medusa.nodes.config.settings_security import ClientRules
from medusa.nodes.config.settings_spark import SparkRules
from medusa.nodes.config.settings_streams import StreamRule

PLAIN = 'name = "a"\nlisten = "tcp://127.0.0.1:*"\ndata = "d"\n'
KEYED = f'{PLAIN}federation = "f"\n[keys]\nnode = "a.key"\n'
"""Six lines."""

NEEDED = {"name", "listen", "data"}
TABLES = {"peers", "limits", "streams", "links", "keys", "participants", "clients"}
KEYS_ONLY = {"federation", "keys", "participants", "clients"}
MIB, GIB, SECOND_US = 1 << 20, 1 << 30, 1_000_000
SIZES = {
    "credit": ("credit_bytes", 5 * MIB, GIB),
    "retention": ("retention_bytes", MIB, 64 * GIB),
    "memory": ("memory_bytes", 16 * MIB, 1024 * GIB),
    "backups": ("backups_bytes", MIB, 1024 * GIB),
    "query_memory": ("query_memory_bytes", MIB, 1024 * GIB),
    "owner_memory": ("owner_memory_bytes", MIB, 1024 * GIB),
}
DURATIONS = {
    "checkpoint_every": ("checkpoint_every_us", 50_000, 600 * SECOND_US),
    "subscriber_timeout": ("subscriber_timeout_us", 100_000, 86_400 * SECOND_US),
    "piece_time": ("piece_time_us", 100_000, 600 * SECOND_US),
    "deploy_timeout": ("deploy_timeout_us", 100_000, 600 * SECOND_US),
}
COUNTS = {
    "connections_per_address": (1, 65_536),
    "calls_at_once": (1, 1_000_000),
    "calls_per_s": (1, 100_000),
    "connections_unheard": (1, 65_536),
}
LIMITS = {**SIZES, **DURATIONS, **COUNTS}
"""Written down by hand: what the declarations say must be this."""

BESIDE = {
    "credit": 'memory = "1024 GiB"\n',
    "memory": 'credit = "5 MiB"\n',
    "query_memory": 'owner_memory = "1024 GiB"\n',
    "owner_memory": 'query_memory = "1 MiB"\n',
}
"""Another field, with which any value of this one goes together."""
NOT_LIMITS = ("true", "1.5", "[]", '"x"', '"-1"', "-1", "{}", '""')


def slip(text: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        parse(text, where="n.toml")
    return caught.value


def says(error: ConfigError, line: int, field: str) -> None:
    """The line and the field; what is allowed stands behind or in the hint."""
    assert error.message.startswith(f"n.toml line {line}: {field}: "), str(error)
    assert error.code.startswith("config."), error.code
    assert error.hint, str(error)


@pytest.mark.parametrize("field", sorted(NEEDED))
def test_missing(field: str) -> None:
    text = re.sub(rf"{field} = .*\n", "", PLAIN)
    assert str(slip(text)) == f'n.toml: {field} is missing (add a line: {field} = "...")'


@pytest.mark.parametrize("field", sorted(set(settings._FIELDS) - {"metrics_public"}))
@pytest.mark.parametrize("value", ["3", "[3]", "1979-05-27"])
def test_of_another_type(field: str, value: str) -> None:
    """Without keys, and what needs them with keys."""
    text = PLAIN if field not in KEYS_ONLY else KEYED
    text = re.sub(rf"^{field} = .*\n", "", text, flags=re.M)
    if field == "keys":
        text = text.replace('[keys]\nnode = "a.key"\n', "")
    says(slip(f"{field} = {value}\n{text}"), 1, field)


@pytest.mark.parametrize("field", sorted(settings._FIELDS))
def test_misspelt(field: str) -> None:
    wrong = field[:2] + field[3:] if len(field) > 4 else field[:-1]
    error = slip(f"{PLAIN}{wrong} = 3\n")
    says(error, 4, wrong)
    assert error.message.endswith(f"unknown field {wrong!r}")
    near = re.fullmatch(r"did you mean '(\w+)'\?", error.hint)
    assert near is not None
    assert near[1] == field


@pytest.mark.parametrize("field", sorted(NEEDED))
def test_twice(field: str) -> None:
    error = slip(f'{PLAIN}{field} = "b"\npeers = {{}}\n')
    assert error.message == "n.toml line 4: Cannot overwrite a value"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[limits]\n[limits]\n", "n.toml line 5: Cannot declare ('limits',) twice"),
        ("functions = [", "n.toml line 4: Invalid value (at end of document)"),
        ('functions = "', "n.toml line 4: Unterminated string (at end of document)"),
        ("store = disk\n", "n.toml line 4: Invalid value"),
        ("store\n", "n.toml line 4: Expected '=' after a key in a key/value pair"),
    ],
)
def test_no_toml(text: str, says: str) -> None:
    assert slip(PLAIN + text).message == says


def test_text_that_looks_like_a_field_is_none() -> None:
    head = 'name = "a"\nlisten = "tcp://127.0.0.1:*"\n'
    text = head + 'data = """d\\\n[limits]\\\ncredit = 3"""\n# [limits]\n'
    says(slip(text + "[limits]\ncredit = 3\n"), 8, "limits.credit")
    says(slip(text + "limits = { credit = 3 }\n"), 7, "limits.credit")


@pytest.mark.parametrize("field", sorted(LIMITS))
@pytest.mark.parametrize("value", NOT_LIMITS)
def test_limits_of_another_type(field: str, value: str) -> None:
    says(slip(f"{KEYED}[limits]\n{field} = {value}\n"), 8, f"limits.{field}")


@pytest.mark.parametrize("field", sorted(LIMITS))
def test_limits_at_their_ends(field: str) -> None:
    *name, least, most = LIMITS[field]
    attribute = name[0] if name else field
    unit = "" if field in COUNTS or field in SIZES else "us"
    more = BESIDE.get(field, "")

    def given(value: int) -> str:
        written = f'"{value}{unit}"' if unit else str(value)
        return f"{KEYED}[limits]\n{field} = {written}\n{more}"

    for value in (least, most):
        assert getattr(parse(given(value)).limits, attribute) == value
    for value in (least - 1, most + 1):
        says(slip(given(value)), 8, f"limits.{field}")
    assert least <= getattr(Limits(), attribute) <= most


@pytest.mark.parametrize("field", sorted(LIMITS))
def test_limits_misspelt(field: str) -> None:
    error = slip(f"{PLAIN}[limits]\n{field}x = 1\n")
    says(error, 5, f"limits.{field}x")
    assert error.hint == f"did you mean {field!r}?"


@pytest.mark.parametrize("text", ['query_memory = "2 GiB"', 'owner_memory = "127 MiB"'])
def test_one_query_may_not_hold_more_than_all_of_its_owner(text: str) -> None:
    error = slip(f"{KEYED}[limits]\n{text}\n")
    says(error, 8, f"limits.{text.split()[0]}")
    assert error.message.endswith("query_memory is larger than owner_memory")


@pytest.mark.parametrize("field", sorted(COUNTS))
def test_limits_of_the_door_need_keys(field: str) -> None:
    error = slip(f"{PLAIN}[limits]\n{field} = 5\n")
    says(error, 5, f"limits.{field}")
    assert error.code == "config.keys"
    assert getattr(parse(f"{KEYED}[limits]\n{field} = 5\n").limits, field) == 5


def test_no_limit_is_declared_that_is_not_tried_here() -> None:
    assert {each.key for each in described(Limits)} == set(LIMITS)


def test_defaults_are_those_that_were_promised() -> None:
    assert Limits() == Limits(
        credit_bytes=8 * MIB,
        retention_bytes=64 * MIB,
        checkpoint_every_us=SECOND_US,
        memory_bytes=GIB,
        query_memory_bytes=128 * MIB,
        owner_memory_bytes=GIB,
        piece_time_us=5 * SECOND_US,
        subscriber_timeout_us=10 * SECOND_US,
        deploy_timeout_us=5 * SECOND_US,
        connections_per_address=256,
        calls_at_once=512,
        calls_per_s=50,
        connections_unheard=256,
    )
    load = LoadRules(half_life_us=5_000_000, high=0.9, low=0.7, high_for_us=1_000_000, low_for_us=5_000_000)
    assert load == LoadRules()
    assert RecoveryRules() == RecoveryRules(wait_us=2_000_000)
    assert DelayRules() == DelayRules(tentative_bytes=4 * MIB)


TABLES_OF = {
    "limits": Limits,
    "links": LinkRules,
    "load": LoadRules,
    "recovery": RecoveryRules,
    "delay": DelayRules,
    "streams.PATTERN": StreamRule,
    "offers.PARTICIPANT": OfferRules,
    "clients.NAME": ClientRules,
    "dht": DhtRules,
    "market": MarketRules,
    "market.cost": CostRules,
    "market.policy": MarketPolicyRules,
    "spark": SparkRules,
    "scale": ScaleSettings,
}


def test_the_page_says_of_each_field_what_is_declared() -> None:
    """docs/configuration.md; where this fails, what stands here is to be written there."""
    page = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text()
    for table, rules in TABLES_OF.items():
        section = page.partition(f"\n## `[{table}]`\n")[2].partition("\n## ")[0]
        for field in described(rules):
            row = f"| `{field.key}` | {f'`{field.default}`' if field.default else ''} | {field.allowed} |"
            assert row in section, f"[{table}]: {row}"


def test_data_with_a_nul() -> None:
    says(slip(PLAIN.replace('"d"', '"d\\u0000"')), 3, "data")


def test_fields_that_were_read_already() -> None:
    """What a program gives as a dict goes the same way; there is no line then."""
    given = {"name": "a", "listen": "tcp://127.0.0.1:*", "data": "d", "limits": {"credit": "5 MiB"}}
    assert parse(given, where="config", folder="/x") == parse(f'{PLAIN}limits.credit = "5 MiB"', folder="/x")
    with pytest.raises(ConfigError) as caught:
        parse(given | {"limits": {"credit": 1}}, where="config")
    assert caught.value.message == "config: limits.credit: 1 is out of range"


def test_what_tentative_streams_may_hold() -> None:
    given = parse(f'{PLAIN}[delay]\ntentative = "1 MiB"\n')
    assert given.delay == DelayRules(tentative_bytes=MIB)
    for text in ('tentative = "1 KiB"', "tentative = true", 'tentativ = "1 MiB"'):
        says(slip(f"{PLAIN}[delay]\n{text}\n"), 5, f"delay.{text.split()[0]}")
