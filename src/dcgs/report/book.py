"""A study's folder made readable: the page and the figures, from what is kept in it."""

from __future__ import annotations

from pathlib import Path

from dcgs.experiments.findings import load
from dcgs.experiments.folder import Folder
from dcgs.experiments.link import Link
from dcgs.experiments.study import Study
from dcgs.report.page import render
from dcgs.report.plates import encoded, plates

PAGE = "index.html"


def write(folder: Folder, link: Link) -> tuple[Study, Path]:
    """Write page and figures into the folder, replacing earlier ones; return what they show and the page."""
    study = load(folder, link)
    for name, figure in plates(study).items():
        for kind in ("png", "pdf"):
            folder.write(f"figures/{name}.{kind}", encoded(figure, kind))
    return study, folder.write(PAGE, render(study).encode())
