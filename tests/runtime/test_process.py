"""Starting a node: configuration, folders, recovery, the last checkpoint; without a process."""

from __future__ import annotations

import re
import threading

import pytest

import medusa as md
from medusa.errors import ConfigError, StateError
from medusa.nodes.catalog.catalog import CATALOG, Catalog
from medusa.nodes.config.settings import Settings
from medusa.query.user_registry import registered
from medusa.runtime.engine_host.node_groups import write_catalog
from medusa.runtime.machine.clock import SystemClock
from medusa.runtime.node import loop, process
from medusa.runtime.node.configuration import import_functions, load_settings
from medusa.runtime.node.process import run_node
from medusa.runtime.node.reports import KIND_MAX, KIND_S, Reports
from medusa.runtime.repair.startup import recover
from medusa.runtime.store.folder_store import FolderStore
from medusa.wire.outbox import ReportLine
from medusa.wire.statement import client_name

SCHEMA = {"ts": "int64", "v": "int64"}


def write(folder, *, name="a", data="data", more="") -> str:
    path = folder / f"{name}.toml"
    path.write_text(f'name = "{name}"\nlisten = "ipc://{folder}/{name}"\ndata = "{data}"\n{more}')
    return str(path)


def query() -> md.Query:
    q = md.Query("q")
    q.sink("out", q.source("rows", SCHEMA, time="ts", unit="us").filter("v > 0", name="f"))
    return q


class InThread:
    """A node in a thread of this process: quick to start, and its loop can be told to stop."""

    def __init__(self, config: str, monkeypatch) -> None:
        self.error: BaseException | None = None
        self._loops: list = []
        listening = threading.Event()
        honest = loop.NodeLoop.begin

        def begin(made):
            self._loops.append(made)
            honest(made)
            listening.set()

        monkeypatch.setattr(loop.NodeLoop, "begin", begin)
        # Signals belong to the main thread.
        monkeypatch.setattr(process, "_signals", lambda loop, reload: __import__("contextlib").nullcontext())
        self._thread = threading.Thread(target=self._run, args=(config,), daemon=True)
        self._thread.start()
        assert listening.wait(30), self.error

    def _run(self, config: str) -> None:
        try:
            run_node(config)
        except BaseException as error:
            self.error = error

    def reload(self) -> None:
        """What SIGHUP does."""
        for each in self._loops:
            each.reload()

    def stop(self) -> None:
        for each in self._loops:
            each.stop()
        self._thread.join(30)
        assert not self._thread.is_alive()
        if self.error is not None:
            raise self.error


@pytest.fixture
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("p")  # The path of a socket has to be short.


def test_stopped_and_started_again_it_goes_on(folder, monkeypatch, capsys):
    config = write(folder)
    address = f"ipc://{folder}/a"
    node = InThread(config, monkeypatch)
    assert capsys.readouterr().out == f"node a listening on {address}\n"
    with md.connect(address, timeout="30s") as fed:
        fed.deploy(query())
        fed.publish("q.rows", {"ts": [1, 2], "v": [1, -1]})
    node.stop()
    node = InThread(config, monkeypatch)
    with md.connect(address, timeout="30s") as fed:
        fed.publish("q.rows", {"ts": [3], "v": [3]})
        fed.flush()
        with fed.subscribe("q.out", from_="oldest") as trains:
            found: list[int] = []
            while len(found) < 2:  # What waited for a reader comes as one train, or as two.
                found += trains.next("30s").batch.column("v").to_pylist()
        assert found == [1, 3]
        fragment = fed.status()["fragments"][0]
        assert fragment["checkpoints"] >= 1
    node.stop()


