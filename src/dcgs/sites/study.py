"""A study: the TOML file that all sites hold. The SHA-256 of its bytes is its identity."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, final

from dcgs.tree import depths_from

FORMAT = 1
RELAY = "relay"
"""The name of the relay, which no site may have."""
_NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")
_ADDRESS = re.compile(r"https://[^/?#@\s]+")
_KEY = re.compile(r"[0-9a-f]{64}")
_MEGABYTE = 1 << 20


@final
@dataclass(frozen=True)
class Member:
    """A site, or the relay: its address, if it takes connections, and its public keys, if it has been
    signed.

    A relay that may be ``inspected`` takes signed requests without a certificate, from proxies that open TLS.
    """

    name: str
    address: str | None = None
    ed25519: str = ""
    x25519: str = ""
    inspected: bool = False

    @property
    def is_signed(self) -> bool:
        """Whether its keys are in the study."""
        return bool(self.ed25519)


@final
@dataclass(frozen=True)
class Edge:
    """Two sites that exchange messages. ``dials`` is the one that connects to the other; None: both use the
    relay."""

    ends: tuple[str, str]
    dials: str | None

    def other(self, name: str) -> str:
        """Return the other end."""
        return self.ends[1] if self.ends[0] == name else self.ends[0]


@final
@dataclass(frozen=True)
class StudyLimits:
    """``message_mb`` bounds one message, ``mailbox_mb`` what a site or the relay keeps for others.

    ``patience_hours`` is how long a site waits for a message. A site ends its part before it sends messages
    of more than ``rounds`` rounds, or more than ``sent_mb`` of its own in all.
    """

    message_mb: int = 64
    mailbox_mb: int = 1024
    patience_hours: float = 72.0
    rounds: int = 100_000
    sent_mb: int = 10_240

    @property
    def message_bytes(self) -> int:
        """The most bytes of an envelope."""
        return self.message_mb * _MEGABYTE

    @property
    def mailbox_bytes(self) -> int:
        """The most bytes that are kept for other sites."""
        return self.mailbox_mb * _MEGABYTE


@final
@dataclass(frozen=True)
class Study:
    """What all sites agree on. ``fit`` has the options of ``dcgs fit`` by name; ``ca`` is the certificate,
    as PEM.

    ``without`` are sites that were left out of the study of the SHA-256 ``before``. Its models are where this
    one begins.
    """

    name: str
    sites: tuple[Member, ...]
    edges: tuple[Edge, ...]
    fit: Mapping[str, Any]
    limits: StudyLimits = field(default_factory=StudyLimits)
    run: int = 1
    relay: Member | None = None
    ca: str = ""
    without: tuple[str, ...] = ()
    before: str = ""
    content: bytes = b""

    @classmethod
    def load(cls, file: Path) -> Study:
        """Return the study in a file; raise if it is not one."""
        try:
            return cls.read(file.read_bytes())
        except FileNotFoundError as error:
            raise ValueError(f"the study must be a file; there is no {file}.") from error
        except ValueError as error:
            raise ValueError(f"{file}: {error}") from error

    @classmethod
    def read(cls, content: bytes) -> Study:
        """Return the study that this is the text of; raise if it is not one."""
        try:
            table = tomllib.loads(content.decode())
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"a study must be TOML; {error}.") from error
        if table.pop("format", None) != FORMAT:
            raise ValueError(
                f"a study must have format = {FORMAT}. Use a version of dcgs that knows its format."
            )
        try:
            study = cls(
                name=table.pop("name"),
                sites=tuple(Member(**entry) for entry in table.pop("sites")),
                edges=tuple(_edge(**entry) for entry in table.pop("edges")),
                fit=table.pop("fit"),
                limits=StudyLimits(**table.pop("limits", {})),
                run=table.pop("run", 1),
                relay=Member(RELAY, **relay) if (relay := table.pop("relay", None)) is not None else None,
                ca=table.pop("ca", ""),
                without=tuple(table.pop("without", ())),
                before=table.pop("before", ""),
                content=content,
            )
            if table:
                raise ValueError(f"a study must have known entries only; got {', '.join(sorted(table))}.")
            study.check()
        except KeyError as error:
            raise ValueError(f"a study must have an entry {error.args[0]}; it has none.") from error
        except (TypeError, AttributeError) as error:
            raise ValueError(f"a study must have the entries that dcgs study new writes; {error}.") from error
        return study

    def check(self) -> None:
        """Raise unless the study is one that can be run when all are signed."""
        for name in (self.name, *self.names):
            if not _NAME.fullmatch(str(name)) or name == RELAY:
                raise ValueError(
                    "names of a study and of its sites must be small letters, digits and hyphens, and not "
                    f"{RELAY!r}; got {name!r}."
                )
        if len(set(self.names)) < len(self.names) or len(self.names) < 2:
            raise ValueError(
                f"a study must have at least two sites of different names; got {list(self.names)}."
            )
        for member in self.members:
            if member.address is not None and not _ADDRESS.fullmatch(member.address):
                raise ValueError(
                    "an address must be https://HOST:PORT, without a path: nothing is sent in plaintext; got "
                    f"{member.address!r} of {member.name}."
                )
            if member.is_signed and not (_KEY.fullmatch(member.ed25519) and _KEY.fullmatch(member.x25519)):
                raise ValueError(f"the keys of {member.name} must be 64 hexadecimal digits each.")
        if any(site.inspected for site in self.sites):
            raise ValueError("only the relay may be inspected: direct edges need the certificates of both.")
        for edge in self.edges:
            self._check_edge(edge)
        if len({frozenset(edge.ends) for edge in self.edges}) < len(self.edges):
            raise ValueError("each edge must be in a study once.")
        if -1 in depths_from(self.neighbors, 0):
            raise ValueError("the graph of a study must be connected.")
        bounds = (*vars(self.limits).values(), self.run)
        if not all(isinstance(bound, int | float) and bound > 0 for bound in bounds):
            raise ValueError("limits and the number of the run must be positive.")
        if not (self.before == "" or _KEY.fullmatch(str(self.before))):
            raise ValueError(f"before must be the SHA-256 of a study; got {self.before!r}.")

    def _check_edge(self, edge: Edge) -> None:
        if not (set(edge.ends) <= set(self.names) and len(set(edge.ends)) == 2):
            raise ValueError(
                f"an edge must be between two sites of the study; got {' and '.join(edge.ends)}."
            )
        if edge.dials is None:
            if self.relay is None or self.relay.address is None:
                raise ValueError(
                    f"the edge between {' and '.join(edge.ends)} needs an end with an address, which the "
                    "other "
                    "dials, or a relay. Add an address, or [relay]."
                )
        elif edge.dials not in edge.ends or self.member(edge.other(edge.dials)).address is None:
            raise ValueError(
                f"on the edge between {' and '.join(edge.ends)} one end must dial the other, which has an "
                "address; "
                f"got dials = {edge.dials!r}."
            )

    def check_signed(self) -> None:
        """Raise unless the keys of all are in the study."""
        missing = [member.name for member in self.members if not member.is_signed]
        if missing or not self.ca:
            raise ValueError(
                f"the keys of all sites must be in the study; those of {', '.join(missing)} are not. "
                "Sign their requests with dcgs study sign, and give the new study to all sites."
            )

    @cached_property
    def hash(self) -> bytes:
        """The SHA-256 of the file."""
        return sha256(self.content).digest()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the sites, in the order of ranks."""
        return tuple(site.name for site in self.sites)

    @property
    def members(self) -> tuple[Member, ...]:
        """The sites, and the relay if there is one."""
        return self.sites if self.relay is None else (*self.sites, self.relay)

    def member(self, name: str) -> Member:
        """Return a site, or the relay, by name."""
        member = next((member for member in self.members if member.name == name), None)
        if member is None:
            raise ValueError(f"a site must be one of {', '.join(self.names)}; got {name!r}.")
        return member

    def rank(self, name: str) -> int:
        """Return the number of a site."""
        return self.names.index(name)

    @cached_property
    def neighbors(self) -> Sequence[Sequence[int]]:
        """The neighbors of each site, in increasing order."""
        return [
            sorted(self.rank(edge.other(name)) for edge in self.edges if name in edge.ends)
            for name in self.names
        ]

    def edge(self, name: str, other: str) -> Edge:
        """Return the edge between two sites."""
        return next(edge for edge in self.edges if set(edge.ends) == {name, other})

    def leave_out(self, name: str) -> Study:
        """Return the study of the other sites, which begins at the models that they have; raise if their
        graph falls apart."""
        if name not in self.names:
            raise ValueError(f"the site to leave out must be one of {', '.join(self.names)}; got {name!r}.")
        edges = tuple(edge for edge in self.edges if name not in edge.ends)
        left = replace(
            self,
            sites=tuple(site for site in self.sites if site.name != name),
            edges=edges,
            run=self.run + 1,
            relay=self.relay if any(edge.dials is None for edge in edges) else None,
            without=(*self.without, name),
            before=self.hash.hex(),
        )
        if len(left.sites) > 1 and -1 in depths_from(left.neighbors, 0):
            raise ValueError(
                f"the graph must be connected without {name}; it falls apart. Make a new study with other "
                "edges."
            )
        left.check()
        return Study.read(left.to_toml().encode())

    def next_hops(self, rank: int) -> dict[int, int]:
        """Return the neighbor to which messages for each other site go, on a shortest way."""
        hops = {}
        for target in range(len(self.sites)):
            if target != rank:
                depths = depths_from(self.neighbors, target)
                hops[target] = min(j for j in self.neighbors[rank] if depths[j] == depths[rank] - 1)
        return hops

    def to_toml(self) -> str:
        """Return the study as the text of its file."""
        lines = [
            "# A study of dcgs. All sites hold this file, equal to the byte: its SHA-256 is its identity.",
            f"format = {FORMAT}",
            f"name = {_text(self.name)}",
            f"run = {self.run}",
            *(
                [f"without = {_value(self.without)}", f"before = {_text(self.before)}"]
                if self.without
                else []
            ),
            *([f"ca = '''\n{self.ca.strip()}\n'''"] if self.ca else []),
            "\n[fit]  # options of dcgs fit",
            *(f"{key} = {_value(value)}" for key, value in self.fit.items()),
            "\n[limits]",
            *(f"{key} = {_value(value)}" for key, value in vars(self.limits).items()),
        ]
        for site in self.sites:
            lines += ["\n[[sites]]", f"name = {_text(site.name)}", *_member_lines(site)]
        for edge in self.edges:
            lines += ["\n[[edges]]", f"between = {_value(edge.ends)}"]
            lines += [f"dials = {_text(edge.dials)}" if edge.dials else f"via = {_text(RELAY)}"]
        if self.relay is not None:
            lines += ["\n[relay]", *_member_lines(self.relay)]
        return "\n".join(lines) + "\n"


