"""Versions of streams: who reads another version than before says so by a new one of its own. No IO.

    Attached (another version) ── Versions ──> spec: what is read, and a higher version of what leaves
                                      └── on disk ──> each reader attaches anew, and finds it so

Replicas of a stream share its name and differ in version. A fragment's version stands in its spec, beside
those that it reads: so both move with it, and a restart compares with what was on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from medusa.nodes.catalog.catalog import Catalog
from medusa.nodes.catalog.directory import Directory
from medusa.nodes.catalog.persistence import CatalogWriter
from medusa.nodes.fragment.host import FragmentHost
from medusa.nodes.spec.fragment_spec import FragmentSpec
from medusa.wire import limits
from medusa.wire.outbox import Outbox

__all__ = ["StreamVersions"]

RAISED_EVERY_US = 1_000_000
"""The version of a fragment is raised no more often: each costs a write of the catalog, and all its readers
attach anew. Too large: who reads it hears of a change so much later."""


class StreamVersions:
    """At one node.

    Args:
        fragments: what runs here, by name.
        moving: whether a fragment is just being moved, split or merged: then it waits.
    """

    def __init__(
        self,
        catalog: Catalog,
        directory: Directory,
        fragments: Mapping[str, FragmentHost],
        *,
        outbox: Outbox,
        saver: CatalogWriter,
        moving: Callable[[str], bool],
    ) -> None:
        self._moving = moving
        self._catalog = catalog
        self._directory = directory
        self._fragments = fragments
        self._outbox = outbox
        self._saver = saver
        self._raised: dict[str, tuple[int, int]] = {}
        """Fragment -> when it was raised last, and by which write of the catalog."""

    def tick(self, now_us: int) -> None:
        """Look what was found since the last time."""
        raised, self._raised = self._raised, {}
        for name, hosted in self._fragments.items():
            if name in raised:
                self._raised[name] = raised[name]
            found = _found(hosted)
            if found and not (self._is_recent(now_us, name) or hosted.frozen or self._moving(name)):
                self._raise(now_us, hosted, found)

    def _is_recent(self, now_us: int, name: str) -> bool:
        known = self._raised.get(name)
        return known is not None and (now_us - known[0] < RAISED_EVERY_US or known[1] > self._saver.durable)

    def _raise(self, now_us: int, hosted: FragmentHost, found: Mapping[str, int]) -> None:
        spec = hosted.spec
        known = {**spec.read_versions, **found}
        self._catalog.fragments[spec.name] = hosted.change_spec(
            stream_version=self._next(spec),
            read_versions={source: version for source, version in known.items() if version != 1},
        )
        self._raised[spec.name] = now_us, self._saver.save()
        for source, version in found.items():
            self._outbox.report(
                "info",
                "stream of another version",
                fragment=spec.name,
                source=source,
                reads=version,
                version=hosted.spec.stream_version,
            )

    def _next(self, spec: FragmentSpec) -> int:
        """Higher than that of any replica which the catalog knows."""
        entries = (e for each in spec.streams.values() for e in self._directory.versions("stream", each))
        others = [each.stream_version for each in entries if each.stream_version < limits.SEQ_MAX]
        return max([spec.stream_version, *others]) + 1

    def written(self, now_us: int) -> None:
        """The catalog is on disk, or a write failed: who reads hears what is there."""
        for name, (_, token) in self._raised.items():
            hosted = self._fragments.get(name)
            if hosted is None or token > self._saver.durable:
                continue
            for output in hosted.outputs.values():
                output.sender.begin_version(now_us, hosted.spec.stream_version)


def _found(hosted: FragmentHost) -> dict[str, int]:
    """Source -> version that was found there and isn't the one that the spec says."""
    found = {}
    for feed in hosted.spec.feeds:
        input = hosted.inputs.get((feed.source, feed.node))
        version = 0 if input is None else input.receiver.stream_version
        if version and version != hosted.spec.read_versions.get(feed.source, 1):
            found[feed.source] = version
    return found
