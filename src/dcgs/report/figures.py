"""How figures look in reports, and the figure of a path of radii."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from dcgs.learn.radius.result import Path as RadiusPath

STYLE: dict[Any, Any] = {
    "font.size": 8.0,
    "axes.titlesize": 8.5,
    "axes.labelsize": 8.0,
    "legend.fontsize": 8.0,
    "xtick.labelsize": 7.0,
    "ytick.labelsize": 7.0,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.5,
    "pdf.fonttype": 42,  # text stays text
}


def encoded(figure: Figure, kind: str, dpi: int = 200) -> bytes:
    """Return the figure as a PNG or PDF without a date in it."""
    buffer = io.BytesIO()
    metadata = {"CreationDate": None} if kind == "pdf" else None
    with rc_context(STYLE):
        figure.savefig(buffer, format=kind, dpi=dpi, metadata=metadata)
    return buffer.getvalue()


def path_picture(paths: Mapping[str, RadiusPath]) -> bytes:
    """Return a picture of the path of radii of each class, or of one model with an empty name, as PNG."""
    with rc_context(STYLE):
        figure = Figure(figsize=(7.0, 4.2 * len(paths)), layout="constrained")
        panels = figure.subplots(len(paths), squeeze=False)[:, 0]
        for (label, path), axes in zip(paths.items(), panels, strict=True):
            path.plot(axes)
            if label:
                axes.set_title(f"{label} against all others", parse_math=False)
        return encoded(figure, "png", dpi=150)
