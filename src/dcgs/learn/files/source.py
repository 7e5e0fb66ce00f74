"""Whose file is whose: the user's ``--data``, and what processes tell each other before they read it.

Which fit processes take part in, and whether a file is split, must be known before messages can be sent over
the graph. All else that sites must agree on is in their schemas. Samples and entries are what files hold.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from glob import escape, glob
from itertools import count
from pathlib import Path
from typing import Literal, Protocol, Self, TypeAlias, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from dcgs.datasets import BrokenDataError, DataNotFoundError
from dcgs.datasets.base import Matrix, cuts
from dcgs.datasets.store import sha256_of
from dcgs.learn.schema import NOT_GIVEN, check_options
from dcgs.runtime import Runtime, agreed
from dcgs.state import from_plain, to_plain
from dcgs.validation import in_words, listed

Numbers: TypeAlias = NDArray[np.float64]
Indices: TypeAlias = NDArray[np.intp]

_PLACEHOLDER = re.compile(r"\{(?:rank|agent)(?::0?(\d+)d?)?\}")


@final
@dataclass(frozen=True, eq=False)
class Samples:
    """Rows of A and their targets; ``b`` is None where the file has no targets.

    ``names`` are the names of the features, ``target`` is the name of b, where the file has names.
    ``target_at`` is the column of b, from 0. ``open`` says that A may have more columns than were read:
    LIBSVM text does not say how many there are.
    """

    A: Matrix
    b: Numbers | None
    names: tuple[str, ...] | None = None
    target: str | None = None
    target_at: int | None = None
    open: bool = False

    def __len__(self) -> int:
        return int(self.A.shape[0])

    def take(self, chosen: Indices | slice) -> Samples:
        """Return these samples, in this order."""
        return replace(self, A=self.A[chosen], b=None if self.b is None else self.b[chosen])

    def sort_key(self) -> Numbers:
        """Return the target, by which ``--split sorted`` sorts."""
        return np.zeros(len(self)) if self.b is None else self.b


@final
@dataclass(frozen=True, eq=False)
class Entries:
    """Observed entries of a matrix; ``values`` is None where the file has none.

    ``base`` is the index of the first row and column, 0 or 1; ``shape`` is the shape of the matrix. Both are
    None where the file does not say.
    """

    rows: Indices
    cols: Indices
    values: Numbers | None
    base: int | None = None
    shape: tuple[int, int] | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, chosen: Indices | slice) -> Entries:
        """Return these entries, in this order."""
        values = None if self.values is None else self.values[chosen]
        return replace(self, rows=self.rows[chosen], cols=self.cols[chosen], values=values)

    def from_zero(self, base: int) -> Entries:
        """Return the entries counted from 0; ``base`` is used if the file does not say its own."""
        first = base if self.base is None else self.base
        return replace(self, rows=self.rows - first, cols=self.cols - first, base=0)


Split = Literal["even", "random", "sorted"]


class Splittable(Protocol):
    """Data that can be split into parts for the agents: samples, or a table."""

    def __len__(self) -> int: ...

    def take(self, chosen: Indices | slice) -> Self:
        """Return these rows, in this order."""

    def sort_key(self) -> Numbers:
        """Return the numbers by which ``--split sorted`` sorts."""


T = TypeVar("T")
Data = TypeVar("Data", bound=Splittable)


@final
@dataclass(frozen=True)
class DataSource:
    """The user's ``--data``: a path with ``{agent}`` (or ``{rank}``) in it, or one path for all agents.

    With ``own`` the path is another file in each process, that of its only agent. ``names`` are the
    user's for the agents of this process or for all; once processes have met, those of all agents.

    >>> DataSource("site-{agent:02d}.npz").file(3)
    PosixPath('site-03.npz')
    """

    data: str
    split: Split = "even"
    seed: int = 0
    own: bool = False
    names: tuple[str, ...] = ()

    @property
    def is_numbered(self) -> bool:
        """Whether the name of a file has the number of its agent in it."""
        return _PLACEHOLDER.search(self.data) is not None

    @property
    def is_per_agent(self) -> bool:
        """Whether every agent has its own file."""
        return self.own or self.is_numbered

    def file(self, agent: int) -> Path:
        """Return the file with this agent's data."""
        return Path(path_of_agent(self.data, agent)).expanduser()

    def describe(self, agent: int) -> str:
        """Return what errors and notes call an agent: its name or number, and its file."""
        return f"{self.name(agent)} ({self.file(agent)})"

    def name(self, agent: int) -> str:
        """Return the name of a site, or the number of its agent."""
        return self.names[agent] if self.names else f"agent {agent}"

    def local_names(self, hosts: Sequence[int], agents: int) -> tuple[str, ...]:
        """Return the names of the agents of this process, which the user has given for them or for all."""
        if not self.names:
            return tuple(f"agent {i}" for i in hosts)
        if len(self.names) not in (len(hosts), agents):
            raise ValueError(
                f"--name must have a name for each of the {len(hosts)} agents of this process; got "
                f"{len(self.names)}, {listed(self.names)}. Separate names by commas."
            )
        return tuple(self.names[i] for i in hosts) if len(self.names) == agents else self.names

    def count_agents(self, agents: int | None, nodes: int | None, processes: int) -> int:
        """Return the number of agents: as given, or the number of nodes, of processes or of files."""
        if agents is None and processes == 1 and self.is_per_agent:
            agents = self.count_files()
        elif agents is None:
            agents = nodes or (processes if processes > 1 else 0)
        if agents == 0:
            raise ValueError(
                "the number of agents must be given for one file of data; give --agents N, "
                "a graph that has a number of nodes, or a file for each agent with {agent} in its name."
            )
        self.check(agents)
        return agents

    def count_files(self) -> int:
        """Return how many agents have files; they must be numbered from 0 on, without a gap."""
        numbers = self._numbers()
        there = [i for i in numbers if self.file(i).exists()]
        first = next(i for i in count() if i not in there)
        if first > max(numbers, default=0):
            return first
        missing = self.file(first)
        is_link = f"{missing} is a link to a file that does not exist"
        raise DataNotFoundError(
            f"{self.data} must be a file for each agent, counted from 0; "
            + (is_link if missing.is_symlink() else f"there is no {missing}")
            + (f", and there is {self.file(there[-1])}. Add it, or number all from 0 on." if there else ".")
        )

    def _numbers(self) -> list[int]:
        """Return the numbers for which a file of this name exists, or a link without its file."""
        parts = _PLACEHOLDER.sub("\0", str(Path(self.data).expanduser())).split("\0")
        pattern = re.compile(r"(\d+)".join(map(re.escape, parts)))
        matches = map(pattern.fullmatch, glob("*".join(map(escape, parts))))
        numbers = {int(item[1]) for item in matches if item is not None}
        return sorted(i for i in numbers if os.path.lexists(self.file(i)))

    def check(self, agents: int) -> None:
        """Raise if there are more files than agents."""
        if self.is_numbered and os.path.lexists(self.file(agents)):
            raise ValueError(
                f"there must be as many files {self.data} as agents; there are {agents} agents and a file "
                f"{self.file(agents)}. Give --agents {self._numbers()[-1] + 1}, or move the file away."
            )

    def parts(self, agents: int, hosted: Sequence[int], read: Callable[[Path, int], Data]) -> dict[int, Data]:
        """Return the data of the hosted agents only.

        One file for all agents is read completely: no format says where an agent's rows start.
        """
        if self.is_per_agent:
            return {i: self.read(i, read) for i in hosted}
        whole = read(self.file(0), 0)
        order = self._order(whole)
        if order is None and len(hosted) < agents:
            order = np.arange(len(whole))  # a slice of a dense array would hold the whole array in memory
        ranges = [slice(*part) for part in cuts(len(whole), agents)]
        return {i: whole.take(ranges[i] if order is None else order[ranges[i]]) for i in hosted}

    def read(self, agent: int, read: Callable[[Path, int], T]) -> T:
        """Return the data in the file of an agent; an error has a note that names the agent."""
        try:
            return read(self.file(agent), agent)
        except Exception as error:
            error.add_note(f"raised in agent {agent}")
            raise

    def _order(self, whole: Splittable) -> Indices | None:
        """Return the order of the rows before they are split; None is the order of the file."""
        if self.split == "random":
            return np.random.default_rng(self.seed).permutation(len(whole))
        return np.argsort(whole.sort_key(), kind="stable") if self.split == "sorted" else None


