"""The journal of an agent: its private key, and what it has masked; on disk before a message leaves.

The file is only appended to. Its first line has the key pair and the run, and appears at once with the file.
Every further line has the transcript, the counter and the digest of one masked array, and is on disk before
:meth:`Journal.append` returns. A last line that is not complete belongs to a message that was not sent, and
is removed. The file can be read and written by its owner only.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import IO, final

from dcgs.files import atomic_write, flock
from dcgs.secure.keys import KeyPair

_FORMAT = 1
_LINE = re.compile(rb"([0-9a-f]{64}) (\d+) ([0-9a-f]{64})")


@final
class Journal:
    """The journal of one agent in one run, which is made if the file does not exist.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "agent-3.journal"
    >>> with Journal(path, "study 7") as journal:
    ...     public = journal.pair.public
    >>> with Journal(path, "study 7") as journal:
    ...     journal.pair.public == public
    True
    """

    pair: KeyPair
    """The key pair of the agent in this run."""

    def __init__(self, path: Path, run: str) -> None:
        self.path = path
        if not path.exists():
            _create(path, run)
        self._file = path.open("r+b")
        try:
            _lock(self._file, path)
            self.pair = self._read_header(run)
            self._digests = self._read_digests()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; nothing more can be masked."""
        self._file.close()

    def digests(self, transcript: str) -> list[str]:
        """Return the digests of what was masked with the keys of a transcript, by counter."""
        return list(self._digests.get(transcript, []))

    def append(self, transcript: str, counter: int, digest: str) -> None:
        """Record what a counter masks; on disk when this returns."""
        self._file.write(f"{transcript} {counter} {digest}\n".encode())
        self._file.flush()
        os.fsync(self._file.fileno())
        self._digests.setdefault(transcript, []).append(digest)

    def erase(self) -> None:
        """Remove the file and the key in it: nobody can read recorded messages of this run later on."""
        self.close()
        self.path.unlink()

    def _read_header(self, run: str) -> KeyPair:
        try:
            header = json.loads(self._file.readline())
            content = header["format"], header["run"], bytes.fromhex(header["private"])
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{self.path} must be a journal of secure sums; it is not.") from error
        if content[:2] != (_FORMAT, run):
            raise ValueError(
                f"{self.path} must be of format {_FORMAT} and of the run {run!r}; it is of format "
                f"{content[0]!r} and of the run {content[1]!r}. Give each run a folder of its own."
            )
        return KeyPair.of(content[2])

    def _read_digests(self) -> dict[str, list[str]]:
        """Return the digests by transcript; leave the file at its end, without an incomplete line."""
        digests: dict[str, list[str]] = {}
        end = self._file.tell()
        for number, line in enumerate(self._file.readlines(), 2):
            if not line.endswith(b"\n"):
                break
            match = _LINE.fullmatch(line[:-1])
            known = digests.setdefault(match[1].decode(), []) if match else []
            if match is None or int(match[2]) != len(known):
                raise ValueError(
                    f"{self.path} must have a transcript, the next counter and a digest in each line; line "
                    f"{number} has not. The file was changed: start a new run, with new keys."
                )
            known.append(match[3].decode())
            end += len(line)
        self._file.seek(end)
        self._file.truncate()
        return digests


def _create(path: Path, run: str) -> None:
    header = {"format": _FORMAT, "run": run, "private": KeyPair.generate().private.hex()}

    def write(stream: IO[bytes]) -> None:
        if os.name == "posix":  # before the key is in it
            os.fchmod(stream.fileno(), 0o600)
        stream.write(json.dumps(header).encode() + b"\n")

    atomic_write(path, write)


def _lock(file: IO[bytes], path: Path) -> None:
    """Keep other processes from using the same keys and counters, where the system can."""
    if not flock(file.fileno()):
        raise ValueError(
            f"{path} must be used by one process at a time; another one uses it. Wait for its end."
        )
