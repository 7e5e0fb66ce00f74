"""Checkpoints on disk: where the files are, which iterations they have, and whether a run may use them.

Each agent has its own folder with one file for every saved iteration. No process reads another agent's files:
agents only exchange which iterations they have.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, final

from dcgs.front.checkpoint_file import iteration_in
from dcgs.inner import Inner
from dcgs.methods.base import Method
from dcgs.objectives.objective import Objective
from dcgs.sets.base import ConvexSet
from dcgs.state import unsupported
from dcgs.validation import COUNT, PATH, instance, one_of

_SUFFIX = ".dcgs"


@final
@dataclass(frozen=True)
class Checkpoint:
    """Save the state of all agents in ``folder`` after each ``every`` iterations, and after the last.

    ``resume=True`` resumes from the newest iteration that all agents have, and raises if there is none;
    ``"auto"`` starts a new run then. With ``resume=False`` the folder must not hold checkpoints.

    >>> import dcgs, networkx as nx
    >>> from dcgs.datasets import lasso_synthetic
    >>> data = lasso_synthetic(samples=40, features=20, nonzeros=3)
    >>> X, graph = dcgs.L1Ball(20, radius=150.0), nx.cycle_graph(4)
    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> first = dcgs.Checkpoint(folder, every=5)
    >>> half = dcgs.minimize(data.objectives(4), X, graph, dcgs.DFW(), iterations=10, checkpoint=first)
    >>> resume = dcgs.Checkpoint(folder, every=5, resume=True)
    >>> dcgs.minimize(data.objectives(4), X, graph, dcgs.DFW(), iterations=20, checkpoint=resume).rounds
    40
    """

    folder: str | os.PathLike[str]
    every: int = 10
    resume: bool | Literal["auto"] = False

    def __post_init__(self) -> None:
        PATH(self.folder, "folder")
        COUNT(self.every, "every")
        if not isinstance(self.resume, bool):
            one_of("auto", also=("True", "False"))(self.resume, "resume")

    @property
    def path(self) -> Path:
        """The folder."""
        return Path(self.folder)

    def file(self, i: int, k: int) -> Path:
        """Return the file of agent i's state after iteration k."""
        return self.path / f"agent-{i:04}" / f"{k:06}{_SUFFIX}"

    def files(self, i: int) -> dict[int, Path]:
        """Return agent i's files by their iteration, complete or not."""
        found = self.file(i, 0).parent.glob(f"*{_SUFFIX}")
        return {int(path.stem): path for path in sorted(found) if path.stem.isdecimal()}


def check_checkpoint(
    checkpoint: Checkpoint | None, objectives: Mapping[int, Objective], X: ConvexSet, method: Method
) -> None:
    """Raise unless the checkpoint is None, or a Checkpoint that can save the state of the method."""
    if checkpoint is None:
        return
    instance(checkpoint, Checkpoint, "checkpoint", "be a dcgs.Checkpoint(folder), or None")
    solvers = (method.inner_solver(f, X) for f in objectives.values())
    parts: list[Method | Inner] = [method, *(solver for solver in solvers if solver is not None)]
    for part in parts:
        name = type(part).__name__
        reason = f"{name} declares no State" if part.State is None else unsupported(part.State)
        if reason is not None:
            raise ValueError(
                f"a run of {type(method).__name__} cannot be checkpointed: {reason}. Declare the state of "
                f"{name} as a dataclass, as docs/checkpoints.md shows, or leave out the checkpoint."
            )


def available(checkpoint: Checkpoint, agents: Iterable[int]) -> tuple[dict[int, list[int]], list[str]]:
    """Return the iterations of which each agent has complete files, and notes on files that were ignored."""
    have: dict[int, list[int]] = {}
    notes = []
    for i in agents:
        have[i] = []
        for k, path in checkpoint.files(i).items():
            if not path.is_file():
                raise ValueError(
                    f"a checkpoint must be a file; {str(path)!r} is a folder, or a link to none. "
                    "Remove it, or choose another folder."
                )
            held = iteration_in(path)
            if held == k:
                have[i].append(k)
            else:
                fault = "is damaged" if held is None else f"holds iteration {held}"
                notes.append(f"the checkpoint {str(path)!r} {fault}, and was ignored.")
    return have, notes


def common(have: Iterable[Iterable[int]]) -> int | None:
    """Return the newest iteration that all have, None where there is none."""
    return max(set.intersection(*map(set, have)), default=None)


def refusal(at: Checkpoint, held: Sequence[Sequence[int]], notes: Sequence[str]) -> str | None:
    """Return why the run cannot start from the iterations that each agent has, or None if it can."""
    some = sorted({k for ks in held for k in ks})
    if at.resume is False:
        # Iteration 0 holds no work that could be lost.
        return (
            f"the folder of a new run must hold no checkpoints; {str(at.path)!r} has iterations {some}. "
            "Resume them with resume=True, or choose another folder."
            if any(some)
            else None
        )
    if any(some) and common(held) is None:
        without = [i for i, ks in enumerate(held) if not ks]
        listed = f"agents {without} have none" if without else f"agents have {[list(ks) for ks in held]}"
        return (
            f"all agents must have a complete checkpoint of one iteration to resume; in {str(at.path)!r} "
            f"{listed}. Start a new run in another folder."
        )
    if at.resume is True and not some:
        return " ".join(
            [
                f"there must be a checkpoint to resume; {str(at.path)!r} has none that is complete.",
                *notes,
                "Leave out resume to start a new run.",
            ]
        )
    return None
