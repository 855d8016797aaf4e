# ruff: noqa
"""move.py ROOT: applies map.txt to a tree with git: files, imports, dotted names, paths."""

import ast, collections, io, os, re, subprocess, sys, tokenize, keyword

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import check_map as plan

ROOT = sys.argv[1]
os.chdir(ROOT)
m = plan.mapping()
m = {a: b for a, b in m.items() if a != b}
mod = lambda f: f[:-3].replace("/", ".").removesuffix(".__init__")
mm = {mod(a): mod(b) for a, b in m.items()}
packages = {}  # old package -> new, for what names a package only
tracked = subprocess.check_output(["git", "ls-files"], text=True).split("\n")
TEXT = (".py", ".pyi", ".pyx", ".pxi", ".md", ".toml", ".in", ".c", ".h", ".yml", ".html", ".js", ".txt")
text = [
    f
    for f in tracked
    if f
    and (f.endswith(TEXT) or f in ("Makefile", ".ci/run"))
    and os.path.exists(f)
    and not f.startswith("docs/papers")
]


def module_imports(src, path):
    """from PKG import MODULE -> edits"""
    try:
        tree = ast.parse(src)
    except SyntaxError:
        return src
    lines = src.split("\n")
    names = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)} | {
        a.arg for a in ast.walk(tree) if isinstance(a, ast.arg)
    }
    imported = collections.Counter(
        a.asname or a.name
        for n in ast.walk(tree)
        if isinstance(n, (ast.ImportFrom, ast.Import))
        for a in n.names
    )
    stored = (
        {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
        | {a.arg for a in ast.walk(tree) if isinstance(a, ast.arg)}
        | {n.name for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
    )
    edits = []
    renames = {}
    for n in ast.walk(tree):
        if isinstance(n, ast.ImportFrom) and n.module and any(n.module + "." + a.name in mm for a in n.names):
            keep = []
            out = []
            ind = " " * n.col_offset
            for a in n.names:
                k = n.module + "." + a.name
                if k in mm:
                    pkg, new = mm[k].rsplit(".", 1)
                    old = a.name
                    if a.asname:
                        out.append(
                            f"{ind}from {pkg} import {new} as {a.asname}"
                            if a.asname != new
                            else f"{ind}from {pkg} import {new}"
                        )
                    elif new == old:
                        out.append(f"{ind}from {pkg} import {new}")
                    elif new in names or new in imported or old in stored:
                        out.append(f"{ind}from {pkg} import {new} as {old}")
                    else:
                        renames[old] = new
                        out.append(f"{ind}from {pkg} import {new}")
                else:
                    keep.append(a)
            if keep:
                out.insert(
                    0,
                    f"{ind}from {n.module} import "
                    + ", ".join(a.name + (f" as {a.asname}" if a.asname else "") for a in keep),
                )
            # keep noqa-comments
            c = re.search(r"#.*$", lines[n.end_lineno - 1])
            if c:
                out[0] += "  " + c.group()
            edits.append((n.lineno - 1, n.end_lineno, out))
    for a, b, out in sorted(edits, reverse=True):
        lines[a:b] = out
    src = "\n".join(lines)
    if renames:
        tree = ast.parse(src)
        L = src.split("\n")
        pos = []
        for n in ast.walk(tree):
            if isinstance(n, ast.Name) and n.id in renames:
                pos.append((n.lineno, n.col_offset, n.id))
        for ln, co, i in sorted(pos, reverse=True):
            b = L[ln - 1].encode()
            assert b[co : co + len(i)] == i.encode(), (path, ln)
            L[ln - 1] = (b[:co] + renames[i].encode() + b[co + len(i) :]).decode()
        src = "\n".join(L)
    return src


keys = sorted(mm, key=len, reverse=True)
dotted = re.compile(r"(?<![\w.])(" + "|".join(re.escape(k) for k in keys) + r")(?![\w])")
short = {k.removeprefix("medusa."): v.removeprefix("medusa.") for k, v in mm.items()}
# ``mind.brain`` and mind/brain.py in prose: in backquotes or with .py
shortkeys = sorted((k for k in short if "." in k), key=len, reverse=True)
prose = re.compile(
    r"``("
    + "|".join(re.escape(k) for k in shortkeys)
    + r")(?=``|\.[A-Z_a-z])|(?<=[\s(])`("
    + "|".join(re.escape(k) for k in shortkeys)
    + r")(?=`)"
)
paths = {a.removesuffix(".py"): b.removesuffix(".py") for a, b in m.items()}
path1 = re.compile(
    r"(?<![\w./])(" + "|".join(re.escape(k) for k in sorted(paths, key=len, reverse=True)) + r")(?=\.py\b)"
)
sp = {
    k.removeprefix("medusa/"): v.removeprefix("medusa/")
    for k, v in paths.items()
    if "/" in k.removeprefix("medusa/")
}
path2 = re.compile(
    r"(?<![\w./-])(" + "|".join(re.escape(k) for k in sorted(sp, key=len, reverse=True)) + r")(?=\.py\b)"
)


def rewrite(f):
    src = open(f, encoding="utf-8").read()
    old = src
    src = dotted.sub(lambda x: mm[x.group(1)], src)
    if f.endswith((".py", ".pyi")):
        src = module_imports(src, f)
    else:

        def one(x):
            k = x.group(1) + "." + x.group(2)
            if k not in mm:
                return x.group()
            pkg, new = mm[k].rsplit(".", 1)
            return f"from {pkg} import {new}" + ("" if new == x.group(2) else f" as {x.group(2)}")

        src = re.sub(r"from (medusa[\w.]*) import (\w+)$", one, src, flags=re.M)
    src = path1.sub(lambda x: paths[x.group(1)], src)
    src = path2.sub(lambda x: sp[x.group(1)], src)

    def p(x):
        if x.group(1):
            return "``" + short[x.group(1)]
        return "`" + short[x.group(2)]

    src = prose.sub(p, src)
    if src != old:
        open(f, "w", encoding="utf-8").write(src)
        return 1
    return 0


n = sum(rewrite(f) for f in text)
print("rewritten", n)
for a, b in m.items():
    os.makedirs(os.path.dirname(b), exist_ok=True)
# two steps, for names that are swapped
for i, (a, b) in enumerate(m.items()):
    os.rename(a, f"medusa/__move{i}")
for i, (a, b) in enumerate(m.items()):
    os.rename(f"medusa/__move{i}", b)
print("moved", len(m))
