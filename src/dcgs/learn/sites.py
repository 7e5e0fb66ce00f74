"""Who takes part in a fit: the network of agents, and the data of the agents of this process.

An agent is a node of the graph. People call it a site: ``names`` are what errors and notes say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Generic, TypeVar, final

import networkx as nx
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dcgs.learn.sums import Reductions
from dcgs.methods import Method
from dcgs.run.result import Callback
from dcgs.runtime import Lockstep, Runtime
from dcgs.validation import vector

Data = TypeVar("Data")
RUN = "the run"
"""The name of the run of a fit, in the record of what was sent."""


@final
@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of an agent: ``A`` with one column per feature, dense or a csr_array, and one target per row.

    ``weights`` say how often a row counts; None means once. ``columns`` are the names of the features, which
    must be the same at all sites; None if they have none. ``subjects`` are numbers of the persons of rows;
    None if every row is another person.

    >>> Rows([[1.0, 2.0], [3.0, 4.0]], [0.0, 1.0]).features
    2
    """

    A: Any
    targets: NDArray[np.float64]
    weights: NDArray[np.float64] | None = None
    columns: tuple[str, ...] | None = None
    subjects: NDArray[np.intp] | None = None

    def __post_init__(self) -> None:
        matrix = sp.csr_array(self.A, dtype=np.float64) if sp.issparse(self.A) else np.asarray(self.A, float)
        object.__setattr__(self, "A", matrix)
        object.__setattr__(self, "targets", vector(self.targets, "targets"))
        if self.weights is not None:
            object.__setattr__(self, "weights", vector(self.weights, "weights"))
        if len({len(self.targets), self.A.shape[0], len(self.counts)}) > 1:
            raise ValueError(
                f"there must be one target and one weight per row; there are {self.A.shape[0]} rows, "
                f"{len(self.targets)} targets and {len(self.counts)} weights."
            )

    def __len__(self) -> int:
        return len(self.targets)

    @property
    def counts(self) -> NDArray[np.float64]:
        """The weight of each row; 1 without weights."""
        return np.ones(self.A.shape[0]) if self.weights is None else self.weights

    @property
    def features(self) -> int:
        """The number of columns."""
        return int(self.A.shape[1])

    @property
    def is_sparse(self) -> bool:
        """Whether the features are stored sparse."""
        return bool(sp.issparse(self.A))

    def some(self, rows: NDArray[Any]) -> Rows:
        """Return the rows with these numbers, or where a mask is True."""
        weights = None if self.weights is None else self.weights[rows]
        subjects = None if self.subjects is None else self.subjects[rows]
        return replace(self, A=self.A[rows], targets=self.targets[rows], weights=weights, subjects=subjects)

    def without(self, columns: NDArray[np.bool_]) -> Rows:
        """Return the same rows with 0 in some columns."""
        if not columns.any():
            return self
        kept = np.where(columns, 0.0, 1.0)
        return replace(self, A=self.A @ sp.diags_array(kept) if self.is_sparse else self.A * kept)

    def with_targets(self, targets: NDArray[np.float64]) -> Rows:
        """Return the same rows with other targets."""
        return replace(self, targets=targets)

    def weighted_by(self, factors: NDArray[np.float64]) -> Rows:
        """Return the same rows with weights multiplied by these factors."""
        return replace(self, weights=self.counts * factors)


@final
@dataclass(frozen=True, eq=False)
class Sites(Generic[Data]):
    """The network of a fit, and the data of the agents of this process.

    ``names`` are what people call these agents.

    >>> sites = Sites.of([Rows([[1.0]], [2.0]), Rows([[3.0]], [4.0])])
    >>> len(sites.network.graph), sites.names[1]
    (2, 'site 1')
    """

    network: Reductions
    data: Mapping[int, Data]
    names: Mapping[int, str]

    @classmethod
    def of(
        cls,
        data: Sequence[Data] | Mapping[int, Data],
        graph: nx.Graph | None = None,
        runtime: Runtime | None = None,
    ) -> Sites[Data]:
        """Return the sites of these data, one for each agent of this process; None connects all sites."""
        given = dict(data.items() if isinstance(data, Mapping) else enumerate(data))
        where = Lockstep() if runtime is None else runtime
        network = Reductions(nx.complete_graph(len(given)) if graph is None else graph, where)
        return cls(network, given, {i: f"site {i}" for i in given})


