"""The group of all processes of a run: collective operations, common errors, and the report of failures.

Every process calls the same operations in the same order. None of this is counted as traffic.
"""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar, final

import numpy as np
from numpy.typing import NDArray

from dcgs.runtime.encoding import Array, Buffer, EncodedArray
from dcgs.runtime.errors import RunAbortedError, Scope, describe, interrupt_status, mark_as_common, scope_of
from dcgs.runtime.transport import Transport
from dcgs.runtime.wire import (
    HEADER,
    BundleKind,
    Frame,
    Header,
    Received,
    RecvChannel,
    SendChannel,
    bundle,
    check_header,
    read_header,
    read_messages,
)

T = TypeVar("T")

_TAG = 0  # agents' messages have tags from 1 on
# Errors of these types keep their type in other processes.
_TYPES: dict[str, type[Exception]] = {
    kind.__name__: kind
    for kind in (TypeError, ValueError, OSError, ImportError, MemoryError, ArithmeticError, RuntimeError)
}


class ProcessGroup(ABC):
    """All processes of a run. The root is the first of them."""

    is_root: bool
    size: int

    @abstractmethod
    def gather(self, arrays: Iterable[Array]) -> Iterator[Array]:
        """Yield the arrays of all processes at the root, in the order of ranks; yield nothing elsewhere.

        Every process must exhaust the iterator: that sends its arrays.
        """

    @abstractmethod
    def broadcast(self, array: Array | None) -> Array:
        """Return the array of the root; the other processes pass None."""

    @abstractmethod
    def allreduce_max(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the elementwise maximum over all processes."""

    @abstractmethod
    def report(self, error: BaseException) -> Scope:
        """Send all processes the reason why this one cannot continue; return the scope of the error.

        The scope is REMOTE if another process has reported a failure first.
        """

    @abstractmethod
    def describe(self, error: BaseException) -> str:
        """Return a sentence on an error of this process; with several processes it names the agent."""

    @contextmanager
    def reporting_failures(self) -> Iterator[None]:
        """Report an exception that one process raises in here to all others.

        If several fail at the same time, one raises its own exception, the others one of scope REMOTE.
        """
        try:
            yield
        except BaseException as error:
            if self.report(error) is scope_of(error):
                raise
            raise RunAbortedError(str(error), Scope.REMOTE, interrupt_status(error) or 1) from error

    @contextmanager
    def common_errors(self, kind: type[BaseException] = Exception) -> Iterator[None]:
        """Mark the errors that are raised in here as raised by all processes."""
        try:
            yield
        except RunAbortedError:
            raise
        except kind as error:
            if self.size > 1:
                mark_as_common(error)
            raise

    def allgather(self, arrays: Iterable[Array]) -> list[Array]:
        """Return the arrays of all processes, in the order of the processes, in all of them."""
        gathered = list(self.gather(arrays))
        count = int(self.broadcast(np.array([len(gathered)]) if self.is_root else None)[0])
        return [self.broadcast(gathered[k] if self.is_root else None) for k in range(count)]

    def allgather_texts(self, texts: Iterable[str]) -> list[str]:
        """Return the texts of all processes, in the order of the processes, in all of them."""
        arrays = [np.frombuffer(text.encode(), dtype=np.uint8) for text in texts]
        return [bytes(array).decode() for array in self.allgather(arrays)]

    def any(self, flag: bool) -> bool:
        """Return whether the flag is set in any process."""
        return bool(self.allreduce_max(np.array([float(flag)]))[0])

    def barrier(self) -> None:
        """Wait until all processes are here."""
        self.any(False)


@final
class SingleProcess(ProcessGroup):
    """A group of one process, which hosts all agents."""

    is_root = True
    size = 1

    def gather(self, arrays: Iterable[Array]) -> Iterator[Array]:
        return iter(arrays)

    def broadcast(self, array: Array | None) -> Array:
        assert array is not None
        return array

    def allreduce_max(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        return values

    def report(self, error: BaseException) -> Scope:
        return scope_of(error)

    def describe(self, error: BaseException) -> str:
        return str(error)


@final
class TransportGroup(ProcessGroup):
    """The processes that a transport connects."""

    def __init__(self, transport: Transport) -> None:
        self.is_root = transport.rank == 0
        self.size = transport.size
        self._transport = transport
        self._operation = 0
        self._to_root = SendChannel(0, _TAG)
        self._from = [RecvChannel(rank, _TAG, f"process {rank}") for rank in range(self.size)]
        transport.heartbeat.begin_run()

    def gather(self, arrays: Iterable[Array]) -> Iterator[Array]:
        self._begin()
        if not self.is_root:
            sent = list(arrays)
            for array in (np.array([len(sent)]), *sent):
                for sends in self._to_root.split(self._bundle(array)):
                    self._transport.transfer(sends, [], [0])
            return
        yield from arrays
        for channel in self._from[1:]:
            (count,) = self._receive(channel).tolist()
            for _ in range(int(count)):
                yield self._receive(channel)

    def _receive(self, channel: RecvChannel) -> Array:
        peers = [channel.rank]
        self._transport.transfer([], [channel.first()], peers)
        channel.read_header()
        rest = channel.rest(BundleKind.COLLECTIVE, self._operation)
        if rest:
            self._transport.transfer([], rest, peers)
        return _array(channel.take())

    def _bundle(self, array: Array) -> Buffer:
        """Return the array as a bundle of this operation."""
        rank = self._transport.rank
        return bundle(
            [Frame(rank, 0, [EncodedArray(array)])], Header(BundleKind.COLLECTIVE, rank, self._operation)
        )

    def broadcast(self, array: Array | None) -> Array:
        self._begin()
        root = "process 0"
        mine = None if array is None else self._bundle(array)
        start: Buffer = np.empty(HEADER, dtype=np.uint8) if mine is None else mine[:HEADER]
        self._transport.broadcast(start)
        header = read_header(start, root)
        check_header(header, BundleKind.COLLECTIVE, 0, self._operation, root)
        content: Buffer = np.empty(header.length, dtype=np.uint8) if mine is None else mine[HEADER:]
        self._transport.broadcast(content)
        return _array(read_messages(content, header, root))

    def allreduce_max(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        self._transport.heartbeat.begin_step()
        return self._transport.allreduce_max(values)

    def _begin(self) -> None:
        """Begin an operation that all processes take part in."""
        self._operation += 1
        self._transport.heartbeat.begin_step()

    def describe(self, error: BaseException) -> str:
        return describe(error, self._transport.heartbeat.name(self._transport.rank))

    def report(self, error: BaseException) -> Scope:
        scope, heartbeat = scope_of(error), self._transport.heartbeat
        if error is self._transport.failure or scope is Scope.ALL:
            return scope
        self._transport.failure = error
        if scope is Scope.ONE:
            heartbeat.exchange()
            if heartbeat.failed_ranks:
                scope = Scope.REMOTE
            else:
                heartbeat.report_failure(self.describe(error), interrupt_status(error) or 1)
                # Several processes may fail at the same time, or notice the same silence: only one prints it.
                time.sleep(2.0 * heartbeat.period)
                heartbeat.exchange()
                is_lowest = all(rank > self._transport.rank for rank in heartbeat.failed_ranks)
                scope = Scope.ONE if is_lowest else Scope.REMOTE
        self._transport.abandon()
        return scope


def _array(messages: list[Received]) -> Array:
    """Return the array of a bundle of a collective operation."""
    (item,) = messages
    assert isinstance(item.message, np.ndarray)
    return item.message


def agreed(group: ProcessGroup, check: Callable[[], T]) -> T:
    """Return what the check returns; if it raises in one process, raise the same error in all processes."""
    raised: Exception | None = None
    text = ""
    try:
        value = check()
    except Exception as error:
        raised, text = error, f"{type(error).__name__}\n{error}"
    texts = group.allgather_texts([text])
    first = next(filter(None, texts), None)
    if first is None:
        return value
    with group.common_errors():
        kind, _, sentence = first.partition("\n")
        common = raised if raised is not None and first == text else _TYPES.get(kind, RuntimeError)(sentence)
        if not all(texts):
            common.add_note(f"raised in rank {texts.index(first)}")
        raise common  # that of this process with its traceback and notes


def check_same(group: ProcessGroup, arguments: Mapping[str, str]) -> None:
    """Raise unless all processes have the same arguments; each argument is given as a text."""
    first, *others = map(json.loads, group.allgather_texts([json.dumps(dict(arguments))]))
    for rank, other in enumerate(others, 1):
        odd = [name for name in first if first[name] != other[name]]
        if odd:
            raise ValueError(
                f"all processes must be given the same {' and '.join(odd)}; process {rank} was given "
                f"{other[odd[0]]}, process 0 {first[odd[0]]}."
            )
