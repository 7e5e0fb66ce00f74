"""The file of a site, which only the site has: its name, its data, its keys, where it listens, its folder."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, final

from dcgs.sites.study import StudyLimits

_LOCAL = ("header", "columns", "encoding", "decimal", "threads")
"""Options of ``dcgs fit`` that a site decides for itself."""


@final
@dataclass(frozen=True)
class SiteLimits:
    """The limits of the site itself, beside those of the study; 0 means none.

    It sends nothing beyond them.
    """

    megabytes_sent: float = 0.0
    messages_sent: int = 0
    rounds: int = 0

    def within(self, limits: StudyLimits) -> SiteLimits:
        """Return the limits of a site in a study: the smaller ones."""
        megabytes = min(self.megabytes_sent or limits.sent_mb, limits.sent_mb)
        return SiteLimits(megabytes, self.messages_sent, min(self.rounds or limits.rounds, limits.rounds))


@final
@dataclass(frozen=True)
class SiteFloors:
    """The floors of the site itself, where they are stricter than those of the study; 0 means those."""

    min_count: int = 0
    min_sites: int = 0


@final
@dataclass(frozen=True)
class SiteConfig:
    """What a site knows; relative paths are those from the folder of its file.

    ``proxy_ca`` is the certificate of a proxy that opens TLS to the relay; None for none.
    ``listen`` is HOST:PORT, or None for a site that only dials out. ``fit`` has options about its own file. A
    relay has no data.
    """

    file: Path
    name: str
    study: Path
    key: Path
    certificate: Path
    folder: Path
    proxy_ca: Path | None = None
    data: str = ""
    listen: tuple[str, int] | None = None
    status: int = 0
    fit: Mapping[str, Any] = field(default_factory=dict)
    limits: SiteLimits = field(default_factory=SiteLimits)
    floors: SiteFloors = field(default_factory=SiteFloors)

    @classmethod
    def load(cls, file: Path) -> Self:
        """Return the configuration in a file; raise if it is not one."""
        try:
            table = tomllib.loads(file.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise ValueError(f"the file of a site must exist; there is no {file}.") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"{file} must be TOML; {error}.") from error
        try:
            config = cls(file.resolve(), **_read(table, file.resolve().parent))
        except TypeError as error:
            raise ValueError(f"{file} must have the entries that dcgs site key writes; {error}.") from error
        if unknown := set(config.fit) - set(_LOCAL):
            raise ValueError(
                f"{file}: a site decides about {', '.join(_LOCAL)} only; {', '.join(sorted(unknown))} "
                "must be in "
                "the study."
            )
        return config

    def state(self, study_hash: bytes) -> Path:
        """Return the folder of what belongs to a study; a changed study has another."""
        return self.folder / study_hash.hex()[:16]


def _read(table: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return the entries of a file, with paths from its folder."""
    values = dict(table)
    for name in ("study", "key", "certificate", "folder", "proxy_ca"):
        if name in values:
            values[name] = folder / str(values[name])
    if "listen" in values:
        host, _, port = str(values["listen"]).rpartition(":")
        if not (host and port.isdecimal()):
            raise ValueError(f"listen must be HOST:PORT, such as 0.0.0.0:8443; got {values['listen']!r}.")
        values["listen"] = host.strip("[]"), int(port)
    if "limits" in values:
        values["limits"] = SiteLimits(**values["limits"])
    if "floors" in values:
        values["floors"] = SiteFloors(**values["floors"])
    return values


def site_file(name: str, study: str, listen: str | None, data: str) -> str:
    """Return the text of a new file of a site."""
    lines = [
        "# What only this site knows. Paths are from the folder of this file.",
        f'name = "{name}"',
        f'study = "{study}"',
        f'key = "{name}.key"            # private: it never leaves this machine',
        f'certificate = "{name}.crt"    # signed by the study',
        'folder = "run"',
    ]
    if name != "relay":
        lines.append(f'data = "{data}"')
    lines.append(
        f'listen = "{listen}"' if listen else '# listen = "0.0.0.0:8443"    # if others dial this site'
    )
    return "\n".join(lines) + "\n"
