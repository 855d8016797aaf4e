# ruff: noqa
"""Reads map.txt; checks that every module is placed once; package graph and sizes."""

import ast, collections, glob, os, sys

ROOT = sys.argv[1] if len(sys.argv) > 1 else "."


def mapping():
    m = {}
    room = None
    for line in open(os.path.dirname(os.path.abspath(__file__)) + "/map.txt"):
        line = line.split("#")[0].strip()
        if not line:
            continue
        if line[0] == "[":
            room = line[1:-1]
            continue
        pkg, items = line.split(":")
        for it in items.split():
            old, _, new = it.partition("=")
            new = new or old.split("/")[-1]
            o = "medusa/" + room + "/" + old + ".py"
            assert o not in m, o
            m[o] = "medusa/" + pkg.strip() + "/" + new + ".py"
    m["medusa/cli.py"] = "medusa/cli/main.py"
    assert len(set(m.values())) == len(m), [k for k, v in collections.Counter(m.values()).items() if v > 1]
    return m


if __name__ == "__main__":
    m = mapping()
    os.chdir(ROOT)
    have = {f for f in glob.glob("medusa/**/*.py", recursive=True)}
    for f in sorted(have - set(m)):
        if not f.endswith("__init__.py"):
            print("unplaced", f)
    for f in sorted(set(m) - have):
        print("missing", f)

    def mod(f):
        return f[:-3].replace("/", ".").removesuffix(".__init__")

    new = {mod(f): mod(m.get(f, f)) for f in have}
    files = {mod(f): f for f in have}
    edges = collections.defaultdict(lambda: collections.defaultdict(list))
    for f in have:
        for n in ast.walk(ast.parse(open(f).read())):
            t = []
            if isinstance(n, ast.Import):
                t = [a.name for a in n.names]
            elif isinstance(n, ast.ImportFrom) and n.module:
                t = [
                    n.module + "." + a.name if n.module + "." + a.name in files else n.module for a in n.names
                ]
            for x in t:
                if x in files:
                    a, b = new[mod(f)], new[x]
                    pa, pb = a.rsplit(".", 1)[0], b.rsplit(".", 1)[0]
                    if pa != pb and pa != "medusa" and pb != "medusa":
                        edges[pa][pb].append((a, b))
    c = collections.Counter(v.rsplit(".", 1)[0] for v in new.values())
    for k, v in sorted(c.items()):
        print(v, k, "" if v <= 24 else "  !!!!!")
    # scc
    import functools

    idx = {}
    low = {}
    st = []
    on = set()
    out = []
    cnt = [0]
    sys.setrecursionlimit(10000)

    def go(v):
        idx[v] = low[v] = cnt[0]
        cnt[0] += 1
        st.append(v)
        on.add(v)
        for w in edges[v]:
            if w not in idx:
                go(w)
                low[v] = min(low[v], low[w])
            elif w in on:
                low[v] = min(low[v], idx[w])
        if low[v] == idx[v]:
            s = []
            while True:
                w = st.pop()
                on.discard(w)
                s.append(w)
                if w == v:
                    break
            if len(s) > 1:
                out.append(s)

    for v in list(edges):
        if v not in idx:
            go(v)
    for s in out:
        print("CYCLE", len(s), sorted(s))
        if "-v" in sys.argv:
            S = set(s)
            for a in sorted(s):
                for b in sorted(edges[a]):
                    if b in S:
                        print(
                            "  ",
                            a,
                            "->",
                            b,
                            len(set(edges[a][b])),
                            [
                                x[0].rsplit(".", 1)[1] + ">" + x[1].rsplit(".", 1)[1]
                                for x in sorted(set(edges[a][b]))
                            ][:4],
                        )
