"""``medusa sim market``: one run, experiments, liars, the game; what can't be is refused by name."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from medusa.cli.main import main
from medusa.errors import ConfigError
from medusa.sim.market.experiments import EXPERIMENTS, MarketExperiment, MarketRow, run_experiment
from medusa.sim.market.game import EXAMPLE, GameChange, GameContract, GameSpec, game_lines, play, read_game
from medusa.sim.market.liars import liar_figures
from medusa.sim.market.report import COLUMNS, experiment_table, liar_table
from medusa.sim.market.run import MarketFigures, run_market
from medusa.sim.market.setup import MarketSetup

QUICK = ("--participants", "10", "--contracts", "2", "--task", "0.1")


def ran(*options: str) -> Result:
    return CliRunner().invoke(main, ["sim", "market", *options])


def test_one_run_says_its_figures() -> None:
    shown = ran(*QUICK)
    assert shown.exit_code == 0, shown.output
    lines = dict(line.rsplit("  ", 1) for line in shown.output.splitlines() if "  " in line)
    named = {name.strip(): value.strip() for name, value in lines.items()}
    assert int(named["moves"].replace(",", "")) > 0
    assert named["by more than is stated"] == "0"


def test_acceptable_is_asked_for_by_a_flag() -> None:
    ring = ("--participants", "20", "--graph", "ring", "--load", "heavy", "--pricing", "fixed")
    shown = ran(*ring)
    assert shown.exit_code == 0
    assert "acceptable" in shown.output
    refused = ran(*ring, "--require-acceptable")
    assert refused.exit_code == 1
    assert "violated: the allocation isn't acceptable: 3 participants are overloaded" in refused.output
    assert "overload left" in refused.output
    assert ran(*QUICK, "--load", "light", "--require-acceptable").exit_code == 0


def test_a_broken_rule_is_exit_code_1(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("medusa.sim.market.run.moves_bound", lambda population: 0)
    shown = ran(*QUICK)
    assert shown.exit_code == 1
    assert "violated: " in shown.output
    assert "moves and returns: at most 0 suffice" in shown.output
    shown = ran(*QUICK, "--experiment", "sizes", "--no-plots", "--out", str(tmp_path))
    assert shown.exit_code == 1
    assert "violated: sizes, {'participants': 10, 'load': 'heavy'}: " in shown.output
    assert (tmp_path / "sizes.md").exists()


def test_json_has_all_of_them_and_the_same_seed_the_same() -> None:
    first, second = ran(*QUICK, "--json", "--seed", "3"), ran(*QUICK, "--json", "--seed", "3")
    assert first.output == second.output
    found = json.loads(first.output)
    assert set(found["figures"]) == set(MarketFigures.__struct_fields__)
    assert found["setup"]["seed"] == 3
    assert ran(*QUICK, "--json", "--seed", "4").output != first.output


def test_out_has_tables_and_a_plot(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert ran(*QUICK, "--out", str(tmp_path)).exit_code == 0
    assert json.loads((tmp_path / "run.json").read_text())["figures"]["participants"] == 10
    assert "overload left" in (tmp_path / "run.md").read_text()
    assert (tmp_path / "run.svg").read_text().startswith("<?xml")


def test_experiments_write_a_page(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    shown = ran(*QUICK, "--experiment", "contracts", "--experiment", "sizes", "--out", str(tmp_path))
    assert shown.exit_code == 0, shown.output
    page = (tmp_path / "market.md").read_text()
    assert "## How many contracts each" in page
    assert "contracts on" in page or "with none of these" in page
    rows = json.loads((tmp_path / "sizes.json").read_text())["rows"]
    assert [row["labels"]["load"] for row in rows] == ["light", "medium", "heavy", "overload"]
    assert (tmp_path / "contracts.svg").exists()


def test_what_a_lie_gains_is_a_row() -> None:
    shown = ran(*QUICK, "--lie", "refuse", "--liars", "0.2", "--load", "medium", "--limit", "200")
    assert shown.exit_code == 0, shown.output
    assert "| refuse |" in shown.output
    assert "messages against a rule" in shown.output


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--graph", "tree"), "graph is 'tree'"),
        (("--graph", "rign"), "did you mean 'ring'?"),
        (("--load", "heavvy"), "did you mean 'heavy'?"),
        (("--load", "-1"), "load is '-1'"),
        (("--participants", "1"), "participants is 1"),
        (("--contracts", "200"), "contracts is 200: with 100 participants"),
        (("--graph", "mesh", "--participants", "1000"), "at most 200"),
        (("--range", "2"), "range_share is 2: from 0 to 1"),
        (("--loss", "nan"), "loss is nan"),
        (("--lie", "load"), "give both"),
        (("--liars", "0.1"), "give both"),
        (("--lie", "load", "--liars", "0.1", "--pricing", "auction"), "lies are told to partners"),
        (("--change", "60", "--pricing", "auction"), "constant load only"),
        (("--experiment", "size", "--out", "x"), "did you mean 'sizes'?"),
        (("--require-acceptable", "--experiment", "sizes", "--out", "x"), "judges one run"),
        (("--all",), "say where, --out FOLDER"),
    ],
)
def test_what_can_not_be_is_refused_by_name(options: tuple[str, ...], said: str) -> None:
    shown = ran(*options)
    assert shown.exit_code in (1, 2)
    assert said in shown.output


@pytest.mark.parametrize(
    ("options", "field", "value"),
    [
        (("--delay", "2s"), "delay_ms", 2_000.0),
        (("--delay", "20ms"), "delay_ms", 20.0),
        (("--delay", "0"), "delay_ms", 0.0),
        (("--limit", "2min"), "limit_s", 120.0),
        (("--limit", "90"), "limit_s", 90.0),
        (("--move", "1.5s"), "move_s", 1.5),
    ],
)
def test_durations_have_units(options: tuple[str, ...], field: str, value: float) -> None:
    shown = ran(*QUICK, *options, "--json")
    assert shown.exit_code == 0, shown.output
    assert json.loads(shown.stdout)["setup"][field] == value


def test_a_delay_without_a_unit_is_asked_back() -> None:
    """It may have been meant as 2 s, and was 2 ms."""
    shown = ran(*QUICK, "--delay", "2")
    assert shown.exit_code == 2
    assert 'say which unit: "2s", "2ms"' in shown.output
    assert "is no duration" in ran(*QUICK, "--limit", "soon").output


def test_a_run_says_how_slow_messages_and_moves_are() -> None:
    assert "messages take 2s to 4s, a move 2s" in ran(*QUICK, "--delay", "2s").output


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_written_over_on_a_terminal_and_in_whole_lines_elsewhere(
    monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    monkeypatch.setattr("medusa.cli.sim_market._shows_terminal", lambda: terminal)
    monkeypatch.setattr("medusa.cli.sim_market.EVERY_S", 0.0)
    monkeypatch.setattr("medusa.cli.sim_market.LINE_EVERY_S", 0.0)
    shown = ran(*QUICK)
    assert ("\r" in shown.stderr) == terminal
    lines = shown.stderr.replace("\r", "\n").splitlines()
    said = [line for line in lines if line.strip()]
    assert len(said) > 3
    assert all("of at most 3,600 s of virtual time" in line for line in said)


def test_help_has_an_example_and_sim_names_it() -> None:
    assert "medusa sim market --participants 1000" in ran("--help").output
    assert "medusa sim market --help" in CliRunner().invoke(main, ["sim", "--help"]).output


# --- tables ----------------------------------------------------------------------------------------


def test_every_column_is_a_figure() -> None:
    assert set(COLUMNS) <= set(MarketFigures.__struct_fields__)
    base = MarketSetup(participants=30)
    for make in EXPERIMENTS.values():
        experiment = make(base)
        assert set(experiment.columns) <= set(COLUMNS)
        assert len({tuple(row.labels.items()) for row in experiment.rows}) == len(experiment.rows)
        for row in experiment.rows:
            row.setup.check()


def test_how_many_contracts_are_enough_by_hand() -> None:
    """5 % from 2 on, as 3 is below too; 1 % only where all that have more are below as well."""
    setup = MarketSetup(participants=5, contracts=1, task_cores=0.1)
    figures = run_market(setup).figures
    rows = [
        MarketRow({"load": "heavy", "pricing": "fixed", "contracts": count}, setup) for count in (1, 2, 3, 4)
    ]
    experiment = MarketExperiment("contracts", "t", "q", tuple(rows), ("wasted",))
    run = run_market(setup)
    wasted = (0.2, 0.04, 0.005, 0.02)
    found = [
        (row, type(run)(setup, msgspec.structs.replace(figures, wasted=share), (), (), ()))
        for row, share in zip(rows, wasted, strict=True)
    ]
    text = experiment_table(experiment, found)
    assert "| heavy | fixed | 2 | 4.00% |" in text
    assert "- heavy, fixed price: 5% from 2 contracts on, 1% with none of these" in text


def test_liars_are_compared_with_themselves() -> None:
    setup = MarketSetup(participants=10, contracts=3, task_cores=0.1, load="medium", limit_s=200)
    found = liar_figures(msgspec.structs.replace(setup, lie="refuse", liars=0.3), [1, 2])
    assert (found.liars, found.seeds) == (6, 2)
    assert found.gain == pytest.approx(found.profit_lying - found.profit_honest)
    assert "| refuse |" in liar_table([found])


def test_an_experiment_gives_its_runs_one_by_one() -> None:
    setup = MarketSetup(participants=5, contracts=1, task_cores=0.1)
    rows = (MarketRow({"n": 1}, setup), MarketRow({"n": 2}, msgspec.structs.replace(setup, seed=2)))
    told: list[tuple[int, float]] = []
    experiment = MarketExperiment("x", "t", "q", rows, ("moves",))
    found = run_experiment(experiment, watch=lambda row, seconds: told.append((row, seconds)))
    assert next(found)[0].labels == {"n": 1}
    assert {row for row, _ in told} == {0}
    assert next(found)[1].setup.seed == 2


# --- the game --------------------------------------------------------------------------------------


def test_options_that_the_game_does_not_go_by_are_refused(tmp_path: Path) -> None:
    """They were ignored, also where they were nonsense."""
    path = tmp_path / "game.toml"
    path.write_text(EXAMPLE)
    for words, named in [
        (("--game", "--load", "nonsense"), "--load"),
        (("--game", "--task", "1", "--range", "7"), "--range, --task"),
        (("--game", "--file", str(path), "--seed", "5"), "--seed"),
    ]:
        found = ran(*words)
        assert found.exit_code == 2
        said = found.output.partition("the game doesn't go by ")[2].partition(":")[0]
        assert sorted(said.split(", ")) == sorted(named.split(", "))


def test_the_game_without_a_terminal_is_the_same_each_time() -> None:
    first, second = ran("--game"), ran("--game")
    assert first.exit_code == 0, first.output
    assert first.output == second.output
    assert "minute 6:" in first.output
    assert "better than alone" in first.output
    assert ran("--game", "--seed", "2").output != first.output


def test_its_example_is_a_file_that_it_reads(tmp_path: Path) -> None:
    path = tmp_path / "game.toml"
    path.write_text(ran("--game-example").output)
    assert path.read_text() == EXAMPLE
    shown = ran("--file", str(path))
    assert shown.exit_code == 0, shown.output
    spec = read_game(path)
    assert list(game_lines(spec, play(spec))) == shown.output.splitlines()
    assert json.loads(ran("--file", str(path), "--json").output) == json.loads(
        msgspec.json.encode([asdict(each) for each in play(spec)])
    )


def test_a_contract_takes_load_off_and_none_leaves_it() -> None:
    with_one = list(play(GameSpec(contract=(GameContract(partner="p3", price="0.02"),))))
    alone = list(play(GameSpec(contract=())))
    assert with_one[-1].load < with_one[-1].own_load
    assert with_one[-1].profit_micro > 0
    assert alone[-1].load == alone[-1].own_load
    assert alone[-1].profit_micro == 0
    assert alone[0].cost_micro == pytest.approx(alone[0].alone_micro)


def test_less_load_comes_home() -> None:
    spec = GameSpec(minutes=4, change=(GameChange(minute=2, load=0.2),))
    minutes = list(play(spec))
    assert minutes[0].away
    assert minutes[-1].own_load == pytest.approx(0.2, rel=0.1)
    assert not minutes[-1].away


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("minutes = 0", "$.minutes"),
        ("[you]\ncores = -1", "$.you.cores"),
        ("[you]\ncose = 1", "unknown field"),
        ("minutes = [", "no TOML"),
        ('[[contract]]\npartner = "p99"', "no partner 'p99'"),
        ('[[contract]]\npartner = "p0"\n[[contract]]\npartner = "p0"', "two contracts with 'p0'"),
        ('[[contract]]\npartner = "p0"\nprice = "dear"', "price is 'dear'"),
        ('[[contract]]\npartner = "p0"\nprice = "0.01"\nrange = "0.01"', "less than the price"),
        ('[[contract]]\npartner = "p0"\nprice = "-1"', "above 0"),
        ('[you]\ncost = "0"', "cost is '0'"),
        ('[others]\nload = "some"', "load is 'some'"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "game.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        list(play(read_game(path)))
    assert said in str(caught.value)


def test_who_has_no_file_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("medusa.cli.sim_market._is_terminal", lambda: True)
    answers = "1.1\n1\n0.001\nlight\np1\n0.025\n0.005\n\n2\n0.3\n"
    shown = CliRunner().invoke(main, ["sim", "market", "--game"], input=answers)
    assert shown.exit_code == 0, shown.output
    assert "contract with p1 (both): 0.025 of a core-second, up to 0.005 less" in shown.output
    assert "after 2 minutes" in shown.output


def test_an_answer_that_makes_no_sense_is_asked_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was said after the last question, and all of them were to be answered again."""
    monkeypatch.setattr("medusa.cli.sim_market._is_terminal", lambda: True)
    answers = (
        "1.1 1 dear 0 0.001 lite light p9 p1 -1 0.025 0.025 0.005 p1 p2 0.02 0.004".replace(" ", "\n")
        + "\n\n2\n0.3\n"
    )
    shown = CliRunner().invoke(main, ["sim", "market", "--game"], input=answers)
    assert shown.exit_code == 0, shown.output
    said = [line for line in shown.output.splitlines() if line.startswith("Error: ")]
    expected = (
        "cost is 'dear'",
        "cost is '0'",
        "load is 'lite'",
        "no partner 'p9'",
        "price: ",
        "range: ",
        "two",
    )
    assert len(said) == len(expected), said
    assert all(words in line for words, line in zip(expected, said, strict=True)), said
    assert "contract with p2 (both): 0.02 of a core-second, up to 0.004 less" in shown.output
