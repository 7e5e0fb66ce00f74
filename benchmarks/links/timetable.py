"""The time table over real links: instances of ``dcgs bench time``, model against measured."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

import netns
from dcgs.curves import COLORS
from dcgs.link import Link
from dcgs_bench.instances import instance_named
from dcgs_bench.ranking import RunCost, trials_of
from dcgs_bench.rounds import GridStudy, RoundsGrid
from dcgs_bench.study import Records, StudyProblem
from instances import METHODS, InstanceFolder, write_instance
from lockstep_run import LEVEL, Reference, checksum, reference, worst_loss
from mpich import Launcher
from output import MEGA, overhead, save, table

RANK = Path(__file__).with_name("rank.py")
TABLE = Path(__file__).parent.parent / "time.json"
_PATIENCE = 900.0
_STUDY_SECONDS = 600.0


@final
@dataclass(frozen=True)
class InstancePlan:
    """Which instances and methods to run, how often, over which link, and the output folder."""

    instances: Sequence[str]
    methods: Sequence[str]
    link: Link
    repeats: int
    out: Path

    @property
    def grid(self) -> RoundsGrid:
        """The runs in one process, which are not repeated if the folder has them."""
        return RoundsGrid(GridStudy(Records(self.out / "lockstep"), _STUDY_SECONDS), LEVEL)


def run_instances(plan: InstancePlan, environment: Mapping[str, Any]) -> int:
    """Run all methods on all instances, each instance in a network of its own; return the exit status."""
    results: dict[str, Any] = {
        "environment": dict(environment),
        "link": str(plan.link),
        "speed": plan.link.speed,
        "level": LEVEL,
        "repeats": plan.repeats,
        "runs": [],
        "failed": {},
    }
    for name in plan.instances:
        try:
            problem = instance_named(name).make(0)
            found = {key: reference(plan.grid, instance_named(name), key, problem) for key in plan.methods}
            _run_instance(plan, name, problem, found, results)
        except (RuntimeError, ValueError) as error:
            results["failed"][name] = str(error)
            print(f"{name}: {error}", file=sys.stderr, flush=True)
        write(plan.out, results)
    print(f"see {', '.join(str(plan.out / f'instances.{end}') for end in ('md', 'png', 'json'))}")
    return 1 if results["failed"] else 0


def _run_instance(
    plan: InstancePlan,
    name: str,
    problem: StudyProblem,
    found: Mapping[str, Reference],
    results: dict[str, Any],
) -> None:
    with netns.work_folder() as folder, netns.network(len(problem.graph)) as network:
        write_instance(folder, problem)
        netns.wait_until_up(network)
        launcher = Launcher(network, folder)
        for key, known in found.items():
            options = ["instance", str(folder), repr(plan.link.speed), key, str(known.rounds)]
            launcher.run([str(RANK), *options, str(plan.repeats)], _PATIENCE)
            run = {"instance": name} | measured(InstanceFolder(folder), key, plan.repeats, plan.link)
            run |= compared(InstanceFolder(folder), run, known, lambda models: worst_loss(problem, models))
            run["table"] = recorded(TABLE, name, METHODS[key], plan.link)
            results["runs"].append(run)
            print(_line(run), flush=True)
            if run["differs"]:
                results["failed"][f"{name}, {key}"] = f"differs from Lockstep in {', '.join(run['differs'])}."
            write(plan.out, results)


# What was measured


def measured(folder: InstanceFolder, key: str, repeats: int, link: Link) -> dict[str, Any]:
    """Return the repeat of median time, as plain numbers, and the seconds of all repeats.

    The model is that of ``dcgs bench time``, without latency. *Shared* takes the wall clock of each step,
    *own core* its CPU seconds. *Latency* is *shared* and, for each round, the seconds of a bare one, in which
    messages have 8 bytes.
    """
    agents = folder.facts["agents"]
    each = [_repeat(folder.folder, key, repeat, agents) for repeat in range(repeats)]
    order = sorted(range(repeats), key=lambda repeat: each[repeat]["seconds"])
    chosen = order[(repeats - 1) // 2]
    run = each[chosen]
    steps: NDArray[np.float64] = run.pop("steps")
    sent = np.array([np.load(folder.folder / f"{key}-bytes-{i}.npy") for i in range(agents)])
    peak_bytes = round(float(sent.max(axis=0).sum()))
    shared, own = (
        RunCost(run["rounds"], max(run["bytes"]), 0, peak_bytes, float(steps[:, :, column].max(axis=0).sum()))
        for column in (0, 1)
    )
    empty = Link(link.speed)
    return run | {
        "key": key,
        "agents": agents,
        "repeat": chosen,
        "seconds_of_repeats": [one["seconds"] for one in each],
        "peak_bytes": peak_bytes,
        "computing": {"shared": shared.computing, "own_core": own.computing},
        "model": {
            "shared": shared.seconds(empty),
            "own_core": own.seconds(empty),
            "latency": shared.seconds(Link(link.speed, run["latency"])),
        },
    }


def _repeat(folder: Path, key: str, repeat: int, agents: int) -> dict[str, Any]:
    notes = [json.loads((folder / f"{key}-{repeat}-{i}.json").read_text()) for i in range(agents)]
    rounds = notes[0]["rounds"]
    steps, spans = [], []
    for i in range(agents):
        with np.load(folder / f"{key}-{repeat}-{i}.npz") as data:
            steps.append(data["steps"][: rounds + 1])
            spans.append(data["span"])
    span = np.array(spans)
    return {
        "method": notes[0]["method"],
        "rounds": rounds,
        "seconds": float(span[:, 1].max() - span[:, 0].min()),
        "latency": notes[0]["latency"],
        "bytes": [note["bytes"] for note in notes],
        "wire": [note["wire"] for note in notes],
        "steps": np.stack(steps),
    }


def compared(
    folder: InstanceFolder,
    run: Mapping[str, Any],
    known: Reference,
    loss: Callable[[Sequence[Any]], float],
) -> dict[str, Any]:
    """Return the error at the end, and in what the run differs from that in one process."""
    models = folder.models(run["key"], run["repeat"])
    own, wanted = checksum(models), checksum(known.models)
    pairs = {
        "rounds": (run["rounds"], known.rounds),
        "bytes": (list(run["bytes"]), list(known.bytes)),
        "models": (own, wanted),
    }
    value = loss(models)
    return {
        "worst_loss": value,
        "optimum": known.optimum.value,
        "relative": float(known.optimum.relative(value)),
        "checksum": own,
        "differs": [name for name, (one, other) in pairs.items() if one != other],
    }


def recorded(path: Path, name: str, method_name: str, link: Link) -> float | None:
    """Return the modeled seconds of the recorded time table over this link without latency, or None."""
    if not path.is_file():
        return None
    trials = trials_of(json.loads(path.read_text())).get(name, ())
    cost = next((trial.costs[LEVEL] for trial in trials if trial.entry == method_name), None)
    return None if cost is None else cost.seconds(Link(link.speed))


# Output

_HEAD = (
    "instance",
    "method",
    "rounds",
    "MB, busiest agent",
    "MB, busiest of each round",
    "on the wire",
    "measured s",
    "model s",
    "measured / model",
    "bare round, ms",
    "model with bare rounds, s",
    "measured / that",
    "model with a core each, s",
    "time table, s",
    "relative error",
)


def instance_table(results: Mapping[str, Any]) -> str:
    """Return the table in Markdown."""
    return table(_HEAD, [_row(run) for run in results["runs"]])


def instance_summary(results: Mapping[str, Any]) -> str:
    """Return where it was measured, and the least and the largest ratio of measured to modeled seconds."""
    made, runs = results["environment"], results["runs"]
    machine, load = made["machine"], made["load"][0]

    def ratios(kind: str) -> str:
        found = [run["seconds"] / run["model"][kind] for run in runs]
        return f"{min(found):.2f} to {max(found):.2f}"

    where = f"dcgs {made['versions']['dcgs']}, {machine['processor']}, {machine['cores']} cores"
    return (
        f"Measured with {where}, load {load:.1f} at the start. Measured seconds are {ratios('shared')} times "
        f"the model's, and {ratios('latency')} times those of the model with bare rounds."
    )


def _row(run: Mapping[str, Any]) -> list[str]:
    model, seconds, listed = run["model"], run["seconds"], run["table"]
    return [
        f"{run['instance']} ({run['agents']})",
        METHODS[run["key"]],
        f"{run['rounds']:,}",
        f"{max(run['bytes']) / MEGA:.3g}",
        f"{run['peak_bytes'] / MEGA:.3g}",
        overhead(run["bytes"], run["wire"]),
        f"{seconds:.3g}",
        f"{model['shared']:.3g}",
        f"{seconds / model['shared']:.2f}",
        f"{1e3 * run['latency']:.3g}",
        f"{model['latency']:.3g}",
        f"{seconds / model['latency']:.2f}",
        f"{model['own_core']:.3g}",
        "–" if listed is None else f"{listed:.3g}",
        f"{run['relative']:.2e}",
    ]


def instance_figure(results: Mapping[str, Any]) -> Figure:
    """Draw measured against modeled seconds, with the diagonal: without latency filled, with it hollow."""
    drawn = Figure(figsize=(7.2, 5.4), layout="constrained")
    FigureCanvasAgg(drawn)
    axes = drawn.subplots()
    runs = results["runs"]
    numbers = [value for run in runs for value in (run["seconds"], *run["model"].values())]
    ends = [0.5 * min(numbers, default=0.1), 2.0 * max(numbers, default=1.0)]
    axes.plot(ends, ends, color="0.6", linewidth=0.8)
    for place, key in enumerate(dict.fromkeys(run["key"] for run in runs)):
        own = [run for run in runs if run["key"] == key]
        seconds = [run["seconds"] for run in own]
        for kind, face in (("shared", COLORS[place]), ("latency", "none")):
            axes.scatter(
                [run["model"][kind] for run in own],
                seconds,
                marker="os^Dv"[place],
                facecolors=face,
                edgecolors=COLORS[place],
                label=METHODS[key] if kind == "shared" else None,
            )
        for run in own:
            axes.annotate(
                run["instance"],
                (run["model"]["shared"], run["seconds"]),
                fontsize=6,
                xytext=(-5, 0),
                textcoords="offset points",
                ha="right",
                va="center",
            )
    axes.set(xscale="log", yscale="log", xlabel="modeled seconds", ylabel="measured seconds")
    axes.set_title(
        f"uplinks of {results['link']}, to {results['level']:.0e}\n"
        "filled: the model of the time table; hollow: with the time of bare rounds",
        fontsize=9,
    )
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)
    return drawn


def write(out: Path, results: Mapping[str, Any]) -> None:
    """Write numbers, table and figure."""
    (out / "instances.json").write_text(json.dumps(results, indent=1) + "\n")
    if results["runs"]:
        (out / "instances.md").write_text(f"{instance_summary(results)}\n\n{instance_table(results)}\n")
    save(instance_figure(results), out / "instances.png")


def _line(run: Mapping[str, Any]) -> str:
    equal = f"differs from Lockstep in {', '.join(run['differs'])}" if run["differs"] else "as Lockstep"
    return (
        f"{run['instance']}, {METHODS[run['key']]}: {run['rounds']} rounds in {run['seconds']:.3f} s, "
        f"model {run['model']['shared']:.3f} s, relative error {run['relative']:.2e}, {equal}"
    )
