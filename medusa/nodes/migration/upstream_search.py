"""A fragment whose sender is silent looks where the stream is now: its owner may be lost for good. No IO.

Who gives a fragment away tells its readers (``nodes.migration.rerouting``). If it dies between and never
comes back,
nobody would; nor does who takes a fragment over know who reads its streams in other queries. Then the catalog
says who has the stream in a higher epoch. Of our own participant's that is looked up here, as soon as the
sender is away. For another participant's the catalog between participants is asked, as far as that publishes
it, and only after a while: who comes back says it itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from medusa.nodes.catalog.directory import Directory
from medusa.nodes.fragment.host import FragmentHost
from medusa.nodes.names.participant_catalog import Sought
from medusa.nodes.spec.fragment_spec import Feed, sink_of

__all__ = ["SILENT_US", "UpstreamSearch"]

LOOK_EVERY_US = 250_000
ASK_EVERY_US = 5_000_000
"""Of another participant's stream: a search takes some messages to other members."""

SILENT_US = 5_000_000
"""So long another participant's sender is away, or a sender knows nothing of the stream (it may just have
started), before its reader looks elsewhere."""


class UpstreamSearch:
    """At one node.

    Args:
        fragments: what runs here, by name.
        is_up: whether a node is there.
        follow: have a feed read from another node, in an epoch.
        whose: the participant of a node; None: not known.
        ours: our participant.
        directory: the catalog; None: nobody is looked for.
        abroad: asks (time, participant, stream, who is told) between participants; False: it is of ours.
    """

    def __init__(
        self,
        fragments: Mapping[str, FragmentHost],
        *,
        is_up: Callable[[str], bool],
        follow: Callable[[int, Feed, str, int], None],
        whose: Callable[[str], str | None] = lambda node: None,
        ours: str | None = None,
        directory: Directory | None = None,
        abroad: Callable[[int, str, str, Sought], bool] = lambda *_: False,
    ) -> None:
        self.directory, self.abroad = directory, abroad
        self._fragments = fragments
        self._is_up = is_up
        self._follow = follow
        self._silent: dict[tuple[str, str], int] = {}
        """Fragment and source -> since when nothing comes for it."""
        self._asked_us: dict[tuple[str, str], int] = {}
        """The same -> when it was asked for abroad."""
        self._whose, self._ours = whose, ours
        self._look_at_us = 0

    def tick(self, now_us: int) -> None:
        """Look, now and then."""
        if now_us < self._look_at_us or self.directory is None:
            return
        self._look_at_us = now_us + LOOK_EVERY_US
        before, self._silent = self._silent, {}
        for hosted in list(self._fragments.values()):
            for feed in hosted.spec.feeds:
                if not self._is_silent(hosted, feed):
                    continue
                key = hosted.spec.name, feed.source
                since_us = self._silent[key] = before.get(key, now_us)
                away = not self._is_up(feed.node) and self._whose(feed.node) == self._ours
                if away or (now_us - since_us >= SILENT_US and not self._sought_abroad(now_us, key, feed)):
                    self._seek(now_us, feed, self.directory)
        self._asked_us = {key: at_us for key, at_us in self._asked_us.items() if key in self._silent}

    def _is_silent(self, hosted: FragmentHost, feed: Feed) -> bool:
        if not self._is_up(feed.node):
            return True
        input = hosted.inputs.get((feed.source, feed.node))
        refusal = None if input is None else input.receiver.refusal
        return refusal is not None and refusal.code == "E_STREAM"

    def _sought_abroad(self, now_us: int, key: tuple[str, str], feed: Feed) -> bool:
        """Whether it is another participant's stream: then that is asked for, now and then."""
        whose = self._whose(feed.node)
        if whose is None:
            return False
        if now_us - self._asked_us.get(key, now_us - ASK_EVERY_US) < ASK_EVERY_US:
            return True
        guest = feed.source in self._fragments[key[0]].spec.reads()
        stream = sink_of(feed.stream) if guest else feed.stream  # They are in one fragment.
        theirs = self.abroad(now_us, whose, stream, partial(self._found, key, feed))
        if theirs:
            self._asked_us[key] = now_us
        return theirs

    def _found(self, key: tuple[str, str], feed: Feed, now_us: int, node: str, epoch: int) -> None:
        if key in self._silent and node != feed.node and epoch > feed.epoch and self._is_up(node):
            self._follow(now_us, feed, node, epoch)

    def _seek(self, now_us: int, feed: Feed, directory: Directory) -> None:
        entry = directory.find("stream", feed.stream)
        if entry is None or entry.writer == feed.node or entry.epoch <= feed.epoch:
            return  # In no higher epoch it is another stream of that name.
        if self._is_up(entry.writer):
            self._follow(now_us, feed, entry.writer, entry.epoch)
