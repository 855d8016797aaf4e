"""A partner with keys and a signed contract says what it likes to a node that takes load for it.

Rows 2 to 8 and 16 of the table in docs/threats.md. ``m`` trades for alice and is spoken by hand, ``h`` is
bob's node, ``k`` is of carol, who has no contract. After each of them bob's node has what it had, and serves.
"""

from __future__ import annotations

import random
import signal
import time

import msgspec
import pytest

import medusa as md
from medusa.elements import END_US
from medusa.market.ledger.messages import DisputeSaid, ReceiptSaid, SettlementSaid
from medusa.market.ledger.receipts import (
    READING_CONTEXT,
    SETTLEMENT_CONTEXT,
    LoadDispute,
    LoadReading,
    LoadReceipt,
    LoadSettlement,
    SignedSettlement,
    canonical,
    refusal_bytes,
)
from medusa.market.negotiation.messages import (
    LoadAccepted,
    LoadAgreed,
    LoadEnded,
    LoadMoved,
    LoadRequest,
    LoadRuns,
    PriceSaid,
)
from medusa.market.work import TradedTask
from medusa.nodes.fragment.checkpoint_record import RECORD
from medusa.nodes.market.market_words import TaskRows, encode_word, read_traded
from medusa.nodes.spec.fragment_spec import fragment_from
from medusa.wire.messages.commands import Declare, Reply
from medusa.wire.messages.links import Attach, Boundary
from medusa.wire.messages.market import Booked, Traded
from medusa.wire.messages.move import GiveUp, Got, Move, Ready
from medusa.wire.statement import Revocation, sign
from tests.nodes.abroad.lending import HALF
from tests.system.lent_frames import FRAGMENT, lent_fragment, numbered, pieces
from tests.system.nodes import Nursery, until
from tests.system.partners import FEDERATION, NodeByHand, Partners, terms

pytestmark = pytest.mark.system

TASK = TradedTask(name=f"alice/{FRAGMENT}", owner="alice", rows_per_s_milli=10_000, cpu_ns_per_row=1_000_000)
PRICE_MICRO = 1_500_000


class Bob(Partners):
    """Bob's node, and callers that speak by hand."""

    def __init__(self, folder, contract, nursery):
        super().__init__(folder, contract, nursery)
        self.callers = []
        self.start("h")

    def by_hand(self, name, **options):
        self.callers.append(NodeByHand(self, name, "h", **options))
        return self.callers[-1]

    def alice(self):
        """Her node, once bob has told it that he has room."""
        m = self.by_hand("m").let_in()
        m.answer(Traded, lambda _, payload: _has_room(payload), what="bob has room")
        return m

    def has_refused(self, code, times=1):
        until(lambda: self.refused("h").get(code, 0) >= times, what=lambda: f"{code}, {self.refused('h')}")

    def serves(self):
        """A client of bob's deploys, publishes, reads and undeploys."""
        q = md.Query("own")
        q.sink("out", q.source("rows", {"ts": "int64"}, time="ts", unit="us").filter("ts >= 0"))
        with self.connect("h") as client:
            client.deploy(q)
            client.publish("own.rows", {"ts": list(range(100))})
            with client.subscribe("own.out", from_="oldest") as trains:
                rows = 0
                while rows < 100:
                    rows += trains.next("60s").batch.num_rows
            client.flush()
            client.undeploy("own")

    def close(self):
        for caller in self.callers:
            caller.close()
        super().close()


def _has_room(payload):
    word = read_traded("h", payload)
    return isinstance(word, PriceSaid) and word.units_per_s_milli > 0


@pytest.fixture(scope="module")
def nursery():
    made = Nursery()
    yield made
    made.close()


@pytest.fixture
def bob(tmp_path, nursery):
    made = Bob(tmp_path, terms(), nursery)
    yield made
    print(f"--- the log of h ends with\n{made.log('h')[-4000:]}")
    made.close()


