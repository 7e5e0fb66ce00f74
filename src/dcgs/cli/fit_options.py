"""The options of ``dcgs fit``."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

from dcgs import registry
from dcgs.cli.jobs import HELP
from dcgs.cli.values import (
    assignment,
    count,
    fraction,
    job,
    name_of,
    option,
    positive,
    radius,
    seed,
    shape,
    share,
)
from dcgs.fitting.config import FitConfig
from dcgs.fitting.data import DataSource
from dcgs.fitting.graphs import NAMED, GraphSpec
from dcgs.fitting.problems import PROBLEMS, Problem, method_named, problem_named
from dcgs.fitting.readers import EntriesLayout, SamplesLayout
from dcgs.fitting.sample_problem import SampleOptions
from dcgs.fitting.samples import Preparation
from dcgs.fitting.sets import SetSpec, built_in_options, sets_with
from dcgs.front import Checkpoint
from dcgs.sets.options import Kind

_ABOUT = """\
Fit a model to data that several agents hold. Each agent keeps its data and sends messages to its
neighbors on a graph; every agent ends with a model that is good on everyone's data.

{problems}
"""

_MORE = """\
DATA is one file, which is split into parts for the agents, or a name with {agent} (or {rank}) in it:
one file for each agent, counted from 0. The name of a file determines its format: .npz (A and b; rows,
cols and values), .npy, .csv and .tsv, .parquet; any other is LIBSVM text (plain, .gz, .bz2, .xz).

Tables may have words and empty cells. A column of words is a category: one feature for each level that
some site has. Empty cells are filled with the mean of all sites. Labels are words or numbers; with more
than two, each has a model against all others. Sites may have their columns in any order. The model has a
free intercept, and columns are scaled by deviations of all sites; coefficients are written in your units.
--radius auto finds the radius.

The folder gets the model of each agent, agent-000.npz, agent-001.npz, …, summary.json and
report.html, a page about the fit. dcgs show prints a model, dcgs predict applies it. Agents send each other
vectors of the size of the model, and sums that summary.json lists; rows of data, and labels or
ratings of rows, are never sent. docs/fit.md has all details.

Progress is a bar on a terminal, and lines on stderr elsewhere.

sets:
{sets}

examples:
  dcgs fit lasso --data data.svm --agents 10 --radius 1000 --out model/
  dcgs fit lasso --data 'site-{agent}.npz' --graph path --radius 1000 --out model/
  dcgs fit logistic --data 'hospital-{agent}.csv' --target ill --radius auto --out model/
  dcgs fit logistic --data patients.csv --target ill --drop name --agents 4 --radius 3 --out model/
  dcgs fit logistic --data flowers.csv --target species --agents 4 --radius auto --folds 5 --out model/
  dcgs fit least-squares --data houses.csv.gz --target price --agents 5 --set simplex --out model/
  dcgs fit completion --data ratings.csv --radius auto --agents 10 --out model/
  dcgs fit lasso --data data.svm --graph network.graphml --radius 10 --seconds 60 --out model/
  dcgs fit lasso --data data.svm --agents 10 --radius 10 --method dfw --rounds 500 --out model/
  mpiexec -n 10 dcgs fit lasso --data 'site-{rank}.npz' --radius 1000 --out model/
  dcgs fit lasso --data data.svm --agents 10 --radius 10 --checkpoint saved/ --every 20 --out model/
  dcgs fit lasso --data data.svm --agents 10 --radius 10 --checkpoint saved/ --resume --out model/
