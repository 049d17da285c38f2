"""Check a built site: links and anchors, texts of pictures, order of headings, nothing from afar.

python docs/check.py docs/_build/html
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADING = {"img": "src", "script": "src", "link": "href", "iframe": "src"}


class Page(HTMLParser):
    """What a page links to, what it can be linked to by, and what is wrong with it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.wrong: list[str] = []
        self.headings: list[int] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what matters of a tag."""
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        source = given.get(LOADING.get(tag, ""), "")
        if source and not source.startswith("data:"):
            self.links.append(source)
            if urlsplit(source).scheme:
                self.wrong.append(f"loads {source}")
        if tag == "img" and " " not in given.get("alt", ""):  # the name of the file is no text
            self.wrong.append(f"no words in place of {given.get('src')}")
        if tag in ("h1", "h2", "h3", "h4", "h5", "h6"):
            level = int(tag[1])
            if self.headings and level > self.headings[-1] + 1:
                self.wrong.append(f"a heading of level {level} below one of {self.headings[-1]}")
            self.headings.append(level)


def problems(root: Path) -> Iterator[str]:
    """What is wrong in a site, a line each."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(root.rglob("*.html"))}
    for path, page in pages.items():
        for wrong in page.wrong:
            yield f"{path.relative_to(root)}: {wrong}"
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target /= "index.html"
            if not target.exists():
                yield f"{path.relative_to(root)}: {link} is not there"
            elif path.is_relative_to(root / "_modules"):
                continue  # a page of source has one package for all its links back
            elif parts.fragment and target.suffix == ".html":
                known = pages[target].anchors
                if unquote(parts.fragment) not in known | {"top"}:
                    yield f"{path.relative_to(root)}: {link} has no such anchor"


if __name__ == "__main__":
    found = list(problems(Path(sys.argv[1]).resolve()))
    sys.exit("\n".join(found) if found else 0)
