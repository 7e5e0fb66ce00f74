"""``manifest.json`` of a folder of ``dcgs reproduce``: how it was made, and which runs belong to it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from dcgs.study import FolderError, ResultCache
from dcgs.study.cache import FORMAT

MANIFEST = "manifest.json"


def open_manifest(cache: ResultCache, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the manifest to continue: a new one, or that of an earlier run with the same settings."""
    cache.check_writable()
    if not (cache.path / MANIFEST).exists():
        others = sorted(entry.name for entry in cache.path.iterdir())
        if others:
            listed = ", ".join(others[:3]) + (f" and {len(others) - 3} more" if len(others) > 3 else "")
            raise FolderError(
                "the output folder must be empty or hold an earlier run of this command; "
                f"{str(cache.path)!r} holds {listed}. Choose another with --out."
            )
        return {"format": FORMAT, "settings": dict(settings), "experiments": {}}
    manifest = read_manifest(cache)
    earlier = manifest["settings"]
    differing = [name for name in settings if earlier.get(name) != settings[name]]
    if differing:
        changes = "; ".join(f"{name} was {earlier.get(name)!r}, is {settings[name]!r}" for name in differing)
        raise FolderError(
            f"an earlier run can only be continued with its own settings; in {str(cache.path)!r} {changes}. "
            "Use the same settings, or another folder with --out."
        )
    return manifest


def read_manifest(cache: ResultCache) -> dict[str, Any]:
    """Return the manifest of the folder."""
    file = cache.path / MANIFEST
    try:
        manifest: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        version = manifest["format"]
    except FileNotFoundError as error:
        raise FolderError(
            f"the folder must hold a {MANIFEST}, as dcgs reproduce writes it; {str(cache.path)!r} has none."
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


def write_manifest(cache: ResultCache, manifest: Mapping[str, Any]) -> None:
    """Replace the manifest."""
    cache.write_file(MANIFEST, (json.dumps(manifest, indent=2, ensure_ascii=False) + "\n").encode())
