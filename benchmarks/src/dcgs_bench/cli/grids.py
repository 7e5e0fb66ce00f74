"""``dcgs bench rounds``, ``forms``, ``time`` and ``faults``: every method on a table of instances."""

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import partial
from typing import Any

from rich.console import Console

from dcgs.cli.values import count, job, option, positive, seed
from dcgs.parallel import cores
from dcgs_bench import faults
from dcgs_bench.cli.common import Choice, Runner, add_choices, add_folder, chosen_by_name, records_of, show
from dcgs_bench.entries import ENTRIES, FORMS, GOAL, GRID, OURS
from dcgs_bench.faults import CONDITIONS, FaultGrid
from dcgs_bench.figures import profile_figure
from dcgs_bench.instances import INSTANCES, LARGE, QUICK, drawn
from dcgs_bench.ranking import (
    TIME_LEVELS,
    Ranking,
    counts_table,
    forms_summary,
    forms_table,
    instance_table,
    stops_table,
    summary_table,
    time_rankings,
    time_tables,
    trials_of,
)
from dcgs_bench.rounds import GridStudy, RoundsGrid, remarks
from dcgs_bench.study import TextTable

_ABOUT_ROUNDS = """\
Run every method on every instance of a table. Print the rounds and bytes until its agents stop by themselves
at a certified gap of 1e-3, and, from another run, rounds, bytes and work until the worst agent's relative
error is 1e-1 to 1e-5. The folder gets tables, numbers, a picture, and a record of every run: the same command
continues where it was interrupted. After a change of a method's code, name the method and give --rerun.
"""
_MORE_ROUNDS = """\
examples:
  dcgs bench rounds --quick                                       small problems, under a minute
  dcgs bench rounds --list                                        instances and methods by name
  dcgs bench rounds --instances lasso-cycle-10 noisy-grid-6x6     these two
  dcgs bench rounds --methods FastDCGS --rerun                    one method again, the rest as recorded
  dcgs bench rounds --grid                                        also settings found by search
  dcgs bench rounds --quick --method my_methods:Gossip            a method of your own; also FILE.py:Gossip
  dcgs bench rounds --methods FastDCGS --instance my_data:plants  a problem of your own beside the others
"""
_ABOUT_TIME = """\
Do the same runs with one core for each agent. Print the seconds over three links, lan (1 Gbit/s, 0.2 ms a
round), paper (10 MB/s, 1 ms) and wan (100 Mbit/s, 20 ms), beside `pool`: all data sent to one site over the
same link, and a centralized solver there. Times are processor time; they need an idle machine.
"""
_MORE_TIME = "examples:\n  dcgs bench time --instances lasso-paper silo-10      these two\n"
_ABOUT_FORMS = """\
Run FastDCGS with default settings and in each of its forms on the instances of dcgs bench time. Print the
rounds until the worst agent's relative error is 1e-3, and those of default settings over the fewest. A form
gets as many rounds as default settings take. Hessians of more than 500 unknowns are not tried.
"""
_MORE_FORMS = """\
examples:
  dcgs bench forms --quick                                        small problems, under a minute
  dcgs bench forms --instances silo-star-10 silo-cycle-10         these two
  dcgs bench forms --random 60 --out forms-random                 60 random problems
"""
_ABOUT_FAULTS = """\
Run every method under every fault: messages that are lost or late, agents that sleep, edges that come and
go, an agent that is slower than the others. Print rounds, bytes and simulated seconds until the worst
agent's relative error is 1e-2 and 1e-3, and what becomes of the methods that do not get there.
"""
_MORE_FAULTS = """\
examples:
  dcgs bench faults --quick                                    a small problem, under a minute
  dcgs bench faults --methods FastDCGS --seeds 10 --instances lasso-cycle-10 noisy-grid-6x6
"""
# Seconds of a run: of rounds, of time, of both with --quick.
_SECONDS, _SECONDS_TIME, _QUICK_SECONDS = 40.0, 20.0, 3.0
_FAULTS_INSTANCES = ("lasso-cycle-10",)


