"""The page of a site: a file in its folder, which is written again every few seconds while the site runs.

It is opened from the disk of this machine: there is no port for it. It loads nothing, and shows itself again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from typing import final

PAGE = "status.html"
SECONDS = 5
"""How often the page is written and shown again."""

_STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid #8886; vertical-align: top;
} th { font-weight: 600; } td { overflow-wrap: anywhere; }
"""


@final
@dataclass(frozen=True)
class SiteView:
    """What the page shows; times are seconds since 1970, and 0 stands for never."""

    site: str
    study: str
    state: str
    facts: Mapping[str, str]
    heard: Mapping[str, float]
    waiting: Mapping[str, int]
    events: Sequence[tuple[str, str]]
    now: float


def status_page(view: SiteView) -> str:
    """Return the page as HTML; every text in it is escaped."""
    neighbors = (
        (name, _ago(view.now - heard) if heard else "not since the start", str(view.waiting.get(name, 0)))
        for name, heard in view.heard.items()
    )
    title = f"{view.site} in {view.study}"
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="refresh" content="{SECONDS}">',
            '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; style-src '
            "'unsafe-inline'\">",
            '<meta name="viewport" content="width=device-width">',
            f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>",
            f'<h1>{escape(title)}</h1><p id="state">{escape(view.state)}</p>',
            _table(("", ""), view.facts.items()),
            "<h2>Neighbors</h2>",
            _table(("site", "last message from it", "messages that wait for it"), neighbors),
            "<h2>Last events</h2>",
            _table(("time", "event"), reversed(view.events)),
            f"<p>written at {datetime.fromtimestamp(view.now):%Y-%m-%d %H:%M:%S}</p></body></html>",
        ]
    )


def _table(names: Sequence[str], rows: Iterable[Iterable[str]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in names) if any(names) else ""
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>" if head else f"<table>{body}</table>"


def _ago(seconds: float) -> str:
    """Return how long ago that is, in words.

    >>> _ago(12.3), _ago(7200.0)
    ('12 s ago', '2.0 h ago')
    """
    return f"{seconds:.0f} s ago" if seconds < 600.0 else f"{seconds / 3600.0:.1f} h ago"
