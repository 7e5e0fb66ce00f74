"""Write the page and the figures of a study into its folder."""

from __future__ import annotations

from pathlib import Path

from dcgs.experiments.findings import load
from dcgs.experiments.results import Study
from dcgs.link import Link
from dcgs.report.figures import encoded, study_figures
from dcgs.report.page import render
from dcgs.study import ResultCache

PAGE = "index.html"


def write_report(cache: ResultCache, link: Link) -> tuple[Study, Path]:
    """Write page and figures, replacing earlier ones; return the study and the path of the page."""
    study = load(cache, link)
    for name, figure in study_figures(study).items():
        for kind in ("png", "pdf"):
            cache.write_file(f"figures/{name}.{kind}", encoded(figure, kind))
    return study, cache.write_file(PAGE, render(study).encode())
