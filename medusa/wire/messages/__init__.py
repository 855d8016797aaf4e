"""What nodes and clients say to each other: one struct per message, every field with its bounds.

One file for each subject. A new message: its struct in the file of its subject, which finds its way into
``Message`` by itself, and its row in ``nodes/message_table.py``, which says who may say it and which part of
a node takes it. Only a new file is named here. What a node or client asks and is answered is in ``commands``,
with its ``Reply``; what nodes say now and then unasked in ``load``.
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
    market,
    move,
    remote,
    rerouting,
    split,
    standby,
    tentative,
)
from medusa.wire.messages.base import MessageBase

__all__ = ["Message"]

_SUBJECTS = (
    *(links, commands, rerouting, directory, dht, load),
    *(move, remote, split, standby, configuration, tentative, market),
)

if TYPE_CHECKING:
    Message: TypeAlias = MessageBase  # A checker can't read a union that is made.
else:
    Message = reduce(
        or_,
        (
            kind
            for subject in _SUBJECTS
            for kind in vars(subject).values()
            if isinstance(kind, type) and issubclass(kind, MessageBase) and kind.__struct_config__.tag
        ),
    )
    """All messages: each struct with a tag in the files of the subjects, in this order."""
