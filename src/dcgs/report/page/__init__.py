"""The report as one HTML page, which opens offline and loads no other file."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from dcgs.experiments import numbers
from dcgs.experiments.oracle_cost import PAPER_LINK, PAPER_SIDE
from dcgs.experiments.results import Study
from dcgs.fitting.fit_result import FitResult
from dcgs.report.page import view
from dcgs.report.page.fit_view import fit_page, setting

__all__ = ["render", "render_fit"]

# In this order, inside one function of their own: nothing is global.
_CHARTS = ("numbers.js", "scales.js", "panel.js", "charts.js")


def render(study: Study) -> str:
    """Return the page as HTML; every experiment must have a measure on all data beside the paper's loss."""
    view.check(study)
    shown = {"study": study, "view": view, "paper_side": PAPER_SIDE, "paper_link": PAPER_LINK}
    return _rendered("page.html", "page.js", ("style.css",), view.embedded(study), shown)


def render_fit(fitted: FitResult, summary: Mapping[str, Any]) -> str:
    """Return the page of a fit as HTML, given its summary."""
    page = fit_page(fitted, summary)
    shown = {"page": page, "summary": summary}
    return _rendered("fit.html", "fit.js", ("style.css", "fit.css"), view.as_json(page["charts"]), shown)


def _rendered(template: str, script: str, styles: Sequence[str], data: str, shown: Mapping[str, Any]) -> str:
    """Return a page whose scripts are allowed by their hashes, and no others."""
    early, late = _wrapped("theme.js"), _wrapped(*_CHARTS, script, "theme_button.js")
    hashes = " ".join(f"'sha256-{_digest(script)}'" for script in (early, late))
    style = "".join(map(_asset, styles))
    parts = {"style": style, "early": early, "late": late, "data": data}
    safe = {name: Markup(text) for name, text in parts.items()}
    return _environment().get_template(template).render(**shown, **safe, hashes=hashes)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FunctionLoader(_asset),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    formats = (numbers.number, numbers.count, numbers.size, numbers.duration, numbers.share, setting)
    environment.filters.update({form.__name__: form for form in formats})
    environment.filters["quoted"] = lambda name: quote(name, safe="")
    return environment


def _asset(name: str) -> str:
    return resources.files(__name__).joinpath(name).read_text(encoding="utf-8")


def _wrapped(*names: str) -> str:
    """Return the scripts as one, strict and inside a function."""
    return '\n(() => {\n"use strict";\n' + "\n".join(map(_asset, names)) + "})();\n"


def _digest(script: str) -> str:
    """Return the script's hash for the page's content security policy, which allows no other script."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
