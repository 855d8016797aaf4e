"""The ``medusa`` command: help with examples, errors in one line, output for scripts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

import medusa as md
from medusa.apps.workloads.local_nodes import LocalNodes
from medusa.cli.main import main


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name)


@pytest.fixture
def query() -> md.Query:
    q = md.Query("counts")
    clicks = q.source("clicks", {"ts": "int64", "user": "utf8"}, time="ts", unit="us", slack="0s")
    q.sink("per_user", clicks.window("1 min").group_by("user").aggregate(n=md.count()))
    return q


@pytest.fixture
def query_file(query: md.Query, tmp_path: Path) -> Path:
    path = tmp_path / "counts.json"
    path.write_text(query.to_json())
    return path


@pytest.mark.parametrize("path", [*commands(main)], ids=" ".join)
def test_every_command_has_help_with_an_example(path: tuple[str, ...]) -> None:
    shown = run(*path, "--help")
    assert shown.exit_code == 0
    assert "Example:" in shown.output
    assert f"medusa {' '.join(path)}" in shown.output


def test_help_lists_all_commands() -> None:
    shown = run("--help")
    for name in ("demo", "node", "deploy", "undeploy", "status", "tail", "explain", "sim", "checkpoint"):
        assert f"  {name} " in shown.output


def test_a_gateway_is_run_by_its_configuration_alone(tmp_path: Path) -> None:
    (tmp_path / "g.toml").write_text("node = 7\n")
    for arguments in (("gateway", tmp_path / "g.toml"), ("gateway", "run", tmp_path / "g.toml", "--json")):
        before = [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)]
        assert "node: expected text, got 7" in run(*arguments).stderr
        assert [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)] == before
    assert "File 'none.toml' does not exist" in run("gateway", "none.toml").stderr
    assert "Did you mean 'status'?" in run("gateway", "statu").stderr
    shown = run("gateway", "--help").output
    assert "medusa gateway gateway.toml" in shown
    assert "medusa gateway status" in shown


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; from medusa.cli.main import main; main(['demo', '--help'], standalone_mode=False); "
        "heavy = {'pyarrow', 'sqlglot', 'zmq', 'numpy', 'rich', 'duckdb'} & set(sys.modules); "
        "sys.exit(', '.join(heavy) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_slip_in_a_command_is_answered_with_the_near_one() -> None:
    shown = run("explan")
    assert shown.exit_code == 2
    assert "explain" in shown.stderr


def test_explain(query_file: Path, query: md.Query) -> None:
    assert run("explain", query_file).output.strip() == query.explain().strip()
    assert run("explain", query_file, "--svg").output.lstrip().startswith("<svg")
    assert "per_user" in run("explain", query_file, "--mermaid").output


def test_a_file_that_is_no_query_is_one_line_and_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "broken.json"
    path.write_text('{"name": 3}')
    shown = run("explain", path)
    assert shown.exit_code == 1
    assert shown.stdout == ""
    first = shown.stderr.splitlines()[0]
    assert first.startswith(f"error: {path}")


def test_errors_carry_their_hint(query_file: Path) -> None:
    shown = run("deploy", query_file, "--node", "tcp://192.0.2.1:5555")
    assert shown.exit_code == 1
    lines = shown.stderr.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["error", "hint"]
    assert "loopback" in shown.stderr or "192.0.2.1" in shown.stderr


@pytest.mark.parametrize("text", ["[]", '{"core": "flows"}', '{"core": [1]}', "nonsense"])
def test_a_placement_that_is_none_is_refused(query_file: Path, tmp_path: Path, text: str) -> None:
    at = tmp_path / "at.json"
    at.write_text(text)
    shown = run("deploy", query_file, "--node", "tcp://127.0.0.1:1", "--at", at)
    assert shown.exit_code == 1
    assert str(at) in shown.stderr
    assert '{"node": ["box or source", ...]}' in shown.stderr


def test_deploy_status_and_tail_against_a_node(query_file: Path, tmp_path: Path) -> None:
    with LocalNodes(["solo"], tmp_path) as nodes:
        address = nodes.addresses["solo"]
        assert json.loads(run("deploy", query_file, "--node", address, "--json").output) == {
            "deployed": "counts"
        }
        with md.connect(address, "60s") as fed:
            fed.publish("counts.clicks", {"ts": [0, 1, 60_000_000], "user": ["a", "a", "b"]})
            fed.finish("counts.clicks")
        stream = ("tail", "counts.per_user", "--node", address)
        first = run(*stream, "--from", "oldest", "--limit", "1")
        assert first.exit_code == 0, first.stderr
        assert first.output.rstrip().endswith("user=a  n=2")
        rest = [json.loads(line) for line in run(*stream, "--from", "1", "--json").output.splitlines()]
        assert [(row["user"], row["n"]) for row in rest] == [("b", 1)]
        status = json.loads(run("status", "--node", address, "--json").output)
        assert status["node"] == "solo"
        assert status["rows_in"] == 3
        gone = run("undeploy", "counts", "--node", address, "--json")
        assert json.loads(gone.output) == {"undeployed": "counts"}
        assert run("deploy", query_file, "--node", address).exit_code == 0
        unknown = run("tail", "counts.per_usr", "--node", address)
        assert unknown.exit_code == 1
        assert "per_usr" in unknown.stderr


@pytest.mark.system
@pytest.mark.parametrize(
    ("number", "limit", "code", "says"),
    [
        (signal.SIGINT, (), 0, "ended: 2 rows; --from 2 goes on\n"),
        (signal.SIGTERM, ("--limit", "9"), 130, "ended: 2 rows; --from 2 goes on\n"),
    ],
)
def test_tail_that_is_interrupted_says_how_far_it_came(
    number: signal.Signals, limit: tuple[str, ...], code: int, says: str, query_file: Path, tmp_path: Path
) -> None:
    with LocalNodes(["solo"], tmp_path) as nodes, md.connect(nodes.addresses["solo"], "60s") as fed:
        address = nodes.addresses["solo"]
        assert run("deploy", query_file, "--node", address).exit_code == 0
        fed.publish("counts.clicks", {"ts": [0, 1, 120_000_000], "user": ["a", "b", "a"]})
        fed.boundary("counts.clicks", 120_000_000)
        tail = ["tail", "counts.per_user", "--from", "oldest", "--json", "--node", address, *limit]
        with subprocess.Popen(
            [sys.executable, "-m", "medusa.cli.main", *tail],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # A shell that runs the tests in the background has its children ignore Ctrl-C.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            assert [json.loads(process.stdout.readline())["user"] for _ in range(2)] == ["a", "b"]
            process.send_signal(number)
            assert (process.wait(60), process.stderr.read()) == (code, says)


def test_tail_tells_of_rows_that_it_asked_for_in_vain(query_file: Path, tmp_path: Path) -> None:
    with LocalNodes(["solo"], tmp_path) as nodes, md.connect(nodes.addresses["solo"], "60s") as fed:
        assert run("deploy", query_file, "--node", nodes.addresses["solo"]).exit_code == 0
        with fed.subscribe("counts.per_user", from_="oldest", durable="d") as trains:
            fed.publish("counts.clicks", {"ts": [0, 1], "user": ["a", "b"]})
            fed.finish("counts.clicks")
            assert trains.table("20s").num_rows == 2
            trains.ack(2)
            # What every reader has acknowledged is forgotten with the next checkpoint.
            ends = time.monotonic() + 20
            while time.monotonic() < ends:
                (output,) = fed.status()["fragments"][0]["outputs"]
                if output["oldest_row"] == 2:
                    break
        shown = run("tail", "counts.per_user", "--node", nodes.addresses["solo"], "--from", "0")
    assert (shown.exit_code, shown.stdout) == (0, "")
    assert shown.stderr == "2 rows are not kept any more\n"


def test_the_package_is_the_command_too() -> None:
    said = subprocess.run(
        [sys.executable, "-m", "medusa", "--help"], capture_output=True, text=True, check=True
    )
    assert said.stdout.startswith("Usage: medusa [OPTIONS] COMMAND")


def test_a_node_with_a_wrong_configuration_says_which_line(tmp_path: Path) -> None:
    config = tmp_path / "node.toml"
    config.write_text('name = "a"\nlisten = "tcp://0.0.0.0:5555"\ndata = "state"\n')
    shown = run("node", config)
    assert shown.exit_code == 1
    assert "line 2" in shown.stderr
    assert "hint:" in shown.stderr


def test_checkpoints_are_shown_and_checked(query: md.Query, tmp_path: Path) -> None:
    state = tmp_path / "state"
    with md.start(query, checkpoint=state) as running:
        running.push("clicks", {"ts": [0, 1, 2], "user": ["a", "b", None]})
        running.checkpoint()
        live = json.loads(run("checkpoint", "show", state, "--json").output)
        assert [(each["verdict"], each["positions"]["clicks"]) for each in live] == [
            ("whole", 0),
            ("whole", 3),
        ]
    found = json.loads(run("checkpoint", "show", state, "--json").output)
    assert found[-1]["query"] == "counts"
    assert found[-1]["positions"] == {"clicks": 3}
    assert found[-1]["verdict"] == "whole"
    groups = [file for file in found[-1]["files"] if file["name"].endswith(".groups.arrow")]
    assert [file["rows"] for file in groups] == [3]
    text = run("checkpoint", "show", state).output
    assert "source clicks: 3 rows" in text
    damaged = sorted(state.glob("checkpoint-*/*.groups.arrow"))[-1]
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    os.chmod(damaged, 0o600)
    damaged.write_bytes(content)
    shown = run("checkpoint", "show", state).output
    assert "damaged" in shown
    assert damaged.name in shown


def test_a_delta_is_shown_as_the_whole_it_stands_for(tmp_path: Path) -> None:
    q = md.Query("sums")
    rows = q.source("rows", {"ts": "int64", "k": "int64"}, time="ts", unit="s", slack=0)
    q.sink("o", rows.group_by("k").running(n=md.count(), name="sum"))
    state = tmp_path / "state"
    with md.start(q, checkpoint=state, checkpoint_every=None) as running:
        for keys in (range(5000), [7]):
            running.push("rows", {"ts": [0 for _ in keys], "k": list(keys)})
            running.take("o")
            running.checkpoint()
    first, base, delta, _ = json.loads(run("checkpoint", "show", state, "--json").output)
    assert first["positions"] == {"rows": 0}
    assert base["delta_on"] == []
    assert delta["delta_on"] == [base["name"]]
    assert delta["stored_bytes"] < base["stored_bytes"] / 5
    assert [file["rows"] for file in delta["files"] if file["name"] == "sum.keys.arrow"] == [5000]
    text = run("checkpoint", "show", state).output
    assert f"a delta of {delta['stored_bytes']:,} bytes on {base['name']}" in text
    shown = json.loads(run("checkpoint", "show", state / delta["name"], "--json").output)
    assert shown == [delta]
    (state / base["name"] / "sum.keys.arrow").unlink()
    found = json.loads(run("checkpoint", "show", state, "--json").output)
    verdicts = [each["verdict"] for each in found if each["name"] != first["name"]]
    assert len(verdicts) == 3
    assert all("sum.keys.arrow is missing" in verdict for verdict in verdicts)


def test_a_folder_without_checkpoints_is_an_error(tmp_path: Path) -> None:
    shown = run("checkpoint", "show", tmp_path)
    assert shown.exit_code == 1
    assert "holds no checkpoint" in shown.stderr


def test_sim_runs_a_seed_and_replays_it() -> None:
    first, second = run("sim", "cut", "--seed", "3", "--json"), run("sim", "cut", "--seed", "3", "--json")
    assert first.exit_code == 0, first.output
    found = json.loads(first.output)
    assert found["ok"] is True
    assert found["seed"] == 3
    assert json.loads(second.output) == found


def test_sim_runs_all_scenarios_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    from medusa.sim.scenarios import SCENARIOS
    from medusa.sim.trials.federations import spread

    # tests/sim runs it with its thousand nodes.
    smaller = replace(SCENARIOS["federation"], build=lambda world, rows, parts: spread(world, rows, 40, 8))
    monkeypatch.setitem(SCENARIOS, "federation", smaller)
    shown = run("sim", "--seeds", "1")
    assert shown.exit_code == 0
    assert {line.partition(":")[0] for line in shown.output.splitlines()} >= {"cut", "crash", "chaos"}


def test_an_unknown_scenario_is_a_usage_error() -> None:
    shown = run("sim", "crahs")
    assert shown.exit_code == 2
    assert "crash" in shown.stderr


def test_one_seed_and_many_are_not_mixed() -> None:
    shown = run("sim", "cut", "--seed", "3", "--seeds", "5")
    assert shown.exit_code == 2
    assert "give one of them" in shown.output


def test_a_report_that_cannot_be_written_is_said_at_once(tmp_path: Path) -> None:
    shown = run("demo", "netmon", "--report", tmp_path / "nowhere" / "report.html")
    assert shown.exit_code == 1
    assert "can't be written" in shown.output
    assert "process" not in shown.output
