"""Archives, and files of the same rows, as DataFrames."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from medusa.apps.pipeline.folder import MANIFEST, Stored, open_folder
from medusa.errors import DataError
from medusa.query.suggest import did_you_mean
from medusa.spark import column_types

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Given", "Inputs", "archives_in", "file_url", "frame", "inputs_of"]

Given: TypeAlias = "str | Path | Stored | DataFrame | pa.Table"
Inputs: TypeAlias = "Given | Mapping[str, Given]"
"""A folder that holds an archive, or archives in folders; or what is what, by name."""


def file_url(path: str | Path) -> str:
    """A path as Spark reads it: a file of this machine, and none of its letters a pattern."""
    return "file://" + re.sub(r"([\\\[\]{}*?])", r"\\\1", str(Path(path).absolute()))


def frame(stored: Stored, spark: SparkSession) -> DataFrame:
    """The rows of an archive, with the columns of its stream, ``_seq``, and the marks that it has.

    Only the files that its manifest lists are read, with the types that it says.
    """
    manifest = stored.manifest
    meta = [(name, "int64" if name == "_seq" else "bool") for name, _ in manifest.meta]
    fields = [(field.name, field.type) for field in manifest.schema] + meta
    schema = column_types.struct((name, column_types.spark_type(type)) for name, type in fields)
    if not manifest.files:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).parquet(*map(file_url, stored.files))


def inputs_of(given: Inputs, names: list[str], spark: SparkSession, *, what: str) -> dict[str, DataFrame]:
    """A DataFrame for each name that is there.

    Args:
        given: a folder of one archive counts for the only name, whatever it is called; of a folder with
            archives in it, each counts for the name that its manifest says (without its query).
        names: what there may be.
        what: for messages, such as ``source``.

    Raises:
        DataError: a folder holds no archive, or one that nobody asks for.
    """
    found = _named(given, names, what)
    for name in found:
        if name not in names:
            raise DataError(
                f"the query has no {what} {name!r:.80}", hint=did_you_mean(name, names), code="data.source"
            )
    return {name: _frame(each, spark) for name, each in found.items()}


def archives_in(given: Inputs, names: list[str], what: str) -> dict[str, Stored]:
    """Those of the same that are archives, by name.

    Raises:
        DataError: as ``inputs_of``.
    """
    found = {}
    for name, each in _named(given, names, what).items():
        if isinstance(each, str | Path) and (Path(each) / MANIFEST).exists():
            each = open_folder(each)
        if isinstance(each, Stored):
            found[name] = each
    return found


def _named(given: Inputs, names: list[str], what: str) -> Mapping[str, Any]:
    if isinstance(given, Mapping):
        return given
    if isinstance(given, str | Path) and Path(given).is_dir() and not (Path(given) / MANIFEST).exists():
        inside = sorted(each for each in Path(given).iterdir() if (each / MANIFEST).exists())
        if inside:
            stored = [open_folder(each) for each in inside]
            return {each.manifest.stream.rpartition(".")[2]: each for each in stored}
    if isinstance(given, str | Path) and Path(given).is_dir():
        given = open_folder(given)
    if len(names) == 1:
        return {names[0]: given}
    if isinstance(given, Stored):
        return {given.manifest.stream.rpartition(".")[2]: given}
    raise DataError(
        f"which {what} is {str(given)!r:.200}? There are {', '.join(names)}",
        hint=f"{names[0]}=PLACE, as a mapping {{name: place}} from Python",
        code="data.source",
    )


def _frame(given: Given, spark: SparkSession) -> DataFrame:
    """A DataFrame of an archive, of a Parquet file, or as it came."""
    if isinstance(given, Stored):
        return frame(given, spark)
    if isinstance(given, str | Path):
        path = Path(given)
        if path.is_dir():
            return frame(open_folder(path), spark)
        if not path.exists():
            raise DataError(f"{path}: there is no such folder or file", code="data.archive")
        if path.suffix not in (".parquet", ".pq"):
            raise DataError(
                f"{path}: expected an archive, or a file .parquet",
                hint="write it as Parquet",
                code="data.archive",
            )
        return spark.read.parquet(file_url(path))
    if hasattr(given, "mapInArrow"):
        return given
    if isinstance(given, pa.Table):
        return spark.createDataFrame(given)
    raise DataError(
        f"expected a folder, a file, a DataFrame or a pyarrow.Table, got {type(given).__name__}",
        code="data.archive",
    )
