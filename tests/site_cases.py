"""Random runs between sites: a graph, who can be dialed, a problem, a method, masked sums or not; by a
number."""

from __future__ import annotations

from dataclasses import dataclass, field

import networkx as nx
import numpy as np

import dcgs
from dcgs.runtime import Lockstep, Runtime
from dcgs.runtime.base import Job
from dcgs.runtime.group import ProcessGroup
from dcgs.secure.keys import Ed25519Signatures, Signatures

METHODS = (
    dcgs.FastDCGS(),
    dcgs.FastDCGS(form="edges"),
    dcgs.FastDCGS(form="sums"),
    dcgs.DCGS(inner="pcg"),
    dcgs.DFW(),
    dcgs.NIDS(),
    dcgs.PGExtra(),
    dcgs.ProjectedAGD(),
)


class Stamps(Signatures):
    """Signatures as long as those of sites, which sign nothing."""

    nbytes = Ed25519Signatures.nbytes

    def sign(self, statement: bytes) -> bytes:
        return bytes(self.nbytes)

    def verifies(self, agent: int, statement: bytes, signature: bytes) -> bool:
        return signature == bytes(self.nbytes)


@dataclass(frozen=True, eq=False)
class StampedLockstep(Runtime):
    """Lockstep whose keys of masked sums are as long as those between sites, which are signed."""

    inner: Lockstep = field(default_factory=Lockstep)

    def run(self, job: Job) -> None:
        self.inner.run(job)

    def hosts(self, agents: int) -> range:
        return self.inner.hosts(agents)

    def group(self) -> ProcessGroup:
        return self.inner.group()

    def signatures(self) -> Stamps:
        return Stamps()


@dataclass(frozen=True)
class SiteCase:
    """A run; ``listening`` are the sites that can be dialed."""

    graph: nx.Graph
    listening: tuple[int, ...]
    objectives: list[dcgs.Objective]
    X: dcgs.ConvexSet
    method: dcgs.Method
    secure: bool
    rounds: int

    def run(self, runtime: Runtime | None = None) -> dcgs.Result:
        return dcgs.minimize(
            self.objectives,
            self.X,
            self.graph,
            self.method,
            rounds=self.rounds,
            gap=1e-3 if self.method.stops_itself else None,
            every=None,
            runtime=StampedLockstep() if runtime is None else runtime,
            secure=self.secure,
        )

    def __str__(self) -> str:
        loss = type(self.objectives[0].loss).__name__
        kind = "masked" if self.secure else "open"
        return (
            f"{len(self.graph)} sites, {self.graph.number_of_edges()} edges, {len(self.listening)} listen, "
            f"{loss} over {type(self.X).__name__}, {self.method!r}, {kind}"
        )


def site_case(number: int, rounds: int = 40) -> SiteCase:
    """Return the run of a number; every third one is masked."""
    rng = np.random.default_rng((31, number))
    secure = number % 3 == 2
    sites, d = int(rng.integers(3 if secure else 2, 11)), int(rng.integers(5, 40))
    graph = _graph(sites, rng)
    listening = tuple(i for i in range(sites) if rng.random() < 0.5)
    x = np.zeros(d)
    x[:3] = 1.0, -2.0, 0.5
    kind = int(rng.integers(3))
    objectives = []
    for _ in range(sites):
        A = rng.standard_normal((12, d)) * rng.uniform(0.5, 2.0)
        z = A @ x + 0.1 * rng.standard_normal(12)
        if kind == 0:
            objectives.append(dcgs.LeastSquares(A, z))
        elif kind == 1:
            objectives.append(dcgs.Logistic(A, np.where(z > 0.0, 1.0, -1.0)))
        else:
            objectives.append(dcgs.Objective(dcgs.HuberLoss(z, delta=1.0), dcgs.matrix_map(A)))
    sets = (dcgs.L1Ball(d, 3.0), dcgs.L2Ball(d, 2.0), dcgs.Simplex(d), dcgs.Box(-np.ones(d), np.ones(d)))
    X = sets[int(rng.integers(len(sets)))]
    method = METHODS[0] if secure else METHODS[int(rng.integers(len(METHODS)))]
    if isinstance(method, dcgs.DCGS):
        X = sets[0]  # its solves take long where a set has many corners
    return SiteCase(graph, listening, objectives, X, method, secure, rounds)


def _graph(sites: int, rng: np.random.Generator) -> nx.Graph:
    """Return a random tree with some more edges."""
    graph = nx.empty_graph(sites)
    order = rng.permutation(sites).tolist()
    graph.add_edges_from((order[i], order[int(rng.integers(i))]) for i in range(1, sites))
    more = [edge for edge in nx.non_edges(graph) if rng.random() < 0.2]
    graph.add_edges_from(more)
    return graph
