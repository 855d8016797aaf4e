"""Whatever the text, md.sql gives a query or a QueryError, and a query that it gives holds."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import medusa as md
from tests.query.sql.test_refuses import REFUSED
from tests.query.sql.test_same_boxes import BUILT, CALLS, CARS, TOLLS

CORPUS = [*BUILT, *(text.replace("«", "").replace("»", "") for text, _, _ in REFUSED)]
WORDS = sorted({word for text in CORPUS for word in text.replace("(", " ( ").replace(",", " , ").split()})
EXTRA = [*"\x00é😀'\"`\\\n[]{};", "--", "/*", "*/", "$$", "::", "->"]


def harmless(text: str) -> None:
    try:
        made = md.sql(text, cars=CARS, tolls=TOLLS, calls=md.source(CALLS, time="t", unit="s"))
    except md.QueryError:
        return
    assert md.Query.from_graph(made.graph).graph == made.graph


def mutated(rng: random.Random) -> str:
    words = rng.choice(CORPUS).replace("(", " ( ").replace(")", " ) ").replace(",", " , ").split(" ")
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(words) + 1)
        match rng.randrange(6):
            case 0:
                words[at : at + 1] = []
            case 1:
                words.insert(at, rng.choice(WORDS))
            case 2:
                words[at : at + 1] = [rng.choice(WORDS)]
            case 3:
                other = rng.choice(CORPUS).split(" ")
                first = rng.randrange(len(other))
                words[at:at] = other[first : first + rng.randint(1, 6)]
            case 4:
                words.insert(at, rng.choice(EXTRA))
            case _:
                words[at : at + 2] = reversed(words[at : at + 2])
    text = " ".join(words)
    if rng.random() < 0.2:
        at = rng.randrange(len(text) + 1)
        text = text[:at] + rng.choice(["", chr(rng.randrange(32, 0x2FF)), rng.choice(EXTRA)]) + text[at + 1 :]
    return text


def run(seed: int, count: int) -> None:
    rng = random.Random(seed)
    for _ in range(count):
        text = mutated(rng)
        try:
            harmless(text)
        except Exception as error:
            raise AssertionError(f"md.sql({text!r})") from error


def test_mutated_statements() -> None:
    run(1, 600)


@given(st.text(max_size=60))
@settings(max_examples=60, deadline=None)
def test_any_text(text: str) -> None:
    harmless(text)
    harmless("SELECT " + text + " FROM cars")


@given(st.lists(st.sampled_from(WORDS), max_size=14))
@settings(max_examples=80, deadline=None)
def test_any_words(words: list[str]) -> None:
    harmless("SELECT " + " ".join(words))


@pytest.mark.full
@pytest.mark.issue(3)
@pytest.mark.parametrize("seed", range(100, 120))
def test_many_mutated_statements(seed: int) -> None:
    run(seed, 3_000)
