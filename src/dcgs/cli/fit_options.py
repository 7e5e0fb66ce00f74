"""The options of ``dcgs fit``."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from dcgs import registry
from dcgs.checkpoints.folder import Checkpoint
from dcgs.cli.jobs import HELP
from dcgs.cli.values import (
    assignment,
    count,
    encoding,
    fraction,
    job,
    name_of,
    names,
    option,
    path,
    positive,
    radius,
    seed,
    shape,
    share,
)
from dcgs.floors import Floors
from dcgs.learn.files.fit import FitConfig, RowsOptions
from dcgs.learn.files.graphs import NAMED, GraphSpec
from dcgs.learn.files.layout import EntriesLayout, SamplesLayout, TextFormat
from dcgs.learn.files.rows import Preparation
from dcgs.learn.files.source import DataSource, option_text
from dcgs.learn.files.specs import (
    PROBLEMS,
    Problem,
    SetSpec,
    built_in_options,
    method_named,
    problem_named,
    sets_with,
)
from dcgs.learn.schema import NOT_GIVEN
from dcgs.learn.sites import RunSpec
from dcgs.sets import OptionKind
from dcgs.validation import listed

if TYPE_CHECKING:
    from dcgs.learn.files.private import PrivateOptions

_ABOUT = """\
Fit a model to data that several agents hold. Each agent keeps its data and sends messages to its
neighbors on a graph; every agent ends with a model that is good on everyone's data.

{problems}
"""

_MORE = """\
DATA is one file, which is split into parts for the agents, or a name with {agent} (or {rank}) in it:
one file for each agent, counted from 0 without a gap. Under mpiexec, one name may be another file at each
site: if their contents differ, each process has its own, and if not, the file is split. The name of a
file determines its format: .npz (A and b; rows, cols and values), .npy, .csv and .tsv, .parquet; any other
is LIBSVM text (plain, .gz, .bz2, .xz).

Tables may have words and empty cells. A column of words is a category: one feature for each level that
some site has. Empty cells are filled with the mean of all sites. Labels are words or numbers; with more
than two, each has a model against all others. Sites may have their columns in any order. The model has a
free intercept, and columns are scaled by deviations of all sites; coefficients are written in your units.
--radius auto finds the radius.

The folder gets the model of each agent, agent-000.npz, agent-001.npz, …, summary.json and
report.html, a page about the fit. dcgs show prints a model, dcgs predict applies it. Agents send each other
vectors of the size of the model, Hessians if it is small, and sums; ledger-000.jsonl has a line for each
message, and dcgs ledger adds them up. A sum about few people tells about these: see docs/privacy.md and
--min-count.

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
    add = partial(option, parser.add_argument_group("offsets of ratings, for completion"))
    text = "fit the mean and an offset of each row and column first (default: yes)"
    add("--offsets", text, bool, default=None)
    text = (
        "the weight of the squares of offsets: a row with this many ratings gets half "
        "(default: 5; with --radius auto found on ratings that are held out)"
    )
    add("--ridge R", text, positive)
    add = partial(option, parser.add_argument_group("agents"))
    add("--agents M", "how many (default: as many as files or nodes)", count)
    text = "the site's name; in one process those of all agents, by commas (default: agent 0, …)"
    add("--name NAME", text, names)
    add("--graph GRAPH", f"{NAMED}; or a file of edges, or .graphml (default: complete)", default="complete")
    _add_floors(partial(option, parser.add_argument_group("floors: nothing about few people leaves")))
    _add_noise(partial(option, parser.add_argument_group("noise, for a promise (docs/privacy.md)")))
    _add_set(partial(option, parser.add_argument_group("set of models")))
    add = partial(option, parser.add_argument_group("intercept, scales and weights (not for completion)"))
    text = "a free intercept, which the set does not bound (default: yes)"
    add("--intercept", text, bool, default=None)
    text = (
        "divide each column by its deviation over all sites, so that the radius treats all alike; "
        "coefficients are written in your units (default: yes for l1, l2, linf, k-sparse and group-l1)"
    )
    add("--standardize", text, bool, default=None)
    text = "balanced: rows of rarer classes count more, so that all classes count alike"
    add("--class-weight", text, choices=["balanced"])
    _add_method(partial(option, parser.add_argument_group("method and stopping rules")))
    _add_running(partial(option, parser.add_argument_group("running and writing")))
    add = partial(option, parser.add_argument_group("checkpoints"))
    text = "save the state of all agents here, also when Ctrl-C or SIGTERM ends the fit"
    add("--checkpoint DIR", text, path)
    add("--every K", "save it after every K iterations (default: 10)", count)
    text = "continue from the newest iteration that all agents have in DIR; auto: or from the beginning"
    add("--resume auto", text, nargs="?", const=True, default=False, choices=["auto"])
    parser.set_defaults(handover=None)  # of runs between organizations
    return parser


