"""``medusa sim market``: participants who trade load, in virtual time; experiments; a game."""

from __future__ import annotations

import itertools
import re
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from medusa.cli.options.command_options import AS_JSON, FILE, FOLDER, example

if TYPE_CHECKING:
    from medusa.sim.market.run import MarketFigures
    from medusa.sim.market.setup import MarketSetup

__all__ = ["market"]

SEEDS_OF_LIARS = 3
LIARS_LIMIT_S = 900.0
EVERY_S = 2.0
"""Progress is said so often on a terminal, where the line is written over."""

LINE_EVERY_S = 15.0
"""And so often in a file or a pipe, where each is a line of its own."""


def _span(unit_us: int, *, bare: bool) -> Callable[[click.Context, click.Parameter, str], float]:
    """A callback that takes a duration as people write it: ``20ms``, ``2s``, ``1h``.

    Args:
        unit_us: of what it gives.
        bare: whether a number alone is of that unit; else the unit has to be said.
    """

    def read(context: click.Context, option: click.Parameter, given: str) -> float:
        from medusa.errors import ConfigError
        from medusa.units import duration_us

        if re.fullmatch(r"[0-9]+(\.[0-9]+)?" if bare else "0", given.strip()):
            return float(given)
        try:
            return duration_us(given, what=option.opts[0], error=ConfigError) / unit_us
        except ConfigError as error:
            words = f"{error.message}; {error.hint}" if error.hint else error.message
            raise click.BadParameter(words, context, option) from error

    return read


MS = _span(1_000, bare=False)
S = _span(1_000_000, bare=True)


