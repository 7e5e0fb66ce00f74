"""Files: atomic writes, locks, and NumPy's .npz files.

A file appears complete or not at all, also if the process is killed or the power fails. Sizes of arrays are
checked before memory is taken, and nothing is unpickled.
"""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeAlias, TypeVar, final

import numpy as np
from numpy.typing import NDArray

Content: TypeAlias = bytes | Callable[[IO[bytes]], object]
"""The bytes of a file, or a function that writes them to an open stream."""

T = TypeVar("T")

_OPEN = 32  # files that are open at once
_MOST_LINKS = 40  # as Linux has it
_SUFFIX = ".npy"
_LONGEST_HEADER = 10_000


def atomic_write(path: Path, content: Content) -> Path:
    """Write one file atomically (temporary file, fsync, rename) and return its path.

    The folder is created if it does not exist. An error leaves the old file, if there was one.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> atomic_write(folder / "new" / "a.txt", b"all of it").read_text()
    'all of it'
    """
    atomic_write_all({path: content})
    return path


def is_stream(path: Path) -> bool:
    """Return True for a device, a pipe or the like, also behind a link: what is written there is not a file.

    >>> is_stream(Path("/dev/null")), is_stream(Path("new.csv"))
    (True, False)
    """
    for _ in range(_MOST_LINKS):
        path = path.parent.resolve() / path.name
        if not path.is_symlink():
            return path.exists() and not path.is_file()
        if path.is_relative_to("/proc"):  # an open file of this process, as behind /dev/stdout
            return True
        path = path.parent / path.readlink()
    return False


def write_through(path: Path, content: Content) -> Path:
    """Write to the file behind a path, atomically; a link stays a link, and a device or a pipe what it is."""
    if not is_stream(path):
        return atomic_write(path.resolve(), content)
    with path.open("wb") as stream:
        content(stream) if callable(content) else stream.write(content)
    return path


def atomic_write_all(
    files: Mapping[Path, Content], before_rename: Callable[[], object] = lambda: None
) -> None:
    """Write several files, and rename them only after all are complete; an error leaves none of them.

    ``before_rename`` is called in between, for example to wait for other processes.
    """
    # The process id keeps two processes that write the same file apart.
    temporary = {path: path.with_name(f".{path.name}.{os.getpid()}.part") for path in files}
    try:
        paths = list(files)
        for start in range(0, len(paths), _OPEN):
            with ExitStack() as opened:
                streams = [
                    _written(opened, temporary[path], files[path]) for path in paths[start : start + _OPEN]
                ]
                for stream in streams:
                    os.fsync(stream.fileno())
        before_rename()
        for path, part in temporary.items():
            os.replace(part, path)
        for folder in {path.parent for path in files}:
            _fsync_folder(folder)
    finally:
        for part in temporary.values():
            with suppress(OSError):
                part.unlink(missing_ok=True)


def _written(opened: ExitStack, path: Path, content: Content) -> IO[bytes]:
    """Return the open file with its content; the disk starts to write, so that files do not wait in turns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    stream: IO[bytes] = opened.enter_context(path.open("wb"))
    content(stream) if callable(content) else stream.write(content)
    stream.flush()
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return stream


def _fsync_folder(folder: Path) -> None:
    """Make new names in the folder outlast a power failure, where the system can."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def flock(descriptor: int) -> bool:
    """Lock an open file until it is closed; return False if another process has locked it.

    The end of a process, however it ends, unlocks what it has locked. Where the system or the file system has
    no locks, nothing is kept out.
    """
    if os.name != "posix":
        return True
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True


@final
@dataclass(frozen=True)
class ArrayHeader:
    """What the file says of an array: its shape, its type, and its bytes in memory."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        """Bytes of the array in memory."""
        return math.prod(self.shape) * self.dtype.itemsize


@final
class NpzReader:
    """The arrays of an open .npz file, by their ``names``; each is read on demand.

    A damaged file can raise almost anything: errors of zip, of NumPy, EOFError, KeyError.
    """

    def __init__(self, file: IO[bytes]) -> None:
        if not zipfile.is_zipfile(file):
            raise ValueError("it is not a zip archive")
        self._archive = zipfile.ZipFile(file)
        self.names = [name.removesuffix(_SUFFIX) for name in self._archive.namelist()]

    def header(self, name: str) -> ArrayHeader:
        """Return what the file says of an array, if its sizes agree and it fits into the memory."""
        info = self._archive.getinfo(name + _SUFFIX)
        with self._archive.open(info) as stream:
            version = np.lib.format.read_magic(stream)
            read = np.lib.format.read_array_header_1_0
            if version != (1, 0):
                read = np.lib.format.read_array_header_2_0
            shape, _, dtype = read(stream, max_header_size=_LONGEST_HEADER)
            header = ArrayHeader(shape, dtype)
            if dtype.hasobject:
                raise ValueError("object arrays are never unpickled")
            if header.nbytes != info.file_size - stream.tell():
                raise ValueError(f"the size of {name!r} is not that of shape {shape}")
        if header.nbytes > memory_size():
            raise ValueError(f"{name!r} needs {header.nbytes:,} bytes, more than the memory of this machine")
        return header

    def array(self, name: str) -> NDArray[Any]:
        """Return one array."""
        self.header(name)
        with self._archive.open(name + _SUFFIX) as stream:
            array: NDArray[Any] = np.lib.format.read_array(stream, allow_pickle=False)
        return array


def write_npz(path: Path, arrays: Mapping[str, Any]) -> Path:
    """Write arrays to a compressed .npz file, atomically, and return its path."""
    return atomic_write(path, lambda stream: np.savez_compressed(stream, **arrays))


def read_npz(path: Path, must: str, read: Callable[[NpzReader], T]) -> T:
    """Return what ``read`` makes of the file; errors of a damaged one say what it must be."""
    try:
        file = open(path, "rb")  # noqa: SIM115
    except OSError as error:
        raise FileNotFoundError(f"path must be a file to read; {str(path)!r}: {error.strerror}.") from error
    with file:
        try:
            return read(NpzReader(file))
        except Exception as error:  # a damaged file can fail anywhere: zip, arrays, texts, names
            raise ValueError(f"{str(path)!r} must be {must}; it cannot be read as one.") from error


def memory_size() -> float:
    """Return the bytes of memory of this machine; infinity where the system does not say."""
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, OSError, ValueError):
        return math.inf
