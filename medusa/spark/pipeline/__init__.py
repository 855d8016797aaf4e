"""The data pipeline on Spark: archives made, checked against what a stream answered, summed up, replayed."""

from __future__ import annotations

from medusa.spark.pipeline.archive import archive
from medusa.spark.pipeline.folder import Manifest, Stored, open_folder
from medusa.spark.pipeline.history import history
from medusa.spark.pipeline.prepare import prepare
from medusa.spark.pipeline.report import Report, SinkReport
from medusa.spark.pipeline.validate import validate

__all__ = [
    "Manifest",
    "Report",
    "SinkReport",
    "Stored",
    "archive",
    "history",
    "open_folder",
    "prepare",
    "validate",
]
