"""Nodes that agree under a network that loses, doubles and mixes up, and that crash, pause and mistrust.

Virtual time, one seed, one run. A write to disk takes time; a node that dies before it is done may find it on
its disk or not. What a run must never show is checked while it goes: at most one configuration for each
number, each accepted on the disks of more than half of the voters before it, and nobody who says what its
disk doesn't, or takes back what it has said.
"""

from __future__ import annotations

import heapq
import random

import msgspec

from medusa.nodes.agreement.agreement import Agreement
from medusa.nodes.catalog.catalog import Catalog
from medusa.nodes.catalog.persistence import CatalogWriter
from medusa.nodes.config.settings import Settings
from medusa.nodes.message_table import Heard
from medusa.wire.link.automaton import LinkEvent
from medusa.wire.messages.commands import Reply
from medusa.wire.messages.configuration import (
    Accept,
    Configuration,
    Prepare,
    Replicas,
    Vote,
)
from medusa.wire.outbox import Outbox, Persist, ReportLine, Send

__all__ = ["NAMES", "Trial", "first", "seeded", "takeover"]

NAMES = ("a", "b", "c", "d", "e")
QUERY = "q"


def first(voters, *, owner="a", secondaries=("b",), life=7):
    """The configuration with which a query begins."""
    replicas = Replicas(fragment="q/f", owner=owner, epoch=1, secondaries=secondaries)
    return Configuration(
        query=QUERY, number=1, coordinator=owner, voters=voters, fragments=(replicas,), life=life
    )


def takeover(me, epoch):
    """The change by which a node takes the fragment over from its owner."""

    def change(now):
        (replicas,) = now.fragments
        if replicas.owner == me:
            return None
        rest = tuple(node for node in (*replicas.secondaries, replicas.owner) if node != me)
        made = Replicas(fragment="q/f", owner=me, epoch=epoch, secondaries=rest[:2])
        return msgspec.structs.replace(now, number=now.number + 1, coordinator=me, fragments=(made,))

    return change


def voting(me, voters, epoch):
    """The change by which others vote from now on."""

    def change(now):
        (replicas,) = now.fragments
        made = msgspec.structs.replace(replicas, epoch=epoch)
        if now.voters == voters:
            return None
        return msgspec.structs.replace(now, number=now.number + 1, voters=voters, fragments=(made,))

    return change


class Actor:
    """A node: what it knows lives and dies, its disk stays."""

    def __init__(self, trial, name):
        self.trial, self.name = trial, name
        self.disk = None
        self.known = {}
        """What the disk says of the query."""
        self.down = set()
        self.paused_until = 0
        self.promised, self.accepted = {}, {}
        """Number -> the highest ballot it has said yes to, in any life."""
        self.life = 0
        self.alive = False
        self.start()

    def start(self):
        trial, name = self.trial, self.name
        self.life += 1
        self.alive, self.wake_us, self.writing, self.held = True, None, [], []
        self.lives = {}
        fresh = self.disk is None
        catalog = Catalog(name) if fresh else Catalog.from_bytes(self.disk, node=name, where="here")
        self.outbox = Outbox()
        self.saver = CatalogWriter(catalog, outbox=self.outbox, next_token=trial.token)
        self.catalog = catalog
        self.agreement = Agreement(
            trial.settings[name],
            catalog,
            outbox=self.outbox,
            saver=self.saver,
            number=trial.token,
            is_up=self.hears,
            decided=lambda now_us, old, new: trial.decided(name, old, new),
            life_of=lambda node: self.lives.get(node, 0),
        )

    def hears(self, other):
        return other == self.name or other not in self.down

    def flush(self):
        """Do what it wants done, in order."""
        trial = self.trial
        for effect in self.outbox.take():
            if isinstance(effect, Persist):
                self.writing.append(
                    (effect.token, effect.files["catalog"], dict(self.catalog.configurations))
                )
                done_us = trial.now_us + trial.disk_us()
                trial.at(max(done_us, trial.last_us.get(self.name, 0)), "written", self, effect.token)
                trial.last_us[self.name] = max(done_us, trial.last_us.get(self.name, 0))
            elif isinstance(effect, Send):
                if effect.after is not None and effect.after > self.saver.durable:
                    self.held.append(effect)
                else:
                    trial.send(self, effect.peer, effect.message)
            elif isinstance(effect, ReportLine):
                trial.lines.append((self.name, effect))
        wake_us, retry_us = self.agreement.wake_at_us(), self.saver.wake_at_us()
        if retry_us is not None and (wake_us is None or retry_us < wake_us):
            wake_us = retry_us
        if wake_us is not None and (self.wake_us is None or wake_us < self.wake_us):
            self.wake_us = max(wake_us, trial.now_us)
            trial.at(self.wake_us, "tick", self, self.wake_us)

    def written(self, token):
        found = next((write for write in self.writing if write[0] == token), None)
        if found is None:
            return
        ok = not (self.trial.chaos and self.trial.rng.random() < self.trial.disk_fails)
        self.writing.remove(found)
        if ok:
            self.kept(found)
        held, self.held = self.held, []
        for effect in held:
            if effect.after != token:
                self.held.append(effect)
            elif ok:
                self.trial.send(self, effect.peer, effect.message)
        self.saver.written(self.trial.now_us, token, ok, "" if ok else "no room")
        self.agreement.written(self.trial.now_us)
        self.flush()

    def kept(self, write):
        """A write is on disk."""
        self.disk, self.known = write[1], write[2]
        kept = self.known.get(QUERY)
        if kept is not None and kept.accepted is not None:
            self.trial.on_disk(self.name, kept.accepted)

    def crash(self):
        """It dies, and what it wanted with it. Of what was being written a part may be on disk, in order."""
        for write in self.writing[: self.trial.rng.randint(0, len(self.writing))]:
            self.kept(write)
        self.outbox.take()
        self.alive, self.writing, self.held = False, [], []
        self.trial.last_us.pop(self.name, None)


