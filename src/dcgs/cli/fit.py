"""``dcgs fit``: a model of one's own data, fitted by agents that keep theirs."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from dcgs.cli.errors import in_words_of_the_command
from dcgs.cli.launch import launch, under_mpi
from dcgs.cli.values import count, fraction, positive, seed, shape
from dcgs.fitting import (
    METHODS,
    NAMED,
    PROBLEMS,
    SETS,
    Alone,
    Company,
    EntriesLayout,
    Fitted,
    GraphWish,
    Order,
    Output,
    Problem,
    SamplesLayout,
    SetWish,
    Sites,
    Ticking,
    Together,
    agents_of,
    fit,
    method_named,
)
from dcgs.front import Callback, Checkpoint, agreed
from dcgs.parallel import cores
from dcgs.report.ticker import Ticker, shown_bytes
from dcgs.runtime import MPI, Everyone, Lockstep, RunAbortedError, Runtime, advise, is_in_all

_ABOUT = """\
Fit a model to data that lie with several agents. Each agent keeps its data and talks to its
neighbors on a graph; every agent ends with a model that is good on everyone's data.

{problems}
"""

_MORE = """\
DATA is one file, which is cut into parts for the agents, or a name with {agent} (or {rank}) in it,
a file for each agent, counted from 0. What it is, its name tells: LIBSVM text (plain, .gz, .bz2,
.xz), .npz (A and b; rows, cols and values), .npy, .csv and .tsv, .parquet.

The folder gets the model of each agent, agent-000.npz, agent-001.npz, …, and summary.json.
dcgs predict applies a model. Between agents travel points, vectors of the size of the model and a
few numbers; rows of data, labels and ratings never do. See docs/fit.md for all of it.

sets:
{sets}

examples:
  dcgs fit lasso --data data.svm --agents 10 --radius 1000 --out model/
  dcgs fit lasso --data 'site-{agent}.npz' --graph path --radius 1000 --out model/
  dcgs fit logistic --data patients.csv --target ill --agents 4 --radius 10 --out model/
  dcgs fit least-squares --data houses.csv.gz --target price --agents 5 --set simplex --out model/
  dcgs fit completion --data ratings.csv --shape 943,1682 --radius 1e4 --agents 10 --out model/
  dcgs fit lasso --data data.svm --graph network.graphml --radius 10 --seconds 60 --out model/
  dcgs fit lasso --data data.svm --agents 10 --radius 10 --method dfw --rounds 500 --out model/
  mpiexec -n 10 dcgs fit lasso --data 'site-{rank}.npz' --radius 1000 --out model/
  dcgs fit lasso --data data.svm --agents 10 --radius 10 --checkpoint kept/ --every 20 --out model/
  dcgs fit lasso --data data.svm --agents 10 --radius 10 --checkpoint kept/ --resume --out model/
