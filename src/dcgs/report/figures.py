"""How figures look in reports, and the figure of a path of radii."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from dcgs import curves
from dcgs.learn.radius.result import RadiusPath

STYLE: dict[Any, Any] = curves.STYLE | {"axes.titlesize": 8.5, "lines.linewidth": 1.5}
STYLE |= dict.fromkeys(("font.size", "axes.labelsize", "legend.fontsize"), 8.0)
STYLE |= dict.fromkeys(("xtick.labelsize", "ytick.labelsize"), 7.0)


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
