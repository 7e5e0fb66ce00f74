"""Records of messages: a file with every message of a run as it was sent, and how to read it."""

from __future__ import annotations

import os
import threading
import zipfile
from collections.abc import Iterator
from types import TracebackType
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from dcgs.validation import PATH


class SentArrays(NamedTuple):
    """A message: the round in which it was sent, the sender, the receiver and its arrays."""

    round: int
    sender: int
    receiver: int
    arrays: tuple[NDArray[Any], ...]


@final
class MessageRecorder:
    """Writes every message to an .npz file; a function for ``Lockstep(on_message=…)``, and a context manager.

    This sum is flooded: each row of a message is an agent and its numbers.

    >>> import dcgs, networkx as nx, tempfile
    >>> with dcgs.MessageRecorder(f"{tempfile.mkdtemp()}/messages.npz") as recorder:
    ...     runtime = dcgs.Lockstep(on_message=recorder)
    ...     total = dcgs.allreduce([[1.0], [2.0]], nx.path_graph(2), runtime)
    >>> first, second = dcgs.recorded_messages(recorder.path)
    >>> first.round, first.sender, first.receiver, first.arrays
    (1, 0, 1, (array([[0., 1.]]),))
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = PATH(path, "path")
        self._rows: list[tuple[int, int, int, int]] = []
        self._arrays = 0
        self._lock = threading.Lock()
        self._file = zipfile.ZipFile(self.path, "w", allowZip64=True)

    def __call__(self, round: int, sender: int, receiver: int, arrays: tuple[NDArray[Any], ...]) -> None:
        with self._lock:
            for array in arrays:
                self._write(f"array-{self._arrays}", array)
                self._arrays += 1
            self._rows.append((round, sender, receiver, len(arrays)))

    def __enter__(self) -> MessageRecorder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._write("messages", np.array(self._rows, dtype=np.int64).reshape(-1, 4))
        self._file.close()

    def _write(self, name: str, array: NDArray[Any]) -> None:
        with self._file.open(f"{name}.npy", "w", force_zip64=True) as stream:
            np.lib.format.write_array(stream, np.ascontiguousarray(array), allow_pickle=False)


def recorded_messages(path: str | os.PathLike[str]) -> Iterator[SentArrays]:
    """Yield the messages of a file of :class:`MessageRecorder`, in the order in which they were sent.

    The file has an array ``messages`` with round, sender, receiver and number of arrays of every message, and
    the arrays ``array-0``, ``array-1``, … one after the other.

    >>> import dcgs, tempfile
    >>> with dcgs.MessageRecorder(f"{tempfile.mkdtemp()}/messages.npz") as recorder:
    ...     recorder(3, 0, 1, (np.zeros(2), np.ones(1)))
    >>> [message.arrays for message in dcgs.recorded_messages(recorder.path)]
    [(array([0., 0.]), array([1.]))]
    """
    with np.load(PATH(path, "path"), allow_pickle=False) as file:
        first = 0
        for round, sender, receiver, count in file["messages"].tolist():
            arrays = tuple(file[f"array-{k}"] for k in range(first, first + count))
            first += count
            yield SentArrays(round, sender, receiver, arrays)
