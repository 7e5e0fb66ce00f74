"""The folder that models are written to: whole files or none."""

from __future__ import annotations

import csv
import io
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeAlias, final

from dcgs.fitting.models import Model, model_name, models_in

SUMMARY = "summary.json"
HISTORY = "history.csv"

Write: TypeAlias = Callable[[IO[bytes]], None]
Columns: TypeAlias = Mapping[str, Sequence[Any]]


@final
@dataclass(frozen=True)
class Output:
    """An output folder. ``meet`` is called when all files of this process are whole, before they get their
    names: processes that wait there for each other write all models or none.
    """

    path: Path
    meet: Callable[[], object] = lambda: None

    def check(self, force: bool) -> None:
        """Raise if there are models in the folder that may not be replaced."""
        there = [file.name for file in models_in(self.path)]
        if (self.path / SUMMARY).exists():
            there.append(SUMMARY)
        if there and not force:
            raise ValueError(
                f"the output folder must hold no models; {self.path} holds {there[0]}"
                f"{f' and {len(there) - 1} files more' if len(there) > 1 else ''}. "
                "Choose another with --out, or replace them with --force."
            )

    def open(self) -> None:
        """Make the folder, and see that it can be written."""
        with _told(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.path):
                pass

    def leave(self) -> None:
        """Take the folder away if nothing came of it."""
        with suppress(OSError):  # it is not empty: something did
            self.path.rmdir()

    def write(self, models: Mapping[int, Model]) -> None:
        """Write models, all of them or none."""
        self._write({model_name(i): model.save for i, model in models.items()})

    def write_all(
        self, models: Mapping[int, Model], summary: Mapping[str, Any], history: Columns | None
    ) -> None:
        """Write models, the summary and, where it was measured, the history of the run; all of them or none.

        What an earlier fit left and this one has not is deleted: its history, and models of agents there are
        no more.
        """
        text = json.dumps(summary, indent=2, ensure_ascii=False) + "\n"
        files: dict[str, Write] = {model_name(i): model.save for i, model in models.items()}
        files[SUMMARY] = partial(put, text)
        if history is not None:
            files[HISTORY] = partial(put, table(history))
        self._write(files)
        kept = {model_name(i) for i in range(len(summary["agents"]))}
        stale = [file for file in models_in(self.path) if file.name not in kept]
        for file in stale if history is not None else (*stale, self.path / HISTORY):
            file.unlink(missing_ok=True)

    def _write(self, files: Mapping[str, Write]) -> None:
        with _told(self.path):
            write_whole({self.path / name: write for name, write in files.items()}, self.meet)


def write_whole(files: Mapping[Path, Write], meet: Callable[[], object] = lambda: None) -> None:
    """Write files under other names first and rename them when all are whole; an error leaves none."""
    parts = {path: path.with_name(f".{path.name}.{os.getpid()}.part") for path in files}
    try:
        for path, write in files.items():
            with parts[path].open("wb") as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
        meet()
        for path, part in parts.items():
            os.replace(part, path)
    finally:
        for part in parts.values():
            part.unlink(missing_ok=True)


def table(columns: Columns) -> str:
    """Return columns as CSV."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return buffer.getvalue()


def put(text: str, file: IO[bytes]) -> None:
    """Write text to an open file."""
    file.write(text.encode())


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """Turn what a full disk or a foreign folder raises into a sentence."""
    try:
        yield
    except OSError as error:
        raise OSError(
            f"{path} must be a folder that can be written; {error.strerror or error}. Nothing half-written "
            "was left there. Make room or choose another folder with --out."
        ) from error
