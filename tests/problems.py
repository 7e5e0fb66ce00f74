"""Problems that several test modules share: small, made from seeds, and generic, so that nothing ties."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import networkx as nx
import numpy as np
from numpy.typing import NDArray

import dcgs
from dcgs import LeastSquares, Objective, registry
from dcgs.facts import Facts
from dcgs.inner import Inner

Array: TypeAlias = NDArray[np.float64]

GRAPHS: dict[str, nx.Graph] = {
    "one node": nx.empty_graph(1),
    "one edge": nx.path_graph(2),
    "path": nx.path_graph(5),
    "cycle": nx.cycle_graph(6),
    "star": nx.star_graph(4),
    "complete": nx.complete_graph(4),
    "grid": nx.convert_node_labels_to_integers(nx.grid_2d_graph(2, 4)),
    "random of 7": nx.gnp_random_graph(7, 0.5, seed=2),
    "random of 12": nx.gnp_random_graph(12, 0.3, seed=5),
}

_FORMS: list[dcgs.Method] = [
    dcgs.FastDCGS(),
    dcgs.FastDCGS(form="edges"),
    dcgs.DCGS(inner="pcg"),
    dcgs.DCGS(inner="cg", schedule="theorem1"),
    dcgs.PrimalDual(),
    dcgs.DFW(),
    dcgs.DFW(tracking=False),
    dcgs.PGExtra(),
    dcgs.NIDS(),
    dcgs.ProjectedAGD(),
    dcgs.ProjectedAGD(gossip="chebyshev"),
]
METHODS = [*_FORMS, *(made() for made in registry.methods().values() if made not in map(type, _FORMS))]
"""Every method, some in more than one form; one that is not named above with default settings."""


@final
@dataclass(frozen=True)
class EndedByObserver(dcgs.Method):
    """A method whose agents certify nothing: the observer of the run ends it at a gap."""

    method: dcgs.Method
    stops_itself = False

    @property
    def rounds_per_iteration(self) -> int:  # type: ignore[override]  # the wrapped method's
        return self.method.rounds_per_iteration

    @property
    def projects(self) -> bool:  # type: ignore[override]  # the wrapped method's
        return self.method.projects

    def incompatibility(self, objectives: Mapping[int, Objective], X: dcgs.ConvexSet) -> str | None:
        return self.method.incompatibility(objectives, X)

    def program(self, agent: dcgs.Agent) -> dcgs.Program[Any]:
        return self.method.program(agent)

    def inner_solver(self, f: Objective, X: dcgs.ConvexSet) -> Inner | None:
        return self.method.inner_solver(f, X)

    def schedule_fingerprint(self, facts: Facts) -> str:
        return self.method.schedule_fingerprint(facts)


@dataclass(frozen=True, eq=False)
class Fits:
    """What m agents measured: agent i has ‖A[i] x − b[i]‖²."""

    A: Array
    b: Array

    def __len__(self) -> int:
        return len(self.A)

    def objectives(self) -> list[Objective]:
        return [LeastSquares(A, b) for A, b in zip(self.A, self.b, strict=True)]

    @property
    def strong_convexity(self) -> float:
        """The smallest of the agents': twice the square of the smallest singular value."""
        return min(2.0 * float(np.linalg.svd(A, compute_uv=False)[-1]) ** 2 for A in self.A)


def random_fits(agents: int, rows: int, columns: int, seed: int) -> Fits:
    """Return agents whose data disagree: each has its own target."""
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((agents, rows, columns))
    return Fits(A, 2.0 * rng.standard_normal((agents, rows)))


def agreeing_fits(A: Array, x_star: Array) -> Fits:
    """Return agents that all fit their data exactly at x_star: F* = 0, and F − F* is never negative."""
    return Fits(A, A @ x_star)


def laplacian_matrix(graph: nx.Graph) -> Array:
    """Return L of the agents 0 … m−1, as a dense matrix."""
    return np.asarray(nx.laplacian_matrix(graph, nodelist=range(len(graph))).toarray(), dtype=np.float64)


def norm_of(L: Array) -> float:
    """Return ‖L‖; 1 for an agent alone, for which every positive value fulfils the theorems."""
    return float(np.linalg.norm(L, 2)) or 1.0


def neighbors_of(graph: nx.Graph) -> list[tuple[int, ...]]:
    """Return the neighbors of the agents 0 … m−1, in increasing order."""
    return [tuple(sorted(graph[i])) for i in range(len(graph))]