def _add_data(group: Any) -> None:
    add = partial(option, group)
    add("--data DATA", "a file, or a name with {agent} in it", required=True)
    text = "an argument of the loss, such as delta=0.5 of huber"
    add("--loss-option KEY=VALUE", text, assignment, action="append", default=[])
    text = "of tables, the column to predict: a name or a number (default: the last); or .npy"
    add("--target COLUMN", text)
    add("--features N", "of LIBSVM text (default: the highest index)", count)
    text = "of a matrix to complete whose rows and columns have numbers (default: ids in tables)"
    add("--shape R,C", text, shape)
    columns = "of tables for completion (default: by name; without names the first 3)"
    add_reading_options(group, columns, base="ids in tables; else from 0 if there is a 0, or from 1")
    text = "of tables, the only columns of features to use: names or numbers (default: all)"
    add("--use COLUMN", text, nargs="+", action="extend")
    text = (
        "of tables, columns to leave out, such as names, numbers of patients or dates; a site may lack them"
    )
    add("--drop COLUMN", text, nargs="+", action="extend", default=[])
    text = "of tables, columns of numbers that are categories, such as codes; columns of words always are"
    add("--categorical COLUMN", text, nargs="+", action="extend", default=[])
    text = (
        "of tables, an empty cell: filled with the mean of all sites (default), its row dropped, or refused"
    )
    add("--missing", text, choices=["mean", "drop", "error"])
    text = "share of each site's rows or ratings to hold out and score models on (default: 0.1; 0: none)"
    add("--held-out SHARE", text, share)
    text = (
        "how one file is split: in order (default), shuffled by the seed, or sorted by target or row "
        "(default for completion: every row has one agent)"
    )
    add("--split", text, choices=["even", "random", "sorted"])


def _add_floors(add: Callable[..., None]) -> None:
    text = (
        "levels, classes, columns, scores and items are about at least this many people of all sites, or are "
        "merged, left out or refused (10 if --min-sites is given). A site may set more than others"
    )
    add("--min-count N", text, count)
    add("--min-sites N", "and at so many sites (3 if --min-count is given)", count)
    text = "of tables, the column that says whose row it is; it is no feature (default: each row is a person)"
    add("--subject COLUMN", text)
    text = "columns of numbers that are about fewer people are left out (drop, the default), or refused"
    add("--rare-columns", text, choices=["drop", "refuse"])


def _add_noise(add: Callable[..., None]) -> None:
    text = (
        "of logistic with two classes, and lasso: noisy sums, with a promise of (ε, δ)-differential privacy "
        "for a row; all that would be computed from rows is given: --bounds, --radius"
    )
    add("--epsilon E", text, positive)
    add("--delta D", "δ of that promise (default: 1e-6)", fraction)
    text = "a table with a line for each column: column,low,high or column,,,level|level; the target, too"
    add("--bounds FILE", text, path)
    text = (
        "the most ε of all private fits of a file, which FILE.budget.json beside it keeps (default: that of "
        "the first)"
    )
    add("--budget E", text, positive)
    text = "how many sites may put together what they know (default: 1); more take more noise"
    add("--colluders N", text, count)
    text = (
        "better with many features: the site at the root, on a complete graph the first, reads totals "
        "without noise, and chooses vertices by the exponential mechanism; the promise is against all others"
    )
    add("--trust-root", text, bool)


def add_reading_options(group: Any, columns: str, base: str) -> None:
    """Add the options about tables that fit and predict share, with their help and their defaults."""
    option(group, "--columns ROW,COL,VALUE", columns)
    add_text_options(group)
    exclusive = group.add_mutually_exclusive_group()
    for name, first in (("--zero-based", 0), ("--one-based", 1)):
        text = f"rows and columns count from {first} (default: {base})"
        exclusive.add_argument(name, dest="base", action="store_const", const=first, help=text)


def add_text_options(group: Any) -> None:
    """Add the options about tables of text."""
    text = "the first line has names (default: found from the file)"
    option(group, "--header", text, bool, default=None)
    text = "of text, such as latin-1 or cp1252 (default: utf-8); of this site's file only"
    option(group, "--encoding NAME", text, encoding, default="utf-8")
    text = "of tables of text, the decimal mark (default: found from each file); of this site's file only"
    option(group, "--decimal", text, choices=[".", ","])


