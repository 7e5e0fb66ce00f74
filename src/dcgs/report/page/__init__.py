"""The report as one HTML page, which opens offline and loads no other file."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib import resources
from urllib.parse import quote

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from dcgs.experiments import numbers
from dcgs.experiments.oracle_cost import PAPER_LINK, PAPER_SIDE
from dcgs.experiments.results import Study
from dcgs.report.page import view
from dcgs.report.page.fit_view import FitPage

__all__ = ["render", "render_fit"]

# In this order, inside one function of their own: nothing is global.
_CHARTS = ("numbers.js", "scales.js", "panel.js", "charts.js")
_SCRIPTS = (*_CHARTS, "page.js", "theme_button.js")


def render(study: Study) -> str:
    """Return the page as HTML; every experiment must have a measure on all data beside the paper's loss."""
    view.check(study)
    early = _wrapped("theme.js")
    late = _wrapped(*_SCRIPTS)
    return (
        _environment()
        .get_template("page.html")
        .render(
            study=study,
            view=view,
            paper_side=PAPER_SIDE,
            paper_link=PAPER_LINK,
            style=Markup(_asset("style.css")),
            early=Markup(early),
            late=Markup(late),
            hashes=" ".join(f"'sha256-{_digest(script)}'" for script in (early, late)),
            data=Markup(view.embedded(study)),
        )
    )


def render_fit(page: FitPage) -> str:
    """Return the page of a fit as HTML."""
    early, late = _wrapped("theme.js"), _wrapped(*_CHARTS, "fit.js", "theme_button.js")
    return (
        _environment()
        .get_template("fit.html")
        .render(
            page=page,
            style=Markup(_asset("style.css") + _asset("fit.css")),
            early=Markup(early),
            late=Markup(late),
            hashes=" ".join(f"'sha256-{_digest(script)}'" for script in (early, late)),
            data=Markup(view.as_json(page.charts)),
        )
    )


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FunctionLoader(_asset),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    formats = (numbers.number, numbers.count, numbers.size, numbers.duration, numbers.share)
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
