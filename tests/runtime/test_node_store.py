"""Where a node keeps its state: what opens each place, and that a further one is a class and two rows."""

from __future__ import annotations

from pathlib import Path

import pytest

import medusa as md
from medusa.errors import ConfigError
from medusa.nodes.config.settings import parse
from medusa.nodes.config.settings_store import STORES, StoreKind, forgets
from medusa.runtime.node.configuration import load_settings
from medusa.runtime.repair.operator_repair import look
from medusa.runtime.store.node_folder import DataFolder
from medusa.runtime.store.node_store import OPENERS

CONFIG = 'name = "a"\nlisten = "ipc://{folder}/a"\nstore = "shelf"\ndata = "shelf:3"\n'


def test_each_place_has_what_opens_it() -> None:
    assert list(OPENERS) == list(STORES)


def test_of_a_place_that_only_a_later_release_knows_nobody_says_that_it_forgets() -> None:
    assert [forgets(each) for each in ("disk", "memory", "tape")] == [False, True, False]


@pytest.fixture
def shelves(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A place that is no folder of the configuration: where ``shelf:N`` is, only it knows."""

    def opened(settings, clock, existing: bool) -> DataFolder:
        path = tmp_path / settings.data.removeprefix("shelf:")
        if not existing:
            path.mkdir(exist_ok=True)
        return DataFolder(str(path), existing=existing)

    kind = StoreKind(name="shelf", keeps=True, data='a shelf: data = "shelf:3"')
    monkeypatch.setitem(STORES, "shelf", kind)
    monkeypatch.setitem(OPENERS, "shelf", opened)
    return tmp_path


def test_a_further_place_is_a_row_and_what_opens_it(
    shelves: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("n")  # The path of a socket has to be short.
    config = folder / "a.toml"
    config.write_text(CONFIG.format(folder=folder))
    settings = load_settings(config)
    assert (settings.store, settings.data, settings.forgets) == ("shelf", "shelf:3", False)
    q = md.Query("q")
    rows = q.source("rows", {"ts": "int64", "v": "int64"}, time="ts", unit="us")
    q.sink("out", rows.running(total=md.sum("v"), name="sums"))
    with md.node(config) as running, running.connect("30s") as fed:
        fed.deploy(q)
        fed.publish("q.rows", {"ts": [1, 2], "v": [1, 1]})
        fed.flush()
    assert look(settings).running == ("q/rows",)
    with md.node(config) as running, running.connect("30s") as fed:
        fed.publish("q.rows", {"ts": [3], "v": [1]})
        fed.finish("q.rows")
        with fed.subscribe("q.out", from_="oldest") as trains:
            assert trains.table("30s")["total"].to_pylist() == [1, 2, 3]
    assert "lock" in {each.name for each in (shelves / "3").iterdir()}


def test_what_a_configuration_says_of_places_comes_from_the_table(shelves: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        parse({"name": "a", "listen": "ipc:///a", "store": "tape"})
    assert refused.value.hint == 'allowed: "disk", "memory", "shelf"'
    with pytest.raises(ConfigError, match="data is empty") as refused:
        parse({"name": "a", "listen": "ipc:///a", "store": "shelf", "data": " "})
    assert refused.value.hint == 'a shelf: data = "shelf:3"'