def edges_between(sites: Sequence[Member], pairs: Sequence[tuple[int, int]]) -> tuple[Edge, ...]:
    """Return edges with who dials: the end without an address, of two with one the second; of none, the
    relay."""
    edges = []
    for i, j in pairs:
        a, b = sites[i], sites[j]
        dials = b.name if a.address is not None else a.name if b.address is not None else None
        edges.append(Edge((a.name, b.name), dials))
    return tuple(edges)


def _edge(between: Sequence[str], dials: str | None = None, via: str | None = None) -> Edge:
    """Return the edge of an entry of the file."""
    if len(between) != 2 or (dials is None) == (via is None) or via not in (None, RELAY):
        raise ValueError(
            f"an edge must be between two sites, with either dials = one of them or via = {RELAY!r}; got "
            f"{between}."
        )
    return Edge((between[0], between[1]), dials)


def _member_lines(member: Member) -> list[str]:
    entries = {"address": member.address, "ed25519": member.ed25519, "x25519": member.x25519}
    lines = [f"{key} = {_text(value)}" for key, value in entries.items() if value]
    return [*lines, "inspected = true"] if member.inspected else lines


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: Any) -> str:
    """Return a value as TOML; tuples and lists are arrays."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    return _text(value) if isinstance(value, str) else repr(value)
