"""What a fit writes: a model for each agent, a summary, a history, and other files; all of them or none."""

from __future__ import annotations

import csv
import io
import json
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, final

from dcgs.files import Content, atomic_write_all
from dcgs.fitting.models import Model
from dcgs.fitting.ratings_model import RatingsFile

_PATTERN = "agent-*.npz"
SUMMARY = "summary.json"
HISTORY = "history.csv"
REPORT = "report.html"
PATH = "path.json"
PATH_PICTURE = "path.png"

_FORMULA = re.compile(r"[=+\-@\t\r].", re.DOTALL)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
Columns: TypeAlias = Mapping[str, Sequence[Any]]


def model_name(agent: int) -> str:
    """Return the name of an agent's file.

    >>> model_name(7)
    'agent-007.npz'
    """
    return f"agent-{agent:03d}.npz"


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
        found = [file.name for file in (*models_in(self.path), self.path / SUMMARY) if file.exists()]
        if found and not force:
            raise ValueError(
                f"the output folder must hold no models; {self.path} holds {found[0]}"
                f"{f' and {len(found) - 1} files more' if len(found) > 1 else ''}. "
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