def add(benches: Any) -> None:
    """Add the four benchmarks to ``dcgs bench``."""
    text = "rounds, bytes and work to an accuracy: all methods on a table of instances"
    rounds = job(benches, "rounds", text, _ABOUT_ROUNDS, _MORE_ROUNDS)
    text = "seconds to an accuracy over three links, beside pooling: all methods on a table of instances"
    times = job(benches, "time", text, _ABOUT_TIME, _MORE_TIME)
    text = "rounds of each form of FastDCGS, beside those of the form that it chooses"
    forms = job(benches, "forms", text, _ABOUT_FORMS, _MORE_FORMS)
    for name, parser, seconds, only in (
        ("rounds", rounds, _SECONDS, ""),
        ("time", times, _SECONDS_TIME, ""),
        ("forms", forms, _SECONDS, OURS),
    ):
        add = partial(option, parser)
        add_choices(parser, only)
        text = f"limit of each run (default: {seconds:g}, more for the largest instances; 3 with --quick)"
        add("--seconds S", text, positive)
        add("--seed N", "of data and graphs (default: 0)", seed, default=0)
        if not only:
            add("--stops-only", "only the runs that end when the agents stop", bool)
        add_folder(parser, name)
    for parser in (rounds, forms):
        option(parser, "--jobs N", "processes (default: the available cores)", count, default=cores())
    option(rounds, "--grid", "also search settings, and show the best of them to 1e-3", bool)
    option(rounds, "--list", "print the names of all, and end", bool)
    rounds.set_defaults(run=_run_rounds)
    option(times, "--jobs N", "processes, with one core each (default: 1)", count, default=1)
    times.set_defaults(run=_run_time)
    text = "instead of the table, N random problems, which begin with that of --seed"
    option(forms, "--random N", text, count)
    forms.set_defaults(run=_run_forms)
    text = "rounds, bytes and simulated seconds under faults: all methods"
    parser = job(benches, "faults", text, _ABOUT_FAULTS, _MORE_FAULTS)
    add = partial(option, parser)
    add("--instances NAME", f"of dcgs bench rounds (default: {' '.join(_FAULTS_INSTANCES)})", nargs="+")
    add("--methods NAME", "which methods (default: all), or forms, as 'FastDCGS, edges'", nargs="+")
    add("--faults NAME", "which faults (default: all)", nargs="+")
    add("--list", "print the names of all faults, and end", bool)
    add("--quick", "a small instance and few rounds", bool)
    add("--seeds N", "of data and faults (default: 1)", count, default=1)
    add("--seed N", "the first of them (default: 0)", seed, default=0)
    add("--rounds N", "limit of each run (default: 1000; 150 with --quick)", count)
    add("--seconds S", "limit of each run (default: 60)", positive, default=60.0)
    add("--jobs N", "processes (default: the available cores)", count, default=cores())
    add_folder(parser, "faults")
    parser.set_defaults(run=_run_faults)


def _run_rounds(args: argparse.Namespace, console: Console) -> int:
    choice = Choice.of(args, INSTANCES)
    if args.list:
        rows = [(chosen.name, chosen.about) for chosen in choice.table]
        rows += [(entry.name, repr(entry.method)) for entry in (*choice.methods, *GRID)]
        show(console, TextTable.plain("instances and methods", ["name", "what it is"], rows))
        return 0
    families = {entry.name for entry in choice.entries}
    settings = [entry for entry in GRID if args.grid and entry.family in families]
    seconds = args.seconds or (_QUICK_SECONDS if args.quick else _SECONDS)
    runner = Runner(records_of(args, "rounds"), args.jobs, console, [])
    grid = RoundsGrid(GridStudy(runner.records, seconds, (args.seed,)), stops_only=args.stops_only)
    interrupted = runner.run(grid.stages(choice.instances, [*choice.entries, *settings]), args.rerun)
    # The report has all recorded methods, also those that were not chosen this time.
    made = grid.record(choice.table, choice.methods, settings)
    trials = trials_of(made)
    runner.notes.extend(remarks(made))
    shown = [chosen for chosen in choice.instances if chosen.name in trials]
    tables = [instance_table(trials, chosen.name, chosen.about) for chosen in shown]
    rankings = Ranking(trials, by_stops=True), Ranking(trials)
    if trials:
        stops, errors = ([summary_table(ranking), counts_table(ranking)] for ranking in rankings)
        tables += [*stops, stops_table(trials), *errors]
    figures = {"profile.png": profile_figure(rankings[1])} if trials else {}
    runner.finish("rounds", made, tables, figures)
    if interrupted:
        return 130
    failed = grid.unusable(choice.instances, choice.entries)
    if failed:
        console.print(f"there is no run of {', '.join(failed)}; the notes above say why.", soft_wrap=True)
    return 1 if failed else 0


