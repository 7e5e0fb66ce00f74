"""The result cache: a folder with one record for every run, and its history as CSV.

``runs/PROBLEM/ENTRY.json`` holds the key of all that the run depends on, its result, and the checksums of
``data/PROBLEM/ENTRY.csv`` (what repeats from a seed, to the last digit) and ``timing/PROBLEM/ENTRY.csv``
(what a clock measured). The three appear together or not at all.
"""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from dcgs.files import atomic_write_all
from dcgs.study.run import RunResult

FORMAT = 2
_TIMED = ("seconds", "computing")

Columns = Mapping[str, Sequence[float]]
Key = Mapping[str, Any]


class FolderError(ValueError):
    """The folder cannot be used; the message says why and what to do."""


@final
@dataclass(frozen=True)
class ResultCache:
    """A folder of results. A result that was made with another key is not found."""

    path: Path

    def check_writable(self) -> None:
        """Create the folder if it does not exist; raise if files cannot be written there."""
        probe = self.path / ".writable"
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            probe.touch()
        except OSError as error:
            raise FolderError(
                f"the output folder must be writable; {str(self.path)!r} cannot be written "
                f"({error.strerror}). Choose another with --out."
            ) from error
        finally:
            with suppress(OSError):
                probe.unlink(missing_ok=True)

    def read(self, name: str, key: Key) -> dict[str, Any] | None:
        """Return the record ``name``.json that was made with this key, or None if there is none."""
        record = self._record(name)
        return record if record is not None and record["key"] == {"format": FORMAT} | dict(key) else None

    def write(self, name: str, key: Key, result: Mapping[str, Any]) -> None:
        """Save a record as ``name``.json."""
        self.write_file(f"{name}.json", _record_json(key, result))

    def has_run(self, problem: str, entry: str, key: Key) -> bool:
        """Return whether a run with this key is recorded."""
        return self.read(f"runs/{problem}/{entry}", key) is not None

    def run(self, problem: str, entry: str, key: Key | None = None) -> RunResult | None:
        """Return the run with this key, or with any key if that is None; None if it is not recorded."""
        name = f"runs/{problem}/{entry}"
        record = self._record(name) if key is None else self.read(name, key)
        if record is None:
            return None
        columns: dict[str, list[float]] = {}
        for file, checksum in record["files"].items():
            columns |= _parse_csv(self._checked(file, checksum))
        return RunResult(**record["result"], columns=columns)

    def save_run(self, problem: str, entry: str, key: Key, result: RunResult) -> None:
        """Record a run."""
        columns = result.columns
        exact = {name: column for name, column in columns.items() if name not in _TIMED}
        timed = {name: columns[name] for name in ("iterations", *_TIMED)}
        files = {
            f"data/{problem}/{entry}.csv": _as_csv(exact),
            f"timing/{problem}/{entry}.csv": _as_csv(timed),
        }
        totals = {name: value for name, value in vars(result).items() if name != "columns"}
        checksums = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
        files[f"runs/{problem}/{entry}.json"] = _record_json(key, totals, checksums)
        self._write_files(files)

    def remove(self, name: str) -> None:
        """Remove the record ``name``.json, such as that of a run, if it is there."""
        (self.path / f"{name}.json").unlink(missing_ok=True)

    def write_file(self, name: str, content: bytes) -> Path:
        """Write a file of the folder atomically; return its path."""
        self._write_files({name: content})
        return self.path / name

    def _write_files(self, files: Mapping[str, bytes]) -> None:
        try:
            atomic_write_all({self.path / name: content for name, content in files.items()})
        except OSError as error:
            raise FolderError(
                f"{str(self.path / next(iter(files)))!r} must be written; that failed ({error.strerror}). "
                "Earlier files are unchanged: free space, or change permissions, and run the command again."
            ) from error

    def _record(self, name: str) -> dict[str, Any] | None:
        try:
            record = json.loads((self.path / f"{name}.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return record if isinstance(record, dict) and {"key", "result"} <= record.keys() else None

    def _checked(self, name: str, checksum: str) -> str:
        path = str(self.path / name)
        try:
            content = (self.path / name).read_bytes()
        except OSError as error:
            raise FolderError(
                f"{path!r} must be there, as its record in runs/ says; it cannot be read ({error.strerror}). "
                "Run the command again into an empty folder."
            ) from error
        if hashlib.sha256(content).hexdigest() != checksum:
            raise FolderError(
                f"{path!r} must be as it was written; its checksum differs. "
                "Put the original back, or run the command again into an empty folder."
            )
        return content.decode()


def _record_json(key: Key, result: Mapping[str, Any], files: Mapping[str, str] | None = None) -> bytes:
    record = {"key": {"format": FORMAT} | dict(key), "result": dict(result), "files": dict(files or {})}
    return (json.dumps(record, indent=1, ensure_ascii=False) + "\n").encode()


def _as_csv(columns: Columns) -> bytes:
    """Return a table with every digit that a double has."""
    rows = zip(*columns.values(), strict=True)
    lines = [",".join(columns), *(",".join(map(_digits, row)) for row in rows)]
    return ("\n".join(lines) + "\n").encode()


def _digits(value: float) -> str:
    return str(int(value)) if float(value).is_integer() and abs(value) < 2**53 else repr(float(value))


def _parse_csv(text: str) -> dict[str, list[float]]:
    head, *rows = csv.reader(text.splitlines())
    return {name: [float(row[place]) for row in rows] for place, name in enumerate(head)}
