"""The configuration of a fit: everything that the user asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, final

from dcgs.fitting.data import DataSource
from dcgs.fitting.graphs import GraphSpec
from dcgs.fitting.problems import Problem
from dcgs.fitting.readers import EntriesLayout, SamplesLayout
from dcgs.fitting.sample_problem import SampleOptions
from dcgs.fitting.sets import SetSpec
from dcgs.front import Checkpoint
from dcgs.methods import Method


@final
@dataclass(frozen=True)
class FitConfig:
    """What to fit, to which data, how, and when to stop.

    ``rules`` are the stopping rules of :func:`dcgs.minimize`. ``measure`` is the number of iterations between
    two measurements of all agents' losses; None: no measurements. ``shape`` is the shape of a matrix to
    complete; None: found from the data. ``ridge`` is that of the offsets of ratings; None: no offsets.
    ``samples`` is for all problems but completion. ``options`` are the user's options by flag, as texts; they
    must be the same in all processes.
    """

    problem: Problem
    source: DataSource
    layout: SamplesLayout | EntriesLayout
    graph: GraphSpec
    set: SetSpec
    method: Method
    rules: Mapping[str, Any]
    agents: int | None = None
    shape: tuple[int, int] | None = None
    measure: int | None = None
    seed: int = 0
    checkpoint: Checkpoint | None = None
    samples: SampleOptions = field(default_factory=SampleOptions)
    ridge: float | None = 5.0
    options: Mapping[str, str] = field(default_factory=dict)

    def check(self) -> None:
        """Raise if the options contradict each other; read no file."""
        self.set.check()
        if self.set.finds_radius and self.problem.entries and self.set.name != "nuclear":
            raise ValueError(
                f"--radius auto of {self.problem.name} is for --set nuclear; got {self.set.name}. "
                "Give a number, or leave --set out."
            )
        if self.measure is not None or self.method.stops_itself:
            return
        name = type(self.method).__name__
        if any(self.rules.get(rule) is not None for rule in ("gap", "gap_abs")):
            raise ValueError(
                f"a gap ends a run of {name} only if it is measured during the run, which needs all agents' "
                "losses. Add --measure, or use --method fastdcgs, whose agents certify the gap themselves."
            )
        if all(rule is None for rule in self.rules.values()):
            limits = "--rounds, --iterations or --seconds"
            if not self.method.projects:
                limits = "--rounds, --iterations, --seconds or --lmo-calls"
            raise ValueError(
                f"a run of {name} that is not measured must have a limit; got none. "
                f"Give {limits}; or --measure."
            )

    def count_agents(self, processes: int) -> int:
        """Return the number of agents: as given, or the number of nodes, of processes or of files."""
        if self.agents is not None:
            agents = self.agents
        elif processes == 1 and self.source.is_per_agent:
            agents = self.source.count_files()
        else:
            agents = self.graph.node_count() or (processes if processes > 1 else 0)
        if agents == 0:
            raise ValueError(
                "the number of agents must be given for one file of data; give --agents N, "
                "a graph that has a number of nodes, or a file for each agent with {agent} in its name."
            )
        self.source.check(agents)
        return agents
