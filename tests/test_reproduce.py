"""Experiments carried out, interrupted, continued and read again, on a problem of a few numbers."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

import networkx as nx
import numpy as np
import pytest

from dcgs.datasets import BrokenDataError, DataNotFoundError, DownloadError, Kind, Source, lasso_synthetic
from dcgs.experiments.catalog import NAMES, Options, experiment
from dcgs.experiments.findings import load
from dcgs.experiments.manifest import open_manifest, write_manifest
from dcgs.experiments.results import Experiment, PlannedRun, Prepared, Study
from dcgs.experiments.runner import Runner
from dcgs.front import Callback, Result, Snapshot, minimize
from dcgs.link import Link
from dcgs.methods import DCGS, DFW
from dcgs.points import Point
from dcgs.schedules import Theorem1
from dcgs.sets import L1Ball
from dcgs.study import Budget, FolderError, Problem, ResultCache

SETTINGS = {"seed": 0}


@dataclass
class Display:
    """Records what it shows; ``interrupt`` names a run that fails at its second measure."""

    interrupt: str | None = None
    said: list[str] = field(default_factory=list)
    bars: list[tuple[str, int]] = field(default_factory=list)

    def say(self, sentence: str) -> None:
        self.said.append(sentence)

    def bar(self, name: str, iterations: int, lmo_calls: int | None) -> Callback:
        self.bars.append((name, iterations))
        return self._interrupt if name == self.interrupt else _go_on

    @staticmethod
    def _interrupt(snapshot: Snapshot) -> None:
        assert snapshot.iterations < 1, "interrupted"


def _go_on(snapshot: Snapshot) -> None:
    return None


def dcgs(balance: float) -> Callable[[float], DCGS]:
    return lambda distance: DCGS(schedule=Theorem1(distance=distance, balance=balance), answer="last")


RUNS = (
    PlannedRun("dfw", "DFW", "the baseline.", lambda distance: DFW(), Budget(20, every=5)),
    PlannedRun("dcgs-theorem", "DCGS", "as printed.", dcgs(1.0), Budget(4)),
    PlannedRun("dcgs-x10", "ten", "scaled.", dcgs(10.0), Budget(12), scaling=10.0),
    PlannedRun("dcgs-x0.1", "a tenth", "scaled.", dcgs(0.1), Budget(12), scaling=0.1),
)


def size(agents: Sequence[Point]) -> float:
    return float(max(np.abs(x).sum() for x in agents))


def prepared(seed: int = 0, source: Source | None = None, radius: float = 200.0) -> Prepared:
    data = lasso_synthetic(40, 30, 3, seed=seed)
    problem = Problem(data.objectives(4), L1Ball(30, radius), nx.cycle_graph(4), {"size": size})
    return Prepared(problem, source or data.source, 100.0, "small")


LASSO = Experiment("lasso-synthetic", "Lasso", prepared, RUNS)


def missing() -> NoReturn:
    raise DataNotFoundError("get it there and put it here.")


def broken() -> NoReturn:
    raise BrokenDataError("line 7 is no rating.")


MISSING = Experiment("completion-movielens", "MovieLens", missing, RUNS, "it is not on this machine.")


def runner(path: Path, display: Display | None = None, seed: int = 0) -> Runner:
    cache = ResultCache(path)
    return Runner(cache, open_manifest(cache, SETTINGS), seed, display or Display())


def files(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted((path / "data").rglob("*.csv"))}


def loaded(path: Path) -> Study:
    return load(ResultCache(path), Link())


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("done")
    runner(path).run([LASSO, MISSING])
    return path


def test_every_run_is_recorded_with_all_measures_and_metrics(done: Path) -> None:
    assert sorted(files(done)) == ["dcgs-theorem.csv", "dcgs-x0.1.csv", "dcgs-x10.csv", "dfw.csv"]
    for content in files(done).values():
        assert content.splitlines()[0] == (
            b"iterations,rounds,messages,bytes,peak_bytes,lmo_calls,projections,"
            b"local_loss,mean_loss,worst_loss,disagreement,gap,certified_gap,size"
        )
    rows = files(done)["dfw.csv"].splitlines()[1:]
    assert [row.split(b",")[0] for row in rows] == [b"0", b"5", b"10", b"15", b"20"]


def test_the_same_seed_gives_the_same_digits(done: Path, tmp_path: Path) -> None:
    runner(tmp_path).run([LASSO])
    assert files(tmp_path) == files(done)


def test_another_seed_gives_others(done: Path, tmp_path: Path) -> None:
    runner(tmp_path).run([replace(LASSO, prepare=lambda: prepared(seed=1))])
    assert all(content != files(done)[name] for name, content in files(tmp_path).items())


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.key)
def test_runs_before_an_interruption_are_recorded_and_the_rest_is_run_next_time(
    run: PlannedRun, done: Path, tmp_path: Path
) -> None:
    before = RUNS[: RUNS.index(run)]
    with pytest.raises(AssertionError, match="interrupted"):
        runner(tmp_path, Display(interrupt=run.label)).run([LASSO])
    assert sorted(files(tmp_path)) == sorted(f"{earlier.key}.csv" for earlier in before)
    assert list(tmp_path.rglob("*.part")) == []
    display = Display()
    runner(tmp_path, display).run([LASSO])
    assert [name for name, _ in display.bars] == [later.label for later in RUNS[len(before) :]]
    assert files(tmp_path) == files(done)


def test_recorded_runs_are_not_repeated(done: Path) -> None:
    display = Display()
    runner(done, display).run([LASSO])
    assert display.bars == []
    assert display.said == ["lasso-synthetic: done before"]


def test_an_experiment_without_data_is_skipped_and_the_others_run(done: Path) -> None:
    study = loaded(done)
    assert [findings.name for findings in study.findings] == ["lasso-synthetic"]
    assert [(s.name, s.why, s.how) for s in study.skipped] == [
        ("completion-movielens", "it is not on this machine.", "Get it there and put it here.")
    ]


def test_an_experiment_whose_download_fails_is_skipped_and_the_others_run(tmp_path: Path) -> None:
    def fetch() -> NoReturn:
        raise DownloadError("the server must answer; it did not.")

    runner(tmp_path).run([replace(MISSING, prepare=fetch), LASSO])
    study = loaded(tmp_path)
    assert [findings.name for findings in study.findings] == ["lasso-synthetic"]
    assert [skipped.how for skipped in study.skipped] == ["The server must answer; it did not."]


def test_once_the_data_are_there_the_experiment_is_run(tmp_path: Path) -> None:
    runner(tmp_path).run([MISSING])
    runner(tmp_path).run([replace(MISSING, prepare=prepared)])
    study = loaded(tmp_path)
    assert [findings.name for findings in study.findings] == ["completion-movielens"]
    assert study.skipped == []


def test_broken_data_end_it_before_the_first_run(tmp_path: Path) -> None:
    display = Display()
    with pytest.raises(BrokenDataError, match="line 7"):
        runner(tmp_path, display).run([LASSO, replace(MISSING, prepare=broken)])
    assert display.bars == []
    assert list(tmp_path.iterdir()) == []


def test_runs_on_other_data_are_not_mixed(tmp_path: Path) -> None:
    first = replace(LASSO, runs=RUNS[:1])
    runner(tmp_path).run([first])
    other = Source("MovieLens", Kind.REAL, {"u.data": "ab"})
    with pytest.raises(FolderError, match=r"must see the same data; .* now there are \{'u.data': 'ab'\}"):
        runner(tmp_path).run([replace(LASSO, prepare=lambda: prepared(source=other))])


def test_of_the_scalings_the_one_that_serves_everyone_best_is_shown(done: Path) -> None:
    findings = loaded(done).findings[0]
    assert [curve.key for curve in findings.curves] == ["dfw", "dcgs-theorem", "dcgs-scaled"]
    ends = {
        key: float(files(done)[f"dcgs-{key}.csv"].splitlines()[-1].split(b",")[9]) for key in ("x10", "x0.1")
    }
    best = min(ends, key=lambda key: ends[key])
    scaled = findings.curves[-1]
    assert scaled.file == f"dcgs-{best}.csv"
    assert scaled.columns["worst_loss"][-1] == min(ends.values()) < max(ends.values())
    assert "best of 2 by worst_loss at the end" in scaled.about
    assert "with η × 10" in scaled.about
    assert "with η × 0.1" in scaled.about


def test_a_study_that_is_not_complete_says_how_to_go_on(tmp_path: Path) -> None:
    runner(tmp_path).run([replace(LASSO, runs=RUNS[:1])])
    findings = loaded(tmp_path).findings[0]
    assert findings.claims == []
    assert "run the same command again" in findings.summary[0]


def test_the_summary_has_the_claim_both_losses_and_the_waiting(done: Path) -> None:
    claimed, measured, waiting, meaning = loaded(done).findings[0].summary
    assert claimed.startswith("The paper: “DFW takes more than 800 rounds")
    assert [claimed.count(f"This {claim.verdict}.") >= 1 for claim in loaded(done).findings[0].claims] == [
        True
    ] * 2
    assert measured.count("on each agent's own data") == measured.count("on everyone's") == 3
    assert "On links of 10 MB/s: DCGS would take" in waiting
    assert meaning.startswith("So ")


def test_modeled_time_is_computing_and_one_links_bytes(done: Path) -> None:
    slow = load(ResultCache(done), Link(1e-3)).findings[0]
    dfw = slow.curves[0]
    # Half the bytes of the busiest agent of a round go over each of its two links, at 1/1000 byte a second.
    hours = dfw.columns["peak_bytes"][-1] / 2 / 1e-3 / 3600
    assert f"DFW would take {hours:.1f} h and wait for >99.9% of it" in slow.summary[2]


def test_a_look_alike_is_named_so_in_everything_shown(tmp_path: Path) -> None:
    look = Source("E2006-tfidf", Kind.LOOKALIKE, seed=3)
    lasso = replace(LASSO, name="lasso-e2006-lookalike", prepare=lambda: prepared(source=look))
    runner(tmp_path).run([lasso])
    findings = loaded(tmp_path).findings[0]
    assert findings.banner == "Not the real data: a look-alike of E2006-tfidf, made from seed 3."
    assert "not the real data" in str(findings.source.kind)
    assert findings.summary[0].count("On the look-alike, this ") == len(findings.claims) == 2


def test_the_manifest_says_what_is_needed_to_repeat_each_run(done: Path) -> None:
    manifest: dict[str, Any] = json.loads((done / "manifest.json").read_text())
    entry = manifest["experiments"]["lasso-synthetic"]
    assert entry["source"] == {"name": "synthetic Lasso", "kind": "SYNTHETIC", "files": {}, "seed": 0}
    assert entry["degree"] == 2
    scaled = json.loads((done / "runs" / "lasso-synthetic" / "dcgs-x10.json").read_text())
    assert "Theorem1(balance=10.0, distance=100.0" in scaled["result"]["method"]
    dfw = json.loads((done / "runs" / "lasso-synthetic" / "dfw.json").read_text())
    assert dfw["result"]["status"] == "the limit on iterations was reached."
    assert dfw["key"]["budget"]["iterations"] == 20


# The catalog.


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_every_experiment_compares_all_methods_under_names_of_their_own(name: str, quick: bool) -> None:
    made = experiment(name, Options(quick=quick))
    keys = [run.key for run in made.runs]
    assert len(set(keys)) == len(keys)
    assert {"dfw", "dcgs-theorem", "primal-dual"} <= set(keys)
    assert sum(run.scaling is not None for run in made.runs) >= 3
    assert all(run.method(1.0) is not None for run in made.runs)


def test_dfw_has_the_rounds_that_the_paper_gives_it() -> None:
    for name in NAMES:
        dfw = experiment(name, Options()).runs[0]
        assert dfw.key == "dfw"
        assert dfw.budget.iterations == 400  # two rounds each
        assert 400 % dfw.budget.every == 0


@pytest.mark.parametrize(
    ("options", "name"),
    [
        (Options(), "lasso-e2006"),
        (Options(lookalike=True), "lasso-e2006-lookalike"),
        (Options(quick=True), "lasso-e2006-lookalike"),
    ],
)
def test_real_and_look_alike_never_share_a_name(options: Options, name: str) -> None:
    assert experiment("lasso-e2006", options).name == name


def test_the_small_problems_are_spread_evenly_over_ten_agents_on_a_cycle() -> None:
    for name in ("lasso-synthetic", "lasso-e2006", "completion-synthetic"):
        small = experiment(name, Options(quick=True)).prepare().problem
        assert len({f.map.size for f in small.objectives}) == 1
        assert sorted(degree for _, degree in small.graph.degree) == [2] * 10


def test_held_out_entries_are_learnt_from_by_nobody() -> None:
    small = experiment("completion-synthetic", Options(quick=True)).prepare().problem
    zero = np.zeros(small.X.shape)
    fitting = sum((-0.5 * f.grad(zero) for f in small.objectives), start=zero)
    assert sum(f.map.size for f in small.objectives) == 900
    assert sum(f.value(fitting) for f in small.objectives) == 0.0
    # Right wherever something is known, zero elsewhere: as wrong as zero on what is held out.
    rmse = small.metrics["test_rmse"]
    assert rmse([fitting]) == rmse([zero]) > 1.0


def test_the_test_error_is_the_worst_agents() -> None:
    small = experiment("completion-synthetic", Options(quick=True)).prepare().problem
    rmse = small.metrics["test_rmse"]
    zero, far = np.zeros(small.X.shape), np.full(small.X.shape, 50.0)
    assert rmse([zero, far, zero]) == rmse([far]) > rmse([zero])


def test_a_summary_says_when_dfw_is_hardly_better_than_nothing(done: Path, tmp_path: Path) -> None:
    # With a ball a thousand times too large the first steps of DFW lead far away, and it takes long back.
    lasso = replace(LASSO, prepare=lambda: prepared(radius=2e5), runs=RUNS[:2])
    runner(tmp_path).run([lasso])
    assert "The reference is weak" in loaded(tmp_path).findings[0].summary[-1]
    assert "The reference is weak" not in loaded(done).findings[0].summary[-1]


def test_a_run_with_another_budget_is_made_again_and_the_others_are_not(tmp_path: Path) -> None:
    runner(tmp_path).run([replace(LASSO, runs=RUNS[:2])])
    longer = replace(RUNS[0], budget=Budget(40, every=5))
    display = Display()
    runner(tmp_path, display).run([replace(LASSO, runs=(longer, RUNS[1]))])
    assert display.bars == [("DFW", 40)]
    assert loaded(tmp_path).findings[0].curves[0].rounds == 80


def test_runs_that_are_no_longer_planned_are_not_shown(tmp_path: Path) -> None:
    runner(tmp_path).run([replace(LASSO, runs=RUNS[:2])])
    runner(tmp_path).run([replace(LASSO, runs=RUNS[1:2])])
    assert [curve.key for curve in loaded(tmp_path).findings[0].curves] == ["dcgs-theorem"]


def test_calls_of_an_iteration_that_was_not_finished_are_noted(tmp_path: Path) -> None:
    cut = replace(RUNS[1], budget=Budget(4, lmo_calls=1))
    runner(tmp_path).run([replace(LASSO, runs=[cut])])
    curve = loaded(tmp_path).findings[0].curves[0]
    assert curve.columns["lmo_calls"] == [0]
    assert (curve.rounds, curve.lmo_calls) == (2, 1)
    assert curve.notes == ("1 further oracle calls went into an iteration that was not finished.",)


def test_a_manifest_is_there_before_the_first_run_ends(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="interrupted"):
        runner(tmp_path, Display(interrupt="DFW")).run([LASSO])
    assert list(open_manifest(ResultCache(tmp_path), SETTINGS)["experiments"]) == ["lasso-synthetic"]
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(("old", "new"), [("lasso-synthetic", "lasso-unheard-of"), ("degree", "grade")])
def test_a_manifest_that_was_changed_is_refused(old: str, new: str, done: Path, tmp_path: Path) -> None:
    for folder in ("data", "timing", "runs"):
        (tmp_path / folder).symlink_to(done / folder)
    text = (done / "manifest.json").read_text()
    (tmp_path / "manifest.json").write_text(text.replace(f'"{old}"', f'"{new}"'))
    with pytest.raises(FolderError, match="must be"):
        loaded(tmp_path)


def test_a_summary_of_a_run_without_an_iteration_says_so(tmp_path: Path) -> None:
    cut = (RUNS[0], replace(RUNS[1], budget=Budget(4, lmo_calls=1)))
    runner(tmp_path).run([replace(LASSO, runs=cut)])
    findings = loaded(tmp_path).findings[0]
    assert "DCGS did not finish an iteration in 1 oracle calls" in findings.summary[1]
    assert str(findings.claims[0].verdict) == "not settled here"
    assert findings.summary[-1].startswith("So these runs are too short for a verdict.")


def test_the_best_scaling_is_best_on_everyones_data_not_on_the_papers_loss(
    done: Path, tmp_path: Path
) -> None:
    cache = ResultCache(tmp_path)
    write_manifest(cache, json.loads((done / "manifest.json").read_text()))
    for key, local, worst in (("dcgs-x10", 1.0, 900.0), ("dcgs-x0.1", 50.0, 800.0)):
        run = ResultCache(done).run("lasso-synthetic", key)
        assert run is not None
        ends = {"local_loss": local, "worst_loss": worst}
        changed = {name: [*column[:-1], ends.get(name, column[-1])] for name, column in run.columns.items()}
        cache.save_run("lasso-synthetic", key, {}, replace(run, columns=changed))
    assert [curve.recorded_as for curve in loaded(tmp_path).findings[0].curves] == ["dcgs-x0.1"]


def test_the_seed_is_that_of_every_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[int] = []

    def noted(*args: Any, **settings: Any) -> Result:
        seeds.append(settings["seed"])
        return minimize(*args, **settings)

    monkeypatch.setattr("dcgs.study.run.minimize", noted)
    runner(tmp_path, seed=7).run([replace(LASSO, runs=RUNS[:2])])
    assert seeds == [7, 7]
