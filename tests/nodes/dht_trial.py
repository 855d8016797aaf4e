"""The catalog between participants under churn, replays, forgeries and liars: what is wrong in the end."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from bench.members import SECOND_US, Churn, Members, forged
from medusa.nodes.dht.member import DhtMember, DhtSettings
from medusa.wire.dht_entry import opened_entry
from medusa.wire.messages.dht import DhtFind, DhtFound, DhtStore

QUICK = DhtSettings(round_us=2_000_000, republish_us=20_000_000)


class Liar(DhtMember):
    """Names nobody, and shows of each name the first entry that it saw, or a forged younger one."""

    first: dict[str, bytes]
    keys: dict[str, str]
    forges = False

    def receive(self, now_us, peer, message):
        if isinstance(message, DhtStore):
            self.first.setdefault(opened_entry(message.entry)[1].name, message.entry)
        if not isinstance(message, DhtFind):
            super().receive(now_us, peer, message)
            return
        data = self.first.get(message.name, b"")
        if data and self.forges:
            entry = opened_entry(data)[1]
            younger = msgspec.structs.replace(entry, sequence=entry.sequence + 1_000)
            data = forged(younger, self.keys[entry.participant])
        self._outbox.send(peer, DhtFound(request=message.request, members=(), entry=data))


def trial(count=100, *, seed=1, liars=2, calm_rounds=4):
    """(what is wrong, the members): some time of churn, then rounds of calm, then everybody looks up."""
    bad = [f"m{7 + 31 * number}" for number in range(liars)] if liars else []
    first: dict[str, bytes] = {}

    def make(name, **given):
        if name not in bad:
            return DhtMember(name, **given)
        liar = Liar(name, **given)
        liar.first, liar.keys, liar.forges = first, members.registered, name == bad[0]
        return liar

    members = Members(count, seed=seed, settings=QUICK, make=make, stays=bad)
    members.build()
    old = dict(members.truth)
    _publish_again(members, count)
    members.churn_is(Churn(life_s=60.0, away_s=10.0, loss_permille=5))
    for _ in range(3):
        members.look_ups(20, 5)
        _publish_again(members, count // 4)
    members.churn_is(replace(members.churn, life_s=0.0, loss_permille=0))
    for name in members.names:  # They come back.
        if name not in members.up:
            members.start(name)
    for _ in range(calm_rounds):
        members.run(members.now_us + QUICK.round_us)
    _replay(members, old, bad)
    wrong = list(members.broken)
    wrong += _looked_up(members, bad)
    for full in members.truth:
        holders = [name for name in members.holders(full) if name not in bad]
        missing = [name for name in holders if name not in members.held_by(full)]
        if len(missing) > 1:
            wrong.append(f"{full} is not held by {missing}")
    return wrong, members


def _publish_again(members, count):
    there = [name for name in members.names if name in members.up]
    for name in there[:count]:
        members.publish(name)
    members.run(members.now_us + SECOND_US)


def _replay(members, old, bad):
    """Somebody brings again what owners signed long ago, and what they never signed."""
    source = bad[0] if bad else members.names[-1]
    for full, (_, data) in old.items():
        entry = opened_entry(data)[1]
        younger = msgspec.structs.replace(entry, sequence=entry.sequence + 500)
        for target in members.holders(full):
            if target not in bad:
                members.say(source, target, DhtStore(request=0, entry=data))
                members.say(
                    source,
                    target,
                    DhtStore(request=0, entry=forged(younger, members.registered[entry.participant])),
                )
    members.run(members.now_us + SECOND_US // 2)


def _looked_up(members, bad):
    wrong = []
    asking = [name for name in members.names if name in members.up and name not in bad]
    for number, full in enumerate(members.truth):
        if sum(name in bad for name in members.holders(full)) > 1:
            continue  # More than one among three lies.

        def told(answer, full=full):
            if answer.data != members.truth[full][1]:
                wrong.append(f"{full}: {answer.age}, it is {members.truth[full][0]}")

        members.look_up(asking[number * 7 % len(asking)], full, told)
    members.run(members.now_us + 2 * QUICK.deadline_us)
    return wrong
