"""Real links: methods over uplinks of 10 MB/s, one network namespace an agent.

Every method runs at MovieLens-100K size; with ``--instances``, instances of ``dcgs bench time`` run.

Root only, on Linux with iproute2: ``sudo .venv/bin/python benchmarks/links/run.py --help``.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import netns
from analysis import Evaluator, analyze, exchanges
from dcgs.datasets import DataNotFoundError, Ratings
from dcgs.link import Link
from dcgs_bench.instances import INSTANCES, LARGE, QUICK
from dcgs_bench.study import environment
from instances import DEFAULT_METHODS, METHODS
from mpich import Launcher
from output import figure, save, tables
from problem import ENTRIES, RADIUS, ratings, write_shares
from timetable import InstancePlan, run_instances

RANK = Path(__file__).with_name("rank.py")
SIZES = (10_000, 150_360, 943 * 1682)
_AGENTS = 10
_EXCHANGES = 5
# Seconds that a run may take beyond its own, for starting, preparing and its last step on few cores.
_PATIENCE = 900.0
_REFUSED = 2

_ABOUT = """\
Measure what communication costs on real links: every agent is a process in a network namespace of its
own, all uplinks carry 10 MB/s, and each method runs for 90 seconds on MovieLens 100K, where dense messages
have 12.7 MB. DCGS and the primal-dual algorithm finish no iteration in that time and run for 30.

With --instances, methods run on instances of dcgs bench time instead, for exactly the rounds that they need
to a relative error of 1e-3. Measured seconds are compared with the model of dcgs bench time.

Namespaces, links and processes are gone at the end, also after Ctrl-C; what a killed run left is removed
at the next start, or by --clean. The network of this machine is not touched. Only root may do this.
"""
_EXAMPLES = """\
examples:
  sudo DCGS_DATA=FOLDER .venv/bin/python benchmarks/links/run.py             about 12 minutes on two cores
  sudo .venv/bin/python benchmarks/links/run.py --quick                      a trial on small data
  sudo .venv/bin/python benchmarks/links/run.py --methods dfw,fast-dcgs --seconds 300 --link 100Mbit/s
  sudo .venv/bin/python benchmarks/links/run.py --instances lasso-paper silo-10 --methods fast-dcgs,nids

