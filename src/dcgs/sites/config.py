"""The file of a site, which only the site has: its name, its data, its keys, where it listens, its folder."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping
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
    fit: Mapping[str, Any] = field(default_factory=dict)
    limits: SiteLimits = field(default_factory=SiteLimits)
    floors: SiteFloors = field(default_factory=SiteFloors)

    @classmethod
    def load(cls, file: Path) -> Self:
        """Return the configuration in a file, or in that of a folder; raise if it is not one."""
        if file.is_dir():
            file /= f"{file.resolve().name}.toml"
        try:
            table = tomllib.loads(file.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise ValueError(
                f"the file of a site must exist; there is no {file}. dcgs site key makes one."
            ) from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"{file} must be TOML; {error}.") from error
        try:
            config = cls(file.resolve(), **_read(table, file.resolve().parent))
        except ValueError as error:
            raise ValueError(f"{file}: {error}") from error
        if unknown := set(config.fit) - set(_LOCAL):
            raise ValueError(
                f"{file}: a site decides about {', '.join(_LOCAL)} only; {', '.join(sorted(unknown))} "
                "must be in the study."
            )
        return config

    @property
    def data_file(self) -> Path:
        """The file of the data."""
        return self.file.parent / Path(self.data).expanduser()

    def state(self, study_hash: bytes) -> Path:
        """Return the folder of what belongs to a study; a changed study has another."""
        return self.folder / study_hash.hex()[:16]


_NEEDED = ("name", "study", "key", "certificate", "folder")
_TEXTS = (*_NEEDED, "proxy_ca", "data", "listen")
_PATHS = ("study", "key", "certificate", "folder", "proxy_ca")


def _read(table: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return the entries of a file, with paths from its folder; raise unless all are known."""
    values = dict(table)
    _check_known("a site", values, (*_TEXTS, "fit", "limits", "floors"))
    missing = [name for name in _NEEDED if name not in values]
    if missing:
        raise ValueError(f"a site must have the entries {', '.join(_NEEDED)}; it has no {missing[0]}.")
    for name in _TEXTS:
        if not isinstance(values.get(name, ""), str):
            raise ValueError(f"{name} must be a text in quotes; got {values[name]!r}.")
    values |= {name: folder / values[name] for name in _PATHS if name in values}
    if "listen" in values:
        host, _, port = values["listen"].rpartition(":")
        if not (host and port.isdecimal() and int(port) < 1 << 16):
            raise ValueError(f"listen must be HOST:PORT, such as 0.0.0.0:8443; got {values['listen']!r}.")
        values["listen"] = host.strip("[]"), int(port)
    if not isinstance(values.get("fit", {}), dict):
        raise ValueError(f"[fit] must be a table; got {values['fit']!r}.")
    kinds: dict[str, type[SiteLimits] | type[SiteFloors]] = {"limits": SiteLimits, "floors": SiteFloors}
    for name, kind in kinds.items():
        if name in values:
            values[name] = kind(**_numbers(name, values[name], vars(kind())))
    return values


def _check_known(what: str, given: Mapping[str, Any], known: Collection[str]) -> None:
    unknown = [name for name in given if name not in known]
    if unknown:
        raise ValueError(
            f"{what} must have known entries only, which are {', '.join(known)}; got {', '.join(unknown)}."
        )


def _numbers(name: str, given: Any, known: Collection[str]) -> dict[str, Any]:
    """Return the numbers of a table; raise unless all are numbers of the known names."""
    if not isinstance(given, dict):
        raise ValueError(f"[{name}] must be a table; got {given!r}.")
    _check_known(f"[{name}]", given, known)
    for entry, value in given.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
            raise ValueError(f"{entry} in [{name}] must be a number of at least 0; got {value!r}.")
    return given


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
