"""Write the page and the figures of a study of the paper's experiments, and run the smallest benchmark.

``tools/floors.py`` runs it with the oldest versions of dependencies that are allowed.
"""

from __future__ import annotations

import sys
from pathlib import Path

from dcgs.cli import main as command
from dcgs.report.figures import encoded
from dcgs_bench.paper.figures import study_figures
from dcgs_bench.paper.folder import render_study
from study_sample import sample


def main() -> None:
    """Do both; an assertion or an exception says which one failed."""
    study = sample()
    assert "</html>" in render_study(study)
    for name, figure in study_figures(study).items():
        assert encoded(figure, "png").startswith(b"\x89PNG"), name
    out = Path(sys.argv[1]) / "rounds"
    quick = ["--quick", "--instances", "quick-noisy", "--methods", "FastDCGS", "NIDS", "--jobs", "1"]
    assert command(["bench", "rounds", *quick, "--out", str(out)]) == 0


if __name__ == "__main__":
    main()