def request(number, *tasks, **changes):
    about = {"contract": "sold", "version": 1, "price_micro": PRICE_MICRO, "within_us": 5_000_000}
    return LoadRequest(**{**about, **changes}, negotiation=number, tasks=tasks or (TASK,))


def trade(node, word):
    node.say(Traded(request=node.number()), encode_word(word))


def book(node, word):
    node.say(Booked(request=node.number()), encode_word(word))


def heard(node, kind, number):
    """The word of a negotiation that bob says."""

    def is_it(_, payload):
        word = read_traded("h", payload)
        return isinstance(word, kind) and word.negotiation == number

    return read_traded("h", node.answer(Traded, is_it, what=f"{kind} of {number}")[1])


def agreed(bob, node, number=1):
    """Bob keeps room for the task, and permits it."""
    trade(node, request(number))
    found = heard(node, LoadAgreed, number)
    until(lambda: permitted(bob), what="a permit")
    return found


def permitted(bob):
    """Whether the fragment may come."""
    found = bob.catalog("h").permits.into.get(FRAGMENT)
    return found is not None and not found.ended


def asked(node, message, payload=None):
    """The answer to a question."""
    question = numbered(message, node.number())
    node.say(question, payload)
    return node.answer(Reply, lambda reply, _: reply.request == question.request)[0]


def changed_by(bob, act):
    """What an act changed of what bob has."""
    before = bob.state("h")
    act()
    after = bob.state("h")
    return {name for name, value in before.items() if after[name] != value}


# --- 2: forged ----------------------------------------------------------------------------------------------


def test_who_takes_a_partners_name_is_refused(bob):
    before = bob.state("h")
    k = bob.by_hand("k", claims="m")
    trade(k, request(1))
    bob.has_refused("E_IDENTITY")
    assert bob.state("h") == before
    bob.serves()


def signatures(bob, owner, context, data):
    return bob.signer(owner).sign(context + data)


def reading(**changes):
    about = {"federation": FEDERATION, "contract": "sold", "version": 1, "number": 0, "interval": 0}
    parties = {"provider": "bob", "consumer": "alice"}
    return LoadReading(**{**about, **parties, "tasks": (), "amount_micro": 0, "total_micro": 0, **changes})


def receipt(bob, *signers, **changes):
    """A receipt that these two have signed in place of bob and alice."""
    data = canonical(reading(**changes))
    first, second = (signatures(bob, each, READING_CONTEXT, data) for each in signers)
    signed = {"provider_signature": first, "consumer_signature": second}
    return ReceiptSaid(contract="sold", receipt=LoadReceipt(reading=data, **signed))


def dispute(bob, consumer):
    """Of a reading that bob never made."""
    data = canonical(reading())
    said = LoadDispute(
        reading=data,
        provider_signature=signatures(bob, "carol", READING_CONTEXT, data),
        code="E_BILLING",
        consumer_signature=signatures(bob, consumer, b"", refusal_bytes(data, "E_BILLING")),
    )
    return DisputeSaid(contract="sold", dispute=said)


def settlement(bob, provider, consumer):
    """All was paid, it says."""
    data = canonical(
        LoadSettlement(
            federation=FEDERATION,
            contract="sold",
            provider="bob",
            consumer="alice",
            currency="EUR",
            number=0,
            first=0,
            through=0,
            total_micro=0,
            breaches_micro=0,
            due_micro=0,
        )
    )
    signed = SignedSettlement(
        settlement=data,
        provider_signature=signatures(bob, provider, SETTLEMENT_CONTEXT, data),
        consumer_signature=signatures(bob, consumer, SETTLEMENT_CONTEXT, data),
    )
    return SettlementSaid(contract="sold", settlement=signed)


