"""Follow every link inside a built site: its file must exist, and have the anchor that the link names.

Run it with ``python tools/site_links.py build/docs``; ``make docs`` does. No network is used.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import final
from urllib.parse import unquote, urlsplit

# What a browser fetches or opens, by tag.
_LINKS = {"a": "href", "img": "src", "link": "href", "script": "src"}


def main() -> None:
    """Print what is broken; exit with 1 if anything is."""
    site = Path(sys.argv[1])
    broken = list(broken_links(site))
    print("\n".join(broken) or "all links inside the site lead somewhere")
    sys.exit(1 if broken else 0)


def broken_links(site: Path) -> Iterator[str]:
    """Return a sentence for each link to a file or an anchor that is not there."""
    files = sorted(path for path in site.rglob("*.html") if "_static" not in path.parts)
    pages = {path: _Page(path.read_text()) for path in files}
    if not pages:
        yield f"{site} must be a folder with HTML pages; it has none."
    for path, page in pages.items():
        for link in sorted(page.links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path.resolve()
            target = target / "index.html" if target.is_dir() else target
            name = path.relative_to(site)
            if not target.exists():
                yield f"{name}: {link} is not there."
            elif parts.fragment and target.suffix == ".html":
                anchors = pages[site / target.relative_to(site.resolve())].anchors
                if unquote(parts.fragment) not in anchors:
                    yield f"{name}: {link} names an anchor that is not there."


@final
class _Page(HTMLParser):
    """The links and the anchors of a page."""

    def __init__(self, text: str) -> None:
        HTMLParser.__init__(self)
        self.links: set[str] = set()
        self.anchors: set[str] = {"", "top"}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what a tag links to, and its id."""
        values = dict(attrs)
        link, anchor = values.get(_LINKS.get(tag, "")), values.get("id")
        if link:
            self.links.add(link)
        if anchor:
            self.anchors.add(anchor)


if __name__ == "__main__":
    main()
