"""The file of ``medusa pool``: what it says, and what is said of slips in it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

import medusa as md
from medusa.errors import ConfigError
from medusa.nodes.config.fields import described
from medusa.nodes.pool.provider import FixedList
from medusa.nodes.pool.warm_nodes import AdaptiveWarm, SteadyWarm
from medusa.runtime.pool.local_processes import LocalProcesses
from medusa.runtime.pool.pool_file import PoolFields, read_pool

PLAIN = 'node = "tcp://127.0.0.1:5555"\n'
NODES = '[nodes]\ns1 = "s1.toml"\n'


class OurCloud:
    """A provider of a user."""

    def __init__(self, nodes: Mapping[str, str], *, zone: str) -> None:
        self.given, self.zone = nodes, zone

    def acquire(self, now_us: int, node: str) -> None: ...

    def release(self, now_us: int, node: str) -> None: ...

    def nodes(self, now_us: int) -> Mapping[str, md.ProvidedNode]:
        return {}


def written(folder: Path, text: str) -> Path:
    (folder / "s1.toml").write_text('name = "s1"\n')
    path = folder / "pool.toml"
    path.write_text(text)
    return path


def test_what_is_left_out_has_defaults_and_nodes_are_processes(tmp_path: Path) -> None:
    file = read_pool(written(tmp_path, PLAIN + NODES))
    assert file.addresses == ("tcp://127.0.0.1:5555",)
    assert file.fields == PoolFields()
    assert isinstance(file.warm(), SteadyWarm)
    assert isinstance(file.provider(), LocalProcesses)


def test_all_that_can_be_said(tmp_path: Path) -> None:
    text = (
        'node = ["ipc:///x", "ipc:///y"]\nidle = "5s"\nwarm = 1\nwarm_max = 4\nat_end = "stop"\n'
        f'{NODES}[provider]\nclass = "tests.runtime.test_pool_file:OurCloud"\noptions = {{ zone = "b" }}\n'
    )
    file = read_pool(written(tmp_path, text))
    assert file.addresses == ("ipc:///x", "ipc:///y")
    assert file.rules.idle_us == 5_000_000
    assert isinstance(file.warm(), AdaptiveWarm)
    made = file.provider()
    assert (made.given, made.zone) == ({"s1": "s1.toml"}, "b")  # type: ignore[attr-defined]


def test_nodes_that_somebody_else_runs(tmp_path: Path) -> None:
    file = read_pool(written(tmp_path, f'{PLAIN}{NODES}[provider]\nclass = "fixed"\n'))
    assert isinstance(file.provider(), FixedList)


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        (f'{PLAIN}idel = "5s"\n{NODES}', 2, "idel"),
        (f'{PLAIN}idle = "5 parsecs"\n{NODES}', 2, "idle"),
        (f'{PLAIN}at_end = "burn"\n{NODES}', 2, "at_end"),
        (NODES, 0, "node"),
        (f"node = 5\n{NODES}", 1, "node"),
        (f'node = "nowhere"\n{NODES}', 1, "node"),
        (PLAIN, 0, "nodes"),
        (f"{PLAIN}[nodes]\ns1 = 5\n", 3, "nodes.s1"),
        (f'{PLAIN}[nodes]\n"S 1" = "x"\n', 3, "nodes.S 1"),
        (f'{PLAIN}{NODES}[keys]\nclient = "x.key"\n', 4, "keys"),
        (f'{PLAIN}{NODES}[provider]\nclass = "cloudy"\n', 5, "provider.class"),
        (f'{PLAIN}{NODES}[provider]\nclass = "fixed"\noptions = {{ a = 1 }}\n', 6, "provider.options"),
        (f"{PLAIN}{NODES}[pool]\nwarm = 1\n", 4, "pool"),
    ],
)
def test_slips_are_told_with_their_line_and_field(tmp_path: Path, text: str, line: int, what: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_pool(written(tmp_path, text))
    assert what in caught.value.message
    assert not line or f"line {line}:" in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("tests.runtime.nowhere:X", "ModuleNotFoundError"),
        ("tests.runtime.test_pool_file:OurClod", "AttributeError"),
        ("tests.runtime.test_pool_file:OurCloud", "zone"),
        ("builtins:dict", "has no acquire, release, nodes"),
    ],
)
def test_a_provider_that_cannot_be_made_says_why(tmp_path: Path, name: str, why: str) -> None:
    file = read_pool(written(tmp_path, f'{PLAIN}{NODES}[provider]\nclass = "{name}"\n'))
    with pytest.raises(ConfigError) as caught:
        file.provider()
    assert why in caught.value.message
    assert "line 5" in caught.value.message


def test_a_configuration_that_is_not_there(tmp_path: Path) -> None:
    file = read_pool(written(tmp_path, f'{PLAIN}[nodes]\ns2 = "s2.toml"\n'))
    with pytest.raises(ConfigError, match=r"node s2: there is no file .*s2\.toml"):
        file.provider()


def test_the_page_says_of_each_field_what_is_declared() -> None:
    """docs/configuration.md; where this fails, what stands here is to be written there."""
    page = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text()
    section = page.partition("\n## The file of a pool\n")[2].partition("\n## ")[0]
    for field in described(PoolFields):
        row = f"| `{field.key}` | `{field.default}` | {field.allowed} |"
        assert row in section, row
