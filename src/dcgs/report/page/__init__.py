"""A report as one HTML page, which opens offline and loads no other file."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, final
from urllib.parse import quote

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from dcgs.learn.files.fit import FileFit
from dcgs.report import numbers
from dcgs.report.page.charts import as_json
from dcgs.report.page.fit_view import fit_page

__all__ = ["PageFiles", "render", "render_fit"]

# In this order, inside one function of their own: nothing is global.
_CHARTS = ("numbers.js", "scales.js", "panel.js", "charts.js")


@final
@dataclass(frozen=True)
class PageFiles:
    """The template, the script and the styles of a kind of pages, in the folder of a package.

    The template may extend ``layout.html`` and import ``parts.html``. The script is run after those that draw
    charts. A file that the package does not have is taken from this one.
    """

    package: str
    template: str
    script: str
    styles: tuple[str, ...] = ("style.css",)


_FIT = PageFiles(__name__, "fit.html", "fit.js", ("style.css", "fit.css"))


def render_fit(fit: FileFit, summary: Mapping[str, Any]) -> str:
    """Return the page of a fit as HTML, given its summary."""
    page = fit_page(fit, summary)
    return render(_FIT, page["charts"], {"page": page, "summary": summary})


def render(files: PageFiles, data: Any, shown: Mapping[str, Any]) -> str:
    """Return a page whose scripts are allowed by their hashes, and no others.

    ``data`` is for the scripts, as JSON; ``shown`` are the variables of the template.
    """
    package = files.package
    early, late = _wrapped(package, "theme.js"), _wrapped(package, *_CHARTS, files.script, "theme_button.js")
    hashes = " ".join(f"'sha256-{_digest(script)}'" for script in (early, late))
    style = "".join(_asset(package, name) for name in files.styles)
    parts = {"style": style, "early": early, "late": late, "data": as_json(data)}
    safe = {name: Markup(text) for name, text in parts.items()}
    return _environment(package).get_template(files.template).render(**shown, **safe, hashes=hashes)


@cache
def _environment(package: str) -> Environment:
    environment = Environment(
        loader=FunctionLoader(lambda name: _asset(package, name)),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    formats = (numbers.number, numbers.count, numbers.size, numbers.duration, numbers.share)
    environment.filters.update({form.__name__: form for form in formats})
    environment.filters["quoted"] = lambda name: quote(name, safe="")
    return environment


def _asset(package: str, name: str) -> str:
    """Return a file of the package, or else of this one."""
    file = resources.files(package).joinpath(name)
    return (file if file.is_file() else resources.files(__name__).joinpath(name)).read_text(encoding="utf-8")


def _wrapped(package: str, *names: str) -> str:
    """Return the scripts as one, strict and inside a function."""
    return '\n(() => {\n"use strict";\n' + "\n".join(_asset(package, name) for name in names) + "})();\n"


def _digest(script: str) -> str:
    """Return the script's hash for the page's content security policy, which allows no other script."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