def test_the_last_checkpoint_covers_everything(folder, monkeypatch):
    config = write(folder, more='[limits]\ncheckpoint_every = "10min"\n')
    node = InThread(config, monkeypatch)
    with md.connect(f"ipc://{folder}/a", timeout="30s") as fed:
        fed.deploy(query())
        fed.publish("q.rows", {"ts": [1], "v": [7]})
        with fed.subscribe("q.out", from_="oldest") as trains:
            assert trains.next("30s").batch.to_pylist()[0]["v"] == 7
        fed.close()
    node.stop()
    store = FolderStore(folder / "data")
    found = recover(store, SystemClock(), node="a", warn=pytest.fail)
    store.close()
    assert found.saved["q/rows"].record.inputs[0].next_seq == 1
    assert found.saved["q/rows"].record.outputs[0].entries[0].end == 1


def test_configurations_that_cannot_be_read(folder):
    with pytest.raises(ConfigError, match="can't be read: No such file"):
        load_settings(folder / "none.toml")
    (folder / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="no UTF-8"):
        load_settings(folder / "bytes.toml")
    (folder / "large.toml").write_bytes(b"#" * (1 << 20 | 1))
    with pytest.raises(ConfigError, match="larger than"):
        load_settings(folder / "large.toml")
    settings = load_settings(write(folder, data="x/y"))
    assert settings.data == str(folder.resolve() / "x/y")


def test_a_data_folder_that_cannot_be_made(folder):
    (folder / "file").write_text("")
    with pytest.raises(StateError, match="data folder .* can't be made"):
        run_node(write(folder, data="file/below"))
    with pytest.raises(StateError):
        run_node(write(folder, data="file"))


