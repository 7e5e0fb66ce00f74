"""``dcgs bench rounds``: what is read off a run, who is said to win, and what is kept."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from dcgs.bench.contestants import CONTESTANTS, GRID, Stepped, contestant
from dcgs.bench.crossings import LEVELS, Cost, End, Trial, best_of, crossings
from dcgs.bench.shelf import Shelf
from dcgs.bench.standings import Standings, cell, profile, summary_grid
from dcgs.report.profile import profile_figure

from dcgs.bench import instances, rounds
from dcgs.bench.instances import INSTANCES, QUICK, Problem, by_chance, by_value, instance, random_graph
from dcgs.bench.optimum import Optimum, solve
from dcgs.bench.rounds import GOAL, Plan, carry_out, work_left
from dcgs.cli import main
from dcgs.front import minimize
from dcgs.methods import NIDS, PGExtra, ProjectedAGD
from dcgs.objectives import LeastSquares, Logistic
from dcgs.sets import L1Ball, L2Ball

# f* = 10, f(x⁰) = 110: a loss of 10 + 100 r has relative error r.
KNOWN = Optimum(value=10.0, start=110.0, gap=1e-6, iterations=1)


def history(*relative: float) -> dict[str, list[float]]:
    """Return a history with these relative errors after 0, 2, 4, … rounds."""
    count = range(len(relative))
    return {
        "rounds": [2 * k for k in count],
        "bytes": [100 * k for k in count],
        "lmo_calls": [7 * k for k in count],
        "projections": [0 for _ in count],
        "worst_loss": [10.0 + 100.0 * r for r in relative],
    }


def trial(instance: str, name: str, needed: int | None, end: End = End.ROUNDS) -> Trial:
    """Return a trial that needed so many rounds to every level, or got to none in 3000."""
    cost = None if needed is None else Cost(needed, 8 * needed, needed)
    reached = 1.0 if needed is None else 1e-5
    return Trial(instance, name, "oracle calls", end, 3000, 1.0, reached, dict.fromkeys(LEVELS, cost))


# Three methods on four instances; the last is one that nobody solves.
SOLVED: dict[str, dict[str, int | None]] = {
    "one": {"FastDCGS": 10, "DFW": 40, "NIDS": 12},
    "two": {"FastDCGS": 30, "DFW": None, "NIDS": 20},
    "three": {"FastDCGS": 50, "DFW": 500, "NIDS": None},
    "four": {"FastDCGS": None, "DFW": None, "NIDS": None},
}
STANDINGS = Standings(
    {name: [trial(name, method, n) for method, n in row.items()] for name, row in SOLVED.items()},
    ["FastDCGS", "DFW", "NIDS"],
)


def test_a_level_costs_what_was_spent_when_it_was_first_reached() -> None:
    costs = crossings(history(1.0, 0.2, 0.05, 0.2, 0.009, 2e-4), KNOWN, "lmo_calls")
    assert costs[1e-1] == Cost(rounds=4, bytes=200, work=14)
    assert costs[1e-2] == Cost(rounds=8, bytes=400, work=28)
    assert costs[1e-3] == Cost(rounds=10, bytes=500, work=35)
    assert costs[1e-4] is None
    assert costs[1e-5] is None


def test_one_entry_may_reach_several_levels_at_once() -> None:
    costs = crossings(history(1.0, 1e-6), KNOWN, "lmo_calls")
    assert {cost and cost.rounds for cost in costs.values()} == {2}


def test_a_level_that_f_star_is_not_known_well_enough_for_is_not_told() -> None:
    vague = replace(KNOWN, gap=0.05)  # 5e-4 of f(x⁰) − f*; ten times that is 5e-3
    costs = crossings(history(1.0, 1e-6), vague, "lmo_calls")
    assert [level for level, cost in costs.items() if cost is not None] == [1e-1, 1e-2]


def test_of_a_grid_the_fewest_rounds_count_at_every_level_with_their_setting() -> None:
    early = replace(trial("one", "a", 9), costs={**dict.fromkeys(LEVELS, None), 1e-1: Cost(5, 1, 1)})
    late = replace(trial("one", "b", 9), costs=dict.fromkeys(LEVELS, Cost(9, 2, 2)))
    best = best_of([(early, "step × 2"), (late, "step × 4")], "NIDS, best of grid")
    assert best.costs[1e-1] == Cost(5, 1, 1, "step × 2")
    assert best.costs[1e-5] == Cost(9, 2, 2, "step × 4")


def test_profiles_are_as_worked_out_by_hand() -> None:
    # The fewest are 10, 20 and 50; the fourth instance, which nobody solves, is left out.
    tau, share = profile(STANDINGS, "FastDCGS")
    assert tau.tolist() == [1.0, 1.0, 1.5]
    np.testing.assert_allclose(share, [1 / 3, 2 / 3, 1.0])
    tau, share = profile(STANDINGS, "DFW")
    assert tau.tolist() == [4.0, 10.0]
    np.testing.assert_allclose(share, [1 / 3, 2 / 3])


def test_wins_near_wins_and_failures_are_counted() -> None:
    assert STANDINGS.counts("FastDCGS") == (2, 2, 3)
    assert STANDINGS.counts("NIDS") == (1, 2, 2)
    assert STANDINGS.counts("DFW") == (0, 0, 2)


def test_the_best_of_a_grid_is_shown_and_wins_nothing() -> None:
    tuned = "NIDS, best of grid"
    rows = {name: [*row, trial(name, tuned, 1)] for name, row in STANDINGS.trials.items()}
    standings = Standings(rows, STANDINGS.names, [tuned])
    assert standings.fewest("one") == 10
    assert ("1", False) in summary_grid(standings).rows[0]


def test_the_summary_shows_losses_of_our_method_as_losses() -> None:
    head, rows = summary_grid(STANDINGS).head, summary_grid(STANDINGS).rows
    assert head == ["rounds to 1e-03", "FastDCGS", "DFW", "NIDS", "DFW / FastDCGS"]
    assert rows[0] == [("one", False), ("10", True), ("40", False), ("12", False), ("4.0", False)]
    assert rows[1] == [("two", False), ("30", False), (">3,000", False), ("20", True), (">100.0", False)]
    assert rows[3][-1] == ("—", False)


def test_a_cell_says_which_limit_ended_a_run() -> None:
    assert cell(trial("one", "DFW", None), 1e-3) == ">3,000"
    assert cell(trial("one", "DFW", None, End.SECONDS), 1e-3) == ">3,000†"
    assert cell(trial("one", "DFW", None, End.FAILED), 1e-3) == "—"
    assert cell(None, 1e-3) == "—"


def test_the_profile_shows_every_method_once_and_its_legend_beside_the_lines() -> None:
    figure = profile_figure(STANDINGS)
    (axes,) = figure.axes
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == list(STANDINGS.names)
    figure.draw_without_rendering()
    assert legend.get_window_extent().x0 >= axes.get_window_extent().x1


def test_f_star_over_a_ball_is_the_squared_distance_to_it() -> None:
    # Σ ‖x − bᵢ‖² over ‖x‖ ≤ 1 with mean b̄ = (3, 0): x* = (1, 0).
    b = [np.array([3.0, 4.0]), np.array([3.0, -4.0])]
    problem = Problem([LeastSquares(np.eye(2), each) for each in b], L2Ball(2, 1.0), nx.path_graph(2))
    found = solve(problem)
    assert found.start == 50.0
    assert found.value == pytest.approx(40.0, rel=1e-6)  # its gap is 1e-7 of 10
    assert found.uncertainty <= 1e-7


def test_f_star_of_a_logistic_regression_agrees_with_an_interior_point_method() -> None:
    cp = pytest.importorskip("cvxpy")
    rng = np.random.default_rng(0)
    A, labels = rng.standard_normal((40, 8)), np.sign(rng.standard_normal(40))
    objectives = [Logistic(A[:20], labels[:20]), Logistic(A[20:], labels[20:])]
    found = solve(Problem(objectives, L1Ball(8, 0.7), nx.path_graph(2)))
    x = cp.Variable(8)
    loss = cp.sum(cp.logistic(cp.multiply(-labels, A @ x)))
    known = cp.Problem(cp.Minimize(loss), [cp.norm1(x) <= 0.7]).solve(solver="CLARABEL")
    # Both are good to about 1e-8 of the loss, which is about 25.
    assert found.value == pytest.approx(known, rel=1e-6)
    assert found.value - found.gap <= known + 1e-5


def test_a_heavy_column_is_no_hindrance_to_f_star() -> None:
    # Steps by the heavy column's curvature alone would need 60,000 iterations and more.
    found = solve(instance("text-cycle-10").make(0), iterations=1000)
    assert found.uncertainty <= 1e-7


def test_f_star_says_when_its_iterations_did_not_do() -> None:
    found = solve(instance("quick-lasso").make(0), iterations=3)
    assert found.iterations == 3
    assert found.uncertainty > 1e-7


def test_every_way_to_split_gives_every_row_to_one_agent() -> None:
    b = np.random.default_rng(0).standard_normal(40)
    for split in (by_chance, by_value, instances.by_size):
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
    everyone = [*CONTESTANTS, *GRID]
    assert len({one.name for one in everyone}) == len({one.file for one in everyone}) == len(everyone)


@pytest.mark.parametrize("method", [PGExtra(), NIDS(), ProjectedAGD()], ids=lambda one: type(one).__name__)
def test_a_multiple_of_the_theorys_step_of_one_is_the_method_itself(method: Any) -> None:
    problem = instance("quick-noisy").make(0)
    own, same, twice = (
        minimize(problem.objectives, problem.X, problem.graph, one, rounds=20).agents
        for one in (method, Stepped(method, 1.0), Stepped(method, 2.0))
    )
    np.testing.assert_array_equal(own, same)
    assert not np.array_equal(own, twice)


def test_twice_the_theorys_step_is_the_step_times_two() -> None:
    problem = instance("quick-noisy").make(0)
    step = 2.0 * 1.9 / max(f.smoothness for f in problem.objectives)  # NIDS takes 1.9/l
    given, scaled = (
        minimize(problem.objectives, problem.X, problem.graph, one, rounds=20).agents
        for one in (NIDS(step=step), Stepped(NIDS(), 2.0))
    )
    np.testing.assert_allclose(given, scaled, rtol=1e-12)  # rounding of one division


def plan_in(folder: Path, **settings: Any) -> Plan:
    return Plan(Shelf(folder), **{"seconds": 5.0, **settings})


def test_a_second_call_runs_nothing_and_other_settings_run_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen, entrants = [instance("quick-noisy")], [contestant("NIDS"), contestant("ProjectedAGD")]
    told: list[tuple[str, str | None]] = []
    carry_out(plan_in(tmp_path), chosen, entrants, lambda *what: told.append(what))
    assert told == [
        ("f* of quick-noisy", None),
        ("NIDS on quick-noisy", None),
        ("ProjectedAGD on quick-noisy", None),
    ]
    assert work_left(plan_in(tmp_path), chosen, entrants) == 0
    assert work_left(plan_in(tmp_path, seed=1), chosen, entrants) == 3
    assert work_left(plan_in(tmp_path, seconds=6.0), chosen, entrants) == 2

    def work(*_: object, **__: object) -> None:
        pytest.fail("work was done")

    monkeypatch.setattr(rounds, "minimize", work)
    monkeypatch.setattr(rounds, "solve", work)
    carry_out(plan_in(tmp_path), chosen, entrants, work)


def test_a_setting_is_followed_to_the_goal_or_to_where_it_is_no_better(tmp_path: Path) -> None:
    chosen, plan = instance("quick-noisy"), plan_in(tmp_path)
    default, better, worse = (contestant(name) for name in ("NIDS", "NIDS, ×2", "NIDS, ×0.25"))
    carry_out(plan, [chosen], [worse, better, default], lambda *_: None)
    own, quick, slow = (plan.trial(chosen, entrant) for entrant in (default, better, worse))
    assert own is not None
    assert quick is not None
    assert slow is not None
    goal = own.costs[GOAL]
    assert goal is not None
    assert own.rounds > goal.rounds  # it goes on to the last level
    assert quick.costs[GOAL] is not None
    assert quick.rounds < goal.rounds
    assert slow.costs[GOAL] is None
    assert slow.rounds == goal.rounds
    assert work_left(plan, [chosen], [worse, better, default]) == 0


def test_processes_give_what_one_gives(tmp_path: Path) -> None:
    chosen, entrants = [instance("quick-noisy")], [contestant("NIDS"), contestant("ProjectedAGD")]
    one, two = plan_in(tmp_path / "one"), plan_in(tmp_path / "two", jobs=2)
    for plan in (one, two):
        carry_out(plan, chosen, entrants, lambda *_: None)
    for entrant in entrants:
        first, second = (plan.trial(chosen[0], entrant) for plan in (one, two))
        assert first is not None
        assert second is not None
        assert first.costs == second.costs


def test_an_interrupted_write_leaves_no_result(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    (tmp_path / "cut.json").write_text('{"key": {"format": 1}, "resu')
    assert shelf.get("cut.json", {}) is None
    shelf.put("whole.json", {"seed": 0}, {"x": 1})
    assert shelf.get("whole.json", {"seed": 0}) == {"x": 1}
    assert shelf.get("whole.json", {"seed": 1}) is None
    assert sorted(file.name for file in tmp_path.iterdir()) == ["cut.json", "whole.json"]


def test_a_method_that_raises_is_told_of_and_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("agents [0] returned while agents [1] still send.")

    monkeypatch.setattr(rounds, "minimize", broken)
    chosen, entrants = [instance("quick-noisy")], [contestant("NIDS")]
    told: list[tuple[str, str | None]] = []
    carry_out(plan_in(tmp_path), chosen, entrants, lambda *what: told.append(what))
    assert "RuntimeError: agents [0] returned" in str(told[-1][1])
    assert work_left(plan_in(tmp_path), chosen, entrants) == 1


def test_data_that_are_not_at_hand_are_left_out_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("DCGS_DATA", raising=False)
    argv = ["bench", "rounds", "--instances", "movielens", "--out", str(tmp_path / "out"), "--jobs", "1"]
    assert main(argv) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "f* of movielens: left out, for its data are not at hand" in said
    page = (tmp_path / "out" / "rounds.md").read_text()
    assert "f* of movielens: left out" in page


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["--instances", "lasso-moon"], "an instance must be one of 'lasso-paper', 'completion-paper'"),
        (["--methods", "Newton"], "a method must be one of 'FastDCGS', 'DFW'"),
        (["--level", "0.5"], "level must be one of 1e-01, 1e-02, 1e-03, 1e-04, 1e-05; got 0.5."),
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
    names = [chosen.name for chosen in INSTANCES] + [entrant.name for entrant in CONTESTANTS]
    assert [name for name in names if name not in said] == []


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a quick run of two methods."""
    out = tmp_path_factory.mktemp("quick")
    argv = ["bench", "rounds", "--quick", "--methods", "DFW", "NIDS", "--out", str(out), "--jobs", "1"]
    assert main([*argv, "--seconds", "2"]) == 0
    return out


def test_quick_writes_page_numbers_and_picture(quick: Path) -> None:
    written = json.loads((quick / "rounds.json").read_text())
    assert list(written["instances"]) == [chosen.name for chosen in QUICK]
    assert written["environment"]["seed"] == 0
    assert (quick / "profile.png").read_bytes().startswith(b"\x89PNG")
    noisy = written["instances"]["quick-noisy"]["trials"]
    assert noisy["NIDS"]["work"] == "projections"
    assert noisy["DFW"]["work"] == "oracle calls"
    assert noisy["NIDS"]["costs"]["1e-03"]["rounds"] < noisy["DFW"]["costs"]["1e-03"]["rounds"]


def test_the_page_has_the_numbers_of_the_json(quick: Path) -> None:
    written = json.loads((quick / "rounds.json").read_text())
    page = (quick / "rounds.md").read_text()
    costs = [
        (name, cost)
        for told in written["instances"].values()
        for name, trial in told["trials"].items()
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
            and row[3] == f"{cost['rounds']:,}"
            and row[-2:] == [f"{cost['bytes']:,}", f"{cost['work']:,} {short}"]
        ]
