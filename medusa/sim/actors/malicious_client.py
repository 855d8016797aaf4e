"""A client that keeps no rule: it replays, forges, never acknowledges, and asks for absurd credit."""

from __future__ import annotations

from collections.abc import Sequence

from medusa.ports import Buffer
from medusa.query.boxes import Field
from medusa.sim.world.network import Network
from medusa.sim.world.virtual_time import World
from medusa.wire import limits
from medusa.wire.codec import encode_frame
from medusa.wire.messages import Message
from medusa.wire.messages.commands import Install, Remove, Reply, StatusRequest
from medusa.wire.messages.links import (
    OLDEST,
    Ack,
    Attach,
    Attached,
    Boundary,
    Data,
    Detach,
    Heartbeat,
    Hello,
    OpenPublisher,
    Progress,
    Refuse,
)

__all__ = ["MaliciousClient"]

KEPT_MAX = 64
HUGE = (0, 1, 1 << 30, (1 << 62) - 1)


class MaliciousClient:
    """Speaks to nodes under a name of its own. Nothing that it does may change what others get.

    It doesn't publish rows that fit nor remove queries by name: without keys any client may do that.

    Args:
        nodes: whom it lies to.
        streams: names that exist.
    """

    def __init__(
        self, world: World, network: Network, name: str, nodes: Sequence[str], streams: Sequence[str]
    ) -> None:
        self.name = name
        self._world = world
        self._network = network
        self._nodes = nodes
        self._streams = [*streams, "no.such"]
        self._dice = world.dice(f"liar {name}")
        self._heard: list[list[Buffer]] = []
        self._said: list[list[Buffer]] = []

    def start(self, until_us: int) -> None:
        """Lie from now on, until then."""
        for node in self._nodes:
            self._say(
                node, Hello(version=limits.PROTOCOL_VERSION, node=self.name, incarnation=1, client=True)
            )
        self._lie(until_us)

    def hear(self, source: str, frames: list[Buffer]) -> None:
        """Keep what was heard, to say it again."""
        self._heard = [*self._heard[-KEPT_MAX:], frames]

    def _lie(self, until_us: int) -> None:
        dice, node = self._dice, self._dice.choice(self._nodes)
        kind = dice.randrange(10)
        if kind == 0 and self._heard:
            self._send(node, dice.choice(self._heard))
        elif kind == 1 and self._said:
            self._send(node, dice.choice(self._said))
        elif kind == 2 and self._said:
            self._send(node, self._bent(dice.choice(self._said)))
        else:
            message, payload = self._forged()
            self._say(node, message, payload)
        if self._world.now_us < until_us:
            self._world.after(dice.randrange(1000, 60_000), lambda: self._lie(until_us))

    def _forged(self) -> tuple[Message, Buffer | None]:
        dice, columns = self._dice, (Field("x", "int64"),)
        stream, epoch, number = dice.choice(self._streams), dice.choice(HUGE), dice.choice(HUGE)
        granted, frame = dice.choice(HUGE), dice.choice((0, 1, 2, number))
        hello = Hello(
            version=dice.choice((1, 7)), node=self.name, incarnation=number, client=dice.random() < 0.8
        )
        messages: list[Message] = [
            hello,
            Heartbeat(incarnation=number),
            Attach(stream=stream, epoch=epoch, next_seq=OLDEST, durable=0, granted=granted, plain=True),
            Attach(stream=stream, epoch=epoch, next_seq=number, durable=0, granted=granted, plain=False),
            Attach(stream=stream, epoch=epoch, next_seq=0, durable=number, granted=granted, plain=True),
            Ack(stream=stream, epoch=epoch, frames=frame, received=number, durable=number, granted=granted),
            Detach(stream=stream, epoch=epoch),
            Attached(
                stream=stream,
                epoch=epoch,
                next_seq=number,
                boundary_us=0,
                schema=(Field("x", "int64"),),
                timed=True,
            ),
            Boundary(stream=stream, epoch=epoch, frame=frame, seq=number, time_us=(1 << 60)),
            Progress(stream=stream, epoch=epoch, frames=frame, pressed=True),
            Refuse(code="E_REMOVED", text="gone", stream=dice.choice((stream, "")), epoch=epoch),
            OpenPublisher(stream=stream, schema=columns),
            Remove(request=1, query="no"),
            Reply(request=number),
            StatusRequest(request=2),
        ]
        place = dice.randrange(len(messages) + 2)
        if place == len(messages):
            return Data(stream=stream, epoch=epoch, frame=frame, seq=number, rows=1), dice.randbytes(40)
        if place > len(messages):
            return Install(request=3, fragment="f", query="no"), dice.randbytes(60)
        return messages[place], None

    def _bent(self, frames: list[Buffer]) -> list[Buffer]:
        data = bytearray(frames[0])
        place = self._dice.randrange(8 * len(data))
        data[place // 8] ^= 1 << (place % 8)
        return [bytes(data), *frames[1:]]

    def _say(self, node: str, message: Message, payload: Buffer | None = None) -> None:
        frames: list[Buffer] = [bytes(frame) for frame in encode_frame(message, payload)]
        self._said = [*self._said[-KEPT_MAX:], frames]
        self._send(node, frames)

    def _send(self, node: str, frames: list[Buffer]) -> None:
        self._network.send(self.name, node, frames)
