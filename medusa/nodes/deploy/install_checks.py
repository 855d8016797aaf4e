"""Whether a fragment that a coordinator asks for can stand at this node. Pure."""

from __future__ import annotations

from medusa.errors import LinkError
from medusa.nodes.catalog.catalog import Catalog
from medusa.nodes.config.settings import Settings
from medusa.nodes.spec.fragment_spec import FragmentSpec

__all__ = ["check_place"]


def check_place(fragment: FragmentSpec, settings: Settings, catalog: Catalog) -> None:
    """Look at what doesn't depend on how much else runs here.

    Raises:
        LinkError: it is for another node (``E_IDENTITY``), was here and moved (``E_MOVED``), is linked with a
            node that is no peer (``E_PEER``), or with its own node, which has no disk (``E_STORE``).
    """
    me = settings.name
    others = [feed.node for feed in fragment.feeds]
    others += [node for nodes in fragment.readers.values() for node in nodes]
    if fragment.node != me:
        raise LinkError(f"the fragment is for node {fragment.node!r}", code="E_IDENTITY")
    if (left := catalog.left.get(fragment.name)) is not None:
        text = f"fragment {fragment.name!r} was here and was moved to node {left.node!r}"
        raise LinkError(text, code="E_MOVED")
    if me in others and settings.forgets:
        raise LinkError(
            f"fragment {fragment.name!r} is linked with another one of its own node, which has no disk",
            hint="two fragments that forget keep nothing for each other",
            code="E_STORE",
        )
    for node in others:
        if node not in (me, *settings.peers):
            text = f"{node!r}, which fragment {fragment.name!r} is linked with, is no peer of {me!r}"
            raise LinkError(text, hint=f"add {node} to [peers] of {me}", code="E_PEER")
