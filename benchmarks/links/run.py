"""Real links: every method at MovieLens-100K size over uplinks of 10 MB/s, one network namespace an agent.

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
from mpich import Launcher
from output import figure, tables
from problem import ENTRIES, RADIUS, ratings, write_shares

from dcgs.bench.record import environment
from dcgs.datasets import DataNotFoundError, Ratings
from dcgs.link import Link
from dcgs.report.figures import save

RANK = Path(__file__).with_name("rank.py")
SIZES = (10_000, 150_360, 943 * 1682)
_EXCHANGES = 5
# Seconds that a run may take beyond its own, for starting, preparing and its last step on few cores.
_PATIENCE = 900.0
_REFUSED = 2

_ABOUT = """\
Measure what communication costs on real links: every agent is a process in a network namespace of its
own, all uplinks carry 10 MB/s, and each method runs for the same time on MovieLens 100K, with messages
of 12.7 MB.

Namespaces, links and processes are gone at the end, also after Ctrl-C; what a killed run left is removed
at the next start, or by --clean. The network of this machine is not touched. Only root may do this.
"""
_EXAMPLES = """\
examples:
  sudo DCGS_DATA=FOLDER .venv/bin/python benchmarks/links/run.py             about 19 minutes on two cores
  sudo .venv/bin/python benchmarks/links/run.py --quick                      a trial on small data
  sudo .venv/bin/python benchmarks/links/run.py --methods dfw,fast-dcgs --seconds 300 --link 100Mbit/s

FOLDER has ml-100k/u.data, or ml-100k.zip, from https://grouplens.org/datasets/movielens/100k/.
The output folder gets results.json, links.md (tables) and links.png.
"""


@final
@dataclass(frozen=True)
class Plan:
    """The options of the command."""

    methods: Sequence[str]
    agents: int
    seconds: float
    link: Link
    quick: bool
    out: Path
    rounds: int | None = None

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
    parser.add_argument("--seconds", type=_positive, default=90.0, help="of each method (default: 90)")
    parser.add_argument(
        "--rounds", type=int, metavar="N", help="end each method after N rounds at the latest"
    )
    parser.add_argument("--agents", type=_agents, default=10, help="on a cycle (default: 10)")
    parser.add_argument("--link", type=_link, default=Link(), help="speed of an uplink (default: 10MB/s)")
    parser.add_argument(
        "--methods",
        type=_methods,
        default=list(ENTRIES),
        metavar="M,M,…",
        help=f"of {', '.join(ENTRIES)} (default: all)",
    )
    parser.add_argument("--data", type=Path, metavar="PATH", help="MovieLens 100K (default: by DCGS_DATA)")
    parser.add_argument("--quick", action="store_true", help="a 60 × 60 synthetic matrix, for a trial")
    parser.add_argument("--out", type=Path, default=Path("out/links"), metavar="FOLDER")
    parser.add_argument("--clean", action="store_true", help="remove what killed runs left, and end")
    return parser.parse_args(argv)


def main(argv: Sequence[str]) -> int:
    """Run the command; return the exit status."""
    args = parsed(argv)
    reason = netns.refusal()
    if reason is not None:
        return _refuse(reason)
    if args.clean:
        print(f"removed: {', '.join(netns.clean()) or 'nothing, nothing was left'}")
        return 0
    plan = Plan(args.methods, args.agents, args.seconds, args.link, args.quick, args.out, args.rounds)
    try:
        data = ratings(plan.quick, args.data)
        plan.out.mkdir(parents=True, exist_ok=True)
        return run_all(plan, data)
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
                command = [str(RANK), key, work, repr(plan.link.speed), repr(plan.seconds)]
                command += [] if plan.rounds is None else [str(plan.rounds)]
                launcher.run(command, plan.seconds + _PATIENCE)
                run = analyze(key, folder, evaluator, plan.link)
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
        "environment": environment(0) | {"command": _command(), "load": os.getloadavg()},
        "problem": f"{name}: {len(known):,} entries of {d1} × {d2}, nuclear norm ≤ {radius:,.0f}",
        "agents": plan.agents,
        "link": str(plan.link),
        "speed": plan.link.speed,
        "limit": plan.seconds,
        "exchange": [],
        "runs": [],
        "failed": {},
    }


def _command() -> str:
    return shlex.join(["benchmarks/links/run.py", *sys.argv[1:]])


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
