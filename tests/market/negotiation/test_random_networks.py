"""Random traders, contracts and loads over a network that does its worst, in virtual time."""

from __future__ import annotations

import itertools
import random

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from medusa.market.negotiation.messages import LoadMoved
from medusa.market.work import ResourceUse
from tests.market.negotiation.network import Network, S, Square, Weather, contract, task

NAMES = "abcdefgh"


def drawn(seed: int, weather: Weather | None = None) -> Network:
    """Two to eight, each with a cost, a capacity and tasks of its own; each pair with a contract or none."""
    rng = random.Random(seed)
    net = Network(seed, weather)
    names = NAMES[: rng.randint(2, 8)]
    for name in names:
        sizes = [rng.choice((0.02, 0.05, 0.1, 0.2)) for _ in range(rng.choice((0, 1, 3, 10)))]
        tasks = [task(f"{name}{n}", name, cores) for n, cores in enumerate(sizes)]
        whole = max(sum(sizes), rng.uniform(0.2, 1.5))
        capacity = rng.choice((None, ResourceUse(cpu_cores=whole)))
        net.join(
            name,
            Square(rng.choice((1e6, 3e6, 10e6))),
            tasks,
            capacity=capacity,
            moves_max=rng.choice((1, 1, 3)),
            offers_max=rng.choice((1, 1, 2)),
            hold_us=20 * S,
            backoff_max_us=16 * S,
            memory_us=60 * S,
        )
    for one, other in itertools.permutations(names, 2):
        if rng.random() < 0.4:
            price = rng.randrange(200_000, 4_000_000)
            net.sign(
                contract(
                    one,
                    other,
                    price,
                    range_micro=rng.choice((0, price // 10, price // 2, price)),
                    resale=tuple(
                        each for each in rng.choice(((), ("*",), ("a", "b"))) if each not in (one, other)
                    ),
                    units_per_s_max_milli=rng.choice((1_000_000, 300)),
                    shadow=rng.random() < 0.1,
                )
            )
    return net


def storm(net: Network, rng: random.Random, until_us: int) -> None:
    """Cuts, told and untold, members that stand still and others that are restarted, all over by then."""
    names = list(net.members)
    for _ in range(rng.randint(1, 12)):
        begins_us = rng.randrange(until_us // 2)
        ends_us = rng.randrange(begins_us, until_us)
        if rng.random() < 0.7:
            one, other = rng.sample(names, 2)
            told = rng.random() < 0.5
            net.at(begins_us, lambda one=one, other=other, told=told: net.part(one, other, told=told))
            net.at(ends_us, lambda one=one, other=other: net.heal(one, other))
        else:
            name = rng.choice(names)
            net.at(begins_us, lambda name=name: net.stop(name))
            restarts = rng.random() < 0.5
            again = net.lose_memory if restarts else net.go_on
            net.at(ends_us, lambda name=name, again=again: again(name))


def changes(net: Network, rng: random.Random, until_us: int) -> None:
    """Contracts are revoked, by either party, and others are renewed for another price."""
    for one in list(net.contracts.values()):
        first, chance = rng.choice((one.consumer, one.provider)), rng.random()
        at_us = rng.randrange(until_us // 2)
        if chance < 0.1:
            net.at(at_us, lambda one=one, first=first: net.revoke(one, first=first))
        elif chance < 0.2:
            price = max(one.price_micro * rng.choice((2, 3)) // 2, one.range_micro)
            newer = msgspec.structs.replace(one, version=2, price_micro=price, begins_us=max(at_us, 1))
            net.at(at_us, lambda newer=newer, first=first: net.renew(newer, first=first))


def checked(net: Network) -> None:
    assert not net.broken, net.broken[:3]
    assert not net.overdue()


def comes_to_rest(seed: int) -> None:
    net = drawn(seed)
    net.run(600 * S)
    checked(net)
    moved = len(net.messages(LoadMoved)) + len(net.handed)
    net.run(800 * S)
    checked(net)
    # Those by shadows are among the messages.
    assert len(net.messages(LoadMoved)) + len(net.handed) == moved, net.moves[-4:] + net.handed[-4:]
    assert not net.books_agree()
    assert not net.trades_left()


def survives(seed: int) -> None:
    rng = random.Random(f"storm {seed}")
    weather = Weather(
        lost=rng.choice((0.0, 0.1, 0.4)),
        doubled=rng.choice((0.0, 0.3)),
        most_us=rng.choice((20_000, 400_000, 3 * S)),
        fails=rng.choice((0.0, 0.2)),
    )
    net = drawn(seed, weather)
    storm(net, rng, 200 * S)
    changes(net, rng, 200 * S)
    for second in range(0, 200, 5):
        net.run(second * S)
        checked(net)
    net.calm()
    net.run(800 * S)
    checked(net)
    assert not net.books_agree()
    assert not net.trades_left()


@given(st.integers(0, 1 << 32))
@settings(max_examples=30)
def test_constant_load_comes_to_rest_where_no_two_would_gain_by_a_move(seed: int) -> None:
    comes_to_rest(seed)


@given(st.integers(0, 1 << 32))
@settings(max_examples=30)
def test_whatever_the_network_does_each_negotiation_ends_and_all_books_agree_in_the_end(seed: int) -> None:
    survives(seed)
