"""What to say where a stream, or a step towards one, hasn't got a method."""

from __future__ import annotations

TYPE_CHECKING = False

__all__ = ["Suggests"]

# What other libraries call it -> what it is here.
INSTEAD = {
    "agg": ".aggregate(...)",
    "assign": ".with_columns(...)",
    "concat": ".union(...)",
    "flat_map": ".apply(...)",
    "groupby": ".group_by(...)",
    "key_by": ".group_by(...)",
    "keyBy": ".group_by(...)",
    "limit": ".window(...).top(n, by=...)",
    "map": ".select(...) with expressions, or .apply(function, schema)",
    "merge": ".union(...), or .join(...)",
    "order_by": ".bsort(...) or .wsort(...)",
    "project": ".select(...)",
    "rename": ".select(new='old')",
    "rolling": ".window(size, advance=...), or .group_by(...).running(...)",
    "sort": ".bsort(...) or .wsort(...)",
    "sort_by": ".bsort(...) or .wsort(...)",
    "tumble": ".window(...)",
    "where": ".filter(...)",
    "withColumn": ".with_columns(...)",
}
NEEDS = {
    "aggregate": "say over which rows: .window('1 min'), .session('30s') or .window_rows(100) comes before"
    " .aggregate, .running(...) gives an answer with every row",
    "window": "windows come first: stream.window('1 min').group_by(...).aggregate(...)",
    "session": "sessions come first: stream.session('30s').group_by(...).aggregate(...)",
}


class Suggests:
    """Its missing attributes are errors that say what there is."""

    __slots__ = ()

    if not TYPE_CHECKING:  # or type checkers would take any name

        def __getattr__(self, name: str) -> object:
            what = f"{type(self).__name__!r} object has no attribute {name!r}"
            if name.startswith("_"):
                raise AttributeError(what)
            from medusa.query.suggest import did_you_mean

            names = [each for each in dir(type(self)) if not each.startswith("_")]
            hint = INSTEAD.get(name) or NEEDS.get(name) or did_you_mean(name, names)
            raise AttributeError(f"{what} ({hint})")
