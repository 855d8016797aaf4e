"""Medusa: continuous queries over streams, inside a program or over many nodes.

Names load on first use, so that ``import medusa`` stays light.
"""

from __future__ import annotations


def _refuse_subinterpreters() -> None:
    """Raises ImportError in a subinterpreter: native code, numpy and pyarrow keep state for the process, and
    what a subinterpreter loads of them first isn't there for the main one.
    """
    # Loaded at Python's start; importing signal would take longer than this file.
    import _signal  # type: ignore[import-not-found]

    try:
        _signal.signal(_signal.SIGINT, None)  # refused in any case, and it tells where
    except TypeError:
        return  # the main thread of the main interpreter
    except ValueError:
        pass  # a subinterpreter, or another thread
    from importlib import import_module

    for name in ("_interpreters", "_xxsubinterpreters"):  # CPython 3.13 and later; before
        try:
            known = import_module(name)
        except ImportError:
            continue
        if known.get_current() != known.get_main():
            raise ImportError(
                "medusa can't be used in a subinterpreter: import it in the main interpreter of the process, "
                "or start a process"
            )
        return


_refuse_subinterpreters()

# Not from typing, whose import takes longer than all the rest of this file.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from medusa import spark as spark
    from medusa import testing as testing
    from medusa.elements import Boundary as Boundary
    from medusa.elements import Kind as Kind
    from medusa.elements import Train as Train
    from medusa.errors import CheckpointWarning as CheckpointWarning
    from medusa.errors import ContractError as ContractError
    from medusa.errors import DataError as DataError
    from medusa.errors import DeadRowWarning as DeadRowWarning
    from medusa.errors import FullError as FullError
    from medusa.errors import LateWarning as LateWarning
    from medusa.errors import LinkError as LinkError
    from medusa.errors import MedusaError as MedusaError
    from medusa.errors import QueryError as QueryError
    from medusa.errors import StateError as StateError
    from medusa.nodes.pool.provider import NodeProvider as NodeProvider
    from medusa.nodes.pool.provider import ProvidedNode as ProvidedNode
    from medusa.nodes.scaling.policy import Resize as Resize
    from medusa.nodes.scaling.policy import ScalePolicy as ScalePolicy
    from medusa.nodes.scaling.policy import ScaleRules as ScaleRules
    from medusa.query.builder import Query as Query
    from medusa.query.builder import Stream as Stream
    from medusa.query.delay_policies import Delay as Delay
    from medusa.query.expressions.aggregates import approx_count_distinct as approx_count_distinct
    from medusa.query.expressions.aggregates import approx_quantile as approx_quantile
    from medusa.query.expressions.aggregates import avg as avg
    from medusa.query.expressions.aggregates import count as count
    from medusa.query.expressions.aggregates import count_distinct as count_distinct
    from medusa.query.expressions.aggregates import first as first
    from medusa.query.expressions.aggregates import last as last
    from medusa.query.expressions.aggregates import max as max
    from medusa.query.expressions.aggregates import median as median
    from medusa.query.expressions.aggregates import min as min
    from medusa.query.expressions.aggregates import quantile as quantile
    from medusa.query.expressions.aggregates import stddev as stddev
    from medusa.query.expressions.aggregates import sum as sum
    from medusa.query.expressions.aggregates import user as user
    from medusa.query.expressions.aggregates import variance as variance
    from medusa.query.expressions.column import col as col
    from medusa.query.expressions.column import lit as lit
    from medusa.query.expressions.column import time as time
    from medusa.query.expressions.column import when as when
    from medusa.query.qos import QoS as QoS
    from medusa.query.sql.sources import source as source
    from medusa.query.sql.statements import sql as sql
    from medusa.query.stream.several import process as process
    from medusa.query.stream.several import sunion as sunion
    from medusa.query.stream.window_steps import lag as lag
    from medusa.query.user_registry import register as register
    from medusa.runtime.client.client import connect as connect
    from medusa.runtime.client.placement import balance as balance
    from medusa.runtime.embedded.attached import AttachedRun as AttachedRun
    from medusa.runtime.embedded.embedded_run import collect as collect
    from medusa.runtime.embedded.embedded_run import restore as restore
    from medusa.runtime.embedded.embedded_run import start as start
    from medusa.runtime.embedded.recordings import replay as replay
    from medusa.runtime.embedded.run import Run as Run
    from medusa.runtime.embedded.views import read_history as read_history
    from medusa.runtime.embedded_node.node_thread import Node as Node
    from medusa.runtime.embedded_node.node_thread import node as node

__version__ = "0.1.0"

# Name -> the module that has it.
_HOMES = {
    **dict.fromkeys(("Boundary", "Kind", "Train"), "medusa.elements"),
    **dict.fromkeys(
        (
            "CheckpointWarning",
            "ContractError",
            "DataError",
            "DeadRowWarning",
            "FullError",
            "LateWarning",
            "LinkError",
            "MedusaError",
            "QueryError",
            "StateError",
        ),
        "medusa.errors",
    ),
    **dict.fromkeys(
        (
            "approx_count_distinct",
            "approx_quantile",
            "avg",
            "count",
            "count_distinct",
            "first",
            "last",
            "max",
            "median",
            "min",
            "quantile",
            "stddev",
            "sum",
            "user",
            "variance",
        ),
        "medusa.query.expressions.aggregates",
    ),
    **dict.fromkeys(("Query", "Stream"), "medusa.query.builder"),
    **dict.fromkeys(("col", "lit", "time", "when"), "medusa.query.expressions.column"),
    **dict.fromkeys(("collect", "restore", "start"), "medusa.runtime.embedded.embedded_run"),
    **dict.fromkeys(("Node", "node"), "medusa.runtime.embedded_node.node_thread"),
    **dict.fromkeys(("NodeProvider", "ProvidedNode"), "medusa.nodes.pool.provider"),
    **dict.fromkeys(("Resize", "ScalePolicy", "ScaleRules"), "medusa.nodes.scaling.policy"),
    "AttachedRun": "medusa.runtime.embedded.attached",
    "balance": "medusa.runtime.client.placement",
    "Run": "medusa.runtime.embedded.run",
    "source": "medusa.query.sql.sources",
    "sql": "medusa.query.sql.statements",
    "connect": "medusa.runtime.client.client",
    "Delay": "medusa.query.delay_policies",
    "QoS": "medusa.query.qos",
    "lag": "medusa.query.stream.window_steps",
    "process": "medusa.query.stream.several",
    "read_history": "medusa.runtime.embedded.views",
    "register": "medusa.query.user_registry",
    "replay": "medusa.runtime.embedded.recordings",
    "sunion": "medusa.query.stream.several",
}

__all__ = ["__version__", *_HOMES]


if not TYPE_CHECKING:  # or type checkers would take any name

    def __getattr__(name: str) -> object:
        home = _HOMES.get(name)
        if name in ("testing", "spark"):  # rooms of their own, with names of their own
            from importlib import import_module

            return import_module(f"medusa.{name}")
        if home is None:
            from medusa.query.expressions.aggregates import ELSEWHERE
            from medusa.query.suggest import did_you_mean

            other = ELSEWHERE.get(name)
            hint = did_you_mean(name, _HOMES) if not name.startswith("_") else ""
            hint = f"did you mean {other!r}?" if other is not None else hint
            raise AttributeError(
                f"module 'medusa' has no attribute {name!r}"
                + (f" ({hint})" if hint.startswith("did") else "")
            )
        from importlib import import_module

        value: object = getattr(import_module(home), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
