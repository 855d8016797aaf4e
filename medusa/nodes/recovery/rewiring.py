"""Where a fragment reads, who reads it and who stands by for it, by the configuration of its query. Pure.

Applied twice it changes nothing more, so it is applied whenever a configuration is learned, and after a
restart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from medusa.nodes.fragment.host import FragmentHost
from medusa.nodes.spec.fragment_spec import Feed, FragmentSpec
from medusa.wire.messages.configuration import Configuration, Replicas

__all__ = ["Switch", "reader_switches", "replicas_of", "rewired", "streams_read", "switched_feeds"]


class Switch(msgspec.Struct, frozen=True):
    """A reader of ``sink`` that another node replaces."""

    sink: str
    old: str
    new: str


def replicas_of(configuration: Configuration, fragment: str) -> Replicas | None:
    """Of one fragment; None: it isn't guarded."""
    return next((each for each in configuration.fragments if each.fragment == fragment), None)


def streams_read(fragments: Iterable[FragmentHost]) -> set[str]:
    """By these fragments of one node: each stream has one reader there."""
    return {feed.stream for hosted in fragments for feed in hosted.spec.feeds}


def switched_feeds(spec: FragmentSpec, configuration: Configuration) -> Iterator[tuple[Feed, str, int]]:
    """Feeds whose stream comes from another node now: with that node, and the epoch of the fragment there."""
    for feed in spec.feeds:
        for replicas in configuration.fragments:
            stale = feed.node != replicas.owner and feed.node in replicas.holders
            if stale and feed.stream in replicas.streams and replicas.epoch > feed.epoch:
                yield feed, replicas.owner, replicas.epoch


def reader_switches(spec: FragmentSpec, configuration: Configuration) -> Iterator[Switch]:
    """Nodes that read a stream of this fragment, and are not the owner of what reads it any more."""
    for sink, readers in spec.readers.items():
        stream = spec.streams[sink]
        reading = [each for each in configuration.fragments if stream in each.reads]
        owners = {each.owner for each in reading}
        for replicas in reading:
            if replicas.owner in readers or replicas.fragment == spec.name:
                continue
            for old in readers:
                # Who may have one of two fragments that read the stream may be the owner of the other.
                if old not in owners and old in replicas.holders:
                    yield Switch(sink, old, replicas.owner)


def rewired(spec: FragmentSpec, configuration: Configuration) -> FragmentSpec:
    """The spec with all of it."""
    replicas = replicas_of(configuration, spec.name)
    others = spec.standby if replicas is None else tuple(n for n in replicas.members if n != spec.node)
    feeds = {feed: (node, epoch) for feed, node, epoch in switched_feeds(spec, configuration)}
    readers = dict(spec.readers)
    for switch in reader_switches(spec, configuration):
        readers[switch.sink] = tuple(
            dict.fromkeys(switch.new if each == switch.old else each for each in readers[switch.sink])
        )
    made = tuple(
        msgspec.structs.replace(feed, node=feeds[feed][0], epoch=feeds[feed][1]) if feed in feeds else feed
        for feed in spec.feeds
    )
    return msgspec.structs.replace(spec, feeds=made, readers=readers, standby=others)