def test_modules_of_functions_are_imported(tmp_path, monkeypatch):
    (tmp_path / "node_functions_of_a_test.py").write_text(
        "import medusa as md\n\n\n@md.register('process.imported')\ndef same(batch):\n    return batch\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import_functions(settings_with("node_functions_of_a_test"))
    assert registered("process.imported") is not None
    with pytest.raises(ConfigError, match="module 'no_such_module' can't be imported"):
        import_functions(settings_with("no_such_module"))


def settings_with(module: str) -> Settings:
    return Settings(name="a", listen="tcp://127.0.0.1:*", data="d", functions=(module,))


def store_with(folder, *catalogs: bytes) -> FolderStore:
    from medusa.engine.state.checkpoint import seal
    from medusa.runtime.engine_host.group_names import group_name

    store = FolderStore(folder / "data")
    for number, data in enumerate(catalogs, start=1):
        facts = {"fragment": "", "token": number}
        store.write(group_name("", number), seal({"catalog": data}, facts))
    return store


def test_a_damaged_catalog_falls_back_and_says_so(folder):
    said: list[str] = []
    store = store_with(folder, Catalog("a").to_bytes(), b"\xc1")
    found = recover(store, SystemClock(), node="a", warn=said.append)
    assert found.catalog.fragments == {}
    assert "is damaged" in said[0]
    assert found.first_token == 3
    store.close()


def test_without_a_whole_catalog_it_refuses_to_guess(folder):
    store = store_with(folder, b"\xc1")
    with pytest.raises(StateError, match="no catalog there is whole"):
        recover(store, SystemClock(), node="a", warn=lambda text: None)
    store.close()


def test_a_folder_of_another_node_is_refused(folder):
    store = store_with(folder, Catalog("b").to_bytes())
    with pytest.raises(StateError, match="belongs to node 'b', this is 'a'"):
        recover(store, SystemClock(), node="a", warn=pytest.fail)
    store.close()


def lives_in(store):
    """The numbers that are kept in two groups."""
    names = [each for each in store.names() if each.startswith("life-")]
    copies = {int(each.removeprefix("life-copy-")) for each in names if "copy" in each}
    assert copies == {int(each.removeprefix("life-")) for each in names if "copy" not in each}
    return copies


def test_lives_only_grow(folder):
    store = FolderStore(folder / "data")
    lives = [recover(store, SystemClock(), node="a", warn=pytest.fail).incarnation for _ in range(3)]
    assert lives == sorted(set(lives))
    assert lives_in(store) == {lives[0], lives[-1]}  # The first one, until a catalog says it.
    write_catalog(store, 1, {CATALOG: Catalog("a").to_bytes()})
    last = recover(store, SystemClock(), node="a", warn=pytest.fail).incarnation
    assert last > lives[-1]
    assert lives_in(store) == {last}
    store.close()


@pytest.mark.parametrize("lost", ["life", "life-copy"])
def test_either_copy_of_the_life_is_enough(folder, lost):
    store = FolderStore(folder / "data")
    for _ in range(3):  # Ahead of the clock: it doesn't count for the next one.
        last = recover(store, SystemClock(), node="a", warn=pytest.fail).incarnation
    store.delete(f"{lost}-{last:012d}")
    assert recover(store, SystemClock(), node="a", warn=pytest.fail).incarnation == last + 1
    assert max(lives_in(store)) == last + 1
    store.close()


def test_a_lost_life_is_told_and_the_next_is_larger_all_the_same(folder):
    store, warnings = FolderStore(folder / "data"), []
    for _ in range(3):
        last = recover(store, SystemClock(), node="a", warn=pytest.fail).incarnation
    write_catalog(store, 1, {CATALOG: Catalog("a").to_bytes()})
    for each in [each for each in store.names() if each.startswith("life-")]:
        store.delete(each)
    assert recover(store, SystemClock(), node="a", warn=warnings.append).incarnation > last
    assert "number of this node's last life is lost" in "".join(warnings)
    store.close()


def test_a_life_whose_writer_died_between_the_copies_counts(folder):
    store = FolderStore(folder / "data")
    last = recover(store, SystemClock(), node="a", warn=pytest.fail).incarnation
    store.write(f"life-{last + 7:012d}", {})
    assert recover(store, SystemClock(), node="a", warn=pytest.fail).incarnation == last + 8
    store.close()


def test_lines_of_the_log_say_the_day(capsys):
    process._tell("a", "info", "peer up")
    line = capsys.readouterr().err
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d a info peer up\n", line)


def test_text_of_peers_is_escaped_and_repetition_counted():
    lines: list[str] = []
    log = Reports(lambda level, line: lines.append(f"{level} {line}"))
    report = ReportLine(level="error", what="x", fields={"text": "evil\x1b[2J\n" + "y" * 1000})
    for _ in range(3):
        log.report(report)
    log.report(ReportLine(level="debug", what="quiet"))
    assert len(lines) == 1
    assert "\x1b" not in lines[0]
    assert "\\x1b[2J\\n" in lines[0]
    assert len(lines[0]) < 400


def test_what_one_peer_makes_us_say_again_and_again_in_other_words_is_counted():
    lines: list[str] = []
    log = Reports(lambda level, line: lines.append(line))
    names = [client_name("a key", f"{number}") for number in range(100)]
    for number, name in enumerate(names):
        about = {"stream": "s", "peer": name, "rows": 1 << 40, "first": number}
        log.report(ReportLine(level="error", what="rows lost", fields=about))
    assert len(lines) == KIND_MAX
    assert names[0] in lines[0]
    for peer in ("node", client_name("another key", "1")):
        log.report(ReportLine(level="error", what="rows lost", fields={"peer": peer}))
    log.report(ReportLine(level="error", what="stream refused", fields={"peer": names[0]}))
    assert len(lines) == KIND_MAX + 3, "others, and other kinds, are told"
    for number in range(100):
        log.report(ReportLine(level="info", what="peer up", fields={"peer": "node", "n": number}))
    assert len(lines) == KIND_MAX + 103, "what comes and goes is told each time"


def test_what_was_counted_of_a_peer_is_told_with_the_next_one(monkeypatch):
    lines: list[str] = []
    log = Reports(lambda level, line: lines.append(line))
    now = [100.0]
    monkeypatch.setattr("medusa.runtime.node.reports.time.monotonic", lambda: now[0])
    for number in range(KIND_MAX + 7):
        log.report(ReportLine(level="error", what="rows lost", fields={"peer": "p", "rows": number}))
    now[0] += KIND_S
    log.report(ReportLine(level="error", what="rows lost", fields={"peer": "p", "rows": 99}))
    assert len(lines) == KIND_MAX + 1
    assert lines[-1] == "rows lost peer=p rows=99 (7 others of this peer)"
