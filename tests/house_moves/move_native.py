# ruff: noqa
import glob, os, re, subprocess, sys

os.chdir(sys.argv[1])
M = {
    "base": "md_base md_alloc hash crc digest utf8 kernels multipart queue",
    "arrow": "arrow_abi block column gather gather_rows layout rows stream take validate merge",
    "keys": "keys keys_block keys_rows partition split",
    "aggregates": "blob sketch sketch_kinds",
    "state": "state state_rows snapshot",
    "order": "order times lateness lateness_parts",
}
P = {"aggregates": "accumulate", "window": "window", "join": "join", "program": "program"}


def folder(stem):
    for k, v in M.items():
        if stem in v.split():
            return k
    if stem == "slide_sets":
        return "window"
    for k, v in P.items():
        if stem.startswith(v):
            return k
    raise SystemExit("no place: " + stem)


to = {}
for f in sorted(glob.glob("native/*.[ch]")):
    b = os.path.basename(f)
    to[b] = folder(b.rsplit(".", 1)[0]) + "/" + b
for b, n in to.items():
    os.makedirs(os.path.dirname("native/" + n), exist_ok=True)
    os.rename("native/" + b, "native/" + n)
inc = re.compile(r'(#\s*include\s+")([\w]+\.h)(")')
ext = re.compile(r'(cdef extern from ")([\w]+\.h)(")')
path = re.compile(r"\bnative/(\w+\.[ch])\b")
n = 0
for f in subprocess.check_output(["git", "ls-files", "-co", "--exclude-standard"], text=True).split("\n"):
    if (
        not f
        or not os.path.isfile(f)
        or not (
            f.endswith((".c", ".h", ".pxi", ".pyx", ".py", ".md", ".pyi", ".toml", ".in")) or f == "Makefile"
        )
    ):
        continue
    t = open(f, encoding="utf-8").read()
    o = t
    if f.endswith((".c", ".h", ".pyx", ".pxi")):
        t = inc.sub(
            lambda m: (
                m.group(1) + to.get(m.group(2), m.group(2)) + m.group(3)
                if not (f.startswith("tests/native") and os.path.exists("tests/native/" + m.group(2)))
                else m.group()
            ),
            t,
        )
        t = ext.sub(lambda m: m.group(1) + to.get(m.group(2), m.group(2)) + m.group(3), t)
    t = path.sub(lambda m: "native/" + to.get(m.group(1), m.group(1)), t)
    if t != o:
        open(f, "w", encoding="utf-8").write(t)
        n += 1
print(
    "native rewritten",
    n,
    {
        k: sum(1 for v in to.values() if v.startswith(k + "/"))
        for k in set(v.split("/")[0] for v in to.values())
    },
)


def sub(p, *pairs):
    t = open(p).read()
    for a, b in pairs:
        assert a in t, (p, a)
        t = t.replace(a, b)
    open(p, "w").write(t)


sub(
    "Makefile",
    ("$(wildcard native/*.c native/*.h bindings", "$(wildcard native/*/*.c native/*/*.h bindings"),
    ("$(wildcard native/*.c examples", "$(wildcard native/*/*.c examples"),
)
sub("setup.py", ('glob("*.c")', 'glob("*/*.c")'), ('glob("*.h")', 'glob("*/*.h")'))
sub("docs/building.md", ("`native/*.c`", "`native/*/*.c`"))
sub("examples/c/window.c", ("native/[a-z]*.c", "$(find native -name '*.c')"))
sub("tests/native/run_c.py", ('(ROOT / "native").glob("*.c")', '(ROOT / "native").glob("*/*.c")'))
