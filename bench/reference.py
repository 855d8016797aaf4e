"""The plain C loops of ``reference.c``, compiled on first use."""

from __future__ import annotations

import ctypes
import functools
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

SOURCE = Path(__file__).with_name("reference.c")


@functools.cache
def library() -> ctypes.CDLL:
    """Compiled like the extension as shipped: -O3 for baseline x86-64."""
    folder = Path(tempfile.mkdtemp(prefix="medusa-bench-"))
    built = folder / "reference.so"
    compiler = os.environ.get("CC", "cc")
    subprocess.run([compiler, "-std=c11", "-O3", "-shared", "-fPIC", "-o", built, SOURCE], check=True)
    loaded = ctypes.CDLL(str(built))
    built.unlink()
    folder.rmdir()
    for name in ("ref_keys", "ref_ring"):
        getattr(loaded, name).restype = ctypes.c_int64
    for name in ("ref_accumulate", "ref_hash"):
        getattr(loaded, name).restype = None
    return loaded


def call(name: str, *arguments: Any) -> Any:
    """Arrays are passed by address, integers as int64."""
    return getattr(library(), name)(
        *(
            ctypes.c_void_p(argument.ctypes.data)
            if isinstance(argument, np.ndarray)
            else ctypes.c_int64(argument)
            for argument in arguments
        )
    )


ROW = np.dtype(
    [("start", "i8"), ("key", "i8"), ("n", "i8"), ("s", "f8"), ("lo", "f8"), ("hi", "f8"), ("mean", "f8")]
)
CELL = np.dtype([("n", "i8"), ("sum", "f8"), ("min", "f8"), ("max", "f8")])
