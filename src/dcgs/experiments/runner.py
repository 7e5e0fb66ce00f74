"""Run experiments, and record each run as soon as it is done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol, final

from dcgs.datasets import DataNotFoundError, DownloadError
from dcgs.experiments import oracle_cost
from dcgs.experiments.manifest import write_manifest
from dcgs.experiments.numbers import capitalized
from dcgs.experiments.results import Experiment, PlannedRun, Prepared
from dcgs.front import Callback, versions
from dcgs.study import FolderError, ResultCache, execute


class ProgressDisplay(Protocol):
    """Shows how far the work is."""

    def say(self, sentence: str) -> None:
        """Print a sentence."""

    def bar(self, name: str, iterations: int, lmo_calls: int | None) -> Callback:
        """Return a callback that shows the progress of a run with these limits."""


@final
@dataclass(frozen=True)
class Runner:
    """The folder of a study, its manifest, its seed, and the display of progress."""

    cache: ResultCache
    manifest: dict[str, Any]
    seed: int
    progress: ProgressDisplay

    def run(self, experiments: Sequence[Experiment]) -> None:
        """Make all runs of the experiments that are not recorded; note those without data.

        All data are read before the first run, so that errors in them are reported at once.
        """
        prepared = {experiment.name: self._prepare(experiment) for experiment in experiments}
        write_manifest(self.cache, self.manifest)
        for experiment in experiments:
            data = prepared.pop(experiment.name)
            if data is not None:
                self.progress.say(f"{experiment.name}: {data.description}")
                for run in self._left(experiment):
                    self._run(experiment, data, run)

    @property
    def has_runs(self) -> bool:
        """Whether any run is recorded."""
        return any(self.cache.path.glob("runs/*/*.json"))

    def measure_oracle(self, side: int) -> None:
        """Time the oracle on a side × side matrix, unless the manifest has it."""
        if "cost" not in self.manifest:
            self.progress.say(f"oracle: timing it on a {side} × {side} matrix")
            self.manifest["cost"] = oracle_cost.measure(side, self.seed)
            write_manifest(self.cache, self.manifest)

    def _prepare(self, experiment: Experiment) -> Prepared | None:
        """Return problem and data, or None if nothing is left to run or the data are missing."""
        entry = self.manifest["experiments"].setdefault(experiment.name, {})
        entry.pop("skipped", None)
        entry["title"] = experiment.title
        entry["runs"] = {
            run.key: {"label": run.label, "about": run.about, "scaling": run.scaling}
            for run in experiment.runs
        }
        left = self._left(experiment)
        if not left:
            self.progress.say(f"{experiment.name}: done before")
            return None
        try:
            data = experiment.prepare()
        except (DataNotFoundError, DownloadError) as error:
            entry["skipped"] = {"why": experiment.missing, "how": capitalized(str(error))}
            self.progress.say(f"{experiment.name}: not run. {experiment.missing} {capitalized(str(error))}")
            return None
        described = _described(data)
        if len(left) < len(experiment.runs) and entry["source"] != described["source"]:
            raise FolderError(
                f"all methods of an experiment must see the same data; those of {experiment.name} were run "
                f"on {entry['source']['files']}, now there are {described['source']['files']}. "
                "Choose another folder with --out."
            )
        entry |= described
        return data

    def _left(self, experiment: Experiment) -> list[PlannedRun]:
        done = (self.cache.has_run(experiment.name, run.key, self._key(run)) for run in experiment.runs)
        return [run for run, is_done in zip(experiment.runs, done, strict=True) if not is_done]

    def _key(self, run: PlannedRun) -> dict[str, Any]:
        return {"seed": self.seed, "versions": versions(), "budget": asdict(run.budget)}

    def _run(self, experiment: Experiment, data: Prepared, run: PlannedRun) -> None:
        iterations = run.budget.iterations
        assert iterations is not None
        show = self.progress.bar(run.label, iterations, run.budget.lmo_calls)
        result = execute(data.problem, run.method(data.distance), run.budget, self.seed, show)
        self.cache.save_run(experiment.name, run.key, self._key(run), result)


def _described(data: Prepared) -> dict[str, Any]:
    return {
        "problem": data.description,
        "source": asdict(data.source) | {"kind": data.source.kind.name},
        "degree": max(degree for _, degree in data.problem.graph.degree),
        "measures": [asdict(measure) for measure in data.measures],
    }
