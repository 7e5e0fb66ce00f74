"""``dcgs bench rounds``: the cost to accuracy, the ranking, the result cache, and methods from outside."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

from dcgs.cli import main
from dcgs.methods import NIDS, FastDCGS, PGExtra, ProjectedAGD
from dcgs.objectives import LeastSquares, Logistic
from dcgs.run.minimize import minimize
from dcgs.sets import L1Ball, L2Ball
from dcgs_bench import rounds
from dcgs_bench.entries import ENTRIES, FORMS, GOAL, GRID, Adapted, Entry, ScaledStep, entry_named
from dcgs_bench.figures import profile_figure
from dcgs_bench.instances import (
    INSTANCES,
    QUICK,
    Instance,
    by_chance,
    by_size,
    by_value,
    drawn,
    instance_named,
    random_graph,
)
from dcgs_bench.optimum import Optimum, solve
from dcgs_bench.ranking import (
    LEVELS,
    Ranking,
    RunCost,
    Stop,
    Trial,
    best_of,
    cost_to,
    forms_summary,
    forms_table,
    instance_table,
    stops_table,
    summary_table,
)
from dcgs_bench.rounds import GridRun, GridStudy, RoundsGrid
from dcgs_bench.study import Budget, Records, Report, StudyProblem, run_tasks
from pages import soon_table

# f* = 10, f(x⁰) = 110: a loss of 10 + 100 r has relative error r.
KNOWN = Optimum(value=10.0, start=110.0, gap=1e-6, iterations=1)


def history(*relative: float) -> dict[str, list[float]]:
    """Return a history with these relative errors after 0, 2, 4, … rounds."""
    count = range(len(relative))
    return {
        "rounds": [2 * k for k in count],
        "bytes": [100 * k for k in count],
        "lmo_calls": [7 * k for k in count],
        "peak_bytes": [120 * k for k in count],
        "computing": [0.5 * k for k in count],
        "worst_loss": [10.0 + 100.0 * r for r in relative],
    }


def trial(name: str, needed: int | None, end: str = "ROUNDS") -> Trial:
    """Return a trial that needed so many rounds to every level, or got to none in 3000."""
    cost = None if needed is None else RunCost(needed, 8 * needed, needed)
    reached = 1.0 if needed is None else 1e-5
    return Trial(name, end=end, spent=RunCost(3000), reached=reached, costs=dict.fromkeys(LEVELS, cost))


def stop(rounds: int, end: str = "AGREED", plain: RunCost | None = None) -> Stop:
    """Return a run that ended after so many rounds, of 500 bytes each."""
    cost = RunCost(rounds, 100 * rounds, 0, 120 * rounds, 0.1, all_bytes=500 * rounds)
    return Stop(end, cost, "dual", 5e-4, 5, plain)


# Three methods on four instances; the last is one that nobody solves.
SOLVED: dict[str, dict[str, int | None]] = {
    "one": {"FastDCGS": 10, "DFW": 40, "NIDS": 12},
    "two": {"FastDCGS": 30, "DFW": None, "NIDS": 20},
    "three": {"FastDCGS": 50, "DFW": 500, "NIDS": None},
    "four": {"FastDCGS": None, "DFW": None, "NIDS": None},
}
TRIALS = {name: [trial(method, n) for method, n in row.items()] for name, row in SOLVED.items()}
RANKING = Ranking(TRIALS)


def costs_of(columns: dict[str, list[float]], optimum: Optimum) -> dict[float, RunCost | None]:
    return {level: cost_to(columns, optimum, level) for level in LEVELS}


def test_a_level_costs_what_was_spent_when_it_was_first_reached() -> None:
    costs = costs_of(history(1.0, 0.2, 0.05, 0.2, 0.009, 2e-4), KNOWN)
    assert costs[1e-1] == RunCost(4, 200, 14, 240, 1.0)
    assert costs[1e-2] == RunCost(8, 400, 28, 480, 2.0)
    assert costs[1e-3] == RunCost(10, 500, 35, 600, 2.5)
    assert costs[1e-4] is None
    assert costs[1e-5] is None


def test_one_entry_may_reach_several_levels_at_once() -> None:
    costs = costs_of(history(1.0, 1e-6), KNOWN)
    assert {cost and cost.rounds for cost in costs.values()} == {2}


def test_a_level_that_f_star_is_not_known_well_enough_for_is_not_reported() -> None:
    vague = replace(KNOWN, gap=0.05)  # 5e-4 of f(x⁰) − f*; ten times that is 5e-3
    costs = costs_of(history(1.0, 1e-6), vague)
    assert [level for level, cost in costs.items() if cost is not None] == [1e-1, 1e-2]


def test_of_a_grid_the_fewest_rounds_count_at_every_level_with_their_setting() -> None:
    early = replace(trial("NIDS, ×2", 9), costs={**dict.fromkeys(LEVELS, None), 1e-1: RunCost(5, 1, 1)})
    late = replace(trial("NIDS", 9), costs=dict.fromkeys(LEVELS, RunCost(9, 2, 2)))
    best = best_of([early, late], "NIDS")
    assert best.entry == "NIDS, best of grid"
    assert best.costs[1e-1] == RunCost(5, 1, 1, setting="×2")
    assert best.costs[1e-5] == RunCost(9, 2, 2, setting="default")


def test_profiles_are_as_worked_out_by_hand() -> None:
    # The fewest are 10, 20 and 50; the fourth instance, which nobody solves, is left out.
    tau, share = RANKING.profile("FastDCGS")
    assert tau.tolist() == [1.0, 1.0, 1.5]
    np.testing.assert_allclose(share, [1 / 3, 2 / 3, 1.0])
    tau, share = RANKING.profile("DFW")
    assert tau.tolist() == [4.0, 10.0]
    np.testing.assert_allclose(share, [1 / 3, 2 / 3])


def test_wins_near_wins_and_failures_are_counted() -> None:
    assert RANKING.counts("FastDCGS") == (2, 2, 3)
    assert RANKING.counts("NIDS") == (1, 2, 2)
    assert RANKING.counts("DFW") == (0, 0, 2)


def test_the_best_of_a_grid_is_shown_and_wins_nothing() -> None:
    tuned = "NIDS, best of grid"
    ranking = Ranking({name: [*row, trial(tuned, 1)] for name, row in TRIALS.items()})
    assert ranking.best("one") == 10
    assert ("1", False) in summary_table(ranking).rows[0]
    assert tuned not in summary_table(replace(ranking, by_stops=True)).head


def test_the_summary_shows_losses_of_our_method_as_losses() -> None:
    head, rows = summary_table(RANKING).head, summary_table(RANKING).rows
    assert head == ["rounds to 1e-03", "FastDCGS", "DFW", "NIDS", "DFW / FastDCGS"]
    assert rows[0] == [("one", False), ("10", True), ("40", False), ("12", False), ("4.0", False)]
    assert rows[1] == [("two", False), ("30", False), (">3,000", False), ("20", True), (">100.0", False)]
    assert rows[3][-1] == ("—", False)


PLAIN = RunCost(12, 1190, computing=0.08, all_bytes=5910)
STOPS = {"FastDCGS": stop(12, plain=PLAIN), "DFW": stop(3000, "ROUNDS"), "NIDS": stop(700, "SECONDS")}
STOPPING = {"one": [replace(each, stops={GOAL: STOPS[each.entry]}) for each in TRIALS["one"]]}


def test_rounds_until_the_agents_stop_are_ranked_apart_from_those_until_it_is_so() -> None:
    stops = Ranking(STOPPING, by_stops=True)
    assert stops.counts("FastDCGS") == (1, 1, 1)
    assert [stops.counts(name) for name in ("DFW", "NIDS")] == [(0, 0, 0), (0, 0, 0)]
    table = summary_table(stops)
    assert table.head[0] == "rounds until the agents stop at a certified gap of 1e-03"
    (row,) = table.rows
    assert row[1:] == [("12", True), (">3,000", False), (">700†", False), (">250.0", False)]


def test_a_run_that_ended_at_its_limit_before_the_fewest_rounds_leaves_open_which_needs_fewer() -> None:
    assert Ranking(STOPPING, by_stops=True).undecided() == []
    early = [*STOPPING["one"][:2], replace(STOPPING["one"][2], stops={GOAL: stop(7, "SECONDS")})]
    assert Ranking({"one": early}, by_stops=True).undecided() == ["one"]


def test_the_table_of_an_instance_starts_with_rounds_and_bytes_until_the_agents_stop() -> None:
    table = instance_table(STOPPING, "one", "about")
    assert table.head[:4] == ["rounds until", "agents stop at 1e-03", "bytes then", "1e-01"]
    assert [row[1:4] for row in table.rows] == [
        [("12", True), ("1,200", False), ("10", True)],
        [(">3,000", False), ("—", False), ("40", False)],
        [(">700†", False), ("—", False), ("12", False)],
    ]


def test_a_trial_is_read_from_json_as_it_was_written() -> None:
    for each in (*TRIALS["two"], *STOPPING["one"]):
        assert Trial.from_json(json.loads(json.dumps(each.to_json()))) == each


def test_trials_may_have_no_stops() -> None:
    assert stops_table(TRIALS).rows == []
    stops = Ranking(TRIALS, by_stops=True)
    assert [text for text, _ in summary_table(stops).rows[0]] == ["one", *["—"] * 4]


def test_the_table_of_stops_says_when_it_is_so_and_when_the_agents_know() -> None:
    table = stops_table(STOPPING)
    assert table.head[:4] == ["FastDCGS", "diameter", "within 1e-03", "agents stop at 1e-03"]
    (row,) = table.rows
    # 6000 bytes, of which 90 are those of certificates; 0.1 seconds in place of 0.08
    assert [text for text, _ in row] == ["one", "5", "10", "12 (dual)", "5.0e-04", "1.5%", "1.2"]


def test_agents_that_stop_within_a_share_and_two_diameters_stop_soon() -> None:
    # It is so after 10 rounds, and the diameter is 5: 1.4 · 10 + 2 · 5 = 24.
    late = {"one": [replace(TRIALS["one"][0], stops={GOAL: stop(25)})]}
    ended = {"one": [replace(TRIALS["one"][0], stops={GOAL: stop(12, "SECONDS")})]}
    last = {"one": [replace(TRIALS["one"][0], stops={GOAL: stop(24)})]}
    table = soon_table({0: STOPPING, 1: late, 2: ended, 3: last, 4: {"two": TRIALS["two"]}})
    assert table.head[1:] == [f"seed {seed}" for seed in range(5)]
    cells = [("12 of 24", True), ("25 of 24", False), (">12† of 24", False), ("24 of 24", True), ("—", False)]
    assert table.rows[0] == [("one", False), *cells]
    assert [text for text, _ in table.rows[-1]] == ["soon", "1 of 1", "0 of 1", "0 of 1", "1 of 1", "0 of 0"]


@pytest.mark.parametrize("name", ["FastDCGS", "NIDS"])
def test_a_stop_is_what_a_user_gets_without_measurements(name: str, tmp_path: Path) -> None:
    chosen, one, grid = instance_named("quick-noisy"), entry_named(name), grid_in(tmp_path, stops_only=True)
    run_grid(grid, [chosen], [one])
    trial, optimum = grid.trial(chosen, one), grid.study.optimum(chosen, 0)
    assert trial is not None
    assert optimum is not None
    found, problem = trial.stops[GOAL], chosen.make(0)
    result = minimize(*problem.parts, one.method, gap=GOAL, every=None)
    assert found.stopped
    assert (found.cost.rounds, found.cost.bytes) == (result.rounds, result.bytes.max())
    assert found.kind == result.certificates["kind"][-1]
    worst = max(sum(f.value(x) for f in problem.objectives) for x in result.agents)
    # The same sum in another order, as a share of f(x⁰) − f*, which is not small beside f.
    assert found.error == pytest.approx(optimum.relative(worst), abs=1e-10)
    assert found.error is not None
    assert found.error <= GOAL
    assert found.diameter == 3
    assert (found.plain is None) == (name != "FastDCGS")


def test_certificates_are_counted_against_as_many_iterations_without_them(tmp_path: Path) -> None:
    chosen, edges = instance_named("quick-lasso"), entry_named("FastDCGS, edges")
    one = replace(edges, setting="", gaps=(GOAL,))
    grid = grid_in(tmp_path, stops_only=True)
    run_grid(grid, [chosen], [one])
    trial = grid.trial(chosen, one)
    assert trial is not None
    found, problem = trial.stops[GOAL], chosen.make(0)
    method = FastDCGS(form="edges", stops_itself=False)
    plain = minimize(*problem.parts, method, iterations=found.cost.rounds, every=None)
    assert found.plain is not None
    assert found.plain.rounds == found.cost.rounds  # over edges an iteration is a round
    assert found.plain.all_bytes == plain.bytes.sum() < found.cost.all_bytes
    assert found.plain.computing > 0.0


def test_a_run_whose_agents_do_not_stop_in_time_ends_at_its_limit() -> None:
    made = GridRun("quick-noisy", "DFW", 0, Budget(rounds=10, gap=GOAL, every=0), None)()
    assert (made["end"], made["rounds"], made["kind"]) == ("ROUNDS", 10, "")


def test_runs_until_the_agents_stop_can_be_done_alone(tmp_path: Path) -> None:
    chosen, one, grid = (
        instance_named("quick-noisy"),
        entry_named("FastDCGS"),
        grid_in(tmp_path, stops_only=True),
    )
    run_grid(grid, [chosen], [one])
    found = grid.trial(chosen, one)
    assert found is not None
    assert list(found.stops) == [1e-2, 1e-3, 1e-5]
    assert set(found.costs.values()) == {None}
    assert Ranking({"one": [found]}).cell("one", "FastDCGS") == ("—", False)
    assert runs_left(grid_in(tmp_path), [chosen], [one]) == 1  # the measured run


@pytest.mark.parametrize(
    ("end", "text"), [("ROUNDS", ">3,000"), ("SECONDS", ">3,000†"), ("FAILED", "—")], ids=lambda each: each
)
def test_a_cell_says_which_limit_ended_a_run(end: str, text: str) -> None:
    ranking = Ranking({"one": [trial("DFW", None, end)]})
    assert ranking.cell("one", "DFW") == (text, False)
    assert ranking.cell("one", "NIDS") == ("—", False)


def test_the_profile_shows_every_method_once_and_its_legend_beside_the_lines() -> None:
    figure = profile_figure(RANKING)
    (axes,) = figure.axes
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == list(RANKING.names)
    figure.draw_without_rendering()
    assert legend.get_window_extent().x0 >= axes.get_window_extent().x1


def test_f_star_over_a_ball_is_the_squared_distance_to_it() -> None:
    # Σ ‖x − bᵢ‖² over ‖x‖ ≤ 1 with mean b̄ = (3, 0): x* = (1, 0).
    b = [np.array([3.0, 4.0]), np.array([3.0, -4.0])]
    problem = StudyProblem([LeastSquares(np.eye(2), each) for each in b], L2Ball(2, 1.0), nx.path_graph(2))
    found = solve(problem)
    assert found.start == 50.0
    assert found.value == pytest.approx(40.0, rel=1e-6)  # its gap is 1e-7 of 10
    assert found.uncertainty <= 1e-7


def test_f_star_of_a_logistic_regression_agrees_with_an_interior_point_method() -> None:
    cp = pytest.importorskip("cvxpy")
    rng = np.random.default_rng(0)
    A, labels = rng.standard_normal((40, 8)), np.sign(rng.standard_normal(40))
    objectives = [Logistic(A[:20], labels[:20]), Logistic(A[20:], labels[20:])]
    found = solve(StudyProblem(objectives, L1Ball(8, 0.7), nx.path_graph(2)))
    x = cp.Variable(8)
    loss = cp.sum(cp.logistic(cp.multiply(-labels, A @ x)))
    known = cp.Problem(cp.Minimize(loss), [cp.norm1(x) <= 0.7]).solve(solver="CLARABEL")
    # Both are good to about 1e-8 of the loss, which is about 25.
    assert found.value == pytest.approx(known, rel=1e-6)
    assert found.value - found.gap <= known + 1e-5


def test_a_heavy_column_is_no_hindrance_to_f_star() -> None:
    # Steps by the heavy column's curvature alone would need 60,000 iterations and more.
    found = solve(instance_named("text-cycle-10").make(0), iterations=1000)
    assert found.uncertainty <= 1e-7


def test_f_star_says_when_its_iterations_did_not_do() -> None:
    found = solve(instance_named("quick-lasso").make(0), iterations=3)
    assert found.iterations == 3
    assert found.uncertainty > 1e-7


def test_every_way_to_split_gives_every_row_to_one_agent() -> None:
    b = np.random.default_rng(0).standard_normal(40)
    for split in (by_chance, by_value, by_size):
        parts = split(b, 10, 0)
        assert sorted(np.concatenate(parts).tolist()) == list(range(40))
        assert min(map(len, parts)) >= 2


def test_random_graphs_are_connected_and_repeat() -> None:
    first, second = random_graph(30, 5.0, 7), random_graph(30, 5.0, 7)
    assert nx.is_connected(first)
    assert sorted(first.edges) == sorted(second.edges)


def test_names_are_distinct_for_people_and_for_files() -> None:
    names = [chosen.name for chosen in (*INSTANCES, *QUICK)]
    assert len(set(names)) == len(names)
    everyone = [*ENTRIES, *GRID]
    assert len({one.name for one in everyone}) == len({one.file for one in everyone}) == len(everyone)


@pytest.mark.parametrize("method", [PGExtra(), NIDS(), ProjectedAGD()], ids=lambda one: type(one).__name__)
def test_a_multiple_of_the_theorys_step_of_one_is_the_method_itself(method: Any) -> None:
    problem = instance_named("quick-noisy").make(0)
    own, same, twice = (
        minimize(problem.objectives, problem.X, problem.graph, one, rounds=20).agents
        for one in (method, Adapted(method, ScaledStep(1.0)), Adapted(method, ScaledStep(2.0)))
    )
    np.testing.assert_array_equal(own, same)
    assert not np.array_equal(own, twice)


def test_twice_the_theorys_step_is_the_step_times_two() -> None:
    problem = instance_named("quick-noisy").make(0)
    step = 2.0 * 1.9 / max(f.smoothness for f in problem.objectives)  # NIDS takes 1.9/l
    given, scaled = (
        minimize(problem.objectives, problem.X, problem.graph, one, rounds=20).agents
        for one in (NIDS(step=step), Adapted(NIDS(), ScaledStep(2.0)))
    )
    np.testing.assert_allclose(given, scaled, rtol=1e-12)  # rounding of one division


def grid_in(folder: Path, seed: int = 0, seconds: float = 1e6, stops_only: bool = False) -> RoundsGrid:
    """Return a grid whose runs end by rounds, on any machine."""
    return RoundsGrid(GridStudy(Records(folder), seconds, (seed,)), stops_only=stops_only)


def run_grid(
    grid: RoundsGrid,
    instances: list[Instance],
    entries: list[Entry],
    report: Report = lambda *_: None,
    jobs: int = 1,
) -> None:
    for stage in grid.stages(instances, entries):
        run_tasks(grid.study.records, stage(), jobs, report)


def runs_left(grid: RoundsGrid, instances: list[Instance], entries: list[Entry]) -> int:
    planned = [task for stage in grid.stages(instances, entries) for task in stage()]
    return sum(not grid.study.records.has(task) for task in planned)


def test_a_second_call_runs_nothing_and_other_settings_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen, entries = [instance_named("quick-noisy")], [entry_named("NIDS"), entry_named("ProjectedAGD")]
    reported: list[tuple[str, str | None]] = []
    run_grid(grid_in(tmp_path), chosen, entries, lambda *what: reported.append(what))
    assert reported == [
        ("f* of quick-noisy, seed 0", None),
        ("NIDS on quick-noisy", None),
        ("NIDS on quick-noisy until the agents stop at 1e-03", None),
        ("ProjectedAGD on quick-noisy", None),
        ("ProjectedAGD on quick-noisy until the agents stop at 1e-03", None),
    ]
    assert runs_left(grid_in(tmp_path), chosen, entries) == 0
    assert runs_left(grid_in(tmp_path, seed=1), chosen, entries) == 5
    assert runs_left(grid_in(tmp_path, seconds=6.0), chosen, entries) == 4

    def work(*_: object, **__: object) -> None:
        pytest.fail("work was done")

    monkeypatch.setattr(rounds, "execute", work)
    monkeypatch.setattr(rounds, "solve", work)
    run_grid(grid_in(tmp_path), chosen, entries, work)


def test_a_setting_is_followed_to_the_goal_or_to_where_it_is_no_better(tmp_path: Path) -> None:
    chosen, grid = instance_named("quick-noisy"), grid_in(tmp_path)
    default, better, worse = (entry_named(name) for name in ("NIDS", "NIDS, ×2", "NIDS, ×0.25"))
    run_grid(grid, [chosen], [worse, better, default])
    own, quick, slow = (grid.trial(chosen, one) for one in (default, better, worse))
    assert own is not None
    assert quick is not None
    assert slow is not None
    goal = own.costs[GOAL]
    assert goal is not None
    assert own.spent.rounds > goal.rounds  # it goes on to the last level
    assert quick.costs[GOAL] is not None
    assert quick.spent.rounds < goal.rounds
    assert slow.costs[GOAL] is None
    assert slow.spent.rounds == goal.rounds
    assert runs_left(grid, [chosen], [worse, better, default]) == 0
    made = grid.record([chosen], [default], [better, worse])["instances"]["quick-noisy"]
    _, best = made["trials"]
    assert (best["entry"], best["costs"]["1e-03"]["setting"]) == ("NIDS, best of grid", "×2")


def test_several_processes_give_what_one_gives(tmp_path: Path) -> None:
    chosen, entries = [instance_named("quick-noisy")], [entry_named("NIDS"), entry_named("ProjectedAGD")]
    for name, jobs in (("one", 1), ("two", 2)):
        run_grid(grid_in(tmp_path / name), chosen, entries, jobs=jobs)
    data = [sorted((tmp_path / name / "data").rglob("*.csv")) for name in ("one", "two")]
    assert len(data[0]) == 4
    assert [file.read_bytes() for file in data[0]] == [file.read_bytes() for file in data[1]]


def test_a_run_that_raises_is_reported_and_not_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("agents [0] returned while agents [1] still send.")

    monkeypatch.setattr(rounds, "execute", broken)
    chosen, entries = [instance_named("quick-noisy")], [entry_named("NIDS")]
    reported: list[tuple[str, str | None]] = []
    run_grid(grid_in(tmp_path), chosen, entries, lambda *what: reported.append(what))
    assert ["RuntimeError: agents [0] returned" in str(said) for _, said in reported] == [False, True, True]
    assert runs_left(grid_in(tmp_path), chosen, entries) == 2


def test_an_instance_without_data_is_left_out_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("DCGS_DATA", raising=False)
    argv = ["bench", "rounds", "--instances", "movielens", "--out", str(tmp_path / "out"), "--jobs", "1"]
    assert main(argv) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "f* of movielens, seed 0: left out, because its data are missing" in said
    page = (tmp_path / "out" / "rounds.md").read_text()
    assert "f* of movielens, seed 0: left out" in page


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["--instances", "lasso-moon"], "an instance must be one of 'lasso-paper', 'completion-paper'"),
        (["--methods", "Newton"], "a method must be one of 'FastDCGS', 'DFW'"),
    ],
)
def test_bad_names_end_in_a_sentence_with_the_known_ones(
    argv: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["bench", "rounds", "--out", str(tmp_path), *argv])
    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err


def test_the_list_names_all_instances_and_methods(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "rounds", "--list"]) == 0
    said = capsys.readouterr().out
    names = [chosen.name for chosen in INSTANCES] + [one.name for one in ENTRIES]
    assert [name for name in names if name not in said] == []


MEASURING = (Path(__file__).parents[2] / "docs" / "measuring.md").read_text()
OUTSIDE = """
import dcgs

