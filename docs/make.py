"""``make docs``: the pages of docs/ and the reference of every module, as HTML in one folder.

Usage: python docs/make.py OUTPUT
"""

from __future__ import annotations

import html
import re
import shutil
import sys
from pathlib import Path

import markdown2
import pdoc

ROOT = Path(__file__).resolve().parents[1]
EXTRAS = ["fenced-code-blocks", "tables", "header-ids", "cuddled-lists"]
STYLE = (
    "body{max-width:54rem;margin:2rem auto;padding:0 1rem;font:16px/1.55 system-ui,sans-serif;color:#1b1f24}"
    "pre,code{background:#f4f5f7;font:14px/1.45 ui-monospace,monospace}pre{padding:.8rem;overflow:auto}"
    "table{border-collapse:collapse}td,th{border:1px solid #d5d9de;padding:.25rem .6rem;text-align:left}"
    "nav{border-bottom:1px solid #d5d9de;padding-bottom:.5rem}nav a{margin-right:1rem}"
)


def page(title: str, nav: str, body: str) -> str:
    head = f"<meta charset=utf-8><title>{html.escape(title)}</title><style>{STYLE}</style>"
    return f"<!doctype html><html lang=en><head>{head}</head><body><nav>{nav}</nav>{body}</body></html>\n"


def title_of(markdown: str, path: Path) -> str:
    found = re.search(r"^# (.+)$", markdown, re.MULTILINE)
    return found[1] if found else path.stem


def main(out: Path) -> None:
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    pages = {ROOT / "README.md": "index.html"}
    pages |= {path: f"{path.stem}.html" for path in sorted((ROOT / "docs").glob("*.md"))}
    texts = {path: path.read_text(encoding="utf-8") for path in pages}
    nav = " ".join(
        f'<a href="{pages[path]}">{html.escape(title_of(text, path))}</a>' for path, text in texts.items()
    )
    nav += ' <a href="reference/medusa.html">Reference</a>'
    for path, text in texts.items():
        body = str(markdown2.markdown(text, extras=EXTRAS))
        # Links between the pages: docs/x.md and x.md are both x.html here.
        body = re.sub(r'href="(?:docs/)?([\w-]+)\.md(#[^"]*)?"', r'href="\1.html\2"', body)
        (out / pages[path]).write_text(page(title_of(text, path), nav, body), encoding="utf-8")
    pdoc.render.configure(docformat="google")
    pdoc.pdoc("medusa", "!medusa._native", output_directory=out / "reference")
    print(f"{len(pages)} pages and the reference: {out / 'index.html'}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
