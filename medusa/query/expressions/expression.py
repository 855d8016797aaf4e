"""The typed tree that an expression is: five kinds of node, and nothing else.

The tree is what crosses links and lies in files; text never does (design, decision 2). Types are
not stored in it: ``medusa.query.checker`` computes them from the schema, on every side.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

__all__ = ["Call", "Case", "Cast", "Column", "Expression", "Literal", "Named"]


class _Node(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """Plain frozen data; a reader refuses parts that it doesn't know. No cycles: see
    ``structs.StrictData``.
    """


class Column(_Node, frozen=True, tag_field="node", tag="column"):
    """A column of the input, by name (case-sensitive).

    In the ``where`` of a join the name is ``left.x`` or ``right.x``.
    """

    name: str


class Literal(_Node, frozen=True, tag_field="node", tag="literal"):
    """A constant.

    Attributes:
        type: a type of ``medusa.query.types``, or ``null``.
        value: bool for bool, int for integers, date32 (days), timestamp and duration
            (microseconds), str for utf8 and decimal128, float for floats, hex text for binary,
            None for a null of any type. NaN and the infinities, which JSON lacks, are the texts
            ``nan``, ``inf``, ``-inf``.
    """

    type: str
    value: bool | int | float | str | None


class Call(_Node, frozen=True, tag_field="node", tag="call"):
    """A function of the closed list in ``medusa.query.expressions.functions``, on its arguments.

    ``and``, ``or``, ``add``, ``mul`` and ``concat`` take two or more, evaluated left to right.
    """

    function: str
    args: tuple[Expression, ...] = ()


class Cast(_Node, frozen=True, tag_field="node", tag="cast"):
    """A conversion; a row whose value doesn't fit fails."""

    arg: Expression
    type: str


class Case(_Node, frozen=True, tag_field="node", tag="case"):
    """The value of the first branch whose condition is true, else ``otherwise`` (else null)."""

    branches: tuple[tuple[Expression, Expression], ...]
    otherwise: Expression | None = None


Expression: TypeAlias = Column | Literal | Call | Cast | Case


class Named(_Node, frozen=True):
    """An output column and the expression that makes it."""

    name: str
    expression: Expression
