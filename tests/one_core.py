"""The same data for ``dcgs fit`` and for the estimators, and what of a fit must be equal to the bit.

Under mpiexec, as ``python one_core.py FOLDER``, every process fits by the command, and fits the estimators to
the rows of its own file; at last process 0 prints what these found as JSON.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np

import dcgs
from dcgs.cli import main as dcgs_main
from dcgs.estimators import DecentralizedCompletion, DecentralizedLasso, DecentralizedLogisticRegression

SITES = 3
OPTIONS = "--graph complete --held-out 0 --seed 3 --no-report"


@dataclass(frozen=True)
class Case:
    """A fit by the command, and the estimator of the same settings."""

    command: str
    estimator: Callable[[Any], Any]


CASES = {
    "lasso": Case(
        f"lasso --target size --radius auto --gap 1e-5 --folds 4 {OPTIONS}",
        lambda runtime: DecentralizedLasso(gap=1e-5, folds=4, runtime=runtime, random_state=3),
    ),
    "lasso, known radius": Case(
        f"lasso --target size --radius 2.5 --gap 1e-5 {OPTIONS}",
        lambda runtime: DecentralizedLasso(2.5, gap=1e-5, runtime=runtime, random_state=3),
    ),
    "logistic": Case(
        f"logistic --target ill --radius auto --one-standard-error {OPTIONS}",
        lambda runtime: DecentralizedLogisticRegression(
            rule="one_standard_error", runtime=runtime, random_state=3
        ),
    ),
    "three classes": Case(
        f"logistic --target kind --radius auto --class-weight balanced --gap 1e-3 {OPTIONS}",
        lambda runtime: DecentralizedLogisticRegression(
            gap=1e-3, class_weight="balanced", runtime=runtime, random_state=3
        ),
    ),
    "completion": Case(
        f"completion --radius auto {OPTIONS}",
        lambda runtime: DecentralizedCompletion(runtime=runtime, random_state=3),
    ),
}


def write_files(folder: Path) -> None:
    """Write a table of rows and one of ratings for each site; all targets are in the table of rows."""
    rng = np.random.default_rng(8)
    for i in range(SITES):
        A = rng.standard_normal((50 + 7 * i, 5)) * [1.0, 3.0, 0.2, 1.0, 10.0] + [0.0, 5.0, 1.0, 0.0, 100.0]
        score = A[:, 0] + 0.5 * (A[:, 1] - 5.0) + rng.standard_normal(len(A))
        kinds = np.array(["ash", "birch", "cedar"])[np.digitize(score, [-0.7, 0.9])]
        lines = ["a,b,c,d,e,size,ill,kind"]
        for row, size, kind in zip(A.tolist(), score.tolist(), kinds.tolist(), strict=True):
            lines.append(",".join([*map(repr, row), repr(size), "yes" if size > 0.4 else "no", kind]))
        (folder / f"rows-{i}.csv").write_text("\n".join(lines) + "\n")
        flat = rng.choice(12 * 9, 70, replace=False)
        stars = np.round(3.0 + flat // 9 % 2 - flat % 9 % 3 + rng.standard_normal(70), 1).tolist()
        pairs = [f"u{k // 9},film {k % 9},{star!r}" for k, star in zip(flat.tolist(), stars, strict=True)]
        (folder / f"ratings-{i}.csv").write_text("\n".join(["user,item,rating", *pairs]) + "\n")


def command(name: str, folder: Path, out: str) -> list[str]:
    """Return the fit of a case by the command; of rows, it uses the five features."""
    kind = "ratings" if name == "completion" else "rows"
    use = "" if name == "completion" else "--use a b c d e"
    line = f"fit {CASES[name].command} {use} --data {folder}/{kind}-{{agent}}.csv --open"
    return [*shlex.split(line), "--out", str(folder / out)]


def read(folder: Path, name: str, i: int) -> list[Any]:
    """Return what an estimator fits to at site i: features and target, or users, items and ratings."""
    is_rating = name == "completion"
    file = folder / f"{'ratings' if is_rating else 'rows'}-{i}.csv"
    head, *lines = (line.split(",") for line in file.read_text().splitlines())
    if is_rating:
        users, items, stars = zip(*lines, strict=True)
        return [list(users), list(items), [float(star) for star in stars]]
    target = head.index(CASES[name].command.split("--target ")[1].split()[0])
    A = np.array([[float(cell) for cell in line[:5]] for line in lines])
    given = [line[target] for line in lines]
    return [A, np.array([float(cell) for cell in given]) if target == 5 else np.array(given)]


def fitted(folder: Path, name: str, sites: list[int], runtime: Any = None) -> dict[str, Any]:
    """Return what the estimator finds, with the data of these sites in this process."""
    parts = [read(folder, name, i) for i in sites]
    data = [np.concatenate([np.asarray(part[k]) for part in parts]) for k in range(len(parts[0]))]
    labels = np.repeat(sites, [len(part[0]) for part in parts])
    estimator = CASES[name].estimator(runtime)
    estimator.graph = nx.complete_graph(SITES)
    estimator.fit(*data, sites=labels)
    results = estimator.result_ if isinstance(estimator.result_, list) else [estimator.result_]
    paths = estimator.path_ if isinstance(estimator.path_, list) else [estimator.path_]
    found = {
        "radius": np.atleast_1d(estimator.radius_).tolist(),
        "rounds": sum(result.rounds for result in results),
        "bytes": int(sum(result.bytes.sum() for result in results)),
        "paths": [None if path is None else [path.rounds, path.best.radius] for path in paths],
    }
    if name == "completion":
        model = estimator.ratings_.agents[sites[0]].model
        return found | {"model": [digest(model.x.V), digest(model.offsets.col_offsets)]}
    return found | {"model": [digest(estimator.coef_), digest(estimator.intercept_)]}


def digest(array: Any) -> list[str]:
    """Return the numbers of an array to the bit."""
    return [float(value).hex() for value in np.asarray(array).reshape(-1)]


def main(folder: Path) -> None:
    """Fit all cases with the rows of this process."""
    from mpi4py import MPI

    rank = MPI.COMM_WORLD.rank
    for name in CASES:
        assert dcgs_main(command(name, folder, f"mpi {name}")) == 0
    found = {name: fitted(folder, name, [rank], dcgs.MPI(timeout=60.0)) for name in CASES}
    if rank == 0:
        print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
