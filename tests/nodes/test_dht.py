"""Parts of the catalog between participants: the table against brute force, searches, questions, shelves."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.members import FEDERATION, Key, verify
from medusa.errors import RemoteProtocolError
from medusa.nodes.dht.requests import DhtRequests
from medusa.nodes.dht.routing_table import BUCKET, SPARE, RoutingTable, place_of
from medusa.nodes.dht.search import ALPHA, CANDIDATES_MAX, REPLICAS, WIDE, DhtSearch
from medusa.nodes.dht.storage import DhtStorage, StorageQuota
from medusa.wire.dht_entry import DhtEntry, sign_entry
from medusa.wire.messages.dht import DhtFound, DhtStored
from medusa.wire.outbox import Outbox, Send

PLACES = st.integers(0, (1 << 160) - 1) | st.integers(0, 300)


@settings(max_examples=60, deadline=None)
@given(PLACES, st.lists(PLACES, max_size=60), st.lists(PLACES, min_size=1, max_size=5), st.integers(1, 12))
def test_the_closest_are_those_that_brute_force_finds(me, places, targets, count):
    table = RoutingTable(me)
    kept = {}
    for place in places:
        if table.heard(str(place), place):
            kept[str(place)] = place
    assert sorted(kept) == sorted(table.names())
    for target in targets:
        expected = sorted((place ^ target, name) for name, place in kept.items())[:count]
        assert table.closest(target, count) == expected


def test_a_full_bucket_keeps_whom_it_knows_and_remembers_some_others():
    table = RoutingTable(0)
    names = [f"{number:02}" for number in range(BUCKET + SPARE + 3)]
    new = [table.heard(name, (1 << 159) + number) for number, name in enumerate(names)]
    assert new == [True] * BUCKET + [False] * (SPARE + 3)
    assert not table.room_for((1 << 159) + 99)
    for name in names[:BUCKET]:
        assert table.gone(name, (1 << 159) + int(name))
    assert table.names() == names[: -BUCKET - 1 : -1], "who was heard last comes first"
    assert not table.gone("00", 1 << 159)


def test_a_search_asks_few_at_once_and_ends_when_the_nearest_have_answered():
    search = DhtSearch(0, "", deadline_us=1, then=print)
    for distance in range(10, 0, -1):
        search.add(f"m{distance}", distance, 1)
    asked = search.next()
    assert asked == ["m1", "m2", "m3"][:ALPHA]
    assert search.next() == []
    search.failed("m1")
    assert search.next() == ["m4"]
    depth = search.answered("m2")
    search.add("nearer", 0, depth)
    for member in ("m3", "m4"):
        search.answered(member)
    assert search.next() == ["nearer"]
    assert not search.done
    search.answered("nearer")
    assert search.done
    found = search.found()
    assert (found.nearest, found.hops, found.asked) == (("nearer", "m2", "m3"), 2, 5)
    assert found.whole


def test_a_search_goes_on_without_who_is_slow_and_waits_where_there_is_nobody_else():
    search = DhtSearch(0, "", deadline_us=1, then=print)
    for distance in range(4):
        search.add(f"m{distance}", distance, 1)
    assert search.next() == ["m0", "m1", "m2"]
    search.slow("m0")
    assert search.next() == ["m3"]
    for member in ("m1", "m2", "m3"):
        assert not search.done
        search.answered(member)
    assert search.done
    search.answered("m0")
    assert search.found().nearest == ("m0", "m1", "m2"), "its answer still counts"
    alone = DhtSearch(0, "", deadline_us=1, then=print)
    alone.add("m1", 1, 1)
    assert alone.next() == ["m1"]
    alone.slow("m1")
    assert not alone.done
    alone.failed("m1")
    assert alone.done


def test_more_are_asked_before_it_is_said_that_there_is_nothing():
    search = DhtSearch(0, "a/b", deadline_us=1, then=print)
    for distance in range(10):
        search.add(f"m{distance}", distance, 1)
    answered = 0
    while asked := search.next():
        for member in asked:
            search.answered(member)
            answered += 1
    assert answered == WIDE > REPLICAS
    assert search.done


def test_who_names_thousands_is_not_followed_without_end():
    search = DhtSearch(0, "", deadline_us=1, then=print)
    for distance in range(10 * CANDIDATES_MAX):
        search.add(f"m{distance}", distance, 1)
    assert not search.knows(f"m{CANDIDATES_MAX}")
    assert search.knows(f"m{CANDIDATES_MAX - 1}")


def test_a_question_is_said_again_and_then_given_up():
    outbox, gone, told = Outbox(), [], []
    requests = DhtRequests(outbox, timeout_us=10, tries=2, gone=lambda now_us, peer: gone.append(peer))
    requests.find(0, "a", 7, "x/y", lambda now_us, answer: told.append((now_us, answer)))
    assert requests.wake_at_us() == 10
    requests.tick(10)
    requests.tick(20)
    sent = [each.message for each in outbox.take() if isinstance(each, Send)]
    assert len(sent) == 2
    assert sent[0] == sent[1]
    assert (gone, told, len(requests)) == (["a"], [(20, None)], 0)
    assert not requests.answered(21, "a", DhtFound(request=sent[0].request)), "too late"


def test_only_who_was_asked_answers_and_what_was_asked():
    outbox, told = Outbox(), []
    requests = DhtRequests(outbox, timeout_us=10, tries=2, gone=lambda now_us, peer: None)
    requests.find(0, "a", 7, "x/y", lambda now_us, answer: told.append(answer))
    [send] = outbox.take()
    number = send.message.request
    assert not requests.answered(1, "b", DhtFound(request=number))
    assert not requests.answered(1, "a", DhtStored(request=number))
    assert not requests.answered(1, "a", DhtFound(request=number + 1))
    assert told == []
    assert requests.answered(1, "a", DhtFound(request=number))
    assert not requests.answered(1, "a", DhtFound(request=number)), "once"
    assert len(told) == 1


def data_of(sequence, name="p/s"):
    entry = DhtEntry(
        federation=FEDERATION,
        participant="p",
        epoch=1,
        sequence=sequence,
        expiry_us=1_000,
        name=name,
        kind="stream",
    )
    return sign_entry(entry, Key("p"))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 8), min_size=1, max_size=20))
def test_the_shelf_keeps_the_youngest_in_whatever_order_they_come(sequences):
    shelf = DhtStorage(
        federation=FEDERATION, key_of={"p": Key("p").key}.get, verify=verify, quota=StorageQuota()
    )
    most = -1
    for sequence in sequences:
        if sequence < most:
            with pytest.raises(RemoteProtocolError, match="of age"):
                shelf.put(data_of(sequence), 0, 0)
        else:
            shelf.put(data_of(sequence), 0, 0)
        most = max(most, sequence)
        assert shelf.answer("p/s", 0) == data_of(most)
    assert len(shelf) == 1


def test_bytes_are_counted_per_participant_and_given_back():
    one = len(data_of(0)) + 200
    quota = StorageQuota(entries=10, bytes=3 * one, lifetime_us=10_000)
    shelf = DhtStorage(federation=FEDERATION, key_of={"p": Key("p").key}.get, verify=verify, quota=quota)
    for number in range(3):
        shelf.put(data_of(0, f"p/{number}"), 0, 0)
    with pytest.raises(RemoteProtocolError, match="3 entries"):
        shelf.put(data_of(0, "p/x"), 0, 0)
    shelf.put(data_of(1, "p/0"), 0, 0)
    shelf.drop("p/1")
    shelf.put(data_of(0, "p/x"), 0, 0)
    shelf.expire(1_001)
    assert len(shelf) == 0
    assert shelf.answer("p/0", 0) == b""


def test_places_are_the_same_everywhere():
    assert place_of("alice/q.out") == 0x209D1479E97BD5298FA63DD0EAD0FBFA3BAF804F