def test_what_others_signed_in_our_name_is_no_receipt(bob):
    m = bob.alice()
    forged = (
        receipt(bob, "alice", "alice"),
        receipt(bob, "carol", "alice"),
        dispute(bob, "alice"),
        settlement(bob, "alice", "alice"),
    )

    def forge():
        for number, word in enumerate(forged, 1):
            book(m, word)
            bob.has_refused("E_IDENTITY", number)

    assert changed_by(bob, forge) == set()
    bob.serves()


# --- 3: replayed --------------------------------------------------------------------------------------------


def test_a_word_that_comes_again_has_one_effect_also_after_a_restart(bob):
    m = bob.alice()
    first = agreed(bob, m)

    def again():
        for _ in range(3):
            trade(m, request(1))
            found = heard(m, LoadAgreed, 1)
            assert msgspec.structs.replace(found, within_us=first.within_us) == first

    assert changed_by(bob, again) == set()
    bob.kill("h")
    bob.start("h")
    m.let_in()
    assert changed_by(bob, again) == set()
    trade(m, LoadEnded(contract="sold", version=1, negotiation=1, code="E_WITHDRAWN"))
    until(lambda: not bob.catalog("h").permits.into, what="the permit ends")

    def too_late():
        trade(m, request(1))
        assert heard(m, LoadEnded, 1).code == "E_WITHDRAWN"
        trade(m, LoadMoved(contract="sold", version=1, negotiation=1, tasks=(TASK.name,)))
        assert heard(m, LoadEnded, 1).code == "E_LATE"

    assert changed_by(bob, too_late) == set()
    bob.serves()


# --- 4: for others ------------------------------------------------------------------------------------------


def test_a_receipt_for_others_counts_nothing(bob):
    m = bob.alice()
    others = ({"federation": "other"}, {"contract": "else"}, {"consumer": "carol"}, {"provider": "alice"})

    def say():
        for number, changes in enumerate(others, 1):
            book(m, receipt(bob, "bob", "alice", **changes))
            bob.has_refused("E_AUDIENCE", number)

    assert changed_by(bob, say) == set()
    bob.serves()


# --- 5: revoked ---------------------------------------------------------------------------------------------


def test_a_partners_revoked_key_ends_its_link(bob):
    m = bob.alice()
    agreed(bob, m)
    stolen = Revocation(
        federation=FEDERATION,
        participant="alice",
        recipient="",
        epoch=1,
        sequence=1,
        expiry_us=1 << 60,
        key=bob.public("m"),
    )

    def revoke():
        m.say(Declare(request=m.number(), statement=sign(stolen, bob.signer("alice")).to_bytes()))
        with bob.connect("h") as client:
            until(lambda: client.status()["peers"]["m"] != "up", what="its link is cut")
        m.forget()
        trade(m, request(2))
        bob.serves()
        assert not [word for word, _ in m.heard if isinstance(word, Traded)]

    assert changed_by(bob, revoke) == set()


# --- 6: no contract -----------------------------------------------------------------------------------------


def moves():
    """All of a handover that another participant's node may begin with."""
    lent = lent_fragment()
    return (lent.asks, None), (lent.follows, None), (lent.owns, None)


def test_who_has_no_contract_is_refused_whatever_it_says(bob):
    k = bob.by_hand("k").let_in()

    def say():
        trade(k, request(1))
        book(k, receipt(bob, "bob", "carol", consumer="carol"))
        for message, payload in moves():
            assert asked(k, message, payload).code == "E_NO_CONTRACT"
        until(lambda: k.codes.count("E_NO_CONTRACT") == 5, what="each is refused")

    assert changed_by(bob, say) == set()
    bob.serves()


def test_a_contract_alone_lets_nothing_come_that_was_not_agreed(bob):
    m = bob.alice()

    def say():
        for message, payload in moves():
            assert asked(m, message, payload).code == "E_NO_CONTRACT"
        m.say(lent_fragment().seed, lent_fragment().spec)
        bob.has_refused("E_NO_CONTRACT", 4)
        trade(m, LoadMoved(contract="sold", version=1, negotiation=9, tasks=(TASK.name,)))
        assert heard(m, LoadEnded, 9).code == "E_LATE"

    assert changed_by(bob, say) == set()
    bob.serves()