def text_format(args: argparse.Namespace) -> TextFormat:
    """Return how tables of text are written."""
    return TextFormat(args.encoding, args.decimal)


def columns_of(args: argparse.Namespace) -> tuple[str, ...] | None:
    """Return the columns that ``--columns`` names."""
    return None if args.columns is None else tuple(name.strip() for name in args.columns.split(","))


def _add_set(add: Callable[..., None]) -> None:
    defaults = "(default: l1; l2 for least-squares, nuclear for completion)"
    add("--set SET", f"one of the sets below, or package.module:Name {defaults}", name_of("set"))
    types: dict[OptionKind, Any] = {OptionKind.NUMBER: positive, OptionKind.COUNT: count}
    for entry in built_in_options():
        text = f"of {', '.join(sets_with(entry))}: {entry.help}"
        kind = types.get(entry.kind, str)
        if entry.name == "radius":
            kind = radius
            text += "; auto finds it, by errors on rows or ratings that sites hold out"
        add(f"--{entry.name} {entry.name.upper()}", text, kind)
    text = (
        "of --radius auto: how many parts of its rows each site holds out, one after the other "
        "(default: 5 of at most 63 features; else 1, a quarter of the rows)"
    )
    add("--folds K", text, count)
    text = "of --radius auto: take the smallest radius within one standard error of the best"
    add("--one-standard-error", text, bool)
    text = "an option of a set from another package"
    add("--set-option KEY=VALUE", text, assignment, action="append", default=[])


def _add_method(add: Callable[..., None]) -> None:
    methods, solvers = ", ".join(registry.methods()), ", ".join(registry.inner_solvers())
    text = f"{methods}, or package.module:Name (default: fastdcgs)"
    add("--method METHOD", text, name_of("method"), default="fastdcgs")
    text = f"inner solver: auto, {solvers}, or package.module:Name (default: chosen for the set and the loss)"
    add("--inner SOLVER", text, name_of("inner solver", "auto"))
    text = "an argument of the method that has no flag of its own"
    add("--method-option KEY=VALUE", text, assignment, action="append", default=[])
    text = "an argument of the inner solver"
    add("--inner-option KEY=VALUE", text, assignment, action="append", default=[])
    add("--eta ETA", "of fastdcgs (default: found by the agents)", positive)
    add("--step S", "of methods that project (default: from the data)", positive)
    add("--answer", "of dcgs and primaldual (default: average)", choices=["average", "last"])
    text = (
        "stop when the certified gap is this fraction of the decrease of the loss "
        "(default: 1e-4; for completion 1e-3, with --radius auto that at which held-out errors fall no more)"
    )
    add("--gap G", text, fraction)
    add("--gap-abs G", "stop when the certified gap is at most this number", positive)
    add("--rounds N", "stop after this number of rounds", count)
    add("--iterations N", "stop after this number of iterations", count)
    add("--seconds S", "stop after this number of seconds", positive)
    add("--lmo-calls N", "stop when any agent has made this number of oracle calls", count)


def _add_running(add: Callable[..., None]) -> None:
    add(
        "--out DIR",
        "folder for the models and summary.json; one fit at a time writes to it",
        path,
        required=True,
    )
    text = (
        "mask every sum over the sites: neighbors see uniform words, the root totals alone; and take floors, "
        "by default 10 people at 3 sites (default: if sites have files of their own; docs/privacy.md)"
    )
    add("--secure", text, bool)
    text = "mask nothing, and take no floors unless they are given: sites read each other's sums"
    add("--open", text, bool)
    add("--force", "replace the models in the folder", bool)
    text = "write report.html, a page about the fit that opens offline (default: yes, if jinja2 is installed)"
    add("--report", text, bool, default=None)
    add("--seed N", "of the random numbers (default: 0)", seed, default=0)
    text = "measure losses on all data every K iterations (default: 1); needs all data, is not counted"
    add("--measure K", text, count, nargs="?", const=1)
    text = "all agents in this process, or in several MPI processes (default: mpi under mpiexec or srun)"
    add("--runtime", text, choices=["lockstep", "mpi"])
    add("--ranks R", "MPI processes to start (default: as many as agents)", count)
    text = "of mpi: seconds without a heartbeat after which a process is considered dead (default: 10)"
    add("--timeout S", text, positive)
    text = "of mpi: seconds in which all processes must have started MPI (default: 120, and 2 for each)"
    add("--start-timeout S", text, positive)
    text = "write every message between agents to this .npz file; of lockstep (docs/privacy.md)"
    add("--record-messages FILE", text, path)
    add("--threads N", "for lockstep (default: chosen by the size of the data)", count)


