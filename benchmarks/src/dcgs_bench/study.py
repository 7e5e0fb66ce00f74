"""The study engine: tasks are done in processes and recorded in a folder, and recorded ones are skipped.

``runs/PROBLEM/METHOD.json`` holds the key of all that the run depends on, its result, and the checksums of
``data/PROBLEM/METHOD.csv`` (what repeats from a seed, to the last digit) and ``timing/PROBLEM/METHOD.csv``
(what a clock measured). The three appear together or not at all. Other tasks have records without histories.
"""

from __future__ import annotations

import csv
import hashlib
import json
import multiprocessing
import os
import platform
import re
import resource
import shlex
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from string import Formatter
from typing import Any, TypeAlias, TypeVar, final

import networkx as nx
from threadpoolctl import threadpool_info, threadpool_limits

from dcgs.datasets import DataNotFoundError
from dcgs.files import atomic_write_all
from dcgs.methods import Method
from dcgs.objectives import Objective
from dcgs.run.minimize import minimize, versions
from dcgs.run.result import Callback, Snapshot, as_history
from dcgs.run.stopping import Status
from dcgs.runtime import Lockstep
from dcgs.sets import ConvexSet

FORMAT = 2
FAILED = "FAILED"
"""The ``end`` of a run whose numbers overflowed."""
REFUSED = "REFUSED"
"""The ``end`` of a run that was refused at the door."""
_TIMED = ("seconds", "computing")

Returned = TypeVar("Returned")
Columns: TypeAlias = Mapping[str, Sequence[float]]
Attempt: TypeAlias = tuple[Mapping[str, Any] | None, str | None]
Metric: TypeAlias = Callable[[Sequence[Any]], float]
"""A measure of the agents' answers that :class:`dcgs.History` does not have, such as a test error."""
Stages: TypeAlias = Sequence[Callable[[], Sequence["StudyTask"]]]
"""Functions that return tasks; those of one may need results of those before."""
Report: TypeAlias = Callable[[str, str | None], None]
"""Called with the title of every task that was tried, and with a sentence if it has no result."""


@final
@dataclass(frozen=True, eq=False)
class StudyProblem:
    """The objectives and the set, the graph of agents, and further metrics by column name."""

    objectives: Sequence[Objective]
    X: ConvexSet
    graph: nx.Graph
    metrics: Mapping[str, Metric] = field(default_factory=dict)

    @property
    def parts(self) -> tuple[Sequence[Objective], ConvexSet, nx.Graph]:
        """The first three arguments of :func:`dcgs.minimize`."""
        return self.objectives, self.X, self.graph


@final
@dataclass(frozen=True)
class Budget:
    """The limits of a run, and how often it is measured; :func:`dcgs.minimize` takes the same names."""

    iterations: int | None = None
    rounds: int | None = None
    seconds: float | None = None
    lmo_calls: int | None = None
    gap: float | None = None
    every: int = 1

    @property
    def limits(self) -> dict[str, Any]:
        """Those that are given, by name."""
        return {name: limit for name, limit in asdict(self).items() if limit is not None}


@final
@dataclass(frozen=True, eq=False)
class RunRecord:
    """The record of a run.

    ``end`` is the name of its :class:`dcgs.Status`, FAILED or REFUSED; ``status`` is the sentence.
    ``rounds``, ``lmo_calls`` and ``bytes`` (maximum over agents), ``all_bytes`` (their sum) and ``seconds``
    are totals. ``kind`` is that of the lower bound by which the agents stopped. ``more`` is what a benchmark
    adds.
    """

    end: str
    status: str
    method: str
    rounds: int = 0
    lmo_calls: int = 0
    seconds: float = 0.0
    notes: Sequence[str] = ()
    bytes: int = 0
    kind: str = ""
    columns: Columns = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)
    all_bytes: int = 0

    @property
    def certified(self) -> bool:
        """Whether the gap that was asked for was certified."""
        return self.end in {status.name for status in Status if status.success}


def execute(
    problem: StudyProblem,
    method: Method,
    budget: Budget,
    seed: int = 0,
    callback: Callback = lambda snapshot: None,
    runtime: Lockstep | None = None,
) -> RunRecord:
    """Run the method on the problem; a run that diverges has a record, other errors are raised."""
    snapshots: list[Snapshot] = []
    metrics: dict[str, list[float]] = {name: [] for name in problem.metrics}

    def observe(snapshot: Snapshot) -> bool | None:
        snapshots.append(replace(snapshot, agents=()))
        for name, metric in problem.metrics.items():
            metrics[name].append(metric(snapshot.agents))
        return callback(snapshot)

    def columns() -> dict[str, Sequence[float]]:
        measured = as_history(snapshots).columns()
        return {name: column.tolist() for name, column in measured.items()} | metrics

    limits = budget.limits | {"seed": seed, "runtime": runtime, "callback": observe}
    try:
        result = minimize(*problem.parts, method, **limits)
    except FloatingPointError as error:
        last = snapshots[-1]
        totals = last.rounds, last.lmo_calls, last.seconds
        return RunRecord(FAILED, "the run failed.", repr(method), *totals, [str(error)], columns=columns())
    calls, notes = int(result.lmo_calls.max()), list(result.notes)
    unfinished = calls - snapshots[-1].lmo_calls
    if unfinished > 0:
        notes.append(f"{unfinished:,} further oracle calls went into an iteration that was not finished.")
    status, kinds = result.status, result.certificates["kind"]
    totals = result.rounds, calls, result.seconds
    kind = str(kinds[-1]) if status is Status.AGREED and len(kinds) else ""
    about = status.name, str(status), result.about["method"]
    most, everything = int(result.bytes.max()), int(result.bytes.sum())
    return RunRecord(*about, *totals, notes, most, kind, columns(), all_bytes=everything)


