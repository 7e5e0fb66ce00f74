"""Run the problems of ``dcgs bench robust`` with another version of dcgs, and write their rows as JSON.

The problems are those of this checkout (``src/dcgs/bench/random_problems.py``); the solver is the version
that Python imports. Each run gets one core and some seconds. For 0.3.0:

    git worktree add --detach ../dcgs-0.3.0 96963ec
    PYTHONPATH=../dcgs-0.3.0/src python benchmarks/robust_of_version.py --problems 192 --out robust-0.3.0.json

``python benchmarks/robust_of_version.py --compare robust-0.3.0.json benchmarks/robust.json`` prints the
shares of both files by set, for the seeds that both have.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
import types
from collections import namedtuple
from importlib import util
from pathlib import Path
from typing import Any

SECONDS = 5.0
GAP = 1e-3
PROBLEMS = Path(__file__).parent.parent / "src/dcgs/bench/random_problems.py"


class OutOfTimeError(Exception):
    """Raised by the alarm in a run that did not end by itself."""


def random_problem(seed: int) -> Any:
    """Return the problem of a seed, made of the classes of the version that is imported."""
    if "dcgs_random_problems" not in sys.modules:
        study = types.ModuleType("dcgs.study")  # older versions have no such module; only this name is used
        study.Problem = namedtuple("Problem", "objectives X graph")  # type: ignore[attr-defined]
        sys.modules["dcgs.study"] = study
        spec = util.spec_from_file_location("dcgs_random_problems", PROBLEMS)
        assert spec is not None
        assert spec.loader is not None
        module = util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    return sys.modules["dcgs_random_problems"].random_problem(seed)


def run_seed(seed: int) -> dict[str, Any]:
    """Run the default method on the problem of a seed; ``seconds`` are those of the processor."""
    import dcgs

    def stop(number: int, frame: Any) -> None:
        raise OutOfTimeError

    made = random_problem(seed)
    problem, start = made.problem, time.process_time()
    row = {"seed": seed, "set": made.set_name, "loss": made.loss, "graph": made.graph}
    # The version may check its limit between iterations only, and an iteration may take minutes. The timer is
    # coarse on a busy machine, and may fire early.
    signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, 1.4 * SECONDS)
    try:
        runtime = dcgs.Lockstep(threads=1)
        result = dcgs.minimize(*problem, gap=GAP, seconds=3600.0, every=0, runtime=runtime)
        ended = {"status": result.status.name, "certified": result.status.success, "rounds": result.rounds}
    except OutOfTimeError:
        ended = {"status": "SECONDS", "certified": False, "rounds": 0}
    except (ValueError, ArithmeticError, RuntimeError) as error:
        ended = {"status": f"{type(error).__name__}: {error}", "certified": False, "rounds": 0}
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
    return row | ended | {"seconds": time.process_time() - start}


def is_good(row: dict[str, Any]) -> bool:
    """Return whether the gap was certified in time."""
    return bool(row["certified"]) and row["seconds"] <= SECONDS


def compare(one: Path, other: Path) -> None:
    """Print the shares of two files by set, for the seeds that both have."""
    files = [{row["seed"]: row for row in json.loads(path.read_text())["rows"]} for path in (one, other)]
    seeds = sorted(set(files[0]) & set(files[1]))
    names = sorted({files[0][seed]["set"] for seed in seeds})
    for name in (*names, "all"):
        own = [seed for seed in seeds if name in ("all", files[0][seed]["set"])]
        good = [sum(is_good(rows[seed]) for seed in own) for rows in files]
        print(f"| {name} | {len(own)} | {good[0]} | {good[1]} |")


def main() -> None:
    """Run the problems, or compare two files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--compare", type=Path, nargs=2)
    args = parser.parse_args()
    if args.compare:
        compare(*args.compare)
        return
    import dcgs

    rows = []
    for seed in range(args.first, args.first + args.problems):
        rows.append(run_seed(seed))
        print(json.dumps(rows[-1]), flush=True)
        if args.out:
            args.out.write_text(json.dumps({"version": dcgs.__version__, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
