"""Checkpoints on disk: where the files are, which iterations they have, and the format of a file.

Each agent has its own folder with one file for every saved iteration. No process reads another agent's files:
agents only exchange which iterations they have. A file has plain values and arrays. Nothing is pickled.

    magic and format      8 bytes: "dcgs-ck" and the number of the format
    length of the header  8 bytes, little-endian
    header                JSON in UTF-8: the values, with a number in place of each array, and for each array
                          its dtype, shape, strides and whether it is writeable
    arrays                the bytes of each, one after the other
    checksum              32 bytes: SHA-256 of all before

Arrays are restored with the same bits in the same memory layout, because sums depend on both. An array that
occurs twice is stored once, and is one array again after reading.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO, Literal, final

import numpy as np
from numpy.typing import NDArray

from dcgs.files import atomic_write_all
from dcgs.state import NUMERIC, Plain
from dcgs.validation import COUNT, PATH, one_of

_SUFFIX = ".dcgs"
FORMAT = 8
_MAGIC = b"dcgs-ck" + bytes([FORMAT])
_LENGTH, _CHECKSUM = 8, 32
# In the header an array is a dictionary with this one key, which no dictionary of a state has.
_ARRAY = "@"


@final
@dataclass(frozen=True)
class Checkpoint:
    """Save the state of all agents in ``folder`` after each ``every`` iterations, and after the last.

    ``resume=True`` resumes from the newest iteration that all agents have, and raises if there is none;
    ``"auto"`` starts a new run then. With ``resume=False`` the folder must not hold checkpoints.

    >>> import dcgs, networkx as nx
    >>> from dcgs.datasets import lasso_synthetic
    >>> data = lasso_synthetic(samples=40, features=20, nonzeros=3)
    >>> X, graph = dcgs.L1Ball(20, radius=150.0), nx.cycle_graph(4)
    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> first = dcgs.Checkpoint(folder, every=5)
    >>> half = dcgs.minimize(data.objectives(4), X, graph, dcgs.DFW(), iterations=10, checkpoint=first)
    >>> resume = dcgs.Checkpoint(folder, every=5, resume=True)
    >>> dcgs.minimize(data.objectives(4), X, graph, dcgs.DFW(), iterations=20, checkpoint=resume).rounds
    40
    """

    folder: str | os.PathLike[str]
    every: int = 10
    resume: bool | Literal["auto"] = False

    def __post_init__(self) -> None:
        PATH(self.folder, "folder")
        COUNT(self.every, "every")
        if not isinstance(self.resume, bool):
            one_of("auto", also=("True", "False"))(self.resume, "resume")

    @property
    def path(self) -> Path:
        """The folder."""
        return Path(self.folder)

    def file(self, i: int, k: int) -> Path:
        """Return the file of agent i's state after iteration k."""
        return self.path / f"agent-{i:04}" / f"{k:06}{_SUFFIX}"

    def files(self, i: int) -> dict[int, Path]:
        """Return agent i's files by their iteration, complete or not."""
        paths = sorted(self.file(i, 0).parent.glob(f"*{_SUFFIX}"))
        return {int(path.stem): path for path in paths if path.stem.isdecimal()}


def available(checkpoint: Checkpoint, agents: Iterable[int]) -> tuple[dict[int, list[int]], list[str]]:
    """Return the iterations of which each agent has complete files, and notes on files that were ignored."""
    have: dict[int, list[int]] = {}
    notes = []
    for i in agents:
        have[i] = []
        for k, path in checkpoint.files(i).items():
            if not path.is_file():
                raise ValueError(
                    f"a checkpoint must be a file; {str(path)!r} is a folder, or a link to none. "
                    "Remove it, or choose another folder."
                )
            held = iteration_in(path)
            if held == k:
                have[i].append(k)
            else:
                fault = "is damaged" if held is None else f"holds iteration {held}"
                notes.append(f"the checkpoint {str(path)!r} {fault}, and was ignored.")
    return have, notes


def common(have: Iterable[Iterable[int]]) -> int | None:
    """Return the newest iteration that all have, None where there is none."""
    return max(set.intersection(*map(set, have)), default=None)


def refusal(checkpoint: Checkpoint, held: Sequence[Sequence[int]], notes: Sequence[str]) -> str | None:
    """Return why the run cannot start from the iterations that each agent has, or None if it can."""
    path, some = str(checkpoint.path), sorted({k for ks in held for k in ks})
    if checkpoint.resume is False:
        if not any(some):  # iteration 0 holds no work that could be lost
            return None
        return (
            f"the folder of a new run must hold no checkpoints; {path!r} has iterations {some}. "
            "Resume them with resume=True (--resume), or choose another folder."
        )
    if any(some) and common(held) is None:
        without = [i for i, ks in enumerate(held) if not ks]
        listed = f"agents {without} have none" if without else f"agents have {[list(ks) for ks in held]}"
        return (
            f"all agents must have a complete checkpoint of one iteration to resume; in {path!r} "
            f"{listed}. Start a new run in another folder."
        )
    if checkpoint.resume is True and not some:
        none = f"there must be a checkpoint to resume; {path!r} has none that is complete."
        return " ".join([none, *notes, "Leave out resume (--resume) to start a new run."])
    return None


class DamagedError(ValueError):
    """The file is not a complete checkpoint."""


