"""The folder a study is kept in: a manifest, and the history of every run as CSV.

Whatever is in the folder is whole: files appear by renaming, and the manifest names a run only after
its files are there. ``data/`` holds what repeats from a seed, to the last digit; ``timing/`` what a
clock measured, which does not.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

FORMAT = 1
MANIFEST = "manifest.json"
_TIMED = ("seconds", "computing")

Columns = Mapping[str, Sequence[float]]


class FolderError(ValueError):
    """The folder cannot be used as it was meant to be; the message says why and what to do."""


@final
@dataclass(frozen=True)
class Folder:
    """An output folder; every write is atomic."""

    path: Path

    def open(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return the manifest to go on from: a new one, or that of an earlier run with these settings."""
        self._make()
        if not (self.path / MANIFEST).exists():
            others = sorted(entry.name for entry in self.path.iterdir())
            if others:
                raise FolderError(
                    "the output folder must be empty or hold an earlier run of this command; "
                    f"{str(self.path)!r} holds {_listed(others)}. Choose another with --out."
                )
            return {"format": FORMAT, "settings": dict(settings), "experiments": {}}
        manifest = self.manifest()
        earlier = manifest["settings"]
        differing = [name for name in settings if earlier.get(name) != settings[name]]
        if differing:
            told = "; ".join(f"{name} was {earlier.get(name)!r}, is {settings[name]!r}" for name in differing)
            raise FolderError(
                f"an earlier run can only be continued with its own settings; in {str(self.path)!r} {told}. "
                "Use the same settings, or another folder with --out."
            )
        return manifest

    def manifest(self) -> dict[str, Any]:
        """Return the manifest that is there."""
        file = self.path / MANIFEST
        try:
            manifest: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
            version = manifest["format"]
        except FileNotFoundError as error:
            raise FolderError(
                f"the folder must hold a {MANIFEST}, as dcgs reproduce writes it; "
                f"{str(self.path)!r} has none."
            ) from error
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise FolderError(
                f"{str(file)!r} must be a manifest written by dcgs reproduce; it cannot be read as one. "
                "Run dcgs reproduce again into an empty folder."
            ) from error
        if version != FORMAT:
            raise FolderError(
                f"a manifest must be of format {FORMAT}; {str(file)!r} has {version!r}. "
                "Read it with the version of dcgs that wrote it."
            )
        return manifest

    def write_manifest(self, manifest: Mapping[str, Any]) -> None:
        """Replace the manifest."""
        self.write(MANIFEST, (json.dumps(manifest, indent=2, ensure_ascii=False) + "\n").encode())

    def write(self, name: str, content: bytes) -> Path:
        """Write a file of the folder, whole or not at all; return its path."""
        target = self.path / name
        part = target.with_name(target.name + ".part")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            part.write_bytes(content)
            os.replace(part, target)
        except OSError as error:
            raise FolderError(
                f"{str(target)!r} must be written; that failed ({error.strerror}). What was there before is "
                "as it was: make room, or see to the rights, and run the command again."
            ) from error
        finally:
            with suppress(OSError):
                part.unlink(missing_ok=True)
        return target

    def keep(self, experiment: str, run: str, columns: Columns) -> dict[str, str]:
        """Write a run's history; return the SHA-256 of each file by its name."""
        exact = {name: column for name, column in columns.items() if name not in _TIMED}
        timed = {name: columns[name] for name in ("iterations", *_TIMED)}
        files = {_data(experiment, run): _as_csv(exact), _timing(experiment, run): _as_csv(timed)}
        for name, content in files.items():
            self.write(name, content)
        return {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}

    def columns(self, experiment: str, run: str, checksums: Mapping[str, str]) -> dict[str, list[float]]:
        """Return a run's history, checked against the checksums that :meth:`keep` gave."""
        read = {
            name: self._checked(name, checksums)
            for name in (_data(experiment, run), _timing(experiment, run))
        }
        columns: dict[str, list[float]] = {}
        for content in read.values():
            rows = list(csv.reader(content.decode().splitlines()))
            columns |= {name: [float(row[place]) for row in rows[1:]] for place, name in enumerate(rows[0])}
        return columns

    def _checked(self, name: str, checksums: Mapping[str, str]) -> bytes:
        try:
            content = (self.path / name).read_bytes()
        except OSError as error:
            raise FolderError(
                f"{str(self.path / name)!r} must be there, as {MANIFEST} says; it cannot be read "
                f"({error.strerror}). Run dcgs reproduce again into an empty folder."
            ) from error
        if hashlib.sha256(content).hexdigest() != checksums[name]:
            raise FolderError(
                f"{str(self.path / name)!r} must be as it was written; its checksum is another. "
                "Put the original back, or run dcgs reproduce again into an empty folder."
            )
        return content

    def _make(self) -> None:
        probe = self.path / ".writable"
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            probe.touch()
        except OSError as error:
            raise FolderError(
                f"the output folder must be one of yours; {str(self.path)!r} cannot be written "
                f"({error.strerror}). Choose another with --out."
            ) from error
        finally:
            with suppress(OSError):
                probe.unlink(missing_ok=True)


def _data(experiment: str, run: str) -> str:
    return f"data/{experiment}/{run}.csv"


def _timing(experiment: str, run: str) -> str:
    return f"timing/{experiment}/{run}.csv"


def _as_csv(columns: Columns) -> bytes:
    """Return a table with every digit a double has, and none that it has not."""
    rows: Iterable[tuple[float, ...]] = zip(*columns.values(), strict=True)
    lines = [",".join(columns), *(",".join(map(_digits, row)) for row in rows)]
    return ("\n".join(lines) + "\n").encode()


def _digits(value: float) -> str:
    return str(int(value)) if float(value).is_integer() and abs(value) < 2**53 else repr(float(value))


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