def _settings(command: Callable[..., None]) -> Callable[..., None]:
    """The options that make a ``MarketSetup``; their names are its fields'."""
    options = (
        click.option("--participants", type=int, default=100, show_default=True, help="how many"),
        click.option(
            "--graph", default="random", show_default=True, help="random, mesh, grid, star, ring, chain"
        ),
        click.option(
            "--contracts", type=int, default=5, show_default=True, help="partners each, at least (random)"
        ),
        click.option(
            "--load", default="heavy", show_default=True, help="light, medium, heavy, overload, or a share"
        ),
        click.option("--loads", default="pareto", show_default=True, help="pareto, exponential, mix, same"),
        click.option("--pareto", type=float, default=1.5, show_default=True, help="its exponent"),
        click.option(
            "--task", "task_cores", type=float, default=0.02, show_default=True, help="cores of a task"
        ),
        click.option("--task-sizes", default="same", show_default=True, help="same, pareto"),
        click.option(
            "--pricing", default="bounded", show_default=True, help="bounded, fixed, auction, alone"
        ),
        click.option(
            "--price",
            "price_micro",
            type=int,
            default=25_000,
            show_default=True,
            help="of a core-second, in micro-units, at most",
        ),
        click.option(
            "--range",
            "range_share",
            type=float,
            default=0.3,
            show_default=True,
            help="so much of the price it may be lower",
        ),
        click.option(
            "--price-spread",
            type=float,
            default=0.0,
            show_default=True,
            help="0.2: prices from 0.8 to 1.2 of that",
        ),
        click.option(
            "--cost-spread",
            type=float,
            default=0.0,
            show_default=True,
            help="1: costs differ by a factor of 2 each way",
        ),
        click.option(
            "--core-spread", type=float, default=0.0, show_default=True, help="the same of machines"
        ),
        click.option(
            "--change",
            "change_s",
            callback=S,
            default="0",
            help="seconds on average after which a participant's load changes  [default: never]",
        ),
        click.option(
            "--delay",
            "delay_ms",
            callback=MS,
            default="20ms",
            show_default=True,
            help="that a message takes, up to twice that, with its unit: 20ms, 2s",
        ),
        click.option(
            "--loss", type=float, default=0.0, show_default=True, help="share of messages that are lost"
        ),
        click.option(
            "--move",
            "move_s",
            callback=S,
            default="2s",
            show_default=True,
            help="seconds that a move takes, or 1min",
        ),
        click.option(
            "--heartbeat",
            "heartbeat_s",
            callback=S,
            default="10s",
            show_default=True,
            help="seconds after which a price is said again",
        ),
        click.option(
            "--limit",
            "limit_s",
            callback=S,
            default="1h",
            show_default=True,
            help="seconds of virtual time, at most; or 10min, 2h",
        ),
        click.option(
            "--liars", type=float, default=0.0, help="share of participants who lie  [default: none]"
        ),
        click.option("--lie", default="", help="low-cost, high-cost, load, bill, receipts, idle, refuse"),
        click.option("--seed", type=int, default=1, show_default=True, help="decides everything random"),
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.command(
    epilog=example(
        "medusa sim market --participants 1000 --graph random --contracts 5 --load heavy --seed 1",
        "medusa sim market --all --participants 100 --out results",
        "medusa sim market --experiment ranges --out results",
        "medusa sim market --liars 0.05 --lie load --load medium",
        "medusa sim market --game",
    )
)
@_settings
@click.option("--all", "everything", is_flag=True, help="every experiment, up to --participants; with --out")
@click.option("--experiment", "names", multiple=True, metavar="NAME", help="this one; may be given again")
@click.option("--out", type=FOLDER, help="folder for JSON, Markdown and SVG")
@click.option("--plots/--no-plots", default=True, show_default=True, help="with --out: SVG, by matplotlib")
@click.option("--game", is_flag=True, help="your own place in a market, minute by minute")
@click.option("--file", "game_file", type=FILE, help="with --game: TOML; else it asks, or takes defaults")
@click.option("--game-example", is_flag=True, help="print a file for --game")
@click.option(
    "--require-acceptable",
    is_flag=True,
    help="exit code 1 if somebody is overloaded in the end while another has room; of one run",
)
@AS_JSON
def market(
    everything: bool,
    names: tuple[str, ...],
    out: Path | None,
    plots: bool,
    game: bool,
    game_file: Path | None,
    game_example: bool,
    require_acceptable: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Simulate participants who take each other's load under contracts, each for its own profit.

    The negotiation code is that of a node; only time, messages and moves are simulated. It prints how
    much capacity is unused and overload left in the end, beside what one mind could have done; how many
    moves, rounds and messages that took; prices; and profits against staying alone. With --lie it runs the
    market with and without liars, and says what they gain, how many who are lied to do worse than alone, and
    how many messages receivers refused as against the protocol.

    Exit code 1: somebody honest did worse than alone, beyond what is stated; a message broke a rule of the
    protocol, or a move one of its contract; or, under constant load, more tasks moved than the bound allows.
    With --require-acceptable also: the allocation isn't acceptable in the end. Without it the run only says
    so: a fixed price, a long chain of participants or a short --limit are known not to get there.
    """
    from medusa.sim.market.setup import MarketSetup

    if require_acceptable and (game or game_file or game_example or everything or names or options["lie"]):
        raise click.UsageError(
            "--require-acceptable judges one run of honest participants: leave out --game, --file, --all,"
            " --experiment and --lie"
        )
    if game_example:
        from medusa.sim.market.game import EXAMPLE

        click.echo(EXAMPLE, nl=False)
        return
    if game or game_file is not None:
        _refuse_beside_game(options, has_file=game_file is not None)
        _play(game_file, seed=options["seed"], as_json=as_json)
        return
    setup = MarketSetup(**options)
    setup.check()
    try:
        if everything or names:
            _experiments(setup, names, out, plots=plots)
        elif setup.lie:
            _liars(setup, out, as_json=as_json)
        else:
            figures = _one(setup, out, plots=plots, as_json=as_json)
            if require_acceptable and not figures.acceptable:
                click.echo(
                    f"violated: the allocation isn't acceptable: {figures.overloaded} participants are"
                    f" overloaded while {figures.roomy} have room",
                    err=True,
                )
                sys.exit(1)
    except AssertionError as error:  # SimulationError: a rule of the market
        click.echo(f"violated: {error}", err=True)
        sys.exit(1)


def _one(setup: MarketSetup, out: Path | None, *, plots: bool, as_json: bool) -> MarketFigures:
    import msgspec

    from medusa.sim.market.plots import plot_course
    from medusa.sim.market.report import run_text, save_json
    from medusa.sim.market.run import run_market

    with _Progress(setup.limit_s) as progress:
        run = run_market(setup, watch=lambda seconds: progress.at("", seconds))
    found = {"setup": msgspec.to_builtins(setup), "figures": msgspec.to_builtins(run.figures)}
    click.echo(msgspec.json.encode(found).decode() if as_json else run_text(run))
    if out is not None:
        save_json(found, out / "run.json")
        (out / "run.md").write_text(f"```\n{run_text(run)}\n```\n")
        if plots:
            plot_course(run, out / "run.svg")
    return run.figures


def _experiments(setup: MarketSetup, names: tuple[str, ...], out: Path | None, *, plots: bool) -> None:
    from functools import cache, partial

    from medusa.query.suggest import did_you_mean
    from medusa.sim.market.experiments import EXPERIMENTS, run_experiment
    from medusa.sim.market.liars import liar_figures
    from medusa.sim.market.plots import plot_experiment
    from medusa.sim.market.report import experiment_json, experiment_table, liar_table, save_json
    from medusa.sim.market.run import broken_rules, run_market
    from medusa.sim.market.setup import LIES

    known = [*EXPERIMENTS, "liars"]
    for name in names:
        if name not in known:
            raise click.BadParameter(f"{name!r}; {did_you_mean(name, known)}", param_hint="--experiment")
    if out is None:
        raise click.UsageError("experiments write tables and plots: say where, --out FOLDER")
    out.mkdir(parents=True, exist_ok=True)
    pages: list[str] = []
    losers, broken = 0, list[str]()
    for name in names or known:
        with _Progress(setup.limit_s) as progress:
            if name == "liars":
                honest_run = cache(partial(run_market, watch=partial(progress.at, "honest ")))
                found = [
                    liar_figures(
                        _lying(setup, lie),
                        range(setup.seed, setup.seed + SEEDS_OF_LIARS),
                        honest_run=honest_run,
                        watch=lambda seconds, lie=lie: progress.at(f"liars: {lie} ", seconds),  # type: ignore[misc]
                    )
                    for lie in LIES
                    if lie
                ]
                text, plain, drawn = liar_table(found), _plain(found), False
            else:
                experiment = EXPERIMENTS[name](setup)
                words = f"{name} {{}} of {len(experiment.rows)} "
                rows = list(
                    run_experiment(
                        experiment,
                        watch=lambda row, seconds, words=words: progress.at(words.format(row + 1), seconds),  # type: ignore[misc]
                    )
                )
                losers += sum(run.figures.losers for _, run in rows)
                broken += [
                    f"{name}, {row.labels}: {words}" for row, run in rows for words in broken_rules(run)
                ]
                text, plain = experiment_table(experiment, rows), experiment_json(experiment, rows)
                drawn = plots and plot_experiment(experiment, rows, out / f"{name}.svg")
        save_json(plain, out / f"{name}.json")
        if drawn:
            text += f"\n![{name}]({name}.svg)\n"
        (out / f"{name}.md").write_text(text)
        pages.append(text)
        click.echo(text)
    (out / "market.md").write_text("\n".join(pages))
    if losers:
        broken.append(f"{losers} participants did worse than alone, by more than is stated")
    for words in broken:
        click.echo(f"violated: {words}", err=True)
    if broken:
        sys.exit(1)


def _liars(setup: MarketSetup, out: Path | None, *, as_json: bool) -> None:
    import msgspec

    from medusa.sim.market.liars import liar_figures
    from medusa.sim.market.report import liar_table, save_json

    asked = msgspec.structs.replace(setup, limit_s=min(setup.limit_s, LIARS_LIMIT_S))
    with _Progress(asked.limit_s) as progress:
        found = [liar_figures(asked, [setup.seed], watch=lambda seconds: progress.at("", seconds))]
    click.echo(msgspec.json.encode(found).decode() if as_json else liar_table(found))
    if out is not None:
        save_json(_plain(found), out / "liars.json")
        (out / "liars.md").write_text(liar_table(found))


def _lying(setup: MarketSetup, lie: str) -> MarketSetup:
    import msgspec

    return msgspec.structs.replace(
        setup, lie=lie, liars=setup.liars or 0.05, load="medium", limit_s=min(setup.limit_s, LIARS_LIMIT_S)
    )


def _plain(found: Any) -> Any:
    import msgspec

    return msgspec.to_builtins(found)


def _refuse_beside_game(options: Mapping[str, Any], *, has_file: bool) -> None:
    """The game is what its file says, or its questions: of the other options it takes the seed alone, and
    that stands in the file where there is one.

    Raises:
        click.UsageError: another one was given.
    """
    context = click.get_current_context()
    taken = () if has_file else ("seed",)
    given = [
        each.opts[0]
        for each in context.command.params
        if each.name in options
        and each.name not in taken
        and context.get_parameter_source(each.name) is ParameterSource.COMMANDLINE
    ]
    if given:
        words = ", ".join(given)
        raise click.UsageError(f"the game doesn't go by {words}: write it into its file (--game-example)")


def _play(path: Path | None, *, seed: int, as_json: bool) -> None:
    from dataclasses import asdict

    import msgspec

    from medusa.sim.market.game import GameSpec, game_lines, play, read_game

    if path is not None:
        spec = read_game(path)
    elif _is_terminal() and not as_json:
        spec = _asked(seed)
    else:
        spec = GameSpec(seed=seed)
    if as_json:
        click.echo(msgspec.json.encode([asdict(each) for each in play(spec)]).decode())
        return
    for line in game_lines(spec, play(spec)):
        click.echo(line)


def _is_terminal() -> bool:
    return sys.stdin.isatty()


def _shows_terminal() -> bool:
    return sys.stderr.isatty()


def _asked(seed: int) -> Any:
    """What a person says who has no file."""
    from medusa.sim.market.game import (
        GameChange,
        GameContract,
        GameOthers,
        GamePlayer,
        GameSpec,
        check_cost,
        check_partner,
        check_prices,
    )
    from medusa.sim.market.setup import load_share

    load = click.prompt("cores that your tasks take", default=0.95, type=click.FloatRange(0.01, 100))
    cores = click.prompt("cores of your machine", default=1.0, type=click.FloatRange(0.01, 100))
    cost = _ask("what a waiting row costs you a second", "0.001", check_cost)
    others = _ask("load of the others (light, medium, heavy, overload)", "medium", load_share)
    names = [f"p{number}" for number in range(GameOthers().participants)]
    contracts: list[GameContract] = []

    def partner_fits(text: str) -> None:
        if text:
            check_partner(text, names, [each.partner for each in contracts])

    for number in itertools.count():
        partner = _ask(
            f"a partner, {names[0]} to {names[-1]} (empty: no more)",
            f"p{3 * number}" if number < 1 else "",
            partner_fits,
        )
        if not partner:
            break
        price = _ask(
            f"  price of a core-second with {partner}",
            "0.025",
            lambda text: check_prices(text, "0", what="price"),
        )
        less = _ask(
            "  so much less it may be",
            "0.005",
            lambda text, price=price: check_prices(price, text, what="range"),  # type: ignore[misc]
        )
        contracts.append(GameContract(partner=partner, price=price, range=less))
    minutes = click.prompt("minutes", default=6, type=click.IntRange(1, 1_440))
    then = click.prompt(
        "your load from half of that time on", default=load / 3, type=click.FloatRange(0, 100)
    )
    return GameSpec(
        minutes=minutes,
        seed=seed,
        you=GamePlayer(cores=cores, cost=cost, load=load),
        others=GameOthers(load=others),
        contract=tuple(contracts),
        change=(GameChange(minute=minutes // 2 + 1, load=then),),
    )


def _ask(question: str, default: str, check: Callable[[str], object]) -> str:
    """Ask until the answer makes sense: what doesn't is said at once."""
    from medusa.errors import MedusaError

    def checked(text: str) -> str:
        try:
            check(text.strip())
        except MedusaError as error:
            raise click.BadParameter(
                f"{error.message}; {error.hint}" if error.hint else error.message
            ) from error
        return text.strip()

    return str(click.prompt(question, default=default, value_proc=checked))


@dataclass
class _Progress:
    """Says on stderr how far a long run is: on a terminal in one line that is written over, else in lines."""

    limit_s: float
    _began: float = 0.0
    _said: float = 0.0
    _written: bool = False

    def __enter__(self) -> _Progress:
        self._began = self._said = time.monotonic()
        return self

    def at(self, what: str, seconds: float) -> None:
        now, terminal = time.monotonic(), _shows_terminal()
        if now - self._said < (EVERY_S if terminal else LINE_EVERY_S):
            return
        self._said, self._written = now, terminal
        text = (
            f"{what}{seconds:,.0f} of at most {self.limit_s:,.0f} s of virtual time,"
            f" {now - self._began:,.0f} s spent"
        )
        click.echo(f"\r{text}   " if terminal else text, nl=not terminal, err=True)

    def __exit__(self, *_: object) -> None:
        if self._written:
            click.echo("\r" + " " * 78 + "\r", nl=False, err=True)