"""


_SAMPLES_ONLY = (
    "target",
    "features",
    "use",
    "drop",
    "categorical",
    "intercept",
    "standardize",
    "class_weight",
    "folds",
)


def add_options(jobs: Any) -> argparse.ArgumentParser:
    """Add the job to the command; return its parser."""
    problems = "\n".join(f"  {problem.name:15} {problem.about}" for problem in PROBLEMS.values())
    sets = "\n".join(
        f"  {name:13} {(X.__doc__ or '').splitlines()[0]}" for name, X in registry.sets().items()
    )
    about, more = _ABOUT.replace("{problems}", problems), _MORE.replace("{sets}", sets)
    parser = job(jobs, "fit", HELP["fit"], about, more)
    parser.add_argument(
        "problem",
        type=_problem,
        metavar="PROBLEM",
        help=f"{', '.join(PROBLEMS)}; or a loss: {', '.join(registry.losses())}, package.module:Name",
    )
    _add_data(parser.add_argument_group("data"))
    _add_offsets(parser.add_argument_group("offsets of ratings, for completion"))
    _add_network(parser.add_argument_group("agents"))
    _add_set(parser.add_argument_group("set of models"))
    _add_samples(parser.add_argument_group("intercept, scales and weights (not for completion)"))
    _add_method(parser.add_argument_group("method and stopping rules"))
    _add_running(parser.add_argument_group("running and writing"))
    _add_checkpoints(parser.add_argument_group("checkpoints"))
    return parser


def _add_data(group: Any) -> None:
    add = partial(option, group)
    add("--data DATA", "a file, or a name with {agent} in it", required=True)
    text = "an argument of the loss, such as delta=0.5 of huber"
    add("--loss-option KEY=VALUE", text, assignment, action="append", default=[])
    add(
        "--target COLUMN", "of tables, the column to predict: a name or a number (default: the last); or .npy"
    )
    add("--features N", "of LIBSVM text (default: the highest index)", count)
    add(
        "--shape R,C",
        "of a matrix to complete whose rows and columns have numbers (default: ids in tables)",
        shape,
    )
    columns = "of tables for completion (default: by name, or the first 3)"
    add_reading_options(group, columns, base="ids in tables; else from 0 if there is a 0, or from 1")
    text = "of tables, the only columns of features to use: names or numbers (default: all)"
    add("--use COLUMN", text, nargs="+", action="extend")
    text = "of tables, columns to leave out, such as names, numbers of patients or dates"
    add("--drop COLUMN", text, nargs="+", action="extend", default=[])
    text = "of tables, columns of numbers that are categories, such as codes; columns of words always are"
    add("--categorical COLUMN", text, nargs="+", action="extend", default=[])
    add(
        "--missing",
        "of tables, an empty cell: filled with the mean of all sites (default), its row dropped, or refused",
        choices=["mean", "drop", "error"],
        default="mean",
    )
    text = "share of each site's rows to hold out of the fit and score models on (default: 0.1; 0: none)"
    add("--held-out SHARE", text, share, default=0.1)
    add(
        "--split",
        "how one file is split: in order (default), shuffled by the seed, or sorted by target or row "
        "(default for completion: every row has one agent)",
        choices=["even", "random", "sorted"],
    )


def _add_offsets(group: Any) -> None:
    text = "fit the mean and an offset of each row and column first (default: yes)"
    group.add_argument("--offsets", action=argparse.BooleanOptionalAction, help=text)
    text = "the weight of the squares of offsets: a row with this many ratings gets half (default: 5)"
    option(group, "--ridge R", text, positive)


def add_reading_options(group: Any, columns: str, base: str) -> None:
    """Add the options about tables that fit and predict share, with their help and their defaults."""
    option(group, "--columns ROW,COL,VALUE", columns)
    text = "the first line has names (default: found from the file)"
    group.add_argument("--header", action=argparse.BooleanOptionalAction, help=text)
    exclusive = group.add_mutually_exclusive_group()
    for name, first in (("--zero-based", 0), ("--one-based", 1)):
        text = f"rows and columns count from {first} (default: {base})"
        exclusive.add_argument(name, dest="base", action="store_const", const=first, help=text)


def columns_of(args: argparse.Namespace) -> tuple[str, ...] | None:
    """Return the columns that ``--columns`` names."""
    return None if args.columns is None else tuple(name.strip() for name in args.columns.split(","))


def _add_network(group: Any) -> None:
    option(group, "--agents M", "how many (default: as many as files or nodes)", count)
    text = f"{NAMED}; or a file of edges, or .graphml (default: cycle)"
    option(group, "--graph GRAPH", text, default="cycle")


def _add_set(group: Any) -> None:
    add = partial(option, group)
    defaults = "(default: l1; l2 for least-squares, nuclear for completion)"
    add("--set SET", f"one of the sets below, or package.module:Name {defaults}", name_of("set"))
    types: dict[Kind, Any] = {Kind.NUMBER: positive, Kind.COUNT: count}
    for each in built_in_options():
        text = f"of {', '.join(sets_with(each))}: {each.help}"
        kind = types.get(each.kind, str)
        if each.name == "radius":
            kind, text = (
                radius,
                f"{text}; auto finds it: sites judge radii on rows or ratings that they hold out",
            )
        add(f"--{each.name} {each.name.upper()}", text, kind)
    text = (
        "of --radius auto: how many parts of its rows each site judges radii on, one after the other "
        "(default: 1, a quarter of the rows)"
    )
    add("--folds K", text, count)
    text = "an option of a set from another package"
    add("--set-option KEY=VALUE", text, assignment, action="append", default=[])


def _add_samples(group: Any) -> None:
    add = partial(option, group)
    text = "a free intercept, which the set does not bound (default: yes)"
    group.add_argument("--intercept", action=argparse.BooleanOptionalAction, help=text)
    text = (
        "divide each column by its deviation over all sites, so that the radius treats all alike; "
        "coefficients are written in your units (default: yes for l1, l2, linf, k-sparse and group-l1)"
    )
    group.add_argument("--standardize", action=argparse.BooleanOptionalAction, help=text)
    text = "balanced: rows of rarer classes count more, so that all classes count alike"
    add("--class-weight", text, choices=["balanced"])


def _add_method(group: Any) -> None:
    add = partial(option, group)
    methods, solvers = ", ".join(registry.methods()), ", ".join(registry.inner_solvers())
    text = f"{methods}, or package.module:Name (default: fastdcgs)"
    add("--method METHOD", text, name_of("method"), default="fastdcgs")
    text = f"inner solver: auto, {solvers}, or package.module:Name (default: chosen for the set and the loss)"
    add("--inner SOLVER", text, name_of("inner solver", "auto"))
    text = "an argument of the method that has no flag of its own"
    add("--method-option KEY=VALUE", text, assignment, action="append", default=[])
    add(
        "--inner-option KEY=VALUE", "an argument of the inner solver", assignment, action="append", default=[]
    )
    add("--eta ETA", "of fastdcgs (default: found by the agents)", positive)
    add("--step S", "of methods that project (default: from the data)", positive)
    add("--answer", "of dcgs and primaldual (default: average)", choices=["average", "last"])
    text = "stop when the certified gap is this fraction of the decrease of the loss (default: 1e-3)"
    add("--gap G", text, fraction)
    add("--gap-abs G", "stop when the certified gap is at most this number", positive)
    add("--rounds N", "stop after this number of rounds", count)
    add("--iterations N", "stop after this number of iterations", count)
    add("--seconds S", "stop after this number of seconds", positive)
    add("--lmo-calls N", "stop when any agent has made this number of oracle calls", count)


def _add_running(group: Any) -> None:
    add = partial(option, group)
    add("--out DIR", "folder for the models and summary.json", Path, required=True)
    group.add_argument("--force", action="store_true", help="replace the models in the folder")
    text = "write report.html, a page about the fit that opens offline (default: yes)"
    group.add_argument("--report", action=argparse.BooleanOptionalAction, default=True, help=text)
    add("--seed N", "of the random numbers (default: 0)", seed, default=0)
    text = "measure losses on all data every K iterations (default: 1); needs all data, is not counted"
    add("--measure K", text, count, nargs="?", const=1)
    text = "all agents in this process, or in several MPI processes (default: mpi under mpiexec or srun)"
    add("--runtime", text, choices=["lockstep", "mpi"])
    add("--ranks R", "MPI processes to start (default: as many as agents)", count)
    text = "of mpi: seconds without a heartbeat after which a process is considered dead (default: 10)"
    add("--timeout S", text, positive)
    add("--threads N", "for lockstep (default: chosen by the size of the data)", count)


def _add_checkpoints(group: Any) -> None:
    add = partial(option, group)
    text = "save the state of all agents here, also when Ctrl-C or SIGTERM ends the fit"
    add("--checkpoint DIR", text, Path)
    add("--every K", "save it after every K iterations (default: 10)", count)
    text = "continue from the newest iteration that all agents have in DIR; auto: or from the beginning"
    add("--resume auto", text, nargs="?", const=True, default=False, choices=["auto"])


def _problem(text: str) -> str:
    """Return the name of a problem if there is one of that name."""
    if text not in PROBLEMS:
        try:
            problem_named(text)
            registry.resolve("loss", text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error
    return text


def config_of(args: argparse.Namespace) -> FitConfig:
    """Return the configuration that the options describe."""
    problem = problem_named(args.problem, dict(args.loss_option))
    flags = {option.name: getattr(args, option.name) for option in built_in_options()}
    set_options = {name: value for name, value in flags.items() if value is not None} | dict(args.set_option)
    rules = ("gap", "gap_abs", "rounds", "iterations", "seconds", "lmo_calls")
    method_options = ("inner", "eta", "step", "answer")
    return FitConfig(
        problem=problem,
        source=DataSource(args.data, args.split or ("sorted" if problem.entries else "even"), args.seed),
        layout=_layout(args, problem),
        graph=GraphSpec(args.graph, args.seed),
        set=SetSpec(args.set or problem.usual_set, set_options),
        method=method_named(
            args.method,
            {name: getattr(args, name) for name in method_options},
            dict(args.method_option),
            dict(args.inner_option),
        ),
        rules={name: getattr(args, name) for name in rules},
        agents=args.agents,
        shape=args.shape,
        measure=args.measure,
        seed=args.seed,
        checkpoint=_checkpoint(args),
        samples=_sample_options(args, problem),
        ridge=_ridge(args, problem),
    )


def _sample_options(args: argparse.Namespace, problem: Problem) -> SampleOptions:
    if args.class_weight is not None and not problem.labels:
        raise ValueError(f"--class-weight must be left out for {problem.name}, which has no classes.")
    how = Preparation(tuple(args.categorical), args.missing, args.held_out)
    if args.folds is not None and args.radius != "auto":
        raise ValueError("--folds is for --radius auto, whose radii are judged on them. Leave it out.")
    balanced = args.class_weight == "balanced"
    return SampleOptions(how, args.intercept, args.standardize, balanced, args.folds or 1)


def _ridge(args: argparse.Namespace, problem: Problem) -> float | None:
    """Return the ridge of the offsets; None means no offsets."""
    given = [name for name in ("offsets", "ridge") if getattr(args, name) is not None]
    if given and not problem.entries:
        raise ValueError(f"--{given[0]} must be left out for {problem.name}, which has no ratings.")
    if args.offsets is False and args.ridge is not None:
        raise ValueError("--ridge must be left out with --no-offsets, which fits none.")
    return None if args.offsets is False else args.ridge or 5.0


def _layout(args: argparse.Namespace, problem: Problem) -> SamplesLayout | EntriesLayout:
    foreign = _SAMPLES_ONLY if problem.entries else ("columns", "shape", "base")
    given = [name for name in foreign if getattr(args, name) not in (None, [])]
    if given:
        name = {"base": "zero-based or --one-based"}.get(given[0], given[0].replace("_", "-"))
        raise ValueError(f"--{name} must be left out for {problem.name}, which does not use it.")
    if problem.entries:
        return EntriesLayout(columns_of(args), args.header, args.base)
    use = None if args.use is None else tuple(args.use)
    return SamplesLayout(args.target, args.header, args.features, use=use, drop=tuple(args.drop))


def _checkpoint(args: argparse.Namespace) -> Checkpoint | None:
    if args.checkpoint is not None:
        return Checkpoint(args.checkpoint, args.every or 10, args.resume)
    given = [name for name in ("every", "resume") if getattr(args, name)]
    if given:
        raise ValueError(f"--{given[0]} needs a folder for the state of the agents. Add --checkpoint DIR.")
    return None
