"""Carry out experiments, one run at a time, and keep each as soon as it is done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol, final

from dcgs.datasets import DataNotFoundError, DownloadError
from dcgs.experiments import cost
from dcgs.experiments.base import Experiment, Problem, Run
from dcgs.experiments.folder import Folder, FolderError
from dcgs.experiments.words import sentence
from dcgs.front import Callback, Result, Snapshot, minimize


class Watcher(Protocol):
    """Who is told how the work goes on."""

    def say(self, sentence: str) -> None:
        """Take a sentence about the work."""

    def bar(self, name: str, iterations: int, lmo_calls: int | None) -> Callback:
        """Return a callback that shows how far a run is that ends at so many iterations or calls."""


@final
@dataclass(frozen=True)
class Work:
    """A study under way: its folder, its manifest, its seed, and who watches."""

    folder: Folder
    manifest: dict[str, Any]
    seed: int
    watcher: Watcher

    def carry_out(self, experiments: Sequence[Experiment]) -> None:
        """Carry out what is not yet done of the experiments; those without data are noted.

        All data are read before the first run, so that what is wrong with them is known at once.
        """
        problems = {experiment.name: self._prepared(experiment) for experiment in experiments}
        self.folder.write_manifest(self.manifest)
        for experiment in experiments:
            problem = problems.pop(experiment.name)
            if problem is not None:
                self._carry_out(experiment, problem)

    @property
    def anything(self) -> bool:
        """Whether any run has been kept."""
        return any(entry["runs"] for entry in self.manifest["experiments"].values())

    def measure_cost(self, side: int) -> None:
        """Time the oracle at side × side, unless that was done before."""
        if "cost" in self.manifest:
            return
        self.watcher.say(f"oracle: timing it on a {side} × {side} matrix")
        self.manifest["cost"] = cost.measure(side, self.seed)
        self.folder.write_manifest(self.manifest)

    def _prepared(self, experiment: Experiment) -> Problem | None:
        """Return the problem, or None where nothing is left to do or the data are not there."""
        entry = self.manifest["experiments"].setdefault(
            experiment.name, {"title": experiment.title, "runs": {}}
        )
        entry.pop("skipped", None)
        _check_same_runs(experiment, entry)
        if not self._left(experiment):
            self.watcher.say(f"{experiment.name}: done before")
            return None
        try:
            problem = experiment.prepare()
        except (DataNotFoundError, DownloadError) as error:
            entry["skipped"] = {"why": experiment.missing, "how": sentence(str(error))}
            self.watcher.say(f"{experiment.name}: not run. {experiment.missing} {sentence(str(error))}")
            return None
        _check_same_data(experiment, entry, problem)
        entry |= _described(problem)
        return problem

    def _carry_out(self, experiment: Experiment, problem: Problem) -> None:
        self.watcher.say(f"{experiment.name}: {problem.sentence}")
        for run in self._left(experiment):
            done = self._run(experiment, problem, run)
            self.manifest["experiments"][experiment.name]["runs"][run.key] = done
            self.folder.write_manifest(self.manifest)

    def _left(self, experiment: Experiment) -> list[Run]:
        done = self.manifest["experiments"][experiment.name]["runs"]
        return [run for run in experiment.runs if run.key not in done]

    def _run(self, experiment: Experiment, problem: Problem, run: Run) -> dict[str, Any]:
        show = self.watcher.bar(run.label, run.iterations, run.lmo_calls)
        gauged: dict[str, list[float]] = {name: [] for name in problem.gauges}

        def watch(snapshot: Snapshot) -> None:
            for name, gauge in problem.gauges.items():
                gauged[name].append(gauge(snapshot.agents))
            show(snapshot)

        result = minimize(
            problem.objectives,
            problem.X,
            problem.graph,
            run.method(problem.distance),
            iterations=run.iterations,
            lmo_calls=run.lmo_calls,
            seed=self.seed,
            every=run.every,
            callback=watch,
        )
        columns = {name: column.tolist() for name, column in result.history.columns().items()}
        return {
            "label": run.label,
            "about": run.about,
            "scaling": run.scaling,
            "method": result.about["method"],
            "budget": _budget(run),
            "status": str(result.status),
            "notes": [*result.notes, *_unfinished(result)],
            "seconds": result.seconds,
            "rounds": result.rounds,
            "lmo_calls": int(result.lmo_calls.max()),
            "files": self.folder.keep(experiment.name, run.key, columns | gauged),
        }


def _described(problem: Problem) -> dict[str, Any]:
    return {
        "problem": problem.sentence,
        "source": asdict(problem.source) | {"kind": problem.source.kind.name},
        "degree": max(degree for _, degree in problem.graph.degree),
        "measures": [asdict(measure) for measure in problem.measures],
    }


def _budget(run: Run) -> dict[str, int | None]:
    return {"iterations": run.iterations, "every": run.every, "lmo_calls": run.lmo_calls}


def _unfinished(result: Result) -> list[str]:
    """Say what went into an iteration that is not in the history, since it was not finished."""
    calls = int(result.lmo_calls.max() - result.history.lmo_calls[-1])
    if calls <= 0:
        return []
    return [f"{calls:,} further oracle calls went into an iteration that was not finished."]


def _check_same_runs(experiment: Experiment, entry: dict[str, Any]) -> None:
    """Raise if earlier runs of the experiment are not among those to be made, or had other budgets."""
    budgets = {run.key: _budget(run) for run in experiment.runs}
    other = [key for key, run in entry["runs"].items() if run["budget"] != budgets.get(key)]
    if other:
        raise FolderError(
            f"an earlier run can only be continued by the version of dcgs that made it; of {experiment.name} "
            f"{', '.join(other)} would be run otherwise now. Choose another folder with --out."
        )


def _check_same_data(experiment: Experiment, entry: dict[str, Any], problem: Problem) -> None:
    """Raise if earlier runs of the experiment were on other data."""
    source = _described(problem)["source"]
    if entry["runs"] and entry["source"] != source:
        raise FolderError(
            f"all methods of an experiment must see the same data; those of {experiment.name} were run on "
            f"{entry['source']['files']}, now there are {source['files']}. Choose another folder with --out."
        )
