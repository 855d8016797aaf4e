"""Room that was promised counts until it is used, given back or too old."""

from __future__ import annotations

from medusa.nodes.deploy.room_promises import PROMISED_US, RoomPromises, RoomWanted


def wanted(fragment: str, request: int, fragments: int, streams: int) -> RoomWanted:
    return RoomWanted(fragment=fragment, request=request, fragments=fragments, streams=streams)


def promised() -> RoomPromises:
    """To ``a`` in place of ``q/one``."""
    made = RoomPromises()
    made.promise(10, "a", wanted("q/one", 7, 3, 4))
    return made


def test_it_counts_for_everybody_else() -> None:
    made = promised()
    made.promise(20, "b", wanted("q/two", 7, 2, 2))
    assert made.beside("c", "q/three") == (5, 6)
    assert made.beside("a", "q/one") == (2, 2), "asked again it is the same room"
    assert made.beside("a", "q/two") == (5, 6), "the same owner may have two split at once"


def test_asked_again_the_last_word_counts() -> None:
    made = promised()
    made.promise(20, "a", wanted("q/one", 8, 1, 1))
    assert made.beside("b", "q/two") == (1, 1)


def test_each_that_comes_uses_some() -> None:
    made = promised()
    assert made.kept_from("a", "q/one-1") == 2, "one of three is its own"
    assert made.kept_from("a", "q/one") == 3, "what is to be replaced isn't what comes"
    assert made.kept_from("a", "p/one-1") == 3
    assert made.kept_from("b", "q/one-1") == 3
    for name, left in (("q/one-1", (2, 3)), ("q/one-2", (1, 2)), ("q/one-router", (0, 0))):
        made.use("a", name, 1)
        assert made.beside("b", "q/two") == left
    assert made.wake_at_us() is None
    made.use("a", "q/one-merge", 2)
    assert made.kept_from("b", "q/x") == 0


def test_what_comes_itself_uses_what_was_promised_for_it() -> None:
    made = RoomPromises()
    made.promise(10, "a", wanted("q/one", 7, 0, 2))
    assert made.beside("b", "q/two") == (1, 2)
    assert (made.kept_from("a", "q/one"), made.kept_from("a", "q/one-1")) == (0, 1)
    made.use("a", "q/one-1", 1)
    assert made.beside("b", "q/two") == (1, 2)
    made.use("a", "q/one", 2)
    assert made.beside("b", "q/two") == (0, 0)


def test_it_is_given_back_by_the_question() -> None:
    made = promised()
    made.give_back("b", "q/one", 7)
    made.give_back("a", "q/one", 6)
    assert made.beside("b", "q/two") == (3, 4)
    made.give_back("a", "q/one", 7)
    assert made.beside("b", "q/two") == (0, 0)


def test_who_asked_has_forgotten_it_or_the_query_is_gone() -> None:
    for about in ({"peer": "a"}, {"query": "q"}):
        made = promised()
        made.promise(20, "b", wanted("p/two", 9, 1, 1))
        made.forget(**about)
        assert made.beside("c", "q/three") == (1, 1)


def test_it_expires() -> None:
    made = promised()
    assert made.wake_at_us() == 10 + PROMISED_US
    made.expire(9 + PROMISED_US)
    assert made.beside("b", "q/two") == (3, 4)
    made.expire(10 + PROMISED_US)
    assert made.beside("b", "q/two") == (0, 0)