def test_under_a_contract_that_has_ended_nothing_is_taken(bob):
    m = bob.alice()
    agreed(bob, m)
    bob.put("sold.revoked", bob.revoked("bob"), "bob")
    bob.processes["h"].send_signal(signal.SIGHUP)
    assert heard(m, LoadEnded, 1).code == "E_ENDED"
    until(lambda: not bob.catalog("h").permits.into, what="the permit ends")

    def say():
        trade(m, request(2))
        assert heard(m, LoadEnded, 2).code == "E_NO_CONTRACT"
        for message, payload in moves():
            assert asked(m, message, payload).code == "E_NO_CONTRACT"

    assert changed_by(bob, say) == set()
    bob.serves()


# --- 7: outside of a contract -------------------------------------------------------------------------------


def task(**changes):
    return (msgspec.structs.replace(TASK, **changes),)


OUTSIDE = (
    ({"price_micro": 2_000_001}, "E_PRICE"),
    ({"price_micro": 999_999}, "E_PRICE"),
    ({"version": 2}, "E_NO_CONTRACT"),
    ({"contract": "other"}, "E_NO_CONTRACT"),
    ({"tasks": task(rows_per_s_milli=1_001_000)}, "E_OVER_LIMIT"),
    ({"tasks": task(rows_per_s_milli=0)}, "E_OVER_LIMIT"),
    ({"tasks": task(owner="bob")}, "E_TASK_NOT_ALLOWED"),
    ({"tasks": task(owner="carol")}, "E_POLICY"),
)
"""What of a request isn't by the contract, and how that is called."""


def test_a_request_outside_of_the_contract_is_refused_by_name(bob):
    m = bob.alice()

    def say():
        for number, (wrong, code) in enumerate(OUTSIDE, 1):
            trade(m, msgspec.structs.replace(request(number), **wrong))
            assert heard(m, LoadEnded, number).code == code, wrong

    assert changed_by(bob, say) == set()
    bob.serves()


def test_a_negative_load_is_no_word_at_all(bob):
    m = bob.alice()
    payload = encode_word(request(1, msgspec.structs.replace(TASK, rows_per_s_milli=4_660)))
    assert payload.count(b"\xcd\x12\x34") == 1

    def say():
        m.say(Traded(request=m.number()), payload.replace(b"\xcd\x12\x34", b"\xd1\xff\x00"))
        bob.has_refused("E_FRAME")

    assert changed_by(bob, say) == set()
    bob.serves()


def test_an_agreement_that_was_not_offered_closes_nothing(bob):
    m = bob.alice()
    agreed(bob, m)

    def say():
        trade(
            m,
            LoadMoved(contract="sold", version=1, negotiation=1, tasks=(TASK.name, "alice/q/other")),
        )
        bob.has_refused("E_TASK_NOT_ALLOWED")
        trade(m, LoadAccepted(contract="sold", version=1, negotiation=7, tasks=(TASK.name,), price_micro=1))
        assert heard(m, LoadEnded, 7).code == "E_LATE"

    assert changed_by(bob, say) == set()
    bob.serves()


def follows(node):
    """Bob's node is told of the fragment that it may follow."""
    lent = lent_fragment()
    assert asked(node, lent.asks).code == ""
    assert asked(node, lent.follows).code == ""


def seeded(node, attempt, spec=None):
    """Bob's answer to what he is to run."""
    lent = lent_fragment()
    node.say(msgspec.structs.replace(lent.seed, attempt=attempt), lent.spec if spec is None else spec)
    return node.answer((Ready, GiveUp), lambda message, _: message.attempt == attempt)[0]


