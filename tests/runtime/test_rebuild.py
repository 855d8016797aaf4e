"""What a node finds that is started on an empty folder, with ``--rebuild`` and without."""

from __future__ import annotations

import msgspec
import pytest
from click.testing import CliRunner

from medusa.cli.main import main
from medusa.errors import ConfigError, StateError
from medusa.nodes.catalog.birth import Birth
from medusa.nodes.catalog.catalog import CATALOG, Catalog
from medusa.runtime.engine_host.node_groups import write_catalog
from medusa.runtime.machine.clock import SystemClock
from medusa.runtime.node.process import run_node
from medusa.runtime.repair.startup import UNKNOWN_LIVES, recover
from medusa.runtime.store.folder_store import FolderStore


@pytest.fixture
def store(tmp_path):
    made = FolderStore(tmp_path / "data")
    yield made
    made.close()


def started(store, **how):
    return recover(store, SystemClock(), node="a", warn=pytest.fail, **how)


def test_an_empty_folder_is_in_doubt_when_it_is_rebuilt_and_stays_so_over_a_kill(store):
    now_s = SystemClock().now_us() // 1_000_000
    found = started(store, rebuild=True)
    assert found.incarnation >= now_s + UNKNOWN_LIVES
    assert found.catalog.birth == Birth(life=found.incarnation, rebuilt=True)
    assert found.catalog.in_doubt.newest
    assert found.first_token > found.token >= found.incarnation
    for how in ({}, {"rebuild": True}):
        again = started(store, **how)
        assert again.catalog.birth == found.catalog.birth
        assert again.catalog.in_doubt.newest
        assert again.incarnation > found.incarnation


def test_a_folder_that_only_lived_counts_as_empty_and_its_first_life_is_known(store):
    first = started(store)
    assert first.catalog.birth == Birth(life=first.incarnation)
    second = started(store)
    assert second.incarnation > first.incarnation
    assert second.catalog.birth == Birth(life=first.incarnation)
    third = started(store)  # Killed twice before it had a catalog, and heard by peers in each life.
    assert third.incarnation > second.incarnation
    assert third.catalog.birth == Birth(life=first.incarnation)
    assert started(store, rebuild=True).catalog.birth.rebuilt


def test_a_folder_with_a_catalog_is_not_rebuilt_unless_it_says_that_the_disk_was_lost(store):
    catalog = Catalog("a")
    write_catalog(store, 1, {CATALOG: catalog.to_bytes()})
    with pytest.raises(StateError, match="isn't empty, so nothing is rebuilt") as refused:
        started(store, rebuild=True)
    assert refused.value.code == "state.rebuild"
    assert "start the node without --rebuild" in refused.value.hint
    assert not started_again(store, catalog).rebuilt
    catalog.birth = Birth(life=7, lost=True)
    write_catalog(store, 2, {CATALOG: catalog.to_bytes()})
    assert started(store, rebuild=True).catalog.birth == Birth(life=7, lost=True, rebuilt=True)


def started_again(store, catalog):
    found = recover(store, SystemClock(), node="a", warn=lambda text: None)
    assert found.catalog.configurations == catalog.configurations
    return found.catalog.birth


def test_an_older_catalog_knows_no_first_life():
    older = msgspec.msgpack.decode(Catalog("a").to_bytes())
    del older["birth"]
    opened = Catalog.from_bytes(msgspec.msgpack.encode(older), node="a", where="here")
    assert opened.birth == Birth()
    assert not opened.birth.forgot


@pytest.mark.parametrize(
    ("rest", "why"),
    [
        ('data = "data"\n', "has no peers"),
        ('store = "memory"\n[peers]\nb = "ipc:///x"\n', "keeps nothing over its end"),
    ],
)
def test_what_nobody_could_know_of_is_not_rebuilt(tmp_path, rest, why):
    config = tmp_path / "a.toml"
    config.write_text(f'name = "a"\nlisten = "ipc://{tmp_path}/a"\n{rest}')
    with pytest.raises(ConfigError, match=why) as refused:
        run_node(config, rebuild=True)
    assert refused.value.code == "config.rebuild"
    assert not (tmp_path / "data").exists()


def test_the_help_has_an_example():
    said = CliRunner().invoke(main, ["node", "--help"]).output
    assert "medusa node edge-1.toml --rebuild" in said
