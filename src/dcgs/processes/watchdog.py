"""The watchdog of an MPI process: a process beside it that ends waits which would never end.

``MPI_Init`` and the first collective calls wait for all processes, in C, at full speed and forever. A process
in them cannot notice that another was stopped, has raised an exception or has returned. So each process forks
a watchdog before MPI starts, and sends it over a pipe how far it is: the first half of this module.

The watchdog reads the marks of the other processes on its machine. Of what goes wrong it prints one sentence
that names the process at fault, lets the launcher end all processes, and removes what MPI leaves in shared
memory. Once all processes have met, the heartbeat notices failures. The watchdog then waits for the end of
its process: of one that was killed it prints which it was.
"""

from __future__ import annotations

import atexit
import gc
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from types import TracebackType
from typing import Any, NoReturn, TypeAlias, final

from dcgs.processes.environment import (
    hydra_channel,
    local_size,
    rank,
    remove_unused,
    size,
    started_by_mpi,
)
from dcgs.processes.marks import (
    ENDED,
    EXITED,
    KILLED,
    LEAVES,
    LEFT,
    NAME,
    QUIT,
    RAISED,
    RUNS,
    STARTS,
    WAITS,
    Seen,
    Wait,
    fault,
    killed_by,
    marks_of_job,
    new_mark,
    own_name,
    process,
    stopped,
)

Hook: TypeAlias = Callable[[type[BaseException], BaseException, TracebackType | None], object]

# The pipe to the watchdog, the process that it belongs to, and whether that has met all others.
_channel: int | None = None
_owner = 0
_has_met = False


def start(supervisor: int = 0) -> None:
    """Fork the watchdog of this process, if an MPI launcher started it as one of several.

    A supervisor, if there is one with this process number, reports itself that its worker was killed.
    """
    global _channel, _owner, _has_met
    if _channel is not None and _owner == os.getpid():
        return
    if not (started_by_mpi() and (size() or 0) > 1 and rank() is not None and hasattr(os, "fork")):
        return
    marks_of_job()  # by the ancestors of this process, which the watchdog will not have
    reading, writing = os.pipe()
    main = os.getpid()
    child = os.fork()
    if child == 0:
        os.close(writing)
        if os.fork():  # it must not be a child of a process that may wait for all its children
            os._exit(0)
        _run(main, reading, supervisor)
    os.close(reading)
    os.waitpid(child, 0)
    is_first, _channel, _owner, _has_met = _owner == 0, writing, main, False
    if is_first:
        atexit.register(_exits)
        sys.excepthook = _hooked(sys.excepthook)


def stop() -> None:
    """End the watchdog of this process without a word."""
    global _channel
    if _channel is not None and _owner == os.getpid():
        _send(QUIT)
        os.close(_channel)
        _channel = None


def waits(ranks: Collection[int], timeout: float, start_timeout: float) -> None:
    """Send the watchdog that this process now waits until these ranks have started MPI.

    A rank that is stopped may be so for ``timeout`` seconds; all must have met after ``start_timeout``.
    """
    _send(WAITS, timeout, start_timeout, *ranks)


def waits_no_more() -> None:
    """Send the watchdog that this process gave up the wait."""
    _send(RUNS if _has_met else STARTS)


def runs() -> None:
    """Send the watchdog that all have met: from now on the heartbeat notices failures."""
    global _has_met
    _has_met = True
    _send(RUNS)


def leaves() -> None:
    """Send the watchdog that this process now waits until all leave MPI."""
    _send(LEAVES)


def set_name(name: str) -> None:
    """Send the watchdog what errors call this process."""
    _send(NAME, name)


def exits(status: int = 0) -> None:
    """Send the watchdog that this process exits by itself."""
    how = "exited" if status == 0 else f"ended with status {status}"
    after = "before its first call of MPI, while others wait for it; see what it printed and start again."
    _send(LEFT if _has_met else EXITED, f"{how} {after}")


def claim_line() -> bool:
    """Return whether this process may print the one line of the job; the first one that asks may."""
    return not started_by_mpi() or marks_of_job().claim()


def _exits() -> None:
    exits()


def _hooked(previous: Hook) -> Hook:
    """Return an exception hook that reports to the watchdog first. Of an error of several, one prints it."""

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if _owner == os.getpid():
            words = f"{kind.__name__}: {error}" if str(error) else kind.__name__
            did = "was interrupted" if kind is KeyboardInterrupt else f"raised {words.rstrip('.')}"
            _send(LEFT if _has_met else RAISED, f"{did}, before its first call of MPI.")
            if getattr(error, "is_printed_once", False) and not claim_line():
                return
        previous(kind, error, trace)

    return hook


