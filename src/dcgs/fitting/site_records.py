"""What processes tell each other before they read data: their options, and the checksums of their files.

The records of all processes are compared by functions that send nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import final

from dcgs.datasets import BrokenDataError, DataNotFoundError
from dcgs.datasets.store import sha256_of
from dcgs.fitting.config import FitConfig
from dcgs.fitting.data import path_of_agent
from dcgs.fitting.readers import SamplesLayout, kind_of
from dcgs.fitting.samples import TABLES
from dcgs.front import agreed
from dcgs.runtime import ProcessGroup

NOT_GIVEN = "not given"
_AGENTS, _FORMAT = "--agents", "--data"


@final
@dataclass(frozen=True)
class SiteRecord:
    """The agents of a process, the user's options as texts by flag, and the files of its data.

    ``files`` has an entry for each agent, or one entry if there is one file: its name and its SHA-256, with
    that of the targets if they are in a file of their own. ``numbered`` says that the names of files have the
    numbers of agents in them.
    """

    agents: tuple[int, ...]
    options: Mapping[str, str]
    files: tuple[tuple[str, str], ...]
    numbered: bool


def exchange_records(
    config: FitConfig, agents: int, hosted: Sequence[int], group: ProcessGroup
) -> list[SiteRecord]:
    """Return the records of all processes, in the order of their agents."""
    source, layout = config.source, config.layout
    targets = layout.target_file if isinstance(layout, SamplesLayout) else None
    is_table = _is_table(source.file(hosted[0]), config.problem.entries)
    form = "a table" if is_table else "a file of arrays or LIBSVM text"
    given = dict(config.options) | {_AGENTS: str(agents), _FORMAT: form}

    def own() -> SiteRecord:
        files = []
        for i in hosted if source.is_numbered else hosted[:1]:
            read = [source.file(i)]
            read += [] if targets is None else [Path(path_of_agent(targets, i)).expanduser()]
            files.append((str(read[0]), " ".join(_checksum(file, i, group.size > 1) for file in read)))
        return SiteRecord(tuple(hosted), given, tuple(files), source.is_numbered)

    record = agreed(group, own)
    texts = group.allgather_texts([json.dumps(asdict(record))])
    return [_record(json.loads(text)) for text in texts]


def check_options(records: Sequence[SiteRecord]) -> None:
    """Raise if options differ that must be the same at all sites; name each with its values and sites."""
    names = dict.fromkeys(name for record in records for name in record.options)
    values = {name: [record.options.get(name, NOT_GIVEN) for record in records] for name in names}
    odd = {name: given for name, given in values.items() if len(set(given)) > 1}
    if not odd:
        return
    differences = []
    for name, given in odd.items():
        owners: dict[str, list[int]] = {}
        for rank, (value, record) in enumerate(zip(given, records, strict=True)):
            # Sites that differ in the number of agents do not know which agent is whose.
            owners.setdefault(value, []).extend([rank] if _AGENTS in odd else record.agents)
        kind = "process" if _AGENTS in odd else "agent"
        told = ", and ".join(f"{value} at {_listed(who, kind)}" for value, who in owners.items())
        differences.append(f"{name} is {told}")
    raise BrokenDataError(
        f"all sites must be given the same options; {'; '.join(differences)}. Give the same at all sites."
    )


def has_own_files(records: Sequence[SiteRecord]) -> bool:
    """Return True if every process has a file of its own under a name without ``{agent}``.

    Raise if some of these processes have several agents.
    """
    if all(record.numbered for record in records) or len({f[1] for r in records for f in r.files}) == 1:
        return False
    several = next((record for record in records if len(record.agents) > 1 and not record.numbered), None)
    if several is not None:
        raise BrokenDataError(
            f"every process must have one agent if the files of processes differ; {_listed(several.agents)} "
            "are in one process. Start a process for each agent, name the files by {agent}, or give all "
            "processes the same file, which is then split."
        )
    return True


def file_notes(records: Sequence[SiteRecord]) -> list[str]:
    """Return notes on whose file is whose, and on agents that have the same file."""
    names = [name for record in records for name, _ in record.files]
    is_own = has_own_files(records)
    if not is_own and not any(record.numbered for record in records):
        same = f"all {len(records)} processes have the same {names[0]}, by its checksum: it was split"
        return [f"{same} into parts, one for each agent."] if len(records) > 1 else []
    owners: dict[str, list[int]] = {}
    for record in records:
        for agent, (_, checksum) in zip(record.agents, record.files, strict=True):
            owners.setdefault(checksum, []).append(agent)
    own = f"processes have different files {names[0]}: each was taken as that of its own agent."
    return [own] * is_own + [
        f"{_listed(agents)} have the same file, by its checksum: its rows count {len(agents)} times."
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


def _is_table(file: Path, entries: bool) -> bool:
    """Return True if a file has columns of words or ids, on which sites agree."""
    return kind_of(file) not in ("npz", "npy") if entries else kind_of(file) in TABLES


def _checksum(file: Path, agent: int, name_agent: bool) -> str:
    try:
        return sha256_of(file)
    except DataNotFoundError as error:
        raise DataNotFoundError(f"agent {agent} failed: {error}") if name_agent else error from error


def _record(found: Mapping[str, object]) -> SiteRecord:
    record = SiteRecord(**found)  # type: ignore[arg-type]  # as asdict wrote it
    files = tuple((name, checksum) for name, checksum in record.files)
    return SiteRecord(tuple(record.agents), record.options, files, record.numbered)


def _listed(numbers: Sequence[int], kind: str = "agent") -> str:
    """Return "agent 1", or "agents 1, 2 and 3"."""
    *most, last = map(str, numbers)
    plural = {"agent": "agents", "process": "processes"}[kind]
    return f"{plural} {', '.join(most)} and {last}" if most else f"{kind} {last}"