def write_files(files: Mapping[Path, dict[str, Plain]]) -> None:
    """Write the contents of files atomically, all of them or none."""
    atomic_write_all({path: _stream_of(content) for path, content in files.items()})


def _stream_of(content: dict[str, Plain]) -> Callable[[IO[bytes]], None]:
    arrays = _Arrays()
    values = json.dumps(content, default=arrays.number)
    header = f'{{"arrays": {json.dumps(arrays.labels)}, "content": {values}}}'.encode()
    length = len(header).to_bytes(_LENGTH, "little")
    pieces: Iterable[bytes | memoryview] = (_MAGIC, length, header, *map(_bytes_of, arrays.distinct))

    def write_pieces(stream: IO[bytes]) -> None:
        checksum = hashlib.sha256()
        for piece in pieces:
            checksum.update(piece)
            stream.write(piece)
        stream.write(checksum.digest())

    return write_pieces


def read_file(path: Path) -> dict[str, Any]:
    """Return the content of a file; raise DamagedError if it is not complete."""
    with path.open("rb") as file:
        header = _checked_header(file, os.fstat(file.fileno()).st_size)
        arrays = [_array(label, file) for label in json.loads(header)["arrays"]]
    restored = json.loads(header, object_hook=lambda d: arrays[d[_ARRAY]] if d.keys() == {_ARRAY} else d)
    content: dict[str, Any] = restored["content"]
    return content


def iteration_in(path: Path) -> int | None:
    """Return the iteration that a file holds, by its content; None if it is not complete."""
    try:
        with path.open("rb") as file:
            header = _checked_header(file, os.fstat(file.fileno()).st_size)
    except (DamagedError, FileNotFoundError):
        return None
    run = json.loads(header)["content"].get("run")
    return 0 if run is None else int(run["iteration"])


@final
class _Arrays:
    """Collects the arrays of plain values, each once."""

    def __init__(self) -> None:
        self.distinct: list[NDArray[Any]] = []
        self.labels: list[dict[str, Any]] = []
        self._numbers: dict[int, int] = {}

    def number(self, value: object) -> dict[str, int]:
        """Return what the header has in place of an array; called for what JSON does not know."""
        if not isinstance(value, np.ndarray):
            raise TypeError(f"a checkpoint must hold plain values and arrays; got a {type(value).__name__}.")
        if value.dtype.kind not in NUMERIC:
            raise TypeError(f"arrays of a checkpoint must hold numbers; got one of {value.dtype}.")
        if id(value) not in self._numbers:
            self._numbers[id(value)] = len(self.distinct)
            self.distinct.append(value)
            self.labels.append(
                {
                    "dtype": value.dtype.str,
                    "shape": list(value.shape),
                    "strides": list(value.strides),
                    "order": "F" if value.flags.f_contiguous else "C",
                    "writeable": value.flags.writeable,
                }
            )
        return {_ARRAY: self._numbers[id(value)]}


def _bytes_of(array: NDArray[Any]) -> memoryview:
    """Return the entries, by columns if the array is Fortran-contiguous and else by rows."""
    contiguous = array.T if array.flags.f_contiguous else np.ascontiguousarray(array)
    return contiguous.reshape(-1).view(np.uint8).data


def _array(label: dict[str, Any], file: BinaryIO) -> NDArray[Any]:
    """Return the next array of the file, with its memory layout."""
    dtype, shape, strides = np.dtype(label["dtype"]), tuple(label["shape"]), tuple(label["strides"])
    entries = np.empty(math.prod(shape), dtype)
    entries.view(np.uint8)[:] = np.frombuffer(file.read(entries.nbytes), np.uint8)
    array = entries.reshape(shape, order=label["order"])
    if array.strides != strides and array.size and min(strides) > 0:  # a view with gaps between rows
        extent = sum((side - 1) * stride for side, stride in zip(shape, strides, strict=True))
        buffer = np.zeros(extent // dtype.itemsize + 1, dtype)
        array = np.lib.stride_tricks.as_strided(buffer, shape, strides)
        array[...] = entries.reshape(shape, order=label["order"])
    if not label["writeable"]:
        array.flags.writeable = False
    return array


def _checked_header(file: BinaryIO, size: int) -> bytes:
    """Return the header of a file with the right checksum, and leave the file at its first array."""
    start = len(_MAGIC) + _LENGTH
    opening = file.read(start)
    if len(opening) < start or opening[:7] != _MAGIC[:7]:
        raise DamagedError("it does not begin as a checkpoint does")
    checksum = hashlib.sha256(opening)
    for piece in _pieces(file, size - start - _CHECKSUM):
        checksum.update(piece)
    if file.read(_CHECKSUM) != checksum.digest():
        raise DamagedError("its checksum is wrong")
    if opening[7] != FORMAT:
        raise ValueError(
            f"a checkpoint must be of format {FORMAT}; {file.name!r} has {opening[7]}. "
            "Resume with the version of dcgs that wrote it."
        )
    file.seek(start)
    return file.read(int.from_bytes(opening[len(_MAGIC) :], "little"))


def _pieces(file: BinaryIO, length: int) -> Iterator[bytes]:
    while length > 0:
        piece = file.read(min(length, 1 << 20))
        if not piece:
            return
        length -= len(piece)
        yield piece
