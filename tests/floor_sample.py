"""Use every part of dcgs that uses a dependency, and judge the results.

``tools/floors.py`` runs it with the oldest versions that pyproject.toml allows. It writes into the folder
that is given. Results are judged by tolerance and status: their last digits differ between versions.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import networkx as nx
import numpy as np
import scipy.sparse as sp

import dcgs
from dcgs import datasets
from dcgs.cli import main as command
from dcgs.datasets.synthetic import write_patients
from dcgs.learn.sums import run_programs
from dcgs.methods.reduction import added, tree_answer
from dcgs.protocol import Program
from dcgs.tree import TreeNode

METHODS = (
    dcgs.FastDCGS(),
    dcgs.FastDCGS(form="edges"),
    dcgs.FastDCGS(form="sums"),
    dcgs.DCGS(inner="pcg"),
    dcgs.PrimalDual(),
    dcgs.DFW(),
    dcgs.PGExtra(),
    dcgs.NIDS(),
    dcgs.ProjectedAGD(),
)


def main() -> None:
    """Run all parts; an assertion or an exception says which one failed."""
    folder = Path(sys.argv[1])
    for part in (
        methods,
        sparse_data,
        sets,
        large_graph,
        completion,
        estimators,
        tables,
        parquet,
        secure,
        organizations,
    ):
        print(part.__name__, flush=True)
        part(folder)


def sites(density: float = 1.0) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the data of four sites, with a model of three features."""
    rng = np.random.default_rng(0)
    truth = np.zeros(20)
    truth[:3] = 1.0, -2.0, 0.5
    data = [rng.standard_normal((30, 20)) * (rng.random((30, 20)) < density) for _ in range(4)]
    return [(A, A @ truth) for A in data]


def methods(folder: Path) -> None:
    """Decrease the loss by every method, and draw and tabulate the history."""
    parts = [dcgs.LeastSquares(A, b) for A, b in sites()]
    for method in METHODS:
        result = dcgs.minimize(parts, dcgs.L1Ball(20, radius=3.5), nx.cycle_graph(4), method, rounds=150)
        history = result.history
        assert history.worst_loss[-1] < 0.5 * history.worst_loss[0], (method, history.worst_loss)
    frame = history.to_frame()
    assert len(frame) == len(history.rounds)
    history.plot().figure.savefig(folder / "history.png")
    result.save(folder / "result.npz")


def sparse_data(folder: Path) -> None:
    """Certify a gap where matrices are sparse."""
    parts = [dcgs.LeastSquares(sp.csr_array(A), b) for A, b in sites(density=0.3)]
    parts[0] = dcgs.LeastSquares(sp.csr_matrix(sites(density=0.3)[0][0]), sites(density=0.3)[0][1])
    result = dcgs.minimize(parts, dcgs.L1Ball(20, radius=3.5), nx.star_graph(3))
    assert result.status is dcgs.Status.AGREED, result.status


def sets(folder: Path) -> None:
    """Certify a gap over sets with eigenvalues, linear programs and assignments."""
    rng = np.random.default_rng(1)
    for X in (
        dcgs.NuclearNormBall((6, 5), 2.0),
        dcgs.Spectraplex(5),
        dcgs.BirkhoffPolytope(4),
        dcgs.Polytope(np.vstack([np.eye(4), -np.eye(4)]), np.ones(8)),
        dcgs.ConvexHull(rng.standard_normal((8, 4))),
    ):
        size = int(np.prod(X.shape))
        parts = [dcgs.LeastSquares(rng.standard_normal((9, size)), rng.standard_normal(9)) for _ in range(3)]
        if len(X.shape) == 2:
            parts = [dcgs.MatrixCompletion([0, 1, 2], [1, 2, 0], rng.random(3), X.shape) for _ in range(3)]
        result = dcgs.minimize(parts, X, nx.path_graph(3), gap=1e-2, rounds=2000)
        assert result.history.worst_loss[-1] <= result.history.worst_loss[0], (X, result.status)


def large_graph(folder: Path) -> None:
    """Compute the eigenvalues of a graph that is too large for dense matrices."""
    parts, X = [dcgs.LeastSquares(np.eye(1), [float(i % 2)]) for i in range(1100)], dcgs.Box([0.0], [1.0])
    result = dcgs.minimize(parts, X, nx.cycle_graph(1100), dcgs.NIDS(), rounds=5, every=None)
    assert result.status is dcgs.Status.ROUNDS, result.status


