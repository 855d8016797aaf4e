# ruff: noqa
"""measure.py ROOT: the figures of issue 16."""

import ast, collections, glob, os, sys

os.chdir(sys.argv[1])
V = "-v" in sys.argv
files = {f: ast.parse(open(f).read()) for f in glob.glob("medusa/**/*.py", recursive=True)}


def room(f):
    return f.split("/")[1] if f.count("/") > 1 else "."


lines = collections.Counter()
for f in files:
    lines[room(f)] += len(open(f).read().split("\n"))
print("lines", sum(lines.values()), dict(lines))
fold = collections.Counter(os.path.dirname(f) for f in files if not f.endswith("__init__.py"))
print("largest folders", fold.most_common(6))
print("depth", max(f.count("/") - 1 for f in files))
classes = collections.defaultdict(list)
bases = {}
for f, t in files.items():
    for n in ast.walk(t):
        if isinstance(n, ast.ClassDef):
            classes[n.name].append(f)
            bases.setdefault(n.name, []).append(
                [
                    b.id
                    if isinstance(b, ast.Name)
                    else b.value.id
                    if isinstance(b, ast.Subscript) and isinstance(b.value, ast.Name)
                    else b.attr
                    if isinstance(b, ast.Attribute)
                    else "?"
                    for b in n.bases
                ]
            )
dup = {k: v for k, v in classes.items() if len(v) > 1 and not k.startswith("_")}
print("duplicate public classes", len(dup))
if V:
    print(dup)


def depth(c, seen=()):
    if c not in bases or c in seen:
        return 0
    return 1 + max([depth(b, seen + (c,)) for bs in bases[c] for b in bs] + [0])


d = {c: depth(c) for c in bases}
print(
    "inheritance >3:",
    len([c for c in d if d[c] > 3]),
    "max",
    max(d.values()),
    sorted([(v, k) for k, v in d.items() if v > 3], reverse=True)[:40] if V else "",
)
sub = collections.Counter(b for c, bss in bases.items() for bs in bss for b in bs if b in classes)
print("bases with one subclass", len([b for b in sub if sub[b] == 1]))


# assignments into others
def root(n):
    k = 0
    while isinstance(n, ast.Attribute):
        n = n.value
        k += 1
    return n, k


assign = []
reach = []
for f, t in files.items():
    for fn in ast.walk(t):
        if isinstance(fn, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for n in ast.walk(fn):
                ts = (
                    n.targets
                    if isinstance(n, ast.Assign)
                    else [n.target]
                    if isinstance(n, (ast.AugAssign, ast.AnnAssign))
                    else []
                )
                for x in ts:
                    for y in x.elts if isinstance(x, ast.Tuple) else [x]:
                        if isinstance(y, ast.Attribute):
                            r, k = root(y)
                            if isinstance(r, ast.Name) and not (r.id in ("self", "cls") and k == 1):
                                assign.append((f, n.lineno, ast.unparse(y)))
                if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute):
                    r, k = root(n.func)
                    if isinstance(r, ast.Name) and r.id == "self" and k >= 3:
                        reach.append((f, n.lineno, ast.unparse(n.func)))
assign = sorted(set(assign))
reach = sorted(set(reach))
print("assignments into others", len(assign), collections.Counter(room(a[0]) for a in assign))
print("reaching calls", len(reach), collections.Counter(room(a[0]) for a in reach))
if V:
    for a in assign:
        print("  A", *a)
    for a in reach:
        print("  R", *a)
# imported by exactly one
mod = lambda f: f[:-3].replace("/", ".").removesuffix(".__init__")
names = {mod(f) for f in files}
imp = collections.Counter()
for f, t in files.items():
    got = set()
    for n in ast.walk(t):
        if isinstance(n, ast.Import):
            got |= {a.name for a in n.names}
        elif isinstance(n, ast.ImportFrom) and n.module:
            got |= {
                n.module + "." + a.name if n.module + "." + a.name in names else n.module for a in n.names
            }
    for g in got & names:
        imp[g] += 1
print("files imported by exactly one", len([g for g in imp if imp[g] == 1]), "of", len(names))