"""

_SHOWN_AGENTS = 20
_RANKS_PER_CORE = 4


def add(jobs: Any) -> None:
    """Add the job to the command."""
    problems = "\n".join(f"  {problem.name:15} {problem.about}" for problem in PROBLEMS.values())
    sets = "\n".join(f"  {name:13} {recipe.about}" for name, recipe in SETS.items())
    parser = jobs.add_parser(
        "fit",
        help="fit a model to your own data",
        description=_ABOUT.replace("{problems}", problems),
        epilog=_MORE.replace("{sets}", sets),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("problem", choices=list(PROBLEMS), metavar="PROBLEM", help=", ".join(PROBLEMS))
    _add_data(parser.add_argument_group("data"))
    _add_network(parser.add_argument_group("agents"))
    _add_set(parser.add_argument_group("set of models"))
    _add_method(parser.add_argument_group("method, and when it ends"))
    _add_running(parser.add_argument_group("running and writing"))
    _add_keeping(parser.add_argument_group("going on after an interruption"))
    parser.set_defaults(run=_run)


def _add_data(group: Any) -> None:
    group.add_argument("--data", required=True, metavar="DATA", help="a file, or a name with {agent} in it")
    group.add_argument(
        "--target",
        metavar="COLUMN",
        help="of tables, what to predict: a name or a number from 1 (default: the last); or a .npy file",
    )
    group.add_argument(
        "--columns",
        metavar="ROW,COL,VALUE",
        help="of tables for completion (default: by name, or the first 3)",
    )
    group.add_argument(
        "--header",
        action=argparse.BooleanOptionalAction,
        help="whether the first line has names (default: see)",
    )
    group.add_argument(
        "--features", type=count, metavar="N", help="of LIBSVM text (default: the highest index)"
    )
    group.add_argument(
        "--shape",
        type=shape,
        metavar="R,C",
        help="of the matrix to complete (default: the highest row, column)",
    )
    based = group.add_mutually_exclusive_group()
    for name, base in (("--zero-based", 0), ("--one-based", 1)):
        based.add_argument(
            name,
            dest="base",
            action="store_const",
            const=base,
            help=f"rows and columns count from {base} (default: from 0 if a 0 is there, else from 1)",
        )
    group.add_argument(
        "--split",
        choices=["even", "random", "sorted"],
        default="even",
        help="how one file is cut: in its order (default), shuffled by the seed, or sorted by target or row",
    )


def _add_network(group: Any) -> None:
    group.add_argument(
        "--agents", type=count, metavar="M", help="how many (default: as many as files or nodes)"
    )
    group.add_argument(
        "--graph",
        default="cycle",
        metavar="GRAPH",
        help=f"{NAMED}; or a file of edges, or .graphml (default: cycle)",
    )


def _add_set(group: Any) -> None:
    group.add_argument(
        "--set", choices=list(SETS), help="default: l1; l2 for least-squares, nuclear for completion"
    )
    group.add_argument("--radius", type=positive, metavar="R", help="of the set: how large a model may be")
    for name in ("--lower", "--upper"):
        group.add_argument(name, metavar="NUMBER", help="of box: a number, or a .npy file")
    group.add_argument("--k", type=count, metavar="K", help="of k-sparse")
    group.add_argument(
        "--groups", metavar="N", help="of group-l1: features in a row, or a file with a group's name for each"
    )
    group.add_argument("--points", metavar="FILE", help="of hull: points, one a row")
    group.add_argument("--polytope", metavar="FILE", help="of polytope: .npz with A_ub, b_ub, A_eq, b_eq")


def _add_method(group: Any) -> None:
    group.add_argument("--method", choices=list(METHODS), default="fastdcgs", help="default: fastdcgs")
    inner = ["auto", "cg", "pcg", "corrective", "block", "exact"]
    group.add_argument("--inner", choices=inner, help="inner solver (default: as the set and the loss allow)")
    group.add_argument(
        "--eta", type=positive, metavar="ETA", help="of fastdcgs (default: found by the agents)"
    )
    group.add_argument(
        "--step", type=positive, metavar="S", help="of methods that project (default: from the data)"
    )
    group.add_argument(
        "--answer", choices=["average", "last"], help="of dcgs and primaldual (default: average)"
    )
    group.add_argument(
        "--gap", type=fraction, metavar="G", help="certified, relative to the start (default: 1e-3)"
    )
    group.add_argument("--rounds", type=count, metavar="N", help="at most")
    group.add_argument("--iterations", type=count, metavar="N", help="at most")
    group.add_argument("--seconds", type=positive, metavar="S", help="at most")
    group.add_argument("--lmo-calls", type=count, metavar="N", help="of any one agent, at most")


def _add_running(group: Any) -> None:
    group.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="folder for models and summary.json"
    )
    group.add_argument("--force", action="store_true", help="replace the models that are there")
    group.add_argument("--seed", type=seed, default=0, metavar="N", help="of all that is random (default: 0)")
    group.add_argument(
        "--measure",
        type=count,
        nargs="?",
        const=1,
        metavar="K",
        help="tell the losses on everyone's data, every K iterations (1); needs all data, and is not counted",
    )
    group.add_argument(
        "--runtime",
        choices=["lockstep", "mpi"],
        help="all agents in this process, or spread over MPI processes (default: mpi under mpiexec or srun)",
    )
    group.add_argument(
        "--ranks", type=count, metavar="R", help="MPI processes to start (default: as many as agents)"
    )
    group.add_argument(
        "--timeout",
        type=positive,
        metavar="S",
        help="of mpi: seconds without a sign of life after which a process is taken for lost (default: 10)",
    )
    group.add_argument("--threads", type=count, metavar="N", help="for lockstep (default: where they pay)")


def _add_keeping(group: Any) -> None:
    group.add_argument(
        "--checkpoint",
        type=Path,
        metavar="DIR",
        help="keep the state of all agents here, also when Ctrl-C or SIGTERM ends the fit",
    )
    group.add_argument("--every", type=count, metavar="K", help="keep it after every K iterations (10)")
    group.add_argument(
        "--resume",
        nargs="?",
        const=True,
        default=False,
        choices=["auto"],
        metavar="auto",
        help="go on from the newest iteration that all agents have in DIR; "
        "--resume auto starts anew where there is none",
    )


def _run(args: argparse.Namespace, console: Console) -> int:
    args.runtime = args.runtime or ("mpi" if under_mpi() else "lockstep")
    if args.runtime == "mpi" and not under_mpi():
        order, _ = _checked(args)
        agents = agents_of(order, Alone())
        # Said to the processes, which would take it that there are as many agents as processes.
        said = [] if args.agents is not None else ["--agents", str(agents)]
        return launch([*args.typed, *said], _ranks(args, agents))
    new = not args.out.exists()  # before all meet, and any process makes it
    runtime = _runtime(args)
    everyone = runtime.everyone()
    with in_words_of_the_command(everyone, args.checkpoint):
        try:
            with everyone.told_of_failures():
                return _fit(args, console, runtime, everyone)
        except (KeyboardInterrupt, SystemExit) as stop:
            return _interrupted(stop, args.checkpoint, everyone, console)
        finally:
            if new:
                Output(args.out).leave()


def _fit(args: argparse.Namespace, console: Console, runtime: Runtime, everyone: Everyone) -> int:
    company = Together(runtime, everyone)

    def door() -> tuple[Order, Output, bool]:
        order, output = _checked(args)
        return order, output, company.leads(agents_of(order, company))

    order, output, leads = agreed(everyone, door)
    agreed(everyone, output.open)
    output = replace(output, meet=company.meet)
    if order.checkpoint is not None:
        advise("go on with --resume")
    fitted = _fitted(order, runtime, company, console if leads else None)
    if not leads:
        output.write(fitted.models)
        return 0
    summary = fitted.summary(shlex.join(["dcgs", *args.typed]))
    output.write_all(fitted.models, summary, fitted.history())
    _tell(fitted, summary, args.out, console)
    return 0


def _was_told(error: BaseException) -> bool:
    """Return whether the error came while one was handled that another process has told of already."""
    before = error.__context__
    return before is not None and ((isinstance(before, RunAbortedError) and before.told) or _was_told(before))


def _interrupted(
    stop: KeyboardInterrupt | SystemExit, kept: Path | None, everyone: Everyone, console: Console
) -> int:
    """Say, in one process, what an interrupted fit has left and how to go on; return the exit status."""
    status = stop.code if isinstance(stop, SystemExit) and isinstance(stop.code, int) else 130
    if (is_in_all(stop) and not everyone.leads) or _was_told(stop):
        return status
    alone = is_in_all(stop) or everyone.processes == 1
    who = "interrupted" if alone else everyone.sentence(stop).rstrip(".")
    there = kept is not None and any(kept.glob("agent-*/*.dcgs"))
    left = f"a checkpoint is in {kept}; go on by the same command with --resume."
    console.print(f"{who}: {left if there else 'nothing was written.'}", soft_wrap=True)
    return status


def _checked(args: argparse.Namespace) -> tuple[Order, Output]:
    """Return what is asked for, and where to write it, if that can be."""
    order, output = _order(args), Output(args.out)
    order.check()
    output.check(args.force or bool(args.resume))
    return order, output


def _runtime(args: argparse.Namespace) -> Runtime:
    """Return who carries messages."""
    if args.runtime != "mpi":
        return Lockstep(threads=args.threads)
    return MPI() if args.timeout is None else MPI(timeout=args.timeout)


def _checkpoint(args: argparse.Namespace) -> Checkpoint | None:
    if args.checkpoint is not None:
        return Checkpoint(args.checkpoint, args.every or 10, args.resume)
    given = [name for name in ("every", "resume") if getattr(args, name)]
    if given:
        raise ValueError(f"--{given[0]} needs a folder to keep the state of agents in. Add --checkpoint DIR.")
    return None


def _ranks(args: argparse.Namespace, agents: int) -> int:
    """Return how many processes to start: one per agent, as far as the machine has cores for them."""
    return min(agents, args.ranks or max(2, _RANKS_PER_CORE * cores()))


def _order(args: argparse.Namespace) -> Order:
    problem = PROBLEMS[args.problem]
    set_options = ("radius", "lower", "upper", "k", "groups", "points", "polytope")
    rules = ("gap", "rounds", "iterations", "seconds", "lmo_calls")
    method_options = ("inner", "eta", "step", "answer")
    return Order(
        problem=problem,
        sites=Sites(args.data, args.split, args.seed),
        layout=_layout(args, problem),
        graph=GraphWish(args.graph, args.seed),
        set=SetWish(args.set or problem.usual_set, **{name: getattr(args, name) for name in set_options}),
        method=method_named(args.method, {name: getattr(args, name) for name in method_options}),
        rules={name: getattr(args, name) for name in rules},
        agents=args.agents,
        shape=args.shape,
        measure=args.measure,
        seed=args.seed,
        checkpoint=_checkpoint(args),
    )


def _layout(args: argparse.Namespace, problem: Problem) -> SamplesLayout | EntriesLayout:
    foreign = ("target", "features") if problem.entries else ("columns", "shape", "base")
    given = [name for name in foreign if getattr(args, name) is not None]
    if given:
        name = {"base": "zero-based or --one-based"}.get(given[0], given[0])
        raise ValueError(f"--{name} must be left out for {problem.name}, which has no use for it.")
    if problem.entries:
        columns = None if args.columns is None else tuple(name.strip() for name in args.columns.split(","))
        return EntriesLayout(columns, args.header, args.base)
    return SamplesLayout(args.target, args.header, args.features)


def _fitted(order: Order, runtime: Runtime, company: Company, console: Console | None) -> Fitted:
    """Return what the fit comes to; with progress where there is a console to show it on."""
    if console is None:
        return fit(order, runtime, company)
    limits = [order.rules["rounds"], order.rules["iterations"]]
    limits[1] = limits[1] and limits[1] * order.method.rounds_per_iteration
    rounds = min((limit for limit in limits if limit is not None), default=None)
    with Ticker(console, order.problem.name, rounds) as ticker:
        callback: Callback | None = None if order.measure is None else ticker.measured
        return fit(order, Ticking(runtime, ticker.tick), company, callback)


def _tell(fitted: Fitted, summary: Mapping[str, Any], out: Path, console: Console) -> None:
    result, agents = fitted.result, len(fitted.wiring.graph)
    console.print(str(result.status), soft_wrap=True)
    table = Table("agent")
    for name in (
        "rows",
        "messages",
        "bytes sent",
        "projections" if fitted.order.method.projects else "oracle calls",
        "s computing",
        "s waiting",
    ):
        table.add_column(name, justify="right")
    work = result.projections if fitted.order.method.projects else result.lmo_calls
    for i in range(min(agents, _SHOWN_AGENTS)):
        rows = str(fitted.loaded.rows.get(i, ""))
        sent = str(result.messages[i]), shown_bytes(int(result.bytes[i]))
        spent = f"{result.computing[i]:.2f}", f"{result.waiting[i]:.2f}"
        table.add_row(str(i), rows, *sent, str(work[i]), *spent)
    console.print(table)
    if agents > _SHOWN_AGENTS:
        console.print(f"and {agents - _SHOWN_AGENTS} agents more, in summary.json")
    console.print(
        f"{result.rounds} rounds, {shown_bytes(int(result.bytes.sum()))} in all, {result.seconds:.2f} s",
        soft_wrap=True,
    )
    if summary.get("checkpoint", {}).get("resumed"):
        console.print(f"resumed after iteration {summary['checkpoint']['resumed']}")
    _tell_reading(fitted, console)
    for name, value in summary.get("measures", {}).items():
        console.print(f"{name} {value:.6g}")
    for note in result.notes:
        console.print(note)
    console.print(
        f"written: {out}/agent-000.npz" + (" …" if agents > 1 else "") + ", summary.json", soft_wrap=True
    )


def _tell_reading(fitted: Fitted, console: Console) -> None:
    """Say what was taken for granted in reading the data."""
    reading, sides = fitted.loaded.reading, ",".join(map(str, fitted.loaded.shape))
    if "base" in reading:
        console.print(f"the matrix has shape {sides}; rows and columns were counted from {reading['base']}")
        return
    if reading["target_at"] is not None:
        name = f"column {reading['target_at'] + 1}" + (
            f", {reading['target']!r}" if reading["target"] else ""
        )
        console.print(f"{sides} features; the target was {name}", soft_wrap=True)
    if "labels" in reading:
        low, high = reading["labels"]
        console.print(f"label {low:.12g} was taken for -1 and {high:.12g} for +1")