class Slow(dcgs.Method):
    "DFW under another name."
    rounds_per_iteration = 2
    def incompatibility(self, objectives, X):
        return None
    def program(self, agent):
        return dcgs.DFW().program(agent)
    def __repr__(self):
        return "Slow()"

class Broken(dcgs.Method):
    "Fails in every run."
    def incompatibility(self, objectives, X):
        return "Broken goes with no problem."
    def program(self, agent):
        yield agent.x0

def nothing(seed):
    return None

def numbers(seed):
    return 1, 2, 3

number = 7
"""


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder to run in, with modules outside the package; one is the example of the docs."""
    (tmp_path / "outside_of_dcgs.py").write_text(OUTSIDE)
    (tmp_path / "my_data.py").write_text(MEASURING.partition("```python\n")[2].partition("```")[0])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("outside_of_dcgs", "my_data"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("jobs", "method", "instance"),
    [
        ("1", "outside_of_dcgs:Slow", "my_data:plants"),
        ("2", "study/study.py:Slow", "study/study.py:plants"),
    ],
    ids=["modules", "a file"],
)
def test_methods_and_instances_outside_the_package_run_beside_the_built_in_ones(
    outside: Path, jobs: str, method: str, instance: str
) -> None:
    """A file need not be in the current folder, and finds other files of its own folder."""
    (outside / "study").mkdir()
    shutil.copy(outside / "my_data.py", outside / "study" / "data_beside_the_study.py")
    (outside / "study" / "study.py").write_text(f"from data_beside_the_study import plants\n{OUTSIDE}")
    argv = ["bench", "rounds", "--quick", "--methods", "DFW", "--instances", "plants", "--jobs", jobs]
    argv += ["--method", method, "--instance", instance, "--out", "out"]
    assert main([*argv, "--seconds", "10000"]) == 0
    written = json.loads(Path("out/rounds.json").read_text())
    assert written["instances"]["plants"]["about"] == "Least squares of three plants on a path."
    trials = {trial["entry"]: trial for trial in written["instances"]["plants"]["trials"]}
    assert list(trials) == ["DFW", "Slow"]
    for level, cost in trials["DFW"]["costs"].items():
        other = trials["Slow"]["costs"][level]
        assert cost == other or cost | {"computing": 0.0} == other | {"computing": 0.0}


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["--method", "Newton"], "--method must be package.module:name or file.py:name; got 'Newton'."),
        (
            ["--method", "outside_of_dcgs:Fast"],
            "the method outside_of_dcgs:Fast must be in outside_of_dcgs; there is no such name.",
        ),
        (["--method", "no/such/file.py:Fast"], "there is no no/such/file.py here."),
        (["--method", "outside_of_dcgs.py:Fast"], "must be in outside_of_dcgs.py; there is no such name."),
        (["--method", "outside_of_dcgs:number"], "must be a dcgs.Method, or make one without arguments"),
        (["--method", "dcgs:DFW"], "every method must have a name of its own; DFW is there twice."),
        (["--instance", "outside_of_dcgs:number"], "must be a function of a seed; it is a int."),
    ],
)
def test_what_cannot_be_loaded_from_outside_ends_in_a_sentence(
    argv: list[str], sentence: str, outside: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["bench", "rounds", "--out", str(outside / "out"), *argv])
    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("nothing", "must return a tuple of objectives, set and graph; it returned a NoneType."),
        ("numbers", "f* of outside_of_dcgs:numbers, seed 0: failed, and is not recorded:"),
    ],
)
def test_an_outside_instance_that_returns_no_problem_is_left_out_and_the_command_fails(
    name: str, sentence: str, outside: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["--quick", "--instance", f"outside_of_dcgs:{name}", "--instances", name, "--jobs", "1"]
    assert main(["bench", "rounds", "--out", "out", *argv]) == 1
    printed = " ".join(capsys.readouterr().out.split())
    assert sentence in printed
    assert f"there is no run of {name}; the notes above say why." in printed


def test_a_method_that_fails_in_every_run_makes_the_command_fail(
    outside: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["bench", "rounds", "--quick", "--methods", "Broken", "--instances", "plants", "--jobs", "1"]
    argv += ["--method", "outside_of_dcgs:Broken", "--instance", "my_data:plants", "--out", "out"]
    assert main(argv) == 1
    assert "there is no run of Broken" in " ".join(capsys.readouterr().out.split())


def test_a_ninth_and_tenth_method_have_lines_of_their_own_in_the_profile() -> None:
    names = [*(one.name for one in ENTRIES), "Ninth", "Tenth"]
    ranking = Ranking({"one": [trial(name, 10) for name in names]})
    (axes,) = profile_figure(ranking).axes
    looks = {(str(drawn.get_color()), str(drawn.get_linestyle())) for drawn in axes.get_lines()}
    assert len(looks) == 10


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a quick run of two methods."""
    out = tmp_path_factory.mktemp("quick")
    argv = ["bench", "rounds", "--quick", "--methods", "DFW", "NIDS", "--out", str(out), "--jobs", "1"]
    assert main([*argv, "--seconds", "10000"]) == 0
    return out


def test_quick_writes_page_numbers_and_picture(quick: Path) -> None:
    written = json.loads((quick / "rounds.json").read_text())
    assert list(written["instances"]) == [chosen.name for chosen in QUICK]
    assert written["environment"]["seed"] == 0
    assert (quick / "profile.png").read_bytes().startswith(b"\x89PNG")
    noisy = {trial["entry"]: trial for trial in written["instances"]["quick-noisy"]["trials"]}
    assert noisy["NIDS"]["work"] == "projections"
    assert noisy["DFW"]["work"] == "oracle calls"
    assert noisy["NIDS"]["costs"]["1e-03"]["rounds"] < noisy["DFW"]["costs"]["1e-03"]["rounds"]


def test_the_page_has_the_numbers_of_the_json(quick: Path) -> None:
    written = json.loads((quick / "rounds.json").read_text())
    page = (quick / "rounds.md").read_text()
    costs = [
        (trial["entry"], cost)
        for reported in written["instances"].values()
        for trial in reported["trials"]
        for cost in [trial["costs"]["1e-03"]]
        if cost is not None
    ]
    assert len(costs) >= 5
    rows = [[text.strip(" *") for text in line.split("|")[1:-1]] for line in page.splitlines() if "|" in line]
    for name, cost in costs:
        short = {"DFW": "lmo", "NIDS": "proj"}[name]
        assert [
            row
            for row in rows
            if row[0] == name
            and len(row) == 10
            and row[5] == f"{cost['rounds']:,}"
            and row[-2:] == [f"{cost['bytes']:,}", f"{cost['work']:,} {short}"]
        ]


# The forms of FastDCGS.


def form_trials(auto: int, **forms: int | None) -> list[Trial]:
    return [trial("FastDCGS", auto), *(trial(f"FastDCGS, {name}", n) for name, n in forms.items())]


def test_default_settings_are_compared_with_the_fewest_rounds_of_all_forms() -> None:
    trials = {
        "good": form_trials(10, edges=None, sums=10),
        "near": form_trials(13, edges=13, sums=10),
        "bad": form_trials(30, edges=15, sums=30),
    }
    table = forms_table(trials)
    assert table.head == ["rounds to 1e-03", "auto", "edges", "sums", "auto / fewest"]
    rows = [[text for text, _ in row] for row in table.rows]
    assert rows[0] == ["good", "10 (sums)", ">3,000", "10", "1.00"]
    assert rows[1] == ["near", "13 (edges)", "13", "10", "1.30"]
    assert rows[2] == ["bad", "30 (sums)", "15", "30", "2.00"]
    assert "1.3 times the fewest of all forms on 2 of 3 instances, and 2.00 times at most" in forms_summary(
        trials
    )


def test_a_form_gets_the_rounds_of_default_settings_and_long_hessians_are_not_tried(tmp_path: Path) -> None:
    grid = RoundsGrid(GridStudy(Records(tmp_path), 1e6, (0,)), GOAL)
    instances = [instance_named("quick-noisy"), instance_named("quick-completion")]
    tasks = [task.title for stage in grid.stages(instances, FORMS) for task in stage()]
    assert "FastDCGS, newton on quick-noisy" in tasks
    assert "FastDCGS, newton on quick-completion" not in tasks
    ours = entry_named("FastDCGS")
    run_tasks(grid.study.records, [grid.study.optimum_task(instances[0], 0)], None, lambda *told: None)
    run_tasks(grid.study.records, [grid.task(instances[0], ours)], None, lambda *told: None)
    needed = grid.trial(instances[0], ours)
    assert needed is not None
    cost = needed.costs[GOAL]
    assert cost is not None
    assert {grid.budget(instances[0], form).rounds for form in FORMS} == {cost.rounds}


def test_random_problems_repeat_and_are_of_all_losses_and_graphs() -> None:
    abouts = [drawn(number).about for number in range(40)]
    assert abouts == [drawn(number).about for number in range(40)]
    assert all(any(loss in about for about in abouts) for loss in ("squares", "logistic", "huber"))
    first, again = (instance_named("random-11").make(0) for _ in range(2))
    assert [f.map.size for f in first.objectives] == [f.map.size for f in again.objectives]
    grads = [one.objectives[0].grad(one.X.start()) for one in (first, again)]
    np.testing.assert_array_equal(grads[0], grads[1])


def test_the_comparison_of_forms_writes_its_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["bench", "forms", "--quick", "--instances", "quick-noisy", "--jobs", "1", "--out", str(tmp_path)]
    assert main(argv) == 0
    printed = capsys.readouterr().out
    assert "of 1 instances" in " ".join(printed.split())
    made = json.loads((tmp_path / "forms.json").read_text())["instances"]["quick-noisy"]["trials"]
    assert [one["entry"] for one in made] == ["FastDCGS", *(form.name for form in FORMS)]