class Trial:
    """One run.

    Args:
        voters: of the first configuration.
        moving: whether voters change.
        actor: the class of the nodes.
    """

    def __init__(self, seed, *, voters=3, moving=True, actor=Actor, chaos_us=1_500_000, nodes=NAMES):
        self.rng = random.Random(seed)
        self.now_us = 0
        self.queue, self._order, self._token = [], 0, 0
        self.chaos, self.moving, self.chaos_us = True, moving, chaos_us
        self.lines = []
        self.loss = self.rng.choice((0, 0.05, 0.2, 0.4))
        self.doubled = self.rng.choice((0, 0.1, 0.3))
        self.delay_us = self.rng.choice((1_000, 20_000, 120_000))
        self.disk_most_us = self.rng.choice((0, 2_000, 30_000))
        self.disk_fails = self.rng.choice((0, 0, 0.1))
        self.last_us, self.asked = {}, {}
        self.by_number, self.accepted, self.heard, self.epoch = {}, {}, {}, 1
        self.doomed = set()
        self.settings = {
            name: Settings(name=name, listen="ipc:///x", data="x", peers={n: "" for n in nodes if n != name})
            for name in nodes
        }
        self.actors = {name: actor(self, name) for name in nodes}
        self.begin = first(nodes[:voters], secondaries=nodes[1:voters][:2])
        self.chosen = {1: self.begin}
        self.events = 0

    # --- what the world does --------------------------------------------------------------------------

    def token(self):
        self._token += 1
        return self._token

    def at(self, at_us, what, *about):
        self._order += 1
        heapq.heappush(self.queue, (at_us, self._order, what, about))

    def disk_us(self):
        return self.rng.randint(0, self.disk_most_us) if self.chaos else 500

    def send(self, sender, peer, message):
        self.said(sender, message)
        copies = 1
        if self.chaos:
            copies = (self.rng.random() >= self.loss) + (self.rng.random() < self.doubled)
        for _ in range(copies):
            delay_us = self.rng.randint(100, self.delay_us) if self.chaos else 300
            self.at(self.now_us + delay_us, "heard", self.actors[peer], sender.name, message)

    def step(self):
        """The next thing that happens."""
        at_us, _, what, about = heapq.heappop(self.queue)
        self.now_us = max(self.now_us, at_us)
        self.events += 1
        actor = about[0]
        if (not actor.alive and what != "restart") or (what in self.trouble and not self.chaos):
            return
        if actor.paused_until > self.now_us and what not in ("restart", "crash"):
            self.at(actor.paused_until, what, *about)
            return
        getattr(self, f"_{what}")(*about)
        if actor.name in self.doomed:  # Dies before it has told anybody, and others begin anew.
            self.doomed.discard(actor.name)
            self._crash(actor)
            for other in self.rng.sample(self.living(), min(2, len(self.living()))):
                self.at(self.now_us + self.rng.randint(0, self.delay_us), "propose", other)
        elif actor.alive:
            actor.flush()

    def _heard(self, actor, peer, message):
        if isinstance(message, Reply):
            actor.agreement.answered(self.now_us, peer, message)
        else:
            actor.agreement.receive(Heard(self.now_us, peer, message, None))

    def _tick(self, actor, at_us):
        if actor.wake_us == at_us:
            actor.wake_us = None
        actor.saver.tick(self.now_us)
        actor.agreement.tick(self.now_us)

    def _written(self, actor, token):
        actor.written(token)

    def _crash(self, actor):
        actor.crash()
        self.at(self.now_us + self.rng.randint(1_000, 400_000), "restart", actor)

    def _restart(self, actor):
        if not actor.alive and actor.name not in self.gone:
            actor.start()
            for name, other in self.actors.items():
                if name != actor.name and other.alive:
                    self._see(other, actor.name, up=True)
                    self._see(actor, name, up=True)

    def _pause(self, actor, for_us):
        actor.paused_until = self.now_us + for_us

    def _see(self, actor, other, *, up):
        """It hears another one again, or no more, rightly or wrongly."""
        actor.down.discard(other) if up else actor.down.add(other)
        if up:
            actor.lives[other] = self.actors[other].life
        event = LinkEvent.PEER_UP if up else LinkEvent.PEER_DOWN
        actor.agreement.peer_event(self.now_us, other, event)
        actor.flush()

    def _mistrust(self, actor, other, up):
        self._see(actor, other, up=up)

    def _propose(self, actor):
        now = actor.agreement.current(QUERY)
        if now is None or actor.name not in now.voters:
            return
        self.epoch += 1
        owner = now.fragments[0].owner
        if (self.moving and self.rng.random() < 0.4) or owner == actor.name:
            few = self.rng.randint(2, len(self.actors)) if self.moving else len(now.voters)
            names = list(self.actors) if self.moving else list(now.voters)
            change = voting(actor.name, tuple(self.rng.sample(names, few)), self.epoch)
        else:
            change = takeover(actor.name, self.epoch)
        suspects = ()
        if owner != actor.name and self.rng.random() < 0.3:
            suspects = (owner,)
            for other in self.living() if self.rng.random() < 0.7 else ():
                if other.name != owner:
                    self._see(other, owner, up=False)
        actor.agreement.propose(self.now_us, QUERY, change, suspects=suspects)

    def _withdraw(self, actor):
        actor.agreement.withdraw(QUERY)

    # --- what must hold -------------------------------------------------------------------------------

    def decided(self, name, old, new):
        """Told by a node: it takes this configuration for decided."""
        if new.number > 1:
            chosen = self.chosen.get(new.number)
            assert chosen is not None, f"number {new.number} is decided too early"
            assert chosen == new, f"two configurations of number {new.number}"
        first = new.number not in self.by_number
        assert self.by_number.setdefault(new.number, new) == new
        if self.chaos and first and old is not None and self.rng.random() < 0.3:
            self.doomed.add(name)

    def on_disk(self, name, accepted):
        """A node has accepted this. What more than half of the voters have in one ballot is chosen, whether
        anybody knows it or not."""
        configuration = accepted.configuration
        number = configuration.number
        by = self.accepted.setdefault((number, accepted.ballot), set())
        by.add(name)
        voters = self.chosen[number - 1].voters if number - 1 in self.chosen else ()
        if len(by.intersection(voters)) >= len(voters) // 2 + 1:
            same = self.chosen.setdefault(number, configuration)
            assert same == configuration, f"two configurations of number {number} are chosen"

    def said(self, sender, message):
        """What a node says stands on its disk, and doesn't contradict what it said before."""
        if isinstance(message, Prepare | Accept):
            self.asked[message.request] = message
        elif isinstance(message, Vote) and not message.code:
            self.voted(sender, message)
        else:
            return
        configuration = message.configuration if isinstance(message, Accept) else None
        number = message.number if configuration is None else configuration.number
        kept = sender.known.get(QUERY)
        assert kept is not None, f"{sender.name} speaks of what isn't on its disk"
        if kept.current.number >= number:
            return
        text = f"{sender.name} says {message.ballot} of {number}, on its disk is {kept.promised}"
        assert kept.promised is not None, text
        assert kept.promised >= message.ballot, text
        if isinstance(message, Accept):
            same = self.heard.setdefault((number, message.ballot), configuration)
            assert same == configuration, f"two proposals in ballot {message.ballot} of {number}"

    def voted(self, sender, vote):
        """A yes doesn't take back an earlier one, in whatever life that was said."""
        number, ballot = vote.number, vote.ballot
        if isinstance(self.asked[vote.request], Prepare):
            before = sender.accepted.get(number)
            if before is not None and before < ballot:
                said = vote.accepted
                assert said is not None, f"{sender.name} has accepted {before} of {number}, and hides it"
                assert said.ballot >= before, f"{sender.name} has accepted {before}, and says {said.ballot}"
            sender.promised[number] = max(ballot, sender.promised.get(number, ballot))
        else:
            sender.accepted[number] = max(ballot, sender.accepted.get(number, ballot))

    # --- a run ----------------------------------------------------------------------------------------

    def plan(self):
        """What happens to whom, in the time of chaos."""
        rng, actors = self.rng, list(self.actors.values())
        for _ in range(rng.randint(1, 4)):  # Several at about the same time, some of whom die amid it.
            about_us = rng.randint(0, self.chaos_us)
            for actor in rng.sample(actors, rng.randint(1, 4)):
                begin_us = about_us + rng.randint(0, 2 * self.delay_us)
                self.at(begin_us, "propose", actor)
                if rng.random() < 0.3:
                    after_us = rng.randint(0, 4 * self.delay_us + 2 * self.disk_most_us)
                    self.at(begin_us + after_us, rng.choice(("crash", "withdraw")), actor)
        for _ in range(rng.randint(0, 3)):
            self.at(rng.randint(0, self.chaos_us), "crash", rng.choice(actors))
        for _ in range(rng.randint(0, 2)):
            for_us = rng.randint(10_000, 600_000)
            self.at(rng.randint(0, self.chaos_us), "pause", rng.choice(actors), for_us)
        for _ in range(rng.randint(0, 6)):
            one, other = rng.sample(actors, 2)
            self.at(rng.randint(0, self.chaos_us), "mistrust", one, other.name, rng.random() < 0.6)

    gone = ()
    trouble = ("propose", "withdraw", "crash", "pause", "mistrust")

    def heal(self):
        """From here on nothing goes wrong, and who is dead for good is known to be."""
        self.chaos = False
        actors = self.actors.values()
        newest = max(self.by_number)
        if not self.moving:
            voters = self.by_number[newest].voters
            most = (len(voters) - 1) // 2
            self.gone = tuple(self.rng.sample(list(voters), self.rng.randint(0, most)))
        for actor in actors:
            actor.paused_until = 0
            if actor.name in self.gone and actor.alive:
                actor.crash()
            elif not actor.alive and actor.name not in self.gone:
                actor.start()
        for actor in actors:
            for other in self.actors if actor.alive else ():
                if other != actor.name:
                    self._see(actor, other, up=other not in self.gone)

    def run(self):
        """Chaos, then peace; whatever was wanted is decided or given up, and all that live agree."""
        for name in self.begin.nodes():
            self.actors[name].lives = dict.fromkeys(self.actors, 1)
            self.actors[name].agreement.install(0, self.begin)
            self.actors[name].flush()
        self.plan()
        while self.queue and self.queue[0][0] <= self.chaos_us:
            self.step()
        self.heal()
        self.go(3_000_000)
        for actor in self.living():
            now = actor.agreement.current(QUERY)
            if now is not None and actor.name in now.voters:
                self.epoch += 1
                actor.agreement.propose(self.now_us, QUERY, takeover(actor.name, self.epoch))
                actor.flush()
                self.go(4_000_000)
        for actor in self.living():
            assert not actor.agreement.proposing(QUERY), f"{actor.name} is still at it"
        newest = self.by_number[max(self.by_number)]
        for node in newest.nodes():
            if node not in self.gone:
                assert self.actors[node].agreement.current(QUERY) == newest, f"{node} hasn't heard"
        return self

    def living(self):
        return [actor for actor in self.actors.values() if actor.alive]

    def go(self, for_us):
        end_us = self.now_us + for_us
        while self.queue and self.queue[0][0] <= end_us:
            self.step()
        self.now_us = end_us


def seeded(seed, actor=Actor):
    """The run of a seed."""
    return Trial(seed, voters=2 + seed % 4, moving=seed % 3 != 0, actor=actor).run()