FOLDER has ml-100k/u.data, or ml-100k.zip, from https://grouplens.org/datasets/movielens/100k/.
The output folder gets results.json, links.md (tables) and links.png; with --instances, instances.json,
instances.md and instances.png.
"""
NAMES = tuple(one.name for one in (*INSTANCES, *LARGE, *QUICK))


@final
@dataclass(frozen=True)
class Plan:
    """The options of the command."""

    methods: Sequence[str]
    agents: int
    seconds: float | None
    link: Link
    quick: bool
    out: Path
    rounds: int | None = None

    def limit(self, key: str) -> float:
        """Return the seconds of a method: those asked for, or its own."""
        return ENTRIES[key].seconds if self.seconds is None else self.seconds

    @property
    def sizes(self) -> Sequence[int]:
        """The numbers in a message of each bare exchange."""
        return SIZES[:1] if self.quick else SIZES


def parsed(argv: Sequence[str]) -> argparse.Namespace:
    """Return the parsed command line."""
    parser = argparse.ArgumentParser(
        prog="benchmarks/links/run.py",
        description=_ABOUT,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--seconds", type=_positive, help="of each method (default: 90; 30 for DCGS and primal-dual)"
    )
    parser.add_argument(
        "--rounds", type=int, metavar="N", help="end each method after N rounds at the latest"
    )
    parser.add_argument("--agents", type=_agents, default=_AGENTS, help="on a cycle (default: 10)")
    parser.add_argument("--link", type=_link, default=Link(), help="speed of an uplink (default: 10MB/s)")
    parser.add_argument(
        "--methods",
        type=_methods,
        metavar="M,M,…",
        help=f"of {', '.join(ENTRIES)} (default: all); with --instances of {', '.join(METHODS)} "
        f"(default: {','.join(DEFAULT_METHODS)})",
    )
    parser.add_argument(
        "--instances",
        nargs="+",
        choices=NAMES,
        metavar="NAME",
        help="run these instances of dcgs bench time to 1e-3, and compare with its model",
    )
    parser.add_argument(
        "--repeats", type=_count, default=3, help="of each run of an instance; the median counts (default: 3)"
    )
    parser.add_argument("--data", type=Path, metavar="PATH", help="MovieLens 100K (default: by DCGS_DATA)")
    parser.add_argument("--quick", action="store_true", help="a 60 × 60 synthetic matrix, for a trial")
    parser.add_argument("--out", type=Path, default=Path("out/links"), metavar="FOLDER")
    parser.add_argument("--clean", action="store_true", help="remove what killed runs left, and end")
    args = parser.parse_args(argv)
    if args.instances:
        _check_instances(parser, args)
    return args


def _check_instances(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """Refuse options that mean nothing with --instances, and methods that cannot be compared there."""
    given = {
        "--seconds": args.seconds is not None,
        "--rounds": args.rounds is not None,
        "--agents": args.agents != _AGENTS,
        "--data": args.data is not None,
        "--quick": args.quick,
    }
    useless = [name for name, is_given in given.items() if is_given]
    if useless:
        parser.error(
            f"--instances must stand without {' and '.join(useless)}: an instance has its own agents and "
            "data, and its runs end after the rounds to 1e-3."
        )
    unknown = [key for key in args.methods or () if key not in METHODS]
    if unknown:
        parser.error(
            f"with --instances the methods must be some of {', '.join(METHODS)}; got {', '.join(unknown)}."
        )
    if args.link.latency:
        parser.error(
            f"the links have no latency of their own; got {args.link.latency:g} s. Give a speed alone."
        )


def main(argv: Sequence[str]) -> int:
    """Run the command; return the exit status."""
    args = parsed(argv)
    reason = netns.refusal()
    if reason is not None:
        return _refuse(reason)
    if args.clean:
        print(f"removed: {', '.join(netns.clean()) or 'nothing, nothing was left'}")
        return 0
    try:
        args.out.mkdir(parents=True, exist_ok=True)
        if args.instances:
            methods = args.methods or DEFAULT_METHODS
            chosen = InstancePlan(args.instances, methods, args.link, args.repeats, args.out)
            return run_instances(chosen, _environment())
        methods = args.methods or list(ENTRIES)
        plan = Plan(methods, args.agents, args.seconds, args.link, args.quick, args.out, args.rounds)
        return run_all(plan, ratings(plan.quick, args.data))
    except DataNotFoundError as error:
        return _refuse(str(error))
    except (RuntimeError, OSError) as error:
        print(f"links: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("links: interrupted; namespaces and processes are gone.", file=sys.stderr)
        return 130


def run_all(plan: Plan, data: Ratings) -> int:
    """Build the network, run everything in it, and write the results after every method."""
    with netns.work_folder() as folder, netns.network(plan.agents) as network:
        work = str(folder)
        radius = 180.0 if plan.quick else RADIUS
        known, held_out = write_shares(folder, data, plan.agents, radius)
        evaluator = Evaluator(known, held_out, plan.agents)
        netns.wait_until_up(network)
        launcher = Launcher(network, folder)
        results = _heading(plan, data, known, radius)
        print(f"{results['problem']}; {plan.agents} agents, uplinks of {plan.link}", flush=True)
        command = [str(RANK), "exchange", work, repr(plan.link.speed), str(_EXCHANGES)]
        launcher.run([*command, *map(str, plan.sizes)], _PATIENCE)
        results["exchange"] = exchanges(folder, plan.agents, plan.link)
        for row in results["exchange"]:
            print(
                f"bare exchange of {row['bytes']:,} bytes: {row['seconds']:.3f} s, ideal {row['ideal']:.3f} s"
            )
        for key in plan.methods:
            try:
                command = [str(RANK), key, work, repr(plan.link.speed), repr(plan.limit(key))]
                command += [] if plan.rounds is None else [str(plan.rounds)]
                launcher.run(command, plan.limit(key) + _PATIENCE)
                run = analyze(key, folder, evaluator, plan.link) | {"limit": plan.limit(key)}
            except RuntimeError as error:
                results["failed"][key] = str(error)
                print(f"{ENTRIES[key].label}: {error}", file=sys.stderr, flush=True)
                continue
            results["runs"].append(run)
            print(_line(run), flush=True)
            _write(plan.out, results)
    _write(plan.out, results)
    print(f"see {plan.out / 'links.md'}, {plan.out / 'links.png'} and {plan.out / 'results.json'}")
    return 1 if results["failed"] else 0


def _heading(plan: Plan, data: Ratings, known: Ratings, radius: float) -> dict[str, Any]:
    d1, d2 = data.shape
    name = "MovieLens 100K" if not plan.quick else "a synthetic matrix"
    return {
        "environment": _environment(),
        "problem": f"{name}: {len(known):,} entries of {d1} × {d2}, nuclear norm ≤ {radius:,.0f}",
        "agents": plan.agents,
        "link": str(plan.link),
        "speed": plan.link.speed,
        "exchange": [],
        "runs": [],
        "failed": {},
    }


def _environment() -> dict[str, Any]:
    command = shlex.join(["benchmarks/links/run.py", *sys.argv[1:]])
    return environment(0) | {"command": command, "load": os.getloadavg()}


def _write(out: Path, results: dict[str, Any]) -> None:
    (out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    (out / "links.md").write_text(tables(results))
    save(figure(results), out / "links.png")


def _line(run: dict[str, Any]) -> str:
    loss = run["history"]["worst_loss"][-1]
    return (
        f"{run['label']}: {run['rounds']} rounds in {run['seconds']:.1f} s, "
        f"waiting {run['waiting_share']['mean']:.0%}, worst_loss {loss:.3g}"
    )


def _refuse(reason: str) -> int:
    print(f"links: {reason}", file=sys.stderr)
    return _REFUSED


def _positive(text: str) -> float:
    value = float(text)
    if not 0.0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a positive number of seconds; got {text!r}.")
    return value


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1; got {text!r}.")
    return value


def _agents(text: str) -> int:
    value = int(text)
    if not 2 <= value <= netns.MOST_AGENTS:
        raise argparse.ArgumentTypeError(f"must be between 2 and {netns.MOST_AGENTS}; got {text!r}.")
    return value


def _link(text: str) -> Link:
    try:
        return Link.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _methods(text: str) -> list[str]:
    keys = [key.strip() for key in text.split(",") if key.strip()]
    unknown = [key for key in keys if key not in ENTRIES]
    if unknown or not keys:
        raise argparse.ArgumentTypeError(
            f"must be some of {', '.join(ENTRIES)}; got {', '.join(unknown) or 'none'}."
        )
    return keys


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