def _send(*words: object) -> None:
    if _channel is not None and _owner == os.getpid():
        line = "\t".join(" ".join(str(word).split()) for word in words)[:2000]
        with suppress(OSError):
            os.write(_channel, f"{line}\n".encode(errors="replace"))


# Seconds between two looks at the other processes while this one waits for them.
_TICK = 0.1
# Seconds in which a process that has failed may print an error of its own.
_LAST_WORDS = 2.0
# Seconds in which mpiexec forwards a printed line, before it gets the command to end all.
FORWARDED = 0.2
# Seconds in which the launcher must have ended all processes; then the watchdog kills its own.
_ENDING = 5.0
# Seconds that a process may be stopped, if it is not known how long others would wait for it.
_STOPPED = 10.0
# Seconds that machines without rank 0 wait longer, so that one machine prints.
_ROOT_FIRST = 3.0


def print_line(line: str) -> None:
    """Write a line to standard error at once."""
    with suppress(OSError):
        os.write(2, f"{line}\n".encode(errors="replace"))


def abort_launcher(status: int) -> bool:
    """Let Hydra end all processes; return whether it started this one."""
    channel = hydra_channel()
    if channel is not None:
        with suppress(OSError):
            os.write(channel, b"cmd=abort exitcode=%d\n" % status)  # as PMI_Abort of MPICH
    return channel is not None


def _run(main: int, reading: int, supervisor: int) -> NoReturn:
    """Be the watchdog of a process, which sends how far it is over a pipe.

    ``supervisor`` is the process number of its supervisor, 0 if it has none.
    """
    gc.disable()  # it would copy the memory that is shared with the process
    try:
        os.setsid()  # the launcher kills the group of its process, and the watchdog must outlive that
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        nowhere = os.open(os.devnull, os.O_RDWR)
        os.dup2(nowhere, 0)
        os.dup2(nowhere, 1)
        with suppress(OSError), open("/proc/self/comm", "w") as file:
            file.write("dcgs-watchdog")
        _Watchdog(main, reading, supervisor).run()
    finally:
        os._exit(0)


