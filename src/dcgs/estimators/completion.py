"""DecentralizedCompletion: a matrix from some of its entries, such as ratings, over several sites."""

from __future__ import annotations

import warnings
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Self, final
from zlib import crc32

import networkx as nx
import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_is_fitted

from dcgs.estimators.linear import certified_gap, warn_of_path, warn_unless_certified
from dcgs.estimators.sites import as_seed, graph_of_sites, nodes_of, site_labels
from dcgs.preprocessing import Reductions, Sent
from dcgs.preprocessing.ratings_path import ratings_path
from dcgs.ratings import RatingsConfig
from dcgs.ratings.completing import Cost, Site, fit_placed, place
from dcgs.ratings.ids import as_texts
from dcgs.ratings.offsets import OffsetsTask
from dcgs.runtime import Lockstep, Runtime
from dcgs.validation import COUNT, POSITIVE, instance, vector


@final
@dataclass(eq=False, repr=False)
class DecentralizedCompletion(BaseEstimator):
    """Offsets and a matrix of small nuclear norm, for entries at several sites that stay there.

    A value is predicted as mean + offset of its row + offset of its column + an entry of a matrix whose
    singular values sum to at most the radius. Rows belong to a site, as users to a shop: their ids are never
    sent, and equal ids at two sites are two rows. The ids of columns are agreed on by all sites.

    Parameters
    ----------
    radius : float or "auto", default="auto"
        The bound of the nuclear norm. ``"auto"`` finds it on a tenth of the values, which sites hold out.
    graph : networkx.Graph, default=None
        Which sites exchange messages; its nodes are the sites. None connects all sites with each other.
    n_sites : int, default=4
        The number of sites to which rows are dealt out if neither ``sites`` nor a graph is given.
    runtime : runtime of dcgs, default=None
        Who sends messages; None is :class:`dcgs.Lockstep`.
    ridge : float or None, default=5.0
        How much offsets are shrunk; an offset counts this number of zeros. None leaves offsets out.
    gap : float, default=1e-3
        The loss exceeds the least one by at most this share of what the matrix explains; certified.
    random_state : int, RandomState or None, default=None
        Which values are held out. None is the same as 0.

    Attributes
    ----------
    ratings_ : dcgs.ratings.FittedRatings
        The model of each site; ``ratings_.agents[0].top(row)`` lists the best columns of a row.
    result_, path_, radius_, gap_, n_iter_, rounds_, bytes_, sent_
        As those of :class:`DecentralizedLasso`.

    Examples
    --------
    >>> rows, cols = np.divmod(np.arange(24), 6)
    >>> values = 3.0 + (rows % 2) - (cols % 2)
    >>> model = DecentralizedCompletion(radius=1.0, ridge=0.01).fit(rows, cols, values, sites=rows // 2)
    >>> model.predict([0, 1], [0, 0]).round(1)
    array([3., 4.])
    """

    # scikit-learn reads the parameters from the signature that these make.
    radius: float | str = "auto"
    _: KW_ONLY
    graph: Any = None
    n_sites: int = 4
    runtime: Any = None
    ridge: float | None = 5.0
    gap: float = 1e-3
    random_state: Any = None

    def fit(self, rows: ArrayLike, cols: ArrayLike, values: ArrayLike, sites: Any = None) -> Self:
        """Fit the model to values at pairs of ids of rows and columns.

        ``sites`` has the label of a site for each value. None deals rows out.
        """
        seed = as_seed(self.random_state)
        runtime: Runtime = Lockstep() if self.runtime is None else self.runtime
        instance(runtime, Runtime, "runtime", "be a runtime such as dcgs.Lockstep()")
        given = as_texts(rows), as_texts(cols), vector(values, "values")
        graph, split = self._split(*given, sites, runtime)
        network, cost = Reductions(graph, runtime), Cost()
        options: dict[str, Any] = {"gap": POSITIVE(self.gap, "gap")}
        config = RatingsConfig(1.0, self.ridge, runtime, options)  # raises unless the ridge is valid
        radius = None if self.radius == "auto" else POSITIVE(self.radius, "radius (or 'auto')")
        placed, path = place(split, graph, runtime, cost).inspected(), None
        if radius is None:
            path = ratings_path(placed.parts, OffsetsTask(placed.shape, True, self.ridge), network, seed)
            radius = path.best.radius
            (count,) = network.sum(
                "how many ratings there are", {i: [len(part.values)] for i, part in placed.parts.items()}
            )
            decrease = (path.null.loss - path.best.loss) * float(count)
            options |= {"x0": path.best_model} | ({"gap_abs": self.gap * decrease} if decrease > 0.0 else {})
        self.ratings_ = fit_placed(placed, graph, replace(config, radius=radius, options=options), cost)
        self.result_ = self.ratings_.result
        here = int(np.sum(cost.bytes[list(network.hosts)]))
        network.sent.append(Sent("offsets and matrix", "fit", 0, cost.rounds, here))
        self.sent_, self.path_, self.radius_ = list(network.sent), path, radius
        self.rounds_, self.bytes_ = network.rounds, network.bytes
        self.n_iter_ = self.result_.iterations
        self.gap_ = certified_gap(self.result_)
        for note in placed.notes:
            warnings.warn(note, UserWarning, stacklevel=2)
        warn_of_path(path)
        warn_unless_certified([self.result_], self.gap)
        return self

    def predict(self, rows: ArrayLike, cols: ArrayLike) -> NDArray[np.float64]:
        """Return predictions for pairs of ids; an unseen id gets the offsets that are known."""
        check_is_fitted(self, "ratings_")
        return self.ratings_.predict(rows, cols)

    def score(self, rows: ArrayLike, cols: ArrayLike, values: ArrayLike) -> float:
        """Return R² of the predictions."""
        return float(r2_score(values, self.predict(rows, cols)))

    def _split(
        self, rows: Any, cols: Any, values: NDArray[np.float64], sites: Any, runtime: Runtime
    ) -> tuple[nx.Graph, dict[int, Site]]:
        """Return the graph, and the ids and values of each site of this process."""
        if not len(rows) == len(cols) == len(values) > 0:
            raise ValueError(
                "rows, cols and values must have one length, at least 1; got "
                f"{len(rows)}, {len(cols)} and {len(values)}."
            )
        processes = runtime.group().size
        graph, labels = self.graph, None if sites is None else site_labels(sites, len(rows))
        if labels is not None:
            graph = graph_of_sites(graph, labels, runtime)
        elif graph is None:
            count = min(COUNT(self.n_sites, "n_sites"), len(set(rows.tolist())))
            graph = nx.complete_graph(processes if processes > 1 else count)
        nodes = nodes_of(graph)
        hosts = list(runtime.hosts(len(nodes)))
        labels = self._dealt(rows, hosts, nodes) if labels is None else labels
        split: dict[int, Site] = {}
        for i in hosts:
            own = np.array([label == nodes[i] for label in labels])
            if not own.any():
                raise ValueError(f"every site must have values; there are none at site {nodes[i]!r}.")
            split[i] = rows[own], cols[own], values[own]
        return graph, split

    def _dealt(self, rows: Any, hosts: list[int], nodes: list[Any]) -> list[Any]:
        """Return a site for each value: rows are dealt out, in the order of their hashes."""
        seed = as_seed(self.random_state)
        ids = sorted(set(rows.tolist()), key=lambda text: (crc32(text, seed), text))
        place = {text: nodes[hosts[n * len(hosts) // len(ids)]] for n, text in enumerate(ids)}
        return [place[text] for text in rows.tolist()]
