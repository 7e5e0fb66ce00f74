"""The folder of a fit: a model for each agent, a summary and other files, all of them or none; and its lock.

The lock is held on a file in the folder, and is free as soon as its process ends, however that ends. A file
that is left by a process that was killed locks nothing.
"""

from __future__ import annotations

import csv
import io
import json
import os
import platform
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, final
from uuid import uuid4

from dcgs.files import Content, atomic_write_all, flock
from dcgs.learn.files.model import Model, RatingsFile
from dcgs.runtime import ProcessGroup, agreed

_PATTERN = "agent-*.npz"
SUMMARY = "summary.json"
HISTORY = "history.csv"
REPORT = "report.html"
PATH = "path.json"
PATH_PICTURE = "path.png"
LOCK = ".dcgs-fit.lock"
_PATIENCE = 2.0  # seconds in which a process that has the lock has written its name

_FORMULA = re.compile(r"[=+\-@\t\r].", re.DOTALL)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
Columns: TypeAlias = Mapping[str, Sequence[Any]]


def model_name(agent: int) -> str:
    """Return the name of an agent's file.

    >>> model_name(7)
    'agent-007.npz'
    """
    return f"agent-{agent:03d}.npz"


def ledger_name(agent: int) -> str:
    """Return the name of the ledger of a process, by its first agent."""
    return f"ledger-{agent:03d}.jsonl"


def models_in(folder: Path) -> list[Path]:
    """Return the models in a folder, in the order of agents."""
    return sorted(folder.glob(_PATTERN), key=lambda file: (len(file.name), file.name))


def find_model(path: Path, agent: int | None) -> Path:
    """Return the file of a model: ``path``, or if that is a folder, an agent's file (default: the first)."""
    if not path.is_dir():
        if agent is not None:
            raise ValueError(f"--agent chooses a model in a folder; {path} is not a folder. Leave it out.")
        return path
    there = models_in(path)
    if not there:
        raise ValueError(f"the folder must hold models, as dcgs fit writes them; {path} holds none.")
    file = there[0] if agent is None else path / model_name(agent)
    if file not in there:
        raise ValueError(
            f"the folder must hold {file.name}; {path} holds {there[0].name} to {there[-1].name}. "
            "Choose with --agent."
        )
    return file


@final
@dataclass(frozen=True)
class OutputFolder:
    """An output folder. ``barrier`` waits for all processes: they write all models or none."""

    path: Path
    barrier: Callable[[], object] = lambda: None

    def check(self, force: bool) -> None:
        """Raise if there are models in the folder that may not be replaced."""
        existing = [file.name for file in (*models_in(self.path), self.path / SUMMARY) if file.exists()]
        if existing and not force:
            raise ValueError(
                f"the output folder must hold no models; {self.path} holds {existing[0]}"
                f"{f' and {len(existing) - 1} files more' if len(existing) > 1 else ''}. "
                "Choose another with --out, or replace them with --force."
            )

    def create(self) -> None:
        """Create the folder, and check that files can be written there."""
        with _writing(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.path):
                pass

    def remove_if_empty(self) -> None:
        """Remove the folder if nothing was written."""
        with suppress(OSError):  # it is not empty
            self.path.rmdir()

    def write(
        self,
        models: Mapping[int, Model | RatingsFile],
        summary: Mapping[str, Any] | None = None,
        history: Columns | None = None,
        others: Mapping[str, bytes] | None = None,
    ) -> None:
        """Write models and, in one process of a folder, the summary, history and other files; all or none.

        That process deletes files of an earlier fit: its history, its other files, and models of agents
        beyond the last.
        """
        files: dict[Path, Content] = {self.path / model_name(i): model.save for i, model in models.items()}
        if summary is not None:
            files[self.path / SUMMARY] = (json.dumps(summary, indent=2, ensure_ascii=False) + "\n").encode()
        if history is not None:
            files[self.path / HISTORY] = csv_text(history).encode()
        files |= {self.path / name: content for name, content in (others or {}).items()}
        with _writing(self.path):
            atomic_write_all(files, self.barrier)
        if summary is not None:
            current = {self.path / model_name(i) for i in range(len(summary["agents"]))}
            old = {self.path / name for name in (HISTORY, REPORT, PATH, PATH_PICTURE)}
            for file in {*models_in(self.path), *old} - current - files.keys():
                file.unlink(missing_ok=True)


def csv_text(columns: Columns) -> str:
    """Return columns as CSV."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(map(no_formula, columns))
    writer.writerows(map(no_formula, row) for row in zip(*columns.values(), strict=True))
    return buffer.getvalue()


def no_formula(cell: object) -> object:
    """Return a cell of CSV; a text that a spreadsheet would compute has an apostrophe before it.

    >>> no_formula("=1+1"), no_formula("-5"), no_formula(-5.0), no_formula("-")
    ("'=1+1", '-5', -5.0, '-')
    """
    is_formula = isinstance(cell, str) and _FORMULA.match(cell) and not _NUMBER.fullmatch(cell)
    return f"'{cell}" if is_formula else cell


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Turn the errors of a full disk or a forbidden folder into a sentence."""
    try:
        yield
    except OSError as error:
        raise OSError(
            f"{path} must be a folder that can be written; {error.strerror or error}. No incomplete file "
            "was left there. Free some space or choose another folder with --out."
        ) from error


@contextmanager
def locked(folder: Path, group: ProcessGroup) -> Iterator[bool]:
    """Keep other fits out of a folder; raise in all processes if one is writing to it.

    Yield True in one of the processes that share the folder, in the root if it is one of them.
    """
    fit = group.allgather_texts([uuid4().hex if group.is_root else ""])[0]
    lock = agreed(group, lambda: take_lock(folder / LOCK, fit) if group.is_root else None)
    lock = agreed(group, lambda: lock if group.is_root else take_lock(folder / LOCK, fit))
    try:
        yield lock is not None
    finally:
        if lock is not None:
            (folder / LOCK).unlink(missing_ok=True)
            os.close(lock)


def take_lock(file: Path, fit: str) -> int | None:
    """Return the descriptor of the locked file, None if another process of this fit has the lock."""
    while True:
        lock = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
        holder = _content(lock)
        if not holder.startswith(fit):  # a file system may not tell one machine what another has locked
            holder = "" if flock(lock) else _holder(lock)
        if holder:
            os.close(lock)
            if holder.startswith(fit):
                return None
            raise ValueError(
                f"{file.parent} must be written by one fit at a time; {holder.partition(' ')[2]} is writing "
                "to it. Wait for its end, or choose another folder with --out."
            )
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(lock), os.stat(file)):
                os.truncate(lock, 0)
                os.lseek(lock, 0, os.SEEK_SET)
                os.write(lock, f"{fit} process {os.getpid()} on {platform.node()}".encode())
                return lock
        os.close(lock)  # the fit that had the lock has removed the file: there may be a new one


def _content(lock: int) -> str:
    os.lseek(lock, 0, os.SEEK_SET)
    return os.read(lock, 1000).decode(errors="replace")


def _holder(lock: int) -> str:
    """Return the fit and the process that have the lock."""
    end = time.monotonic() + _PATIENCE
    while True:
        text = _content(lock)
        if text or time.monotonic() > end:
            return text or " another process"
        time.sleep(0.01)