@final
class _Watchdog:
    """The loop of a watchdog, and the mark of its process."""

    def __init__(self, main: int, reading: int, supervisor: int) -> None:
        self._main, self._supervisor = main, supervisor
        self._reading: int | None = reading
        self._end_of_main: int | None = None
        with suppress(OSError, AttributeError):  # Linux only
            self._end_of_main = os.pidfd_open(main)
        self._began = time.time()
        self._rank = rank() or 0
        self._marks = marks_of_job()
        self._mark = new_mark(STARTS, own_name(), pid=main, supervisor=supervisor)
        self._wait: Wait | None = None
        self._timeout = _STOPPED
        self._stopped: dict[int, float] = {}
        self._has_met = self._has_waited = self._has_failed = False
        self._words = b""

    def run(self) -> None:
        """Watch until the process has ended, or must be ended."""
        self._write()
        while True:
            known = process(self._main)
            is_alive = known is not None and known.born == self._mark.born and known.is_alive
            if self._quits(is_alive):
                return
            if known is None or not is_alive:
                self._end(0 if known is None else known.exit_code)
                return
            if known.is_stopped:  # its own clock stands still, too
                self._mark = self._mark._replace(since=time.monotonic())
                self._stopped.clear()
            elif self._wait is not None:
                self._check(self._wait)

    def _write(self, **changes: Any) -> None:
        self._mark = self._mark._replace(**changes)
        self._marks.write(self._rank, self._mark)

    def _quits(self, is_alive: bool) -> bool:
        """Wait for a message of the process or for its end; only a moment while it waits for others.

        Return whether the watchdog is to quit.
        """
        sources = [source for source in (self._reading, self._end_of_main) if source is not None]
        must_look = self._wait is not None or self._end_of_main is None
        ready, _, _ = select.select(sources, [], [], 0.0 if not is_alive else _TICK if must_look else None)
        if self._reading not in ready:
            return False
        assert self._reading is not None
        data = os.read(self._reading, 1 << 16)
        if not data:  # nobody can write any more
            self._reading = None
            return False
        *lines, self._words = (self._words + data).split(b"\n")
        for line in lines:
            word, *words = line.decode(errors="replace").split("\t")
            if word == QUIT:
                return True
            self._receive(word, words)
        return False

    def _receive(self, word: str, words: list[str]) -> None:
        """Take a message of the process: its name, or its new stage."""
        if word == NAME:
            self._write(name=words[0])
            return
        if word in ENDED and self._mark.stage in (*ENDED, LEAVES):
            self._write(text=self._mark.text or words[0])  # what it said first counts
            return
        others = frozenset(range(size() or 1))
        self._wait = None
        if word == WAITS:
            self._timeout, limit, *ranks = float(words[0]), float(words[1]), *map(int, words[2:])
            others, self._has_waited = frozenset(ranks), True
            self._wait = Wait(WAITS, others - {self._rank}, self._timeout, limit)
        elif word == LEAVES:
            self._wait = Wait(LEAVES, others - {self._rank}, self._timeout)
        self._has_met = self._has_met or word == RUNS
        self._write(stage=word, since=time.monotonic(), text=words[0] if word in ENDED else "")

    def _check(self, wait: Wait) -> None:
        """End all processes if the wait cannot end."""
        now, seen = time.monotonic(), {}
        for other, mark in self._marks.read().items():
            if mark.is_stopped:
                self._stopped.setdefault(other, now)
            else:
                self._stopped.pop(other, None)
            stage = STARTS if mark.stage in ENDED and now - mark.since < _LAST_WORDS else mark.stage
            seen[other] = Seen(stage, mark.name, mark.text, now - self._stopped.get(other, now))
        later = 0.0 if 0 in seen else _ROOT_FIRST
        sentence = fault(wait, seen, now - self._mark.since - later)
        if sentence is not None:
            self._abort(sentence)

    def _abort(self, sentence: str) -> None:
        """Print the sentence, unless a line was printed, and let the launcher end all processes."""
        self._has_failed = True
        self._print(sentence)
        if abort_launcher(1):
            deadline = time.monotonic() + _ENDING
            while self._mark.is_alive and time.monotonic() < deadline:
                time.sleep(_TICK / 5.0)
        for pid in (self._main, self._supervisor):
            known = process(pid) if pid else None
            if known is not None and known.is_alive:  # other launchers end all if one dies by a signal
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
        self._write(stage=EXITED, text=sentence)

    def _end(self, code: int) -> None:
        """Report how the process ended, if it did not do so itself, and clear away after it."""
        self._await_supervisor()  # which reports the end itself
        number = code & 0x7F
        is_known = self._mark.stage == RAISED or (number == 0 and self._mark.text != "")
        if not is_known:
            is_killed = number != 0 or code == 0
            how = killed_by(number, "start again") if is_killed else f"ended with status {code >> 8}."
            self._write(stage=KILLED if is_killed else EXITED, since=time.monotonic(), text=how)
            self._report()
        elif self._mark.stage in (EXITED, RAISED) and local_size() != size():
            time.sleep(_LAST_WORDS)
            self._report()  # on other machines nobody sees the mark
        if self._mark.stage not in ENDED:
            self._write(stage=LEFT)
        if self._has_failed or (self._has_waited and not self._has_met):
            self._wait_for_all()
        if not self._has_met:
            remove_unused(self._began)
        self._marks.remove(has_failed=self._has_failed)

    def _await_supervisor(self) -> None:
        """Wait for the end of the supervisor, and end all if it is stopped."""
        since = time.monotonic()
        while self._supervisor and (known := process(self._supervisor)) is not None and known.is_alive:
            if not known.is_stopped:
                since = time.monotonic()
            elif time.monotonic() - since > self._timeout:
                seconds = time.monotonic() - since
                self._abort(stopped(self._mark.name, seconds))
                return
            time.sleep(_TICK / 5.0)

    def _report(self) -> None:
        """Print which process has failed: of several the first. Then end all."""
        self._has_failed = True
        time.sleep(_TICK)  # in which others that were killed get their marks
        failed = [mark for mark in self._marks.read().values() if mark.stage in (KILLED, RAISED)]
        first = min(failed, key=lambda mark: mark.since, default=self._mark)
        self._print(f"{first.name} {first.text}")
        abort_launcher(128 + signal.SIGKILL)

    def _print(self, sentence: str) -> None:
        """Print the sentence, unless another process prints one, and let the launcher forward it."""
        prints = self._marks.claim()
        if prints:
            print_line(f"dcgs: error: {sentence}")
        # The other may not have printed its line yet, and is to end all.
        time.sleep(FORWARDED if prints else 5.0 * FORWARDED)

    def _wait_for_all(self) -> None:
        """Wait for the end of the processes of this machine, which may still use files of MPI."""
        deadline = time.monotonic() + _ENDING
        while time.monotonic() < deadline and any(mark.is_alive for mark in self._marks.read().values()):
            time.sleep(_TICK / 5.0)