def _run_time(args: argparse.Namespace, console: Console) -> int:
    choice = Choice.of(args, (*INSTANCES, *LARGE))
    seconds = args.seconds or (_QUICK_SECONDS if args.quick else _SECONDS_TIME)
    runner = Runner(records_of(args, "time"), args.jobs, console, [])
    study = GridStudy(runner.records, seconds, (args.seed,))
    grid = RoundsGrid(study, min(TIME_LEVELS), args.stops_only, with_pool=True)
    if runner.run(grid.stages(choice.instances, choice.entries), args.rerun):
        return 130
    made = grid.record(choice.table, choice.methods)
    rankings = time_rankings(trials_of(made))
    tables = [table for ranking in rankings if ranking[0].names for table in time_tables(ranking)]
    runner.finish("time", made, tables, {})
    return 0


def _run_forms(args: argparse.Namespace, console: Console) -> int:
    table = (
        (*INSTANCES, *LARGE) if args.random is None else [drawn(args.seed + k) for k in range(args.random)]
    )
    choice = Choice.of(args, table)
    seconds = args.seconds or (_QUICK_SECONDS if args.quick else _SECONDS)
    runner = Runner(records_of(args, "forms"), args.jobs, console, [])
    grid = RoundsGrid(GridStudy(runner.records, seconds, (0 if args.random else args.seed,)), GOAL)
    entries = [*(replace(ours, gaps=()) for ours in choice.entries), *FORMS]
    if runner.run(grid.stages(choice.instances, entries), args.rerun):
        return 130
    made = grid.record(choice.table, entries)
    trials = trials_of(made)
    runner.notes.extend(remarks(made))
    if trials:
        runner.notes.append(forms_summary(trials))
    runner.finish("forms", made, [forms_table(trials)], {})
    return 0


def _run_faults(args: argparse.Namespace, console: Console) -> int:
    if args.list:
        rows = [(condition.name, condition.about) for condition in CONDITIONS]
        show(console, TextTable.plain("faults", ["name", "what it is"], rows))
        return 0
    names = args.instances or (None if args.quick else _FAULTS_INSTANCES)
    instances = chosen_by_name("an instance", names, [QUICK[1]] if args.quick else INSTANCES)
    methods = args.methods or [entry.name for entry in ENTRIES]
    entries = chosen_by_name("a method", methods, (*ENTRIES, *FORMS))
    conditions = chosen_by_name("a fault", args.faults, CONDITIONS)
    runner = Runner(records_of(args, "faults"), args.jobs, console, [])
    study = GridStudy(runner.records, args.seconds, range(args.seed, args.seed + args.seeds))
    rounds = args.rounds or (150 if args.quick else 1000)
    grid = FaultGrid(study, instances, entries, conditions, rounds)
    if runner.run([grid.optima, grid.tasks], args.rerun):
        return 130
    made = grid.record()
    kinds = faults.instance_table, faults.summary_table
    tables = [table(made, chosen.name) for chosen in instances for table in kinds]
    runner.finish("faults", made, [*tables, faults.ratio_table(made)], {})
    return 0
