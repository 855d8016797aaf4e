# ruff: noqa
import os, re, subprocess, sys

ROOT = sys.argv[1]
os.chdir(ROOT)
here = os.path.dirname(os.path.abspath(__file__))
sh = lambda *a: subprocess.check_call(a)


def read(p):
    return open(p).read()


def write(p, t):
    os.makedirs(os.path.dirname(p), exist_ok=True)
    open(p, "w").write(t)


# package inits
blocks = re.split(r"^@ (.+)\n", read(here + "/packages.txt"), flags=re.M)[1:]
for name, doc in zip(blocks[::2], blocks[1::2]):
    p = f"medusa/{name}/__init__.py"
    if os.path.exists(p) and read(p).strip():
        print("kept", p)
        continue
    doc = doc.strip()
    write(p, '"""' + doc + ('\n"""\n' if "\n" in doc else '"""\n'))
# data and old packages
for a, b in (
    ("medusa/workloads/data", "medusa/apps/workloads/data"),
    ("medusa/dashboard/page", "medusa/apps/dashboard/page"),
):
    if os.path.exists(a):
        os.rename(a, b)
t = read("medusa/spark/pipeline/__init__.py")
write("medusa/apps/pipeline/__init__.py", t)
import shutil

for d in ("mind", "connectors", "workloads", "dashboard", "spark/pipeline", "engine/boxes", "engine/kernels"):
    shutil.rmtree("medusa/" + d)


def sub(p, *pairs):
    t = read(p)
    for a, b in pairs:
        assert a in t or b in t, (p, a)
        t = t if b in t else t.replace(a, b)
    open(p, "w").write(t)


sub(
    "pyproject.toml",
    ('medusa = "medusa.cli:main"', 'medusa = "medusa.cli.main:main"'),
    ('"medusa.workloads"', '"medusa.apps.workloads"'),
    ('"medusa.dashboard"', '"medusa.apps.dashboard"'),
)
sub(
    "medusa/spark/__init__.py",
    *[
        (f'("{a}"', f'("{b}"')
        for a, b in (
            ("batches", "medusa.spark.dataframes.batches"),
            ("exchange.gateway", "medusa.spark.exchange.gateway"),
            ("streaming", "medusa.spark.streaming.streaming"),
            ("pipeline.archive", "medusa.apps.pipeline.archive"),
            ("pipeline.history", "medusa.apps.pipeline.history"),
            ("pipeline.folder", "medusa.apps.pipeline.folder"),
            ("overflow.command", "medusa.spark.overflow.command"),
            ("pipeline.prepare", "medusa.apps.pipeline.prepare"),
            ("pipeline.replay", "medusa.apps.pipeline.replay"),
            ("pipeline.validate", "medusa.apps.pipeline.validate"),
        )
    ],
    ('import_module(f"medusa.spark.{module}")', "import_module(module)"),
)
sub(
    "medusa/sim/__init__.py",
    *[
        (f'"{a}": "{b}"', f'"{a}": "{c}"')
        for a, b, c in (
            ("Client", "client", "actors.client"),
            ("Fault", "faults", "world.faults"),
            ("Faults", "network", "world.network"),
            ("Federation", "federation", "actors.federation"),
            ("KINDS", "faults", "world.faults"),
            ("Outcome", "trial", "trials.trial"),
            ("SimulationError", "world", "world.virtual_time"),
            ("World", "world", "world.virtual_time"),
        )
    ],
)
for p in subprocess.check_output(["git", "ls-files"], text=True).split():
    if p.endswith(".py") and os.path.exists(p):
        t = read(p)
        o = t
        t = re.sub(r'"medusa\.workloads"', '"medusa.apps.workloads"', t)
        t = re.sub(r'"medusa\.dashboard"', '"medusa.apps.dashboard"', t)
        t = t.replace('"medusa/workloads/data"', '"medusa/apps/workloads/data"').replace(
            '"medusa/dashboard/page', '"medusa/apps/dashboard/page'
        )
        if t != o:
            open(p, "w").write(t)

# tests mirror medusa/
for a, b in (
    ("tests/mind", "tests/nodes"),
    ("tests/connectors", "tests/cli"),
    ("tests/workloads", "tests/apps/workloads"),
    ("tests/dashboard", "tests/apps/dashboard"),
):
    os.makedirs(os.path.dirname(b), exist_ok=True)
    os.rename(a, b)
for p in subprocess.check_output(["git", "ls-files", "-co", "--exclude-standard"], text=True).split("\n"):
    if p.endswith((".py", ".md", ".toml", "Makefile", ".ci/run", ".txt")) and os.path.exists(p):
        t = read(p)
        o = t
        t = re.sub(r"\btests/mind\b", "tests/nodes", t)
        t = re.sub(r"\btests\.mind\b", "tests.nodes", t)
        t = re.sub(r"\btests/connectors\b", "tests/cli", t)
        t = re.sub(r"\btests\.connectors\b", "tests.cli", t)
        t = re.sub(r"\btests([/.])(workloads|dashboard)\b", r"tests\1apps\1\2", t)
        if t != o:
            open(p, "w").write(t)
