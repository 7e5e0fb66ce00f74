"""Analysis of a run: losses, time and bytes of all agents, and what the link model predicts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dcgs.datasets import Ratings
from dcgs.link import Link
from problem import ENTRIES, ProblemFolder, shares

Array = NDArray[np.float64]


@final
@dataclass(frozen=True, eq=False)
class Evaluator:
    """Computes losses from all ratings and those held out, which no agent has."""

    known: Ratings
    held_out: Ratings
    agents: int

    def losses(self, samples: Array) -> dict[str, float]:
        """Return all losses of models that were sampled where ratings are, one row an agent."""
        errors = samples[:, : len(self.known)] - self.known.values
        each = np.sum(errors**2, axis=1)
        own = [np.sum(errors[i, low:high] ** 2) for i, (low, high) in enumerate(self.shares)]
        unseen = samples[:, len(self.known) :] - self.held_out.values
        return {
            "worst_loss": float(each.max()),
            "mean_loss": float(np.sum(errors.mean(axis=0) ** 2)),
            "local_loss": float(sum(own)),
            "test_rmse": float(np.sqrt(np.mean(unseen**2, axis=1)).max()),
        }

    @property
    def shares(self) -> list[tuple[int, int]]:
        """Where each agent's ratings begin and end."""
        return shares(len(self.known), self.agents)


@final
@dataclass(frozen=True, eq=False)
class Record:
    """What the recorders of all agents measured of one run; the first axis is always that of agents.

    ``steps`` are seconds and CPU seconds of each step, ``sent`` the bytes of each message, ``waits`` the
    seconds until the replies were there, ``stamps`` the seconds and the step of each answer, ``samples`` the
    answers where ratings are.
    """

    notes: Sequence[dict[str, Any]]
    steps: Array
    sent: Array
    waits: Array
    stamps: Array
    samples: Array

    @classmethod
    def read(cls, folder: Path, key: str, agents: int) -> Record:
        """Read the files of all recorders."""
        notes = [json.loads((folder / f"{key}-{i}.json").read_text()) for i in range(agents)]
        rounds, done = notes[0]["rounds"], notes[0]["iterations"]
        arrays: dict[str, list[Array]] = {
            name: [] for name in ("steps", "sent", "waits", "stamps", "samples")
        }
        partial = False
        for i in range(agents):
            with np.load(folder / f"{key}-{i}.npz") as data:
                for name, parts in arrays.items():
                    parts.append(data[name])
                partial = partial or bool(data["partial"])
        # Some agents may have finished one more; others none, and have nothing of any width.
        samples = np.stack([part[:done] for part in arrays["samples"]]) if done else np.zeros((agents, 0, 0))
        if partial:  # each agent has its own rows of one matrix
            samples = np.broadcast_to(samples.sum(axis=0), samples.shape)
        return cls(
            notes,
            np.stack([part[: rounds + 1] for part in arrays["steps"]]),
            np.stack([part[:rounds] for part in arrays["sent"]]),
            np.stack([part[:rounds] for part in arrays["waits"]]),
            np.stack([part[:done] for part in arrays["stamps"]]),
            samples,
        )


@final
@dataclass(frozen=True, eq=False)
class Model:
    """The link model for one run: the slowest agent of each step computes, then the largest message travels.

    An agent's messages to all its neighbors leave by one uplink, one after the other; the model of
    ``dcgs reproduce`` gives each neighbor a link of its own, which is ``degree`` times as fast.
    """

    computing: Array
    traveling: Array

    @classmethod
    def of(cls, record: Record, link: Link, degree: int, cpu: bool) -> Model:
        """Return the model from the measured seconds of computing, or from CPU seconds."""
        largest = record.sent.max(axis=0)
        return cls(record.steps[:, :, int(cpu)].max(axis=0), link.waiting(degree * largest))

    @property
    def seconds(self) -> float:
        """The seconds of the whole run."""
        return float(self.computing.sum() + self.traveling.sum())

    @property
    def waiting_share(self) -> float:
        """The share of the time in which messages travel."""
        return _share(float(self.traveling.sum()), float(self.computing.sum()))

    def at(self, step: int) -> float:
        """Return the seconds at the end of a step, the first of which is before the first message."""
        return float(self.computing[: step + 1].sum() + self.traveling[:step].sum())