def completion(folder: Path) -> None:
    """Complete a matrix in factors."""
    data = datasets.completion_synthetic(side=30, rank=2, entries=300)
    X = dcgs.NuclearNormBall((30, 30), radius=60.0)
    result = dcgs.minimize(data.objectives(3), X, nx.path_graph(3), gap=1e-2)
    assert result.status is dcgs.Status.AGREED, result.status


def estimators(folder: Path) -> None:
    """Fit and score the estimators on a data frame, and clone them."""
    import pandas as pd
    from sklearn.base import clone

    from dcgs.estimators import DecentralizedLasso, DecentralizedLogisticRegression

    rows = pd.DataFrame(np.vstack([A for A, _ in sites()])).rename(columns=str)
    target = np.concatenate([b for _, b in sites()])
    labels, places = np.where(target > 0, "high", "low"), np.arange(len(target)) % 4
    assert clone(DecentralizedLasso()).fit(rows, target, sites=places).score(rows, target) > 0.9
    model = DecentralizedLogisticRegression(radius=5.0).fit(rows, labels, sites=places)
    assert model.score(rows, labels) > 0.9


def tables(folder: Path) -> None:
    """Fit tables with a page, in one process and by MPI, and predict from the model."""
    write_patients(folder, sites=2, rows=80)
    fit = f"fit logistic --data {folder}/hospital-{{agent}}.csv --open --target ill --agents 2 --radius 2"
    assert command([*fit.split(), "--out", f"{folder}/model"]) == 0
    assert command(["predict", f"{folder}/model", "--data", f"{folder}/hospital-0.csv"]) == 0
    assert (folder / "model" / "report.html").stat().st_size > 0
    assert command([*fit.split(), "--runtime", "mpi", "--out", f"{folder}/mpi"]) == 0
    one, two = (np.load(folder / name / "agent-000.npz")["x"] for name in ("model", "mpi"))
    assert (one == two).all()


def parquet(folder: Path) -> None:
    """Fit a Parquet file."""
    import pandas as pd

    A, b = sites()[0]
    frame = pd.DataFrame(A).rename(columns=str).assign(target=b, kind=np.where(b > 0, "x", "y"))
    frame.to_parquet(folder / "rows.parquet")
    fit = f"fit lasso --data {folder}/rows.parquet --target target --agents 3 --radius auto --no-report"
    assert command([*fit.split(), "--out", f"{folder}/parquet"]) == 0


def secure(folder: Path) -> None:
    """Exchange keys, sum masked numbers, and agree on texts."""
    from dcgs.floors import Floors
    from dcgs.secure.journal import Journal
    from dcgs.secure.keys import Ed25519Signatures, KeyPair, exchange_keys
    from dcgs.secure.masks import PairwiseMasks
    from dcgs.secure.sum import MaskedReduction, secure_answer
    from dcgs.secure.union import secure_union

    private = [KeyPair.generate().private for _ in range(4)]
    public = [Ed25519Signatures(key, ()).public for key in private]

    def program(i: int, tree: TreeNode) -> Program[tuple[float, tuple[str, ...]]]:
        reduce = partial(tree_answer, tree=tree, combine=added)
        with Journal(folder / f"agent-{i}.journal", "sample") as journal:
            signatures = Ed25519Signatures(private[i], public)
            keys = yield from exchange_keys(journal.pair, i, 4, "sample", reduce, signatures)
            masked = MaskedReduction(PairwiseMasks(keys, journal=journal), reduce)
            told, _ = yield from secure_answer((np.array([0.5]),), masked, lambda t: t.arrays, (40,), "sum")
            union = yield from secure_union({"level": 3}, Floors(), masked, "levels")
            return float(told[0][0]), union.texts

    answers, _ = run_programs(program, nx.path_graph(4))
    assert set(answers.values()) == {(2.0, ("level",))}, answers


def organizations(folder: Path) -> None:
    """Run between two sites over HTTPS."""
    from site_runs import make_sites

    graph, parts = nx.path_graph(2), [dcgs.LeastSquares(A, b) for A, b in sites()[:2]]
    X = dcgs.L1Ball(20, radius=3.5)
    expected = dcgs.minimize(parts, X, graph, gap=1e-2)
    study = make_sites(folder / "study", graph, (0,))
    results = study.run(lambda runtime: dcgs.minimize(parts, X, graph, gap=1e-2, runtime=runtime))
    assert all(np.array_equal(result.x, expected.x) for result in results)


if __name__ == "__main__":
    main()
