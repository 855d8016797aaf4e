"""The data pipeline on Spark: archives made, checked against what a stream answered, summed up, replayed."""

from __future__ import annotations

from medusa.apps.pipeline.archive import archive
from medusa.apps.pipeline.folder import Manifest, Stored, open_folder
from medusa.apps.pipeline.history import history
from medusa.apps.pipeline.prepare import prepare
from medusa.apps.pipeline.report import Report, SinkReport
from medusa.apps.pipeline.validate import validate

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