@pytest.mark.parametrize("what", ["boxes", "streams", "columns"])
def test_a_fragment_that_the_contract_does_not_allow_is_not_run(tmp_path, nursery, what):
    allowed = {"boxes": ("filter",), "streams": ("q.first", "p.*"), "columns": ("ts", "v")}[what]
    contract = terms()
    narrow = msgspec.structs.replace(contract.tasks, **{what: allowed})
    bob = Bob(tmp_path, msgspec.structs.replace(contract, tasks=narrow), nursery)
    try:
        m = bob.alice()
        agreed(bob, m)
        follows(m)

        def say():
            refused = seeded(m, 1)
            assert isinstance(refused, GiveUp)
            assert refused.code == "E_OFFER", refused

        assert changed_by(bob, say) == set()
        bob.serves()
    finally:
        bob.close()


def test_another_fragment_than_was_agreed_on_is_not_run(bob):
    m = bob.alice()
    agreed(bob, m)
    follows(m)
    spec = fragment_from(lent_fragment().spec)

    def say():
        strange = [
            msgspec.structs.replace(spec, node="k"),
            msgspec.structs.replace(spec, readers={"kind-out": ("x",)}),
            msgspec.structs.replace(spec, method="amnesia"),
        ]
        for attempt, each in enumerate(strange, 1):
            refused = seeded(m, attempt, each.packed)
            assert isinstance(refused, GiveUp)
            assert refused.code in ("E_SPEC", "E_PEER"), refused

    assert changed_by(bob, say) == set()
    bob.serves()


# --- 8: unpaid ----------------------------------------------------------------------------------------------


def hands_over(bob, m):
    """Bob's node runs the fragment, as its owner's nodes say by hand."""
    lent = lent_fragment()
    agreed(bob, m)
    follows(m)
    ready = seeded(m, 1)
    assert isinstance(ready, Ready), ready
    for message, payload in pieces(lent.files, 1, ready.ticket):
        m.say(message, payload)
    m.answer(Got, lambda each, _: each.opened, what="it is opened")
    assert asked(m, lent.is_fed).code == ""
    assert asked(m, lent.owns).code == ""
    trade(m, LoadMoved(contract="sold", version=1, negotiation=1, tasks=(TASK.name,)))
    heard(m, LoadRuns, 1)


def has_rows(e, count):
    """The node whose stream bob's node reads: so many frames of rows."""
    lent = lent_fragment()
    attach, _ = e.answer(Attach, what="bob reads")
    e.say(msgspec.structs.replace(lent.attached, epoch=attach.epoch, next_seq=HALF))
    message, payload = lent.rows
    for number in range(count):
        seq = HALF + number * message.rows
        e.say(msgspec.structs.replace(message, epoch=attach.epoch, frame=number + 1, seq=seq), payload)
    return HALF + count * message.rows


def test_who_signs_nothing_is_given_its_load_back_and_gets_no_more(bob):
    m, e = bob.alice(), bob.by_hand("e").let_in()
    hands_over(bob, m)
    end = has_rows(e, 20)
    rows = TaskRows(contract="sold", negotiation=1, task=TASK.name, begin_row=HALF)
    book(m, rows)
    worth = (end - HALF) * TASK.cpu_ns_per_row * PRICE_MICRO // 10**9

    def exposed():
        with bob.connect("h") as client:
            [contract] = client.status()["market"]["contracts"]
        return contract["exposure_micro"]

    until(lambda: exposed() == worth, what=lambda: f"{worth} isn't receipted, {exposed()}")
    # He asks her to take it back, again and again, and turns it out once he has kept it as was agreed.
    m.answer(Move, lambda each, _: each.fragment == FRAGMENT, what="bob gives it back")
    until(lambda: not bob.catalog("h").permits.into, what="it is turned out")
    state = bob.state("h")
    assert state["fragments"] == state["on disk"] == state["configurations"] == []
    assert state["tasks"] == [[], []]
    assert state["contract"]["receipts"] == state["contract"]["owed_micro"] == 0
    trade(m, request(2))
    assert heard(m, LoadEnded, 2).code == "E_POLICY", "nothing more before that is signed"
    bob.serves()


