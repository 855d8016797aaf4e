"""Nodes with keys, without sockets: who signs and who is who."""

from __future__ import annotations

from hashlib import blake2b

from medusa.nodes.catalog.catalog import CATALOG, Catalog
from medusa.nodes.config.settings import Limits, Settings
from medusa.nodes.config.settings_security import ClientRules, PeerKey, Security
from medusa.nodes.node import NodeMind
from medusa.nodes.reports import Logged, Persisted, Started, Surroundings
from medusa.query.codec import graph_to_msgpack
from medusa.wire.limits import PROTOCOL_VERSION
from medusa.wire.messages.commands import Declare, Deploy, Reply
from medusa.wire.messages.directory import Digest, seen_to
from medusa.wire.messages.links import Hello, Refuse
from medusa.wire.outbox import CutPeer, Log, Parse, Persist, Send, Trust
from medusa.wire.statement import Certificate, Revocation, client_name, sign
from tests.nodes.parsed import done

WALL_US = 1_700_000_000_000_000


def curve(name):
    """A CURVE public key, as text."""
    return blake2b(name.encode(), digest_size=20).hexdigest()


class Signer:
    """A key of a participant whose signatures anybody in these tests could forge, but nobody does."""

    def __init__(self, name):
        self.key = "ed25519:" + blake2b(name.encode(), digest_size=32).hexdigest()

    def sign(self, data):
        return blake2b(self.key.encode() + bytes(data), digest_size=64).digest()


def verify(key, data, signature):
    return blake2b(key.encode() + bytes(data), digest_size=64).digest() == signature


ALICE, BOB, EVE = Signer("alice"), Signer("bob"), Signer("eve")
STATEMENT = {
    "federation": "fed",
    "participant": "bob",
    "recipient": "",
    "epoch": 1,
    "sequence": 1,
    "expiry_us": WALL_US + 3_600_000_000,
}


def certificate(signer=BOB, **changes):
    fields = {**STATEMENT, "node": "core", "key": curve("core-2"), **changes}
    return sign(Certificate(**fields), signer).to_bytes()


def revocation(signer=BOB, **changes):
    fields = {**STATEMENT, "key": curve("core"), **changes}
    return sign(Revocation(**fields), signer).to_bytes()


SECURITY = Security(
    node_key="n.key",
    federation="fed",
    participants={"alice": ALICE.key, "bob": BOB.key},
    peers={
        "near": PeerKey(participant="alice", key=curve("near")),
        "core": PeerKey(participant="bob", key=curve("core")),
    },
    clients={
        "nobody": ClientRules(key=curve("nobody")),
        "maker": ClientRules(key=curve("maker"), deploy=("q*",), status=True),
        "writer": ClientRules(key=curve("writer"), publish=("q.*",)),
        "second": ClientRules(key=curve("second"), publish=("q.flows",)),
        "reader": ClientRules(key=curve("reader"), subscribe=("q.out",)),
    },
)
NODES = ("near", "core")


class Keyed:
    """The brain of node ``n`` of alice; near is hers, core is bob's."""

    def __init__(self, security=SECURITY, *, catalog=None, own=b"", wall_us=WALL_US, limits=None, dht=None):
        settings = Settings(
            name="n",
            listen="tcp://*:1",
            data="d",
            participant="alice",
            peers=dict.fromkeys(security.peers, "tcp://example.org:1"),
            security=security,
            limits=limits or Limits(),
            dht=dht,
        )
        self.brain = NodeMind(
            settings, incarnation=1, catalog=catalog, verify=verify, signer=ALICE, certificate=own
        )
        self.effects = []
        self.now_us = 0
        self.brain.report(0, Surroundings(wall_us))
        self.brain.report(0, Started())
        self.settle()

    def settle(self, *, disk=True, parser=True):
        """Do what the brain wants: the disk works at once, unless it doesn't."""
        found = []
        while effects := self.brain.outbox.take():
            found += effects
            for effect in effects:
                if isinstance(effect, Persist) and disk:
                    self.brain.report(self.now_us, Persisted(effect.token, True))
                if isinstance(effect, Parse) and parser:
                    done(self.brain, self.now_us, effect)
                if isinstance(effect, Log) and disk:
                    self.brain.report(self.now_us, Logged(effect.fragment, True))
        self.effects += found
        return found

    def hello(self, name, *, suffix="1", incarnation=1):
        """A node or client comes, with its key; the name by which it goes."""
        client = name not in NODES
        called = client_name(curve(name), suffix) if client else name
        hello = Hello(
            version=PROTOCOL_VERSION, node=called, incarnation=incarnation, client=client, answer=True
        )
        self.brain.admit(hello, key=curve(name))
        self.say(name, hello, called=called)
        return called

    def agree(self):
        """Near has written nothing that we don't know: there is nothing to wait for."""
        directory = self.brain.naming.directory
        self.say("near", Digest(digest=directory.digest()), seen_to({"near": directory.seen("near")}))

    def say(self, name, message, payload=None, *, called=None, key=None, disk=True, parser=True):
        """What node or client ``name`` says, and what the brain sends to it then."""
        if called is None:
            called = name if name in NODES else client_name(curve(name), "1")
        self.brain.receive(self.now_us, called, message, payload, key=curve(name) if key is None else key)
        effects = self.settle(disk=disk, parser=parser)
        return [e.message for e in effects if isinstance(e, Send) and e.peer == called]

    def answer(self, name, message, payload=None, **options):
        """The code of the one Reply or Refuse that ``name`` gets."""
        said = self.say(name, message, payload, **options)
        [code] = [each.code for each in said if isinstance(each, Reply | Refuse)]
        return code

    def declare(self, name, data, *, request=1, **options):
        return self.answer(name, Declare(request=request, statement=data), **options)

    def deploy(self, name, query, at=(("n", ("flows",)),), request=9):
        document = graph_to_msgpack(query.graph)
        return self.answer(name, Deploy(request=request, at=at), document)

    def trusted(self):
        return next(e.keys for e in reversed(self.effects) if isinstance(e, Trust))

    def cuts(self):
        return [e for e in self.effects if isinstance(e, CutPeer)]

    def on_disk(self):
        """The catalog as it was last written."""
        written = [e for e in self.effects if isinstance(e, Persist) and CATALOG in e.files]
        return Catalog.from_bytes(written[-1].files[CATALOG], node="n", where="disk")

    def state(self):
        """Everything of this node that a message could change, but who was heard when."""
        brain = self.brain
        return (
            brain.catalog.to_bytes(),
            list(brain.fragments),
            brain.status(self.now_us)["queries"],
            [list(hosted.inputs) for hosted in brain.fragments.values()],
            [
                sorted(output.sender.receivers)
                for hosted in brain.fragments.values()
                for output in hosted.outputs.values()
            ],
        )
