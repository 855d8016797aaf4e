"""Builds the one extension module: the C library of ``native/`` and its Cython wrappers.

``MEDUSA_SANITIZE=1`` builds it for ASan and UBSan (see ``make sanitize``). ``MEDUSA_BUILT=1`` builds nothing:
an editable install into one more environment takes the module that stands in its place.
"""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

LIMITED = "0x030B0000"  # CPython 3.11: one wheel for every later one

flags = ["-std=c11", "-O3", "-fvisibility=hidden"]
link = ["-lm"]
if os.environ.get("MEDUSA_SANITIZE"):
    san = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
    flags = ["-std=c11", "-O1", "-g", "-fno-omit-frame-pointer", *san]
    link = [*san, "-lm"]

sources = sorted(str(path) for path in Path("native").glob("*/*.c"))
headers = sorted(str(path) for path in Path("native").glob("*/*.h"))
pieces = sorted(str(path) for path in Path("bindings").glob("*.px[di]"))

native = Extension(
    "medusa._native",
    ["bindings/_native.pyx", *sources],
    depends=headers + pieces,
    include_dirs=["native"],
    extra_compile_args=flags,
    extra_link_args=link,
    define_macros=[("Py_LIMITED_API", LIMITED), ("CYTHON_LIMITED_API", "1")],
    py_limited_api=True,
)

wanted = [] if os.environ.get("MEDUSA_BUILT") else [native]

setup(
    ext_modules=cythonize(wanted, include_path=["bindings"], language_level=3),
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
