"""Marks: what the MPI processes of one machine know of each other before MPI connects them, and without it.

Every process of a job has a mark, a small file in a folder of the job: its process number, how far it is, and
how it ended. The processes that one launcher started on a machine share the folder. Processes on other
machines are not seen. :func:`fault` says who is at fault if a process waits for others that do not come. This
module imports little, because the command needs it before all else.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple, final

from dcgs.processes.environment import is_root, local_size, rank, size, started_by_mpi

# How far a process is.
STARTS, WAITS, RUNS, LEAVES = "starts", "waits", "runs", "leaves"
# How a process ended: it left after all had met; or before that, by an exit, an exception or a signal.
LEFT, EXITED, RAISED, KILLED = "left", "exited", "raised", "killed"
ENDED = (LEFT, EXITED, RAISED, KILLED)
# Other words of a process to its watchdog: to end, and how errors call the process.
QUIT, NAME = "quit", "name"

# What a launcher runs on each machine, as the system names it: the ancestor that all processes there share.
_LAUNCHERS = ("hydra_pmi_proxy", "orted", "prted", "prterun", "slurmstepd", "mpirun", "mpiexec")
_GENERATIONS = 8


@final
class Process(NamedTuple):
    """What the system says about a process: its state, parent, start and exit code."""

    name: str
    state: str
    parent: int
    born: int
    exit_code: int

    @property
    def is_stopped(self) -> bool:
        """Whether a signal such as SIGSTOP has stopped it."""
        return self.state == "T"

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended; one that has ended may wait for its parent to notice."""
        return self.state not in "ZX"


