"""The jobs that this package adds to the command ``dcgs``. Nothing is imported here but what lists them."""

from __future__ import annotations

from dcgs.cli.jobs import CommandJob

BENCH = CommandJob(
    "measure ratios side by side in one run",
    "dcgs_bench.cli.bench:add",
    (
        "dcgs bench rounds --quick         rounds that each method needs to an accuracy, on small problems",
        "dcgs bench memory --out peak.json peak memory of a run beyond its data",
    ),
)
REPRODUCE = CommandJob(
    "run the paper's experiments and check its claims",
    "dcgs_bench.cli.reproduce:add_reproduce",
    (
        "dcgs reproduce --quick            the paper's experiments at small scale, as an HTML page",
        "dcgs reproduce lasso-synthetic    one of them at full scale",
    ),
)
REPORT = CommandJob(
    "write the page of a folder of dcgs reproduce again",
    "dcgs_bench.cli.reproduce:add_report",
    ("dcgs report dcgs-report           write the page again from the files in the folder",),
)
