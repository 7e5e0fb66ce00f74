"""Where results of ``dcgs bench rounds`` are kept: one small JSON file each, whole or not there."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

FORMAT = 1


@final
@dataclass(frozen=True)
class Shelf:
    """A folder of results, each with the key of what it was made with; another key's result is no result."""

    path: Path

    def check(self) -> None:
        """Raise unless files can be written there; the folder is made if need be."""
        probe = self.path / ".writable"
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise ValueError(
                f"the output folder must be one of yours; {str(self.path)!r} cannot be written "
                f"({error.strerror}). Choose another with --out."
            ) from error

    def get(self, name: str, key: dict[str, Any]) -> dict[str, Any] | None:
        """Return the result of that name, or None where there is none that was made with this key."""
        try:
            kept = json.loads((self.path / name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        same = isinstance(kept, dict) and kept.get("key") == {"format": FORMAT} | key
        return kept["result"] if same else None

    def put(self, name: str, key: dict[str, Any], result: dict[str, Any]) -> None:
        """Keep a result."""
        kept = {"key": {"format": FORMAT} | key, "result": result}
        self.write(name, (json.dumps(kept, ensure_ascii=False) + "\n").encode())

    def write(self, name: str, content: bytes) -> Path:
        """Write a file, whole or not at all; return its path."""
        target = self.path / name
        # Two commands may work in one folder: each has its own part.
        part = target.with_name(f"{target.name}.{os.getpid()}.part")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            part.write_bytes(content)
            os.replace(part, target)
        finally:
            with suppress(OSError):
                part.unlink(missing_ok=True)
        return target

    def drop(self, name: str) -> None:
        """Take a result away, if it is there."""
        (self.path / name).unlink(missing_ok=True)
