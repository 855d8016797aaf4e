"""The union of all messages, made of the structs with a tag in the modules beside this one.

A new message: its struct in the module of its subject, and its row in ``nodes/message_table.py``, which says
who may say it and which part of the node takes it. Here only a new module is named.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, TypeAlias

from medusa.wire.messages import (
    commands,
    configuration,
    dht,
    directory,
    links,
    load,
    move,
    remote,
    rerouting,
    split,
    standby,
    tentative,
)
from medusa.wire.messages.base import MessageBase

__all__ = ["Message"]

_MODULES = (
    *(links, commands, rerouting, directory, dht, load),
    *(move, remote, split, standby, configuration, tentative),
)

if TYPE_CHECKING:
    Message: TypeAlias = MessageBase  # A checker can't read a union that is made.
else:
    Message = reduce(
        or_,
        (
            kind
            for module in _MODULES
            for kind in vars(module).values()
            if isinstance(kind, type) and issubclass(kind, MessageBase) and kind.__struct_config__.tag
        ),
    )
