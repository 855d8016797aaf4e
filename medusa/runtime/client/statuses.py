"""How the nodes of a participant do: their statuses, and what these say together."""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from typing import Any

import pyarrow as pa

from medusa.errors import LinkError
from medusa.runtime.client.client_loop import ask
from medusa.runtime.client.followed_names import AWAY_US, FollowedNames
from medusa.runtime.client.home_node import HomeNode
from medusa.runtime.client.names import Names
from medusa.runtime.client.status.overview import explanation, whole
from medusa.runtime.client.status.scale_plan import scale_plan
from medusa.runtime.client.status.status_tables import tables_of
from medusa.runtime.client.status.unread_sinks import unread_sinks
from medusa.wire.messages.commands import StatusRequest

__all__ = ["Statuses"]


class Statuses:
    """Asks the nodes of a participant how they do, and puts together what they say."""

    def __init__(self, following: FollowedNames, home: HomeNode, names: Names) -> None:
        self._following = following
        self._home = home
        self._names = names

    def statuses(self, *, all: bool, silent: bool = True) -> list[dict[str, Any]]:
        """As ``Federation.statuses``."""
        found = [self._home.status()]
        heard = found[0].get("peers", {})
        for place in self._following.listed("node") if all else ():
            if place["node"] != found[0]["node"] and (silent or heard.get(place["node"], "up") == "up"):
                with contextlib.suppress(LinkError):
                    loop = self._following.loop_at(place, AWAY_US)
                    found.append(ask(loop, lambda n: StatusRequest(request=n), timeout_us=AWAY_US))
        return found

    def tables(self, *, all: bool) -> dict[str, pa.Table]:
        """As ``Federation.tables``."""
        return tables_of([whole(status) for status in self.statuses(all=all)])

    def scale_plan(self, query: str) -> list[dict[str, Any]]:
        """As ``Federation.scale_plan``."""
        return scale_plan([whole(status) for status in self.statuses(all=True)], query)

    def held_up(self, error: LinkError, queries: Collection[str]) -> LinkError:
        """Of rows for these queries that aren't durable in time, with the sinks that keep them, if any do."""
        found: list[str] = []
        with contextlib.suppress(LinkError):  # It may see no boxes.
            found = unread_sinks(map(whole, self.statuses(all=True)), queries)
        if not found:
            return error
        hint = f"{'; '.join(found[:4])}: by upstream backup rows are durable once what came of them is read"
        return LinkError(error.message, hint=hint, code=error.code)

    def explain(self, query: str | None, *, all: bool) -> list[dict[str, Any]]:
        """As ``Federation.explain``."""
        return explanation(self.statuses(all=all), query, self._names.placed() if all else ())