class Remedy(Enum):
    """What to do about an error on the data of sites; the value is in the words of Python.

    ``{}`` stands for what the error is about, such as a column.
    """

    SAME_NAMES = "Give all sites data frames, or none."
    SAME_COLUMNS = "Rename them, or leave them out of X at all sites."
    SAME_ORDER = "Give X its columns in one order at all sites, such as X[sorted(X)]."
    CORRECT_COLUMN = "Correct it, or leave {} out of X at all sites."
    LEAVE_OUT_COLUMN = "Leave {} out of X at all sites."
    NO_CATEGORY = "Leave it out of X at all sites."
    CORRECT_NAME = "Correct the name."
    SAME_LABELS = "Write them alike."
    FEWER_HELD_OUT = "Hold out fewer rows."
    SAME_OPTIONS = "Give the same at all sites."
    LEAVE_OUT_SITE = "Leave it out."
    SMALL_SITE = "Leave the site out."
    NO_FLOORS = "Fit without floors (floors=None), or with more sites."
    SMALL_CLASS = "Merge small classes, or leave their rows out."
    FEWER_FLOORS = "Lower floors, or fit without them."
    COARSER = "Give a radius, or lower floors."


@final
class SitesError(ValueError):
    """Data of sites that do not go together, or with which there is no fit.

    ``problem`` says what must hold and what was given, ``remedy`` what to do, of ``about``.

    >>> error = SitesError("column 'b' must have a value; it is empty.", Remedy.LEAVE_OUT_COLUMN, "b")
    >>> print(error)
    column 'b' must have a value; it is empty. Leave b out of X at all sites.
    >>> error.worded({Remedy.LEAVE_OUT_COLUMN: "Leave it out with --drop {}."})
    "column 'b' must have a value; it is empty. Leave it out with --drop b."
    """

    def __init__(self, problem: str, remedy: Remedy | None = None, about: str = "") -> None:
        self.problem, self.remedy, self.about = problem, remedy, about
        ValueError.__init__(self, self.worded({}))

    def worded(self, words: Mapping[Remedy, str]) -> str:
        """Return the error with the remedy in these words, or in those of Python."""
        if self.remedy is None:
            return self.problem
        return f"{self.problem} {words.get(self.remedy, self.remedy.value).format(self.about)}"


@final
@dataclass(frozen=True)
class RunSpec:
    """How the run of a fit is made, and when it ends: arguments of :func:`dcgs.minimize`.

    ``rules`` are stopping rules; those that are None are not given. ``every`` is the number of iterations
    between measurements of all agents' losses, None for none.
    """

    rules: Mapping[str, Any] = field(default_factory=dict)
    method: Method | None = None
    seed: int = 0
    every: int | None = None
    callback: Callback | None = None
    checkpoint: Any = None

    def with_default(self, gap: float) -> RunSpec:
        """Return the run with this gap as its rule, if no rule was given."""
        given = {name: value for name, value in self.rules.items() if value is not None}
        return replace(self, rules=given or {"gap": gap})

    def arguments(self, explained: float = 0.0) -> dict[str, Any]:
        """Return the arguments of ``minimize``.

        ``explained`` is the decrease of the loss up to the start of the run, which counts for the gap.
        """
        rules = dict(self.rules)
        if explained > 0.0 and "gap" in rules and "gap_abs" not in rules:
            rules["gap_abs"] = rules["gap"] * explained
        settings = {"method": self.method, "seed": self.seed, "every": self.every}
        return {**rules, **settings, "callback": self.callback, "checkpoint": self.checkpoint}