def path_of_agent(path: str, agent: int) -> str:
    """Return a path with the number of an agent in place of ``{agent}``, ``{rank}`` or ``{agent:03d}``.

    >>> path_of_agent("site-{rank}/y.npy", 2)
    'site-2/y.npy'
    """
    return _PLACEHOLDER.sub(lambda matches: str(agent).zfill(int(matches[1] or 0)), path)


@final
@dataclass(frozen=True)
class ProcessRecord:
    """The agents of a process, their names, the options that say which fit it is, and the files of its data.

    ``files`` has an entry for each agent, or one entry if there is one file: its name, and a text that is the
    same for the same content, also of the targets if they are in a file of their own. ``is_per_agent`` says
    that every agent has its own file, before contents are compared.
    """

    agents: tuple[int, ...]
    options: dict[str, str]
    files: tuple[tuple[str, str], ...]
    is_per_agent: bool
    names: tuple[str, ...] = ()


def exchange_records(
    source: DataSource,
    targets: str | None,
    hosts: Sequence[int],
    options: dict[str, str],
    runtime: Runtime,
) -> tuple[list[ProcessRecord], dict[str, str]]:
    """Return the records of all processes, in the order of their agents, and the checksums of the own files.

    Raise if their options differ. Processes do not learn the checksums of others, but which files are equal.
    """
    group, checksums = runtime.group(), dict[str, str]()

    def record() -> tuple[ProcessRecord, list[str]]:
        files, contents, names = [], [], source.local_names(hosts, int(options["--agents"]))
        for i, site in zip(hosts, names, strict=True) if source.is_per_agent else [(hosts[0], names[0])]:
            read = [source.file(i)]
            read += [] if targets is None else [Path(path_of_agent(targets, i)).expanduser()]
            label = site if group.size > 1 else ""
            found = [_checksum(file, label) for file in read]
            files.append((str(read[0]), ""))
            contents.append(" ".join(found))
            checksums[str(read[0])] = found[0]
        return ProcessRecord(tuple(hosts), options, tuple(files), source.is_per_agent, names), contents

    own, contents = agreed(group, record)
    texts = group.allgather_texts([json.dumps(to_plain(own))])
    records = [from_plain(ProcessRecord, json.loads(text)) for text in texts]
    with group.common_errors():
        check_options({f"process {rank}": item.options for rank, item in enumerate(records)})
        site_names(records)
    known = _compared(contents, runtime) if group.size > 1 else [contents]
    return [
        replace(item, files=tuple(zip([name for name, _ in item.files], some, strict=True)))
        for item, some in zip(records, known, strict=True)
    ], checksums