def test_who_says_that_it_pays_from_later_on_is_refused(bob):
    m, e = bob.alice(), bob.by_hand("e").let_in()
    hands_over(bob, m)
    end = has_rows(e, 20)

    def say():
        for row in (end + 1, 1 << 60):
            book(m, TaskRows(contract="sold", negotiation=1, task=TASK.name, begin_row=row))
        bob.has_refused("E_BILLING", 2)

    assert changed_by(bob, say) == set()
    bob.serves()


# --- 16: poisoned time --------------------------------------------------------------------------------------


def test_times_that_a_guest_is_told_move_nothing_else(bob):
    """Beyond all boundaries, and back: the link ends. As far ahead as may be: the guest's time alone."""
    m, e = bob.alice(), bob.by_hand("e").let_in()
    q = md.Query("own")
    per = q.source("rows", {"ts": "int64"}, time="ts", unit="us").window("10us").aggregate(n=md.count())
    q.sink("out", per)
    with bob.connect("h") as client:
        client.deploy(q)
        client.publish("own.rows", {"ts": list(range(25))})
        hands_over(bob, m)
        attach, _ = e.answer(Attach, what="bob reads")
        before = bob.state("h")

        def boundary(frame, time_us):
            e.say(Boundary(stream=attach.stream, epoch=attach.epoch, frame=frame, seq=HALF, time_us=time_us))

        e.say(msgspec.structs.replace(lent_fragment().attached, epoch=attach.epoch, next_seq=HALF))
        boundary(1, END_US - 1)
        boundary(2, END_US - 2)
        until(lambda: "E_BOUNDARY" in e.codes, what="it went back")
        boundary(3, END_US + 1)
        until(lambda: client.status()["peers"]["e"] != "up", what="its link ends")
        after = bob.state("h")
        changed = {name for name, value in before.items() if after[name] != value}
        assert changed <= {"deals", "moved", "tasks"}, "it is a guest by now"
        with client.subscribe("own.out", from_="oldest") as trains:
            got = []
            while len(got) < 2:
                got += trains.next("60s").batch.column("n").to_pylist()
        assert got == [10, 10], "windows of his own close by his own rows"
        client.undeploy("own")


# --- poisoned state -----------------------------------------------------------------------------------------


def wounded(dice, files):
    """The files of a checkpoint with a few bits of one turned, a piece missing, twice or of another."""
    made = dict(files)
    name = dice.choice([each for each in made if made[each]])
    data = bytearray(made[name])
    kind = dice.random()
    if kind < 0.7:
        for _ in range(dice.choice([1, 1, 1, 2, 8])):
            data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    elif kind < 0.8:
        del data[dice.randrange(len(data)) :]
    elif kind < 0.9:
        at = dice.randrange(len(data))
        data[at : at + 8] = dice.choice(
            [b"\xff" * 8, b"\x00" * 8, b"\x7f" + b"\xff" * 7, b"\x80" + b"\0" * 7]
        )
    else:
        data = bytearray(dice.choice([each for each in files.values() if each]))
    made[name] = bytes(data)
    return made


def impossible(dice, files):
    """The files of a checkpoint that is whole, and says something that no fragment has."""
    record = msgspec.msgpack.decode(files[RECORD])
    [first, *_] = record["inputs"]
    kind = dice.choice(["next_seq", "shed", "acknowledged", "places"])
    if kind == "places":
        rows = dice.choice([{"p" * 5_000: 3}, {"q/kind.s": -3}, {"q/kind.s": 1 << 62}])
        record["shed"] = {first["source"]: rows}
    else:
        first[kind] = dice.choice([-7, 1 << 62, (1 << 63) - 1])
    return files | {RECORD: msgspec.msgpack.encode(record)}


