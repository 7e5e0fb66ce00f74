"""Arrays of an estimator become the data of sites: by labels, or dealt out; and the graph of the sites."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any, final

import networkx as nx
import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight

from dcgs.learn.radius.folds import deal
from dcgs.learn.sites import Rows, Sites
from dcgs.learn.sums import Reductions
from dcgs.runtime import Lockstep, Runtime
from dcgs.validation import COUNT, instance, shown


@final
@dataclass(frozen=True, eq=False)
class Places:
    """The network, the nodes of the graph in the order of agents, and the rows of the agents here."""

    network: Reductions
    nodes: list[Hashable]
    rows: Mapping[int, NDArray[np.intp]]

    def names(self) -> dict[int, str]:
        """Return what people call the agents of this process."""
        return {i: f"site {self.nodes[i]!r}" for i in self.rows}

    def split(self, rows: Rows) -> Sites[Rows]:
        """Return the sites with their rows."""
        return Sites(self.network, {i: rows.some(local) for i, local in self.rows.items()}, self.names())


@final
@dataclass(frozen=True)
class SitePlan:
    """The arguments of an estimator that say who the sites are."""

    graph: nx.Graph | None
    n_sites: int
    runtime: Runtime | None
    seed: int
    secure: bool = False

    @property
    def where(self) -> Runtime:
        """The runtime; raise unless it is one."""
        runtime = Lockstep() if self.runtime is None else self.runtime
        instance(runtime, Runtime, "runtime", "be a runtime such as dcgs.Lockstep()")
        if runtime.has_noise:
            raise ValueError(
                "the sites certify the gap of the model, which they cannot if messages are noisy; got a "
                "runtime whose faults have noise. Leave noise out."
            )
        return runtime

    def places(self, rows: Rows, labels: Any) -> Places:
        """Return where each of all rows is: by labels, or dealt out; rows of weight 0 are nowhere."""
        runtime, kept = self.where, np.arange(len(rows))
        if rows.weights is not None:
            kept = np.flatnonzero(rows.weights > 0.0)
            if len(kept) == 0:
                raise ValueError("sample_weight must be positive for some rows; it is 0 for all.")
        if labels is not None:
            given = site_labels(labels, len(rows))
            return self.by_label([given[row] for row in kept], kept)
        graph = self.dealt_graph(len(kept))
        nodes = nodes_of(graph)
        hosts = list(runtime.hosts(len(nodes)))
        dealt = deal(rows.A[kept], rows.targets[kept], len(hosts), self.seed)
        used, numbers = np.unique(dealt, return_inverse=True)
        if len(used) < len(hosts):  # there are fewer distinct rows, and equal rows go to one site
            if self.graph is not None or runtime.group().size > 1:
                raise ValueError(
                    f"equal rows are dealt to one site; there are {len(used)} distinct rows for the sites "
                    f"{[nodes[i] for i in hosts]}. Give fewer sites, or say which row is where by sites=."
                )
            graph, dealt = nx.complete_graph(len(used)), numbers
            nodes, hosts = list(graph), list(graph)
        return Places(
            Reductions(graph, runtime, secure=self.secure),
            nodes,
            {i: kept[dealt == n] for n, i in enumerate(hosts)},
        )

    def dealt_graph(self, most: int) -> nx.Graph:
        """Return the graph of sites to which data are dealt out, with at most so many nodes."""
        if self.graph is not None:
            return self.graph
        processes = self.where.group().size
        return nx.complete_graph(processes if processes > 1 else min(COUNT(self.n_sites, "n_sites"), most))

    def by_label(self, labels: list[Any], kept: NDArray[np.intp]) -> Places:
        """Return the sites that the labels of the rows name."""
        runtime = self.where
        graph = self._graph_of(labels)
        nodes = nodes_of(graph)
        rows = {i: kept[[label == nodes[i] for label in labels]] for i in runtime.hosts(len(nodes))}
        empty = [nodes[i] for i, local in rows.items() if len(local) == 0]
        if empty:
            raise ValueError(
                f"every site must have rows; there are none at {empty}. Leave these nodes out of the graph."
            )
        return Places(Reductions(graph, runtime, secure=self.secure), nodes, rows)

    def _graph_of(self, labels: list[Any]) -> nx.Graph:
        """Return the graph whose nodes the labels are; raise if one of them is none of its nodes."""
        if self.graph is None:
            if self.where.group().size > 1:
                raise ValueError(
                    "with several processes the sites need a graph whose nodes they are, since no process "
                    "sees all of them; got graph=None."
                )
            return nx.complete_graph(sorted(set(labels)))
        nodes = nodes_of(self.graph)
        unknown = sorted(set(labels) - set(nodes), key=repr)
        if unknown:
            raise ValueError(f"every site must be a node of the graph; {unknown} are not among {nodes}.")
        return self.graph


def site_labels(sites: Any, rows: int) -> list[Any]:
    """Return the label of the site of each row; raise unless all are texts, or all are numbers."""
    # Else NumPy would turn numbers in a list of texts into texts.
    array = np.asarray(sites, dtype=object if isinstance(sites, list | tuple) else None)
    if array.shape != (rows,):
        raise ValueError(f"sites must have one label per row; got shape {array.shape} for {rows} rows.")
    labels: list[Any] = array.tolist()
    texts = isinstance(labels[0], str)
    for row, label in enumerate(labels):
        if not isinstance(label, str if texts else Real) or label != label:
            other = f" and {shown(labels[0])} in row 0" if row > 0 else ""
            raise ValueError(
                "sites must be all texts or all numbers, and none may be missing; got "
                f"{shown(label)} in row {row}{other}."
            )
    return labels


def row_weights(sample_weight: Any, X: Any) -> NDArray[np.float64] | None:
    """Return the weights of rows, or None without any; raise if one is negative or not finite."""
    if sample_weight is None:
        return None
    weights: NDArray[np.float64] = _check_sample_weight(sample_weight, X, dtype=np.float64)
    negative = np.flatnonzero(weights < 0.0)
    if len(negative):
        raise ValueError(
            f"sample_weight must be at least 0 in all rows; it is {weights[negative[0]]:g} in row "
            f"{negative[0]}, and negative in {len(negative)} of {len(weights)} rows."
        )
    return weights


def nodes_of(graph: nx.Graph) -> list[Hashable]:
    """Return the nodes in the order of the agents."""
    instance(graph, nx.Graph, "graph", "be a networkx.Graph, or None")
    numbered = set(graph) == set(range(len(graph)))
    return sorted(graph) if numbered else list(graph)


def as_seed(random_state: Any) -> int:
    """Return the seed of a ``random_state``; None is the same as 0, so that every fit can be repeated."""
    if random_state is None:
        return 0
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))
