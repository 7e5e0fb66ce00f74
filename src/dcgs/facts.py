"""What every agent knows before a run: numbers of the network, of the set and of all agents' data.

``run/distributed.py`` computes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True)
class ProjectionFacts:
    """What every agent of a method that projects knows as well; see :class:`Facts`."""

    extreme_eigenvalues: tuple[float, float]
    mixing_eigenvalues: tuple[float, ...]
    smoothness: float
    mean_smoothness: float


@final
@dataclass(frozen=True)
class SizeFacts:
    """Sizes of graph and data by which FastDCGS chooses its form; see :class:`Facts`."""

    most_neighbors: int = 1
    most_entries: int = 0
    has_uneven_columns: bool = False
    all_quadratic: bool = True
    spread: float = 1.0
    curved: float = 1.0
    fewest_rows: int = 1
    alike: bool = True


@final
@dataclass(frozen=True)
class Facts:
    """The numbers that every agent knows before the run. Some of them depend on the agents' data.

    * ``agents`` is the number of agents, ``norm_L`` is ‖L‖, and ``set_diameter`` is the diameter of X.
    * ``strong_convexity`` is the smallest of all agents (it depends on data). The theorems hold with it.
    * ``horizon`` is the number of iterations of the run, and ``accuracy`` the accuracy to reach, if known.
    * For FastDCGS: ``is_complete`` is True if all agents are neighbors of each other.
      ``normalized_norm`` is ν, the largest eigenvalue of D^(−1/2) L D^(−1/2). Here L is the Laplacian with
      the effective resistances as edge weights, and D its diagonal. ``connectivity`` is the smallest
      positive eigenvalue divided by ν. ``hub`` is the first agent that is a neighbor of all others, or None.
      ``mean_degree`` is the mean number of neighbors of an agent.
    * For matrix completion, from data: ``separate_rows`` is True if the rows of different agents are in
      different intervals. ``entry_smoothness`` is the largest smoothness of all agents. ``quadratic_entries``
      is the number of entries that all agents observe, 0 if some loss is not quadratic.
    * ``sparse_columns``, from data: True if every agent has a sparse matrix with even columns, of which some
      are empty.
    * ``sizes``, for methods that declare ``uses_sizes = True``: ``most_neighbors`` of an agent,
      ``most_entries`` of an agent's data that are stored, ``has_uneven_columns`` if the columns of some agent
      differ so much that FastDCGS needs a preconditioner, and ``all_quadratic`` if all agents have quadratic
      losses. ``spread`` is the smoothness of the agents over their mean curvature, divided by what this is
      for as many rows of random numbers: how ill-conditioned the data are. ``curved`` is the mean second
      derivative of the losses where X starts, as a share of the largest: small for Huber losses with large
      residuals. ``fewest_rows`` are those of the agent with the fewest, and ``alike`` is True if the mean
      curvatures of a row of two agents differ by a factor of ten at most: one agent's data are then a good
      model of all data, the better the more rows. All but the first depend on data.
    * For methods that declare ``projects = True``; for others, reading them raises ValueError.
      ``extreme_eigenvalues`` are the smallest and the second largest eigenvalue of the Metropolis matrix W.
      ``mixing_eigenvalues`` are all its eigenvalues except 1, each once; empty if there are too many agents
      to compute them.
      ``smoothness`` is the largest of all agents, and ``mean_smoothness`` that of f/m. Both depend on data.

    >>> import dcgs
    >>> facts = dcgs.Facts(agents=10, norm_L=4.0, strong_convexity=0.0, set_diameter=2.0)
    >>> facts.positive_norm, facts.is_complete
    (4.0, True)
    """

    agents: int
    norm_L: float
    strong_convexity: float
    set_diameter: float
    is_complete: bool = True
    normalized_norm: float = 2.0
    connectivity: float = 1.0
    hub: int | None = None
    separate_rows: bool = False
    entry_smoothness: float = 0.0
    quadratic_entries: int = 0
    horizon: int | None = None
    accuracy: float | None = None
    projection: ProjectionFacts | None = None
    sizes: SizeFacts = SizeFacts()
    mean_degree: float = 1.0
    sparse_columns: bool = False

    @property
    def extreme_eigenvalues(self) -> tuple[float, float]:
        """The smallest and the second largest eigenvalue of the Metropolis matrix."""
        return self._computed("extreme_eigenvalues").extreme_eigenvalues

    @property
    def mixing_eigenvalues(self) -> tuple[float, ...]:
        """The eigenvalues of the Metropolis matrix except 1, each once."""
        return self._computed("mixing_eigenvalues").mixing_eigenvalues

    @property
    def smoothness(self) -> float:
        """The largest smoothness of all agents."""
        return self._computed("smoothness").smoothness

    @property
    def mean_smoothness(self) -> float:
        """The smoothness of f/m."""
        return self._computed("mean_smoothness").mean_smoothness

    def _computed(self, name: str) -> ProjectionFacts:
        if self.projection is None:
            raise ValueError(
                f"agent.facts.{name} is computed only for methods that project. Declare projects = True in "
                "the class of the method, or use agent.f, which has the numbers of one agent."
            )
        return self.projection

    @property
    def positive_norm(self) -> float:
        """‖L‖, or 1 for a single agent: there L = 0, and the theorems hold with any positive number."""
        return self.norm_L if self.agents > 1 else 1.0