def agreed_again(bob, node, number):
    """As ``agreed``, where another agreement may not be over yet; the number by which bob agrees."""
    while True:
        trade(node, request(number))
        found = heard(node, LoadAgreed | LoadEnded, number)
        if isinstance(found, LoadAgreed):
            until(lambda: permitted(bob), what="a permit")
            return number
        assert found.code == "E_BUSY", found
        number += 1


ROOM_S = 15
"""Bob keeps room for 30 s. If nothing came by then he takes nothing for a while, twice as long each time."""


def withdrawn(bob, node, number):
    """Nothing comes by what was agreed."""
    trade(node, LoadEnded(contract="sold", version=1, negotiation=number, code="E_WITHDRAWN"))
    until(lambda: not permitted(bob), what="the permit ends")


def feed(node, attempt, ticket, frame):
    """Rows into what was opened: no reader of its state may go beyond what it has. They are counted, or what
    follows fails."""
    for number, (fed, payload) in enumerate(lent_fragment().fed, frame):
        about = {"attempt": attempt, "ticket": ticket, "frame": number}
        node.say(msgspec.structs.replace(fed, **about), payload)
    last = frame + len(lent_fragment().fed)
    node.answer(
        (Got, GiveUp),
        lambda each, _: each.attempt == attempt and (isinstance(each, GiveUp) or each.frames >= last),
        what=f"what comes of rows for attempt {attempt}",
    )


def poison(bob, first, count):
    """So many wounded checkpoints; how many were refused, and how many could be followed."""
    m = bob.alice()
    ends = {"refused": 0, "followed": 0}
    lent, number, agreed_s = lent_fragment(), 0, 0.0
    for attempt in range(first, first + count):
        dice = random.Random(f"poison {attempt}")
        if number and time.monotonic() > agreed_s + ROOM_S:
            withdrawn(bob, m, number)
        while not isinstance(ready := seeded(m, attempt) if number else None, Ready):
            # The room that was kept for it is over after a while.
            assert ready is None or ready.code in ("E_NO_CONTRACT", "E_BUSY", "E_ROLE"), ready
            is_first, number = not number, agreed_again(bob, m, number + 1)
            agreed_s = time.monotonic()
            if is_first:
                follows(m)
        is_possible = dice.random() < 0.9
        files = wounded(dice, lent.files) if is_possible else impossible(dice, lent.files)
        for message, payload in pieces(files, attempt, ready.ticket):
            m.say(message, payload)
        end, _ = m.answer(
            (Got, GiveUp),
            lambda each, _, attempt=attempt: (
                each.attempt == attempt and (isinstance(each, GiveUp) or each.opened)
            ),
            what=f"what comes of attempt {attempt}",
        )
        if isinstance(end, Got):
            assert is_possible, f"attempt {attempt} says what no fragment has"
            ends["followed"] += 1
            feed(m, attempt, ready.ticket, end.frames)
        else:
            assert end.code in ("E_STATE", "E_FAILED"), end
            ends["refused"] += 1
        m.forget()
    return ends


def check_poison(bob, first, count):
    before = bob.state("h")
    ends = poison(bob, first, count)
    after = bob.state("h")
    changed = {name for name, value in before.items() if after[name] != value}
    assert changed <= {"permits", "deals", "configurations"}, "what was agreed, and nothing that was sent"
    assert after["contract"]["receipts"] == after["contract"]["owed_micro"] == 0
    assert ends["refused"] > count // 2
    bob.serves()  # Nobody starts a node again that ended.


def test_poisoned_state_is_refused_and_harms_nothing(bob):
    check_poison(bob, 1, 100)


@pytest.mark.full
@pytest.mark.issue(21)
@pytest.mark.parametrize("block", range(100))
def test_ten_thousand_poisoned_states(bob, block):
    """In pieces, so that it shows how far it is, and goes on where it was stopped."""
    check_poison(bob, 1_000 + 100 * block, 100)