def _compared(contents: Sequence[str], runtime: Runtime) -> list[list[str]]:
    """Return a text for each content of all processes, the same for equal ones.

    A process that starts again finds its secret in its journal, and sends what it has sent before.
    """
    from dcgs.secure.equality import equal_contents
    from dcgs.secure.journal import Journal
    from dcgs.secure.keys import KeyPair

    journal = runtime.journal()
    if journal is None:
        private = KeyPair.generate().private
    else:
        with Journal(journal, "dcgs files 1") as kept:
            private = kept.pair.private
    numbers = equal_contents([text.encode() for text in contents], private, runtime.group().allgather_texts)
    return [list(map(str, some)) for some in numbers]


def site_names(records: Sequence[ProcessRecord]) -> tuple[str, ...]:
    """Return the names of all agents; raise if two have the same."""
    names = [name for record in records for name in record.names]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        owners = in_words([f"agent {i}" for i, name in enumerate(names) if name == twice[0]])
        raise ValueError(
            f"every site must have a name of its own; {owners} have the name {twice[0]!r}. Give others by "
            "--name."
        )
    return tuple(names)


def has_own_files(records: Sequence[ProcessRecord]) -> bool:
    """Return True if every process has a file of its own under a name without ``{agent}``.

    Raise if some of these processes have several agents.
    """
    if all(record.is_per_agent for record in records) or len({f[1] for r in records for f in r.files}) == 1:
        return False
    several = next((record for record in records if len(record.agents) > 1 and not record.is_per_agent), None)
    if several is not None:
        raise BrokenDataError(
            f"every process must have one agent if the files of processes differ; {in_words(several.names)} "
            "are in one process. Start a process for each agent, name the files by {agent}, or give all "
            "processes the same file, which is then split."
        )
    return True


def file_notes(records: Sequence[ProcessRecord]) -> list[str]:
    """Return notes on whose file is whose, and on agents that have the same file."""
    names = [name for record in records for name, _ in record.files]
    is_own = has_own_files(records)
    if not is_own and not any(record.is_per_agent for record in records):
        same = f"all {len(records)} processes have the same {names[0]}, by its content: it was split"
        return [f"{same} into parts, one for each agent."] if len(records) > 1 else []
    owners: dict[str, list[str]] = {}
    for record in records:
        for name, (_, checksum) in zip(record.names, record.files, strict=True):
            owners.setdefault(checksum, []).append(name)
    local = f"processes have different files {names[0]}: each was taken as that of its own agent."
    return [local] * is_own + [
        f"{in_words(agents)} have the same file, by its content: its rows count {len(agents)} times."
        for agents in owners.values()
        if len(agents) > 1
    ]


def option_text(value: object, may_be_file: bool = False) -> str:
    """Return the value of an option as sites compare it; of a file its content counts, not its name.

    >>> option_text(None), option_text("mean"), option_text(["b", "a"])
    ('not given', "'mean'", "'a', 'b'")
    """
    if value is None or value == []:
        return NOT_GIVEN
    if isinstance(value, list):
        return ", ".join(sorted(map(repr, value)))
    if may_be_file and isinstance(value, str) and Path(value).is_file():
        return f"a file of SHA-256 {sha256_of(Path(value))[:12]}…"
    return repr(value)


def _checksum(file: Path, site: str) -> str:
    try:
        return sha256_of(file)
    except DataNotFoundError as error:
        raise DataNotFoundError(f"{site} failed: {error}") if site else error from error
