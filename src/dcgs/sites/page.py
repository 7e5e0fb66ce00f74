"""The page of a site: a file in its folder, which is written again every few seconds while the site runs.

It is opened from the disk of this machine: there is no port for it. It loads nothing, and shows itself again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from html import escape
from pathlib import Path
from typing import Self, final

from dcgs.files import atomic_write
from dcgs.sites.events import duration, local_time

PAGE, VIEW = "status.html", "status.json"
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

    def write(self, folder: Path) -> None:
        """Write the page, and the same as JSON for ``dcgs site status``."""
        atomic_write(folder / PAGE, status_page(self).encode())
        atomic_write(folder / VIEW, json.dumps(asdict(self), ensure_ascii=False).encode())

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """Return what was written last, None if there is nothing."""
        try:
            return cls(**json.loads((folder / VIEW).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None

    def lines(self) -> Iterator[str]:
        """Yield what the page shows but for events, for a screen."""
        yield f"{datetime.fromtimestamp(self.now):%Y-%m-%d %H:%M:%S}: {self.state}"
        yield from (f"{name}: {text}" for name, text in self.facts.items())
        for name, heard, waiting in self.neighbors():
            yield f"{name}: last heard of {heard}; {waiting} messages wait for it"

    def neighbors(self) -> Iterator[tuple[str, str, str]]:
        """Yield each neighbor, when it was heard of last, and how many messages wait for it."""
        for name, heard in self.heard.items():
            ago = f"{duration(self.now - heard)} ago" if heard else "not since the start"
            yield name, ago, str(self.waiting.get(name, 0))


def status_page(view: SiteView) -> str:
    """Return the page as HTML; every text in it is escaped."""
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
            f"<p>written at {datetime.fromtimestamp(view.now):%Y-%m-%d %H:%M:%S}, and every {SECONDS} s "
            "while the site runs</p>",
            _table(("", ""), view.facts.items()),
            "<h2>Neighbors</h2>",
            _table(("site", "last heard of", "messages that wait for it"), view.neighbors()),
            "<h2>Last events</h2>",
            _table(("time", "event"), ((local_time(when), text) for when, text in reversed(view.events))),
            "</body></html>",
        ]
    )


def _table(names: Sequence[str], rows: Iterable[Iterable[str]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in names) if any(names) else ""
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>" if head else f"<table>{body}</table>"
