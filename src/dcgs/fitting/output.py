"""The output folder of a fit: all files of a fit appear, or none."""

from __future__ import annotations

import csv
import io
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, final

from dcgs.files import Content, atomic_write_all
from dcgs.fitting.models import Model, model_name, models_in

SUMMARY = "summary.json"
HISTORY = "history.csv"

Columns: TypeAlias = Mapping[str, Sequence[Any]]


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
        models: Mapping[int, Model],
        summary: Mapping[str, Any] | None = None,
        history: Columns | None = None,
    ) -> None:
        """Write models and, in the root process, the summary and the history; all of them or none.

        The root process deletes files of an earlier fit: its history, and models of agents beyond the last.
        """
        files: dict[Path, Content] = {self.path / model_name(i): model.save for i, model in models.items()}
        if summary is not None:
            files[self.path / SUMMARY] = (json.dumps(summary, indent=2, ensure_ascii=False) + "\n").encode()
        if history is not None:
            files[self.path / HISTORY] = csv_text(history).encode()
        with _writing(self.path):
            atomic_write_all(files, self.barrier)
        if summary is not None:
            current = {self.path / model_name(i) for i in range(len(summary["agents"]))}
            for file in {*models_in(self.path), self.path / HISTORY} - current - files.keys():
                file.unlink(missing_ok=True)


def csv_text(columns: Columns) -> str:
    """Return columns as CSV."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return buffer.getvalue()


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
