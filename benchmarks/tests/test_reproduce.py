"""Experiments carried out, interrupted, continued and read again, on a problem of a few numbers."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import networkx as nx
import numpy as np
import pytest

from dcgs.datasets import (
    BrokenDataError,
    DataNotFoundError,
    DownloadError,
    Source,
    SourceKind,
    lasso_synthetic,
)
from dcgs.link import Link
from dcgs.methods import DCGS, DFW
from dcgs.points import Point
from dcgs.run.minimize import minimize
from dcgs.run.result import Result
from dcgs.schedules import Theorem1
from dcgs.sets import L1Ball
from dcgs_bench.paper.catalog import NAMES, Experiment, Options, PlannedRun, PreparedExperiment, experiment
from dcgs_bench.paper.folder import load, open_manifest, plan, write_manifest
from dcgs_bench.paper.page import view
from dcgs_bench.paper.results import PaperStudy
from dcgs_bench.study import Budget, FolderError, Records, StudyProblem, StudyTask, run_tasks

SETTINGS = {"seed": 0}


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


def prepared(seed: int = 0, source: Source | None = None, radius: float = 200.0) -> PreparedExperiment:
    data = lasso_synthetic(40, 30, 3, seed=seed)
    problem = StudyProblem(data.objectives(4), L1Ball(30, radius), nx.cycle_graph(4), {"size": size})
    return PreparedExperiment(problem, source or data.source, 100.0, "small")


LASSO = Experiment("lasso-synthetic", "Lasso", prepared, RUNS)


def missing() -> NoReturn:
    raise DataNotFoundError("get it there and put it here.")


def broken() -> NoReturn:
    raise BrokenDataError("line 7 is no rating.")


MISSING = Experiment("completion-movielens", "MovieLens", missing, RUNS, "it is not on this machine.")


def reproduce(path: Path, experiments: Sequence[Experiment], seed: int = 0) -> list[str]:
    """Do all runs of the experiments that are not recorded; return their titles."""
    records, done = Records(path), list[str]()

    def report(title: str, sentence: str | None) -> None:
        assert sentence is None
        done.append(title)

    tasks = plan(records, open_manifest(records, SETTINGS), experiments, seed)
    run_tasks(records, tasks, None, report)
    return done


def files(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted((path / "data").rglob("*.csv"))}


def loaded(path: Path) -> PaperStudy:
    return load(Records(path), Link())


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("done")
    reproduce(path, [LASSO, MISSING])
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
    reproduce(tmp_path, [LASSO])
    assert files(tmp_path) == files(done)


def test_another_seed_gives_others(done: Path, tmp_path: Path) -> None:
    reproduce(tmp_path, [replace(LASSO, prepare=lambda: prepared(seed=1))])
    assert all(content != files(done)[name] for name, content in files(tmp_path).items())


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.key)
def test_runs_before_an_interruption_are_recorded_and_the_rest_is_run_next_time(
    run: PlannedRun, done: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, started = RUNS.index(run), list[object]()

    def interrupted(*args: Any, **settings: Any) -> Result:
        started.append(args)
        if len(started) > place:
            raise KeyboardInterrupt
        return minimize(*args, **settings)

    with monkeypatch.context() as patch:
        patch.setattr("dcgs_bench.study.minimize", interrupted)
        with pytest.raises(KeyboardInterrupt):
            reproduce(tmp_path, [LASSO])
    assert sorted(files(tmp_path)) == sorted(f"{earlier.key}.csv" for earlier in RUNS[:place])
    assert list(tmp_path.rglob("*.part")) == []
    assert list(open_manifest(Records(tmp_path), SETTINGS)["experiments"]) == ["lasso-synthetic"]
    assert reproduce(tmp_path, [LASSO]) == [f"{later.label} on lasso-synthetic" for later in RUNS[place:]]
    assert files(tmp_path) == files(done)


def test_recorded_runs_are_not_repeated_and_their_data_are_not_read(done: Path) -> None:
    assert reproduce(done, [replace(LASSO, prepare=broken)]) == []


def test_an_experiment_without_data_is_skipped_and_the_others_run(done: Path) -> None:
    study = loaded(done)
    assert [findings.name for findings in study.findings] == ["lasso-synthetic"]
    (skipped,) = view.skipped(study)
    assert skipped == {
        "name": "completion-movielens",
        "title": "MovieLens",
        "why": "it is not on this machine.",
        "how": "Get it there and put it here.",
    }


def test_an_experiment_whose_download_fails_is_skipped_and_the_others_run(tmp_path: Path) -> None:
    def fetch() -> NoReturn:
        raise DownloadError("the server must answer; it did not.")

    reproduce(tmp_path, [replace(MISSING, prepare=fetch), LASSO])
    study = loaded(tmp_path)
    assert [findings.name for findings in study.findings] == ["lasso-synthetic"]
    assert [skipped["how"] for skipped in view.skipped(study)] == ["The server must answer; it did not."]


def test_once_the_data_are_there_the_experiment_is_run(tmp_path: Path) -> None:
    reproduce(tmp_path, [MISSING])
    reproduce(tmp_path, [replace(MISSING, prepare=prepared)])
    study = loaded(tmp_path)
    assert [findings.name for findings in study.findings] == ["completion-movielens"]
    assert view.skipped(study) == []


def test_broken_data_end_it_before_the_first_run(tmp_path: Path) -> None:
    with pytest.raises(BrokenDataError, match="line 7"):
        reproduce(tmp_path, [LASSO, replace(MISSING, prepare=broken)])
    assert list(tmp_path.iterdir()) == []


def test_runs_on_other_data_are_not_mixed(tmp_path: Path) -> None:
    first = replace(LASSO, runs=RUNS[:1])
    reproduce(tmp_path, [first])
    other = Source("MovieLens", SourceKind.REAL, {"u.data": "ab"})
    with pytest.raises(FolderError, match=r"must see the same data; .* now there are \{'u.data': 'ab'\}"):
        reproduce(tmp_path, [replace(LASSO, prepare=lambda: prepared(source=other))])


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
    reproduce(tmp_path, [replace(LASSO, runs=RUNS[:1])])
    findings = loaded(tmp_path).findings[0]
    assert findings.claims == []
    assert "run the same command again" in findings.summary


def test_modeled_time_is_computing_and_one_links_bytes(done: Path) -> None:
    link, findings = Link(1e3), loaded(done).findings[0]
    dfw = findings.curves[0]
    # Half the bytes of the busiest agent of a round go over each of its two links.
    waiting = dfw.columns["peak_bytes"][-1] / 2 / 1e3
    assert findings.waiting(dfw, link)[-1] == waiting
    assert findings.time(dfw, link)[-1] == waiting + dfw.columns["computing"][-1]


def test_a_look_alike_is_named_so_in_everything_shown(tmp_path: Path) -> None:
    look = Source("E2006-tfidf", SourceKind.LOOKALIKE, seed=3)
    lasso = replace(LASSO, name="lasso-e2006-lookalike", prepare=lambda: prepared(source=look))
    reproduce(tmp_path, [lasso])
    findings = loaded(tmp_path).findings[0]
    assert findings.banner == "Not the real data: a look-alike of E2006-tfidf, made from seed 3."
    assert "not the real data" in str(findings.source.kind)
    assert len(findings.claims) == 2


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
    reproduce(tmp_path, [lasso])
    assert "The reference is weak" in loaded(tmp_path).findings[0].summary
    assert "The reference is weak" not in loaded(done).findings[0].summary


def test_a_run_with_another_budget_is_made_again_and_the_others_are_not(tmp_path: Path) -> None:
    reproduce(tmp_path, [replace(LASSO, runs=RUNS[:2])])
    longer = replace(RUNS[0], budget=Budget(40, every=5))
    assert reproduce(tmp_path, [replace(LASSO, runs=(longer, RUNS[1]))]) == ["DFW on lasso-synthetic"]
    assert loaded(tmp_path).findings[0].curves[0].run.rounds == 80


def test_runs_that_are_no_longer_planned_are_not_shown(tmp_path: Path) -> None:
    reproduce(tmp_path, [replace(LASSO, runs=RUNS[:2])])
    reproduce(tmp_path, [replace(LASSO, runs=RUNS[1:2])])
    assert [curve.key for curve in loaded(tmp_path).findings[0].curves] == ["dcgs-theorem"]


def test_calls_of_an_iteration_that_was_not_finished_are_noted(tmp_path: Path) -> None:
    cut = replace(RUNS[1], budget=Budget(4, lmo_calls=1))
    reproduce(tmp_path, [replace(LASSO, runs=[cut])])
    curve = loaded(tmp_path).findings[0].curves[0]
    assert curve.columns["lmo_calls"] == [0]
    assert (curve.run.rounds, curve.run.lmo_calls) == (2, 1)
    assert curve.run.notes == ["1 further oracle calls went into an iteration that was not finished."]


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
    reproduce(tmp_path, [replace(LASSO, runs=cut)])
    findings = loaded(tmp_path).findings[0]
    assert str(findings.claims[0].verdict) == "not settled here"
    assert findings.summary.startswith("These runs are too short for a verdict.")


def test_the_best_scaling_is_best_on_everyones_data_not_on_the_papers_loss(
    done: Path, tmp_path: Path
) -> None:
    records = Records(tmp_path)
    write_manifest(records, json.loads((done / "manifest.json").read_text()))
    for key, local, worst in (("dcgs-x10", 1.0, 900.0), ("dcgs-x0.1", 50.0, 800.0)):
        name = f"runs/lasso-synthetic/{key}"
        run = Records(done).read(name)
        assert run is not None
        ends, columns = {"local_loss": local, "worst_loss": worst}, run["columns"].items()
        changed = {measure: [*column[:-1], ends.get(measure, column[-1])] for measure, column in columns}
        records.write(StudyTask(name, {}, None, key), run | {"columns": changed})
    assert [curve.recorded_as for curve in loaded(tmp_path).findings[0].curves] == ["dcgs-x0.1"]


def test_the_seed_is_that_of_every_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[int] = []

    def noted(*args: Any, **settings: Any) -> Result:
        seeds.append(settings["seed"])
        return minimize(*args, **settings)

    monkeypatch.setattr("dcgs_bench.study.minimize", noted)
    reproduce(tmp_path, [replace(LASSO, runs=RUNS[:2])], seed=7)
    assert seeds == [7, 7]