def analyze(key: str, folder: Path, evaluator: Evaluator, link: Link) -> dict[str, Any]:
    """Return all results of a run as plain numbers."""
    record = Record.read(folder, key, evaluator.agents)
    first = record.notes[0]
    degree = max(dict(ProblemFolder(folder).graph.degree).values())
    measured, alone = (Model.of(record, link, degree, cpu) for cpu in (False, True))
    own_links = Model.of(record, link, 1, False)
    seconds = first["seconds"]
    computing = record.steps[:, :, 0].sum(axis=1)
    waited = 1.0 - computing / seconds
    reported = [_share(note["waiting"], note["computing"]) for note in record.notes]
    return {
        "key": key,
        "label": ENTRIES[key].label,
        "method": first["method"],
        "status": first["status"],
        "seconds": seconds,
        "iterations": first["iterations"],
        "rounds": first["rounds"],
        "lmo_calls": max(note["lmo_calls"] for note in record.notes),
        "projections": max(note["projections"] for note in record.notes),
        "bytes": [note["bytes"] for note in record.notes],
        "wire": [note["wire"] for note in record.notes],
        "computing": computing.tolist(),
        "computing_cpu": record.steps[:, :, 1].sum(axis=1).tolist(),
        "waiting_share": {"mean": float(waited.mean()), "most": float(waited.max())},
        # The agent that computed longest waited least: its waiting is the travel time of the messages.
        "traveling": float(record.waits.min(axis=0).sum()),
        "waiting_share_told": {"mean": float(np.mean(reported)), "most": float(max(reported))},
        "predicted": {
            "seconds": measured.seconds,
            "waiting_share": measured.waiting_share,
            "traveling": float(measured.traveling.sum()),
            "computing": float(measured.computing.sum()),
            "seconds_own_links": own_links.seconds,
        },
        "own_core": {
            "seconds": alone.seconds,
            "waiting_share": alone.waiting_share,
            "computing": float(alone.computing.sum()),
        },
        "history": history(record, evaluator, alone, ProblemFolder(folder)),
    }


def _share(part: float, rest: float) -> float:
    return part / (part + rest) if part else 0.0


def history(
    record: Record, evaluator: Evaluator, alone: Model, problem: ProblemFolder
) -> dict[str, list[float]]:
    """Return the losses at the start and after every iteration, with the seconds they were reached at.

    ``own_core`` are those with a core for each agent: CPU seconds of the slowest agent of each
    step, and messages that travel as fast as the link lets them.
    """
    start = np.zeros((evaluator.agents, len(problem.places()[0])))  # x⁰ = 0
    entries = [{"seconds": 0.0, "own_core": 0.0, "rounds": 0.0, **evaluator.losses(start)}]
    for k in range(record.samples.shape[1]):
        step = int(record.stamps[:, k, 1].max())
        entries.append(
            {
                "seconds": float(record.stamps[:, k, 0].max()),
                "own_core": alone.at(step),
                "rounds": float(step),
                **evaluator.losses(record.samples[:, k]),
            }
        )
    return {name: [entry[name] for entry in entries] for name in entries[0]}


def exchanges(folder: Path, agents: int, link: Link) -> list[dict[str, Any]]:
    """Return the time of a bare exchange of each size beside the ideal, and the bytes it took."""
    found = [json.loads((folder / f"exchange-{i}.json").read_text()) for i in range(agents)]
    rows = []
    for each in zip(*found, strict=True):
        first = each[0]
        counted = first["bytes"] * first["neighbors"] * len(first["seconds"])
        ideal = link.waiting(float(first["bytes"] * first["neighbors"]))
        rows.append(
            {
                "bytes": first["bytes"],
                "neighbors": first["neighbors"],
                "seconds": median(first["seconds"]),
                "ideal": ideal,
                "ratio": median(first["seconds"]) / ideal,
                "wire_over_bytes": max(row["wire"] for row in each) / counted,
            }
        )
    return rows