@final
@dataclass(frozen=True)
class StudyTask:
    """A piece of work of a study: the name of its record, and all that its result depends on.

    ``work`` returns the result, by name; ``columns`` in it are a history. It is None if the task needs the
    result of another one that is not recorded. Other processes get a copy of it.
    """

    name: str
    key: Mapping[str, Any]
    work: Callable[[], Mapping[str, Any]] | None
    title: str


class FolderError(ValueError):
    """The folder cannot be used; the message says why and what to do."""


@final
@dataclass(frozen=True)
class Records:
    """A folder of results. A result that was made with another key is not found."""

    path: Path

    def check_writable(self) -> None:
        """Create the folder if it does not exist; raise if files cannot be written there."""
        self.write_file(".writable", b"").unlink(missing_ok=True)

    def has(self, task: StudyTask) -> bool:
        """Return whether the result of a task is recorded."""
        return self._record(task.name, task.key) is not None

    def read(self, name: str, key: Mapping[str, Any] | None = None) -> dict[str, Any] | None:
        """Return the result with this key, or with any key if that is None; None if it is not recorded."""
        record = self._record(name, key)
        if record is None:
            return None
        columns: dict[str, list[float]] = {}
        for file, checksum in record["files"].items():
            columns |= _parse_csv(self._checked(file, checksum))
        result: dict[str, Any] = record["result"]
        return result | ({"columns": columns} if columns else {})

    def result(self, task: StudyTask) -> dict[str, Any] | None:
        """Return the result of a task, or None if it is not recorded."""
        return self.read(task.name, task.key)

    def write(self, task: StudyTask, result: Mapping[str, Any]) -> None:
        """Record the result of a task, and its history in two files of their own."""
        rest = {name: value for name, value in result.items() if name != "columns"}
        columns: Columns = result.get("columns", {})
        files = {}
        if columns:
            exact = {name: column for name, column in columns.items() if name not in _TIMED}
            timed = {name: columns[name] for name in ("iterations", *_TIMED)}
            _, _, place = task.name.partition("/")
            files = {f"data/{place}.csv": _as_csv(exact), f"timing/{place}.csv": _as_csv(timed)}
        checksums = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
        record = {"key": {"format": FORMAT} | dict(task.key), "result": rest, "files": checksums}
        text = json.dumps(record, indent=1, ensure_ascii=False) + "\n"
        self._write(files | {f"{task.name}.json": text.encode()})

    def remove(self, task: StudyTask) -> None:
        """Remove the record of a task, if it is there."""
        (self.path / f"{task.name}.json").unlink(missing_ok=True)

    def write_file(self, name: str, content: bytes | str) -> Path:
        """Write a file of the folder atomically; return its path."""
        self._write({name: content.encode() if isinstance(content, str) else content})
        return self.path / name

    def _write(self, files: Mapping[str, bytes]) -> None:
        try:
            atomic_write_all({self.path / name: content for name, content in files.items()})
        except OSError as error:
            raise FolderError(
                f"files must be written to {str(self.path)!r}; that failed ({error.strerror}). Earlier files "
                "are unchanged: free space, change permissions, or choose another folder with --out."
            ) from error

    def _record(self, name: str, key: Mapping[str, Any] | None) -> dict[str, Any] | None:
        try:
            record = json.loads((self.path / f"{name}.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        if not (isinstance(record, dict) and {"key", "result"} <= record.keys()):
            return None
        return record if key is None or record["key"] == {"format": FORMAT} | dict(key) else None

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


def _as_csv(columns: Columns) -> bytes:
    """Return a table with every digit that a double has."""
    rows = zip(*columns.values(), strict=True)

    def digits(value: float) -> str:
        return str(int(value)) if float(value).is_integer() and abs(value) < 2**53 else repr(float(value))

    lines = [",".join(columns), *(",".join(map(digits, row)) for row in rows)]
    return ("\n".join(lines) + "\n").encode()


def _parse_csv(text: str) -> dict[str, list[float]]:
    head, *rows = csv.reader(text.splitlines())
    return {name: [float(row[place]) for row in rows] for place, name in enumerate(head)}


def run_tasks(records: Records, tasks: Sequence[StudyTask], jobs: int | None, report: Report) -> None:
    """Do all tasks that are not recorded and can be done, in so many processes, and record their results.

    A task that raises is reported and not recorded, so the next call tries it again. Processes have one BLAS
    thread each. With one job, or one task, this process is used; None is this process with all its threads.
    """
    left = [task for task in tasks if task.work is not None and not records.has(task)]
    for task, (result, sentence) in _attempts(jobs, left):
        if result is not None:
            records.write(task, result)
        report(task.title, sentence)


def _attempts(jobs: int | None, tasks: Sequence[StudyTask]) -> Iterator[tuple[StudyTask, Attempt]]:
    """Yield every task with its result or a sentence, in order of completion."""
    if jobs is None or jobs == 1 or len(tasks) < 2:
        with threadpool_limits(1) if jobs is not None else nullcontext():
            for task in tasks:
                yield task, _attempt(task)
        return
    pool = ProcessPoolExecutor(min(jobs, len(tasks)), multiprocessing.get_context("spawn"), _start_worker)
    try:
        futures = {pool.submit(_attempt, task): task for task in tasks}
        for future in as_completed(futures):
            yield futures[future], future.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _attempt(task: StudyTask) -> Attempt:
    """Return the result of a task, or a sentence that says why there is none."""
    assert task.work is not None
    try:
        return task.work(), None
    except DataNotFoundError as error:
        return None, f"left out, because its data are missing: {error}"
    except Exception as error:
        return None, f"failed, and is not recorded: {type(error).__name__}: {error}"


def _start_worker() -> None:
    """Compute on one thread; end at Ctrl-C without a traceback."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threadpool_limits(1)


def peak_memory() -> int:
    """Return the peak memory of this process in bytes, its data included."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def alone(function: Callable[..., Returned], *arguments: Any) -> Returned:
    """Return what a function returns in a new process."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


Rows: TypeAlias = Sequence[Mapping[str, Any]]

NOT_REACHED = "—"
"""The cell of a level that was not reached."""


def environment(seed: int) -> dict[str, Any]:
    """Return the command, seed, versions and machine."""
    return {
        "command": shlex.join(["dcgs", *sys.argv[1:]]),
        "seed": seed,
        "versions": versions(),
        "blas": sorted({f"{lib['internal_api']} {lib['version']}" for lib in threadpool_info()}),
        "machine": {"system": platform.platform(), "processor": _processor(), "cores": os.cpu_count()},
    }


def as_json(numbers: Mapping[str, Any]) -> str:
    """Return the numbers of a benchmark as JSON."""
    return json.dumps(numbers, indent=1, ensure_ascii=False) + "\n"


def as_markdown(made: Mapping[str, Any], tables: Sequence[TextTable], notes: Sequence[str]) -> str:
    """Return how numbers were made, tables under their titles, and notes, as Markdown."""
    about = made["environment"]
    machine = f"{about['machine']['processor']}, {about['machine']['cores']} cores"
    parts = [f"`{about['command']}`, seed {about['seed']}, dcgs {about['versions']['dcgs']}, {machine}."]
    for table in tables:
        parts += [f"## {table.title}"] * bool(table.title) + [table.markdown()]
    return "\n\n".join([*parts, *(f"* {note}" for note in notes)]) + "\n"


@final
@dataclass(frozen=True)
class TextTable:
    """A table of text; each cell has a flag that says whether it is the best of its row."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[tuple[str, bool]]]

    @classmethod
    def plain(cls, title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> TextTable:
        """Return a table without best cells."""
        return cls(title, head, [[(cell, False) for cell in row] for row in rows])

    @classmethod
    def formatted(
        cls, title: str, columns: Mapping[str, str], rows: Sequence[Mapping[str, Any]]
    ) -> TextTable:
        """Return a table of the rows that have all its values, which format its headings and cells.

        >>> TextTable.formatted("", {"{n} runs": "{x:.1f}"}, [{"n": 2, "x": 0.25}, {}]).rows
        [[('0.2', False)]]
        """
        fields = {name for form in columns.values() for _, name, _, _ in Formatter().parse(form) if name}
        words = {True: "yes", False: "NO"}
        shown = [
            {name: words[value] if isinstance(value, bool) else value for name, value in row.items()}
            for row in rows
            if fields <= row.keys()
        ]
        head = [name.format_map(shown[0]) if shown else name for name in columns]
        return cls.plain(title, head, [[form.format_map(row) for form in columns.values()] for row in shown])

    def markdown(self) -> str:
        """Return it as Markdown; the best cells are bold."""
        rows = [[f"**{text}**" if best else text for text, best in row] for row in self.rows]
        lines = [self.head, ["---", *(["---:"] * (len(self.head) - 1))], *rows]
        return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _processor() -> str:
    """Return the name of the processor: from /proc/cpuinfo on Linux, else from Python."""
    file = Path("/proc/cpuinfo")
    names = re.findall(r"^model name\s*: (.*)$", file.read_text() if file.exists() else "", re.MULTILINE)
    return names[0] if names else platform.processor()