def _problem(text: str) -> str:
    """Return the name of a problem if there is one of that name."""
    if text not in PROBLEMS:
        try:
            problem_named(text)
            registry.resolve("loss", text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error
    return text


_METHOD_OPTIONS = ("inner", "eta", "step", "answer")
_RULES = ("gap", "gap_abs", "rounds", "iterations", "seconds", "lmo_calls")
_TABLES_ONLY = ("target", "features", "use", "drop", "categorical", "decimal", "subject")
# What sites need not agree on: their files, how a process runs, what it writes. The number of agents is
# compared when it is known.
_OWN_FILES = ("data", "header", "columns", "encoding", "decimal", "budget")
_OWN_PROCESS = ("runtime", "ranks", "timeout", "start_timeout", "threads", "typed", "run", "agents", "name")
_OWN_OUTPUT = ("out", "force", "report", "checkpoint", "record_messages")
OF_NOISE = ("epsilon", "delta", "bounds", "budget", "colluders", "trust_root")
# What a private fit takes beside these; all else would be computed from rows, or is not used.
_WITH_NOISE = ("problem", "target", "radius", "graph", "seed", "secure", "typed", "run", *OF_NOISE)
_OWN_FLOORS = ("min_count", "min_sites", "rare_columns")  # a site may be stricter than others
LOCAL = (*_OWN_FILES, *_OWN_PROCESS, *_OWN_OUTPUT, "handover")
# Defaults of options that are refused for ratings.
_DEFAULTS: dict[str, Any] = {"missing": "mean", "held_out": 0.1}
_SAMPLES_ONLY = (*_TABLES_ONLY, "intercept", "standardize", "class_weight", "folds", "missing")


def private_of(args: argparse.Namespace) -> PrivateOptions | None:
    """Return the options of a private fit, None for any other; raise if others are given that break it."""
    given = [name for name in OF_NOISE if getattr(args, name) not in (None, False)]
    if args.epsilon is None:
        if given:
            raise ValueError(
                f"--{given[0].replace('_', '-')} is for private fits. Add --epsilon, or leave it out."
            )
        return None
    missing = [f"--{name}" for name in ("bounds", "radius", "target") if getattr(args, name) is None]
    if missing or args.radius == "auto":
        raise ValueError(
            f"a private fit must be given {' and '.join(missing or ['--radius as a number'])}: what others "
            "compute from rows would break its promise."
        )
    if args.problem not in ("logistic", "lasso"):
        raise ValueError(f"--epsilon is for logistic and lasso; got {args.problem}.")
    usual = add_options(argparse.ArgumentParser().add_subparsers())
    others = [
        name
        for name, value in vars(args).items()
        if name not in (*_WITH_NOISE, *LOCAL) and value != usual.get_default(name)
    ]
    others += [name for name in ("checkpoint",) if getattr(args, name) is not None]
    others += ["report"] if args.report else []
    if others:
        raise ValueError(
            f"a private fit must do without {listed([name.replace('_', '-') for name in others])}: it would "
            "be computed from rows without noise, or has no meaning here. Leave it out."
        )
    from dcgs.learn.files.private import PrivateOptions

    delta = _DELTA if args.delta is None else args.delta
    return PrivateOptions(
        args.epsilon, delta, args.bounds, args.radius, args.budget, args.colluders or 1, args.trust_root
    )


_DELTA = 1e-6


def config_of(args: argparse.Namespace) -> FitConfig:
    """Return the configuration that the options describe."""
    problem = problem_named(args.problem, dict(args.loss_option))
    flags = {option.name: getattr(args, option.name) for option in built_in_options()}
    set_options = {name: value for name, value in flags.items() if value is not None} | dict(args.set_option)
    method_options = {name: getattr(args, name) for name in _METHOD_OPTIONS}
    own_options = dict(args.method_option), dict(args.inner_option)
    split: Any = args.split or ("sorted" if problem.entries else "even")
    return FitConfig(
        problem=problem,
        source=DataSource(args.data, split, args.seed, names=args.name or ()),
        layout=_layout(args, problem),
        graph=GraphSpec(args.graph, args.seed),
        set=SetSpec(args.set or problem.usual_set, set_options),
        run=RunSpec(
            {name: getattr(args, name) for name in _RULES},
            method_named(args.method, method_options, *own_options),
            args.seed,
            args.measure,
            checkpoint=_checkpoint(args),
        ),
        rule=_rule(args),
        agents=args.agents,
        shape=args.shape,
        rows=_rows_options(args, problem),
        ridge=_ridge(args, problem),
        options=_common_options(args),
        secure=_secure(args),
        floors=_floors(args),
        handover=args.handover,
    )


def _secure(args: argparse.Namespace) -> bool | None:
    """Return whether sums are masked; None for the default."""
    if args.epsilon is not None and not args.open:
        return True
    if args.secure and args.open:
        raise ValueError("--secure masks sums and --open does not. Leave out one of them.")
    return True if args.secure else False if args.open else None


def _floors(args: argparse.Namespace) -> Floors | None:
    """Return the floors that this site gives; None for none."""
    names = ("min_count", "min_sites", "rare_columns")
    given = {name: value for name in names if (value := getattr(args, name)) is not None}
    return Floors(**given) if given else None


def _common_options(args: argparse.Namespace) -> dict[str, str]:
    """Return the options that must be the same at all sites, by flag; targets in files are local."""
    given = {name: value for name, value in vars(args).items() if name not in (*LOCAL, *_OWN_FLOORS)}
    given |= {name: value for name, value in _DEFAULTS.items() if given[name] is None}
    if str(args.target).endswith(".npy"):
        given["target"] = "an .npy file"
    flags = {"problem": "PROBLEM", "base": "--zero-based or --one-based"}
    files = {"graph", "bounds", *(option.name for option in built_in_options())}
    options = {
        flags.get(name, f"--{name.replace('_', '-')}"): option_text(value, name in files)
        for name, value in given.items()
    }
    options["--checkpoint"] = str(args.checkpoint is not None)
    return {flag: text for flag, text in options.items() if text != NOT_GIVEN}


def _rule(args: argparse.Namespace) -> str:
    """Return which radius of a path is taken."""
    if args.one_standard_error and args.radius != "auto":
        raise ValueError("--one-standard-error is for --radius auto, which finds radii. Leave it out.")
    return "one_standard_error" if args.one_standard_error else "best"


def _rows_options(args: argparse.Namespace, problem: Problem) -> RowsOptions:
    if args.class_weight is not None and not problem.labels:
        raise ValueError(f"--class-weight must be left out for {problem.name}, which has no classes.")
    given = {
        name: default if (value := getattr(args, name)) is None else value
        for name, default in _DEFAULTS.items()
    }
    how = Preparation(tuple(args.categorical), balanced=args.class_weight == "balanced", **given)
    if args.folds is not None and args.radius != "auto":
        raise ValueError("--folds is for --radius auto, which finds errors on them. Leave it out.")
    return RowsOptions(how, args.intercept, args.standardize, args.folds)


def _ridge(args: argparse.Namespace, problem: Problem) -> float | str | None:
    """Return the ridge of the offsets; None means no offsets."""
    given = [name for name in ("offsets", "ridge") if getattr(args, name) is not None]
    if given and not problem.entries:
        raise ValueError(f"--{given[0]} must be left out for {problem.name}, which has no ratings.")
    if args.offsets is False and args.ridge is not None:
        raise ValueError("--ridge must be left out with --no-offsets, which fits none.")
    return None if args.offsets is False else args.ridge or "auto"


def _layout(args: argparse.Namespace, problem: Problem) -> SamplesLayout | EntriesLayout:
    foreign = _SAMPLES_ONLY if problem.entries else ("columns", "shape", "base")
    given = [name for name in foreign if getattr(args, name) not in (None, [])]
    if given:
        name = {"base": "zero-based or --one-based"}.get(given[0], given[0].replace("_", "-"))
        raise ValueError(f"--{name} must be left out for {problem.name}, which does not use it.")
    if problem.entries:
        return EntriesLayout(columns_of(args), args.header, args.base, text=text_format(args))
    use = None if args.use is None else tuple(args.use)
    drop, form = tuple(args.drop), text_format(args)
    layout = SamplesLayout(args.target, args.header, args.features, use=use, drop=drop, text=form)
    return replace(layout, subject=args.subject)


def _checkpoint(args: argparse.Namespace) -> Checkpoint | None:
    if args.checkpoint is not None:
        return Checkpoint(args.checkpoint, args.every or 10, args.resume)
    given = [name for name in ("every", "resume") if getattr(args, name)]
    if given:
        raise ValueError(f"--{given[0]} needs a folder for the state of the agents. Add --checkpoint DIR.")
    return None