def process(pid: int) -> Process | None:
    """Return what Linux says about a process, None if there is none; elsewhere only whether it is there."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            first, _, rest = file.read().rpartition(")")
    except FileNotFoundError:
        if os.path.exists("/proc/self/stat"):
            return None
        try:
            os.kill(pid, 0)
        except OSError:
            return None
        return Process("", "S", 0, 0, 0)
    except OSError:
        return None
    fields = rest.split()
    return Process(first.partition("(")[2], fields[0], int(fields[1]), int(fields[19]), int(fields[49]))


@final
class Mark(NamedTuple):
    """The mark of one process: how far it is, since when (seconds of the machine's clock), and its words.

    ``name`` is what errors call it, and ``text`` says how it ended. ``supervisor`` is the process number of
    its supervisor, 0 if it has none.
    """

    pid: int
    born: int
    stage: str
    since: float
    name: str
    supervisor: int = 0
    text: str = ""

    @property
    def is_alive(self) -> bool:
        """Whether its process has not ended."""
        known = process(self.pid)
        return known is not None and known.born == self.born and known.is_alive

    @property
    def is_stopped(self) -> bool:
        """Whether its process is stopped, or the supervisor of that."""
        known, above = process(self.pid), process(self.supervisor) if self.supervisor else None
        return self.is_alive and any(seen is not None and seen.is_stopped for seen in (known, above))


@final
class Marks:
    """The marks of the processes of one job on this machine."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        with suppress(OSError):
            os.mkdir(self.folder, 0o700)
        self._is_ours = _is_private(self.folder)

    def write(self, of: int, mark: Mark) -> None:
        """Write the mark of a process."""
        if not self._is_ours:
            return
        path = os.path.join(self.folder, f"rank-{of}")
        line = " ".join("\t".join(map(str, mark)).split("\n"))
        with suppress(OSError):
            with open(f"{path}.new", "w", encoding="utf-8", errors="replace") as file:
                file.write(line)
            os.rename(f"{path}.new", path)

    def read(self) -> dict[int, Mark]:
        """Return all marks."""
        marks: dict[int, Mark] = {}
        if not self._is_ours:
            return marks
        with suppress(OSError):
            for file_name in os.listdir(self.folder):
                number = file_name.removeprefix("rank-")
                if number.isdecimal():
                    with suppress(OSError, ValueError), open(os.path.join(self.folder, file_name)) as file:
                        pid, born, stage, since, name, above, text = file.read().split("\t", 6)
                        mark = Mark(int(pid), int(born), stage, float(since), name, int(above), text)
                        marks[int(number)] = mark
        return marks

    @property
    def is_claimed(self) -> bool:
        """Whether a process has claimed the line."""
        return os.path.exists(os.path.join(self.folder, "line"))

    def claim(self) -> bool:
        """Return whether this process is the first to claim the one line that the job prints when it ends."""
        if not self._is_ours:
            return is_root()
        try:
            os.close(os.open(os.path.join(self.folder, "line"), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except (FileExistsError, FileNotFoundError):  # claimed, or all is over
            return False
        except OSError:
            return is_root()
        return True

    def remove(self, *, has_failed: bool) -> None:
        """Remove the folder if all processes of the job on this machine have ended, and said so.

        After a failure the launcher ends also those that have no mark yet.
        """
        marks = self.read()
        if has_failed:
            is_over = not any(mark.is_alive for mark in marks.values())
        else:
            ended = [mark for mark in marks.values() if mark.stage in ENDED]
            is_over = len(ended) == len(marks) >= (local_size() or size() or 1)
        if self._is_ours and is_over:
            _remove(self.folder)


_of_job: Marks | None = None


def marks_of_job() -> Marks:
    """Return the marks of the job to which this process belongs."""
    global _of_job
    if _of_job is None:
        folder = _job_folder()
        if not os.path.exists(folder):
            remove_old_folders(folder)
        _of_job = Marks(folder)
    return _of_job


def remove_old_folders(new: str) -> None:
    """Remove the folders of jobs whose launcher is gone; nobody could if all processes were killed."""
    parent, name = os.path.split(new)
    machine, *_ = name.rsplit("-", 2)
    with suppress(OSError):
        for other in os.listdir(parent):
            same, *numbers = other.rsplit("-", 2)
            if same == machine and other != name and all(map(str.isdecimal, numbers)):
                launcher = process(int(numbers[0]))
                if launcher is None or launcher.born != int(numbers[1]):
                    _remove(os.path.join(parent, other))


def _remove(folder: str) -> None:
    if _is_private(folder):
        with suppress(OSError):
            for name in os.listdir(folder):
                with suppress(OSError):
                    os.unlink(os.path.join(folder, name))
            os.rmdir(folder)


def others_wait() -> bool:
    """Return whether another process of the job, on this machine, waits in MPI for this one."""
    marks = marks_of_job().read() if started_by_mpi() else {}
    return any(mark.stage == WAITS for other, mark in marks.items() if other != rank())


def own_name() -> str:
    """Return what errors call this process before it has agents."""
    return "the process" if rank() is None else f"rank {rank()}"


def new_mark(stage: str, name: str, pid: int, supervisor: int = 0) -> Mark:
    """Return a mark of a process, of now."""
    known = process(pid)
    return Mark(pid, 0 if known is None else known.born, stage, time.monotonic(), name, supervisor)


def _job_folder() -> str:
    """Return the folder of the job: named by the machine, the launcher's process there, and when that began.

    Machines, and containers with process numbers of their own, may share the folder for temporary files.
    """
    pid = launcher = os.getppid()
    for _ in range(_GENERATIONS):
        ancestor = process(pid)
        if ancestor is None or pid <= 1:
            break
        if ancestor.name in _LAUNCHERS:
            launcher = pid
            break
        pid = ancestor.parent
    ancestor = process(launcher)
    born = 0 if ancestor is None else ancestor.born
    space = ""
    with suppress(OSError):
        space = "".join(filter(str.isdecimal, os.readlink("/proc/self/ns/pid")))
    machine = f"{os.uname().nodename}-{space}"
    temporary = os.environ.get("TMPDIR") or "/tmp"
    return os.path.join(temporary, f"dcgs-job-{os.getuid()}-{machine}-{launcher}-{born}")


def _is_private(folder: str) -> bool:
    """Return whether the folder is one that only this user can write to."""
    try:
        status = os.lstat(folder)
    except OSError:
        return False
    return status.st_uid == os.getuid() and status.st_mode & 0o170077 == 0o040000


@final
class Wait(NamedTuple):
    """What a process waits for: other ranks, to start or to leave MPI, with its limits in seconds.

    A rank that is stopped may be so for ``timeout``. All must have met after ``start_timeout``.
    """

    stage: str
    ranks: frozenset[int]
    timeout: float
    start_timeout: float = 0.0


@final
class Seen(NamedTuple):
    """What a waiting process sees of another: its stage, how it ended, and how long it has been stopped."""

    stage: str
    name: str
    text: str = ""
    stopped: float = 0.0


def fault(wait: Wait, seen: Mapping[int, Seen], waited: float) -> str | None:
    """Return a sentence that names who is at fault if the wait cannot end, or lasts too long; else None."""
    bad = (EXITED, RAISED, KILLED) if wait.stage == WAITS else (KILLED,)
    for peer in [seen[other] for other in sorted(wait.ranks) if other in seen]:
        if peer.stage in bad:
            return f"{peer.name} {peer.text}"
        if peer.stopped > wait.timeout:
            return stopped(peer.name, peer.stopped)
    if wait.stage != WAITS or waited <= wait.start_timeout:
        return None
    late = [other for other in sorted(wait.ranks) if other in seen and seen[other].stage not in (WAITS, RUNS)]
    missing = sorted(wait.ranks - set(seen))
    who = [f"{_ranks(late)} not done so"] if late else []
    who += [f"{_ranks(missing)} left no sign on this machine"] if missing else []
    return (
        f"all ranks must have started MPI after {wait.start_timeout:.0f} s; "
        f"{' and '.join(who) or 'all of this machine wait in it'}. See what happens there and start again, "
        "or allow more by MPI(start_timeout=...), in the command --start-timeout."
    )


def _ranks(ranks: list[int]) -> str:
    return f"rank {ranks[0]} has" if len(ranks) == 1 else f"ranks {ranks} have"


def stopped(name: str, seconds: float) -> str:
    """Return the sentence on a process that was stopped."""
    return (
        f"{name} has been stopped for {seconds:.0f} s while others wait for it; see what stopped it and "
        "start again, or allow more by MPI(timeout=...), in the command --timeout."
    )


def killed_by(number: int, hint: str) -> str:
    """Return what happened to a process that a signal has ended, and what to do."""
    if number not in set(signal.Signals) or number == signal.SIGKILL:
        hint = f"see whether its machine ran out of memory, and {hint}"
    by = f" by {signal.Signals(number).name}" if number in set(signal.Signals) else ""
    return f"was killed{by}; {hint}."
