"""``make docs``: the pages of docs/ and the reference, as HTML in one folder.

Usage: python docs/make.py OUTPUT
"""

from __future__ import annotations

import html
import pkgutil
import re
import shutil
import sys
from pathlib import Path

import markdown2
from reference import reference

import medusa

ROOT = Path(__file__).resolve().parents[1]
EXTRAS = ["fenced-code-blocks", "tables", "header-ids", "cuddled-lists"]
NAV = {
    "Medusa": "index.html",
    "Guide": "guide.html",
    "Windows": "guide-windows.html",
    "Streams": "guide-streams.html",
    "Running": "guide-running.html",
    "All pages": "contents.html",
    "Reference": "reference.html",
}
STYLE = (
    "body{max-width:54rem;margin:2rem auto;padding:0 1rem;font:16px/1.55 system-ui,sans-serif;color:#1b1f24}"
    "pre,code{background:#f4f5f7;font:14px/1.45 ui-monospace,monospace}pre{padding:.8rem;overflow:auto}"
    "table{border-collapse:collapse}td,th{border:1px solid #d5d9de;padding:.25rem .6rem;text-align:left}"
    "img{max-width:100%}h3{border-top:1px solid #d5d9de;padding-top:.8rem}"
    "nav{border-bottom:1px solid #d5d9de;padding-bottom:.5rem}nav a{margin-right:1rem}"
)


def page(title: str, nav: str, body: str) -> str:
    head = f"<meta charset=utf-8><title>{html.escape(title)}</title><style>{STYLE}</style>"
    return f"<!doctype html><html lang=en><head>{head}</head><body><nav>{nav}</nav>{body}</body></html>\n"


def title_of(markdown: str, path: Path) -> str:
    found = re.search(r"^# (.+)$", markdown, re.MULTILINE)
    return found[1] if found else path.stem


def built(out: Path, page_path: Path, link: str, names: dict[Path, str]) -> str:
    """Where a link of a page leads in what is built; files that aren't pages are copied there."""
    target, hash_, anchor = link.partition("#")
    if "://" in link or not target:
        return link
    path = (page_path.parent / target).resolve()
    if path in names:
        return names[path] + hash_ + anchor
    docs = ROOT / "docs"
    where = path.relative_to(docs) if path.is_relative_to(docs) else Path("files") / path.relative_to(ROOT)
    if path.is_dir():
        shutil.copytree(path, out / where, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        (out / where).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, out / where)
    return where.as_posix()


def main(out: Path, *, modules: bool = True) -> None:
    """Make all pages; ``modules``: and those of every module, by pdoc."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    names = {ROOT / "README.md": "index.html"}
    names |= {path: f"{path.stem}.html" for path in sorted((ROOT / "docs").glob("*.md"))}
    texts = {path: path.read_text(encoding="utf-8") for path in names}
    names[ROOT / "docs" / "reference.md"] = "reference.html"
    texts[ROOT / "docs" / "reference.md"] = reference()
    nav = " ".join(f'<a href="{target}">{title}</a>' for title, target in NAV.items())
    if modules:
        nav += ' <a href="reference/medusa.html">Modules</a>'
    for path, text in texts.items():
        # A note beside the language of a block is for the tests; markdown2 takes none.
        text = re.sub(r"^```(\w+) [\w-]+$", r"```\1", text, flags=re.MULTILINE)
        body = str(markdown2.markdown(text, extras=EXTRAS))
        body = re.sub(
            r'(href|src)="([^"]*)"',
            lambda found, path=path: f'{found[1]}="{built(out, path, found[2], names)}"',
            body,
        )
        body = body.replace(
            "the reference (<code>make docs</code>)", 'the <a href="reference.html">reference</a>'
        )
        (out / names[path]).write_text(page(title_of(text, path), nav, body), encoding="utf-8")
    if modules:
        import pdoc

        pdoc.render.configure(docformat="google")
        found = pkgutil.walk_packages(medusa.__path__, "medusa.")
        inside = sorted(module.name for module in found if "_native" not in module.name)
        pdoc.pdoc("medusa", *inside, output_directory=out / "reference")
    print(f"{len(names)} pages, the reference among them: {out / 'index.html'}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
