"""MovieLens: what is read, and what is said of files that are not as they must be."""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dcgs.datasets import (
    BrokenDataError,
    DataNotFoundError,
    Ratings,
    SourceKind,
    movielens1m,
    movielens100k,
    published,
)
from dcgs.datasets.store import Remote

SMALL = b"196\t242\t3\t881250949\n943\t1682\t5\t891717742\n1\t1\t1\t878887116\n"
SMALL_1M = SMALL.replace(b"\t", b"::")
REAL = Path(os.environ.get("DCGS_DATA", "DCGS_DATA is not set"))
needs_100k = pytest.mark.skipif(
    not (REAL / "ml-100k" / "u.data").is_file(), reason="MovieLens 100K is not in the folder DCGS_DATA names"
)
needs_1m = pytest.mark.skipif(
    not (REAL / "ml-1m" / "ml-1m.zip").is_file(), reason="MovieLens 1M is not in the folder DCGS_DATA names"
)


@pytest.fixture(autouse=True)
def nowhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("DCGS_DATA", raising=False)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let three lines be all there is of either edition."""
    for name, content in (("ML_100K", SMALL), ("ML_1M", SMALL_1M)):
        edition = replace(getattr(published, name), count=3, sha256=hashlib.sha256(content).hexdigest())
        monkeypatch.setattr(published, name, edition)


def packed(file: Path, member: str, content: bytes) -> Path:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{file.stem}/README", "about")
        archive.writestr(f"{file.stem}/{member}", content)
    return file


EDITIONS = pytest.mark.parametrize(
    ("load", "member", "archive", "content", "shape"),
    [
        (movielens100k, "u.data", "ml-100k.zip", SMALL, (943, 1682)),
        (movielens1m, "ratings.dat", "ml-1m.zip", SMALL_1M, (6040, 3952)),
    ],
    ids=["100K", "1M"],
)


def check(ratings: Ratings, member: str, content: bytes, shape: tuple[int, int]) -> None:
    assert ratings.rows.tolist() == [195, 942, 0]
    assert ratings.cols.tolist() == [241, 1681, 0]
    assert ratings.values.tolist() == [3.0, 5.0, 1.0]
    assert [part.dtype.kind for part in (ratings.rows, ratings.cols, ratings.values)] == ["i", "i", "f"]
    assert ratings.shape == shape
    assert ratings.source.kind is SourceKind.REAL
    assert ratings.source.files == {member: hashlib.sha256(content).hexdigest()}


@EDITIONS
@pytest.mark.usefixtures("small")
def test_ratings_are_read_with_ids_from_zero_from_a_file_a_folder_and_an_archive(
    tmp_path: Path,
    load: Callable[..., Ratings],
    member: str,
    archive: str,
    content: bytes,
    shape: tuple[int, int],
) -> None:
    folder = tmp_path / "plain"
    folder.mkdir()
    (folder / member).write_bytes(content)
    zipped = packed(tmp_path / archive, member, content)
    check(load(folder / member), member, content, shape)
    check(load(folder), member, content, shape)
    check(load(zipped), member, content, shape)


@EDITIONS
@pytest.mark.usefixtures("small")
def test_ratings_are_found_through_the_environment_in_a_subfolder(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    load: Callable[..., Ratings],
    member: str,
    archive: str,
    content: bytes,
    shape: tuple[int, int],
) -> None:
    folder = tmp_path / "named" / Path(archive).stem
    folder.mkdir(parents=True)
    packed(folder / archive, member, content)
    monkeypatch.setenv("DCGS_DATA", str(tmp_path / "named"))
    check(load(download=False), member, content, shape)


@pytest.mark.usefixtures("small")
def test_missing_ratings_are_downloaded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed_up = packed(tmp_path / "ml-100k.zip", "u.data", SMALL)
    remote = Remote(packed_up.as_uri(), hashlib.sha256(packed_up.read_bytes()).hexdigest())
    edition = published.ML_100K
    monkeypatch.setattr(published, "ML_100K", replace(edition, wanted=replace(edition.wanted, remote=remote)))
    steps: list[tuple[int, int | None]] = []
    first = movielens100k(progress=lambda done, total: steps.append((done, total)))
    assert steps == [(packed_up.stat().st_size, packed_up.stat().st_size)]
    packed_up.unlink()
    check(first, "u.data", SMALL, (943, 1682))
    check(movielens100k(), "u.data", SMALL, (943, 1682))


@EDITIONS
def test_the_error_for_missing_ratings_has_the_official_address(
    load: Callable[..., Ratings],
    member: str,
    archive: str,
    content: bytes,
    shape: tuple[int, int],
) -> None:
    address = f"Get https://files.grouplens.org/datasets/movielens/{archive} and put it"
    with pytest.raises(DataNotFoundError, match=f"no {member} or {archive} was found in .*{address}"):
        load(download=False)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            SMALL.replace(b"943\t", b"943 "),
            r"^line 2 of u.data must have 4 whole numbers, user, item, stars and time, with '\\t' between; "
            r"it is '943 1682\\t5\\t891717742'\. Delete .*u.data and get https://.*ml-100k.zip\.$",
        ),
        (SMALL.replace(b"\t5\t", b"\t6\t"), r"^line 2 of u.data must have 4 whole numbers"),
        (SMALL.replace(b"\t5\t", b"\t"), r"^line 2 of u.data must have 4 whole numbers"),
        (SMALL.replace(b"\n943", b"\n\n943"), r"^line 2 of u.data must have 4 .*; it is ''\."),
        (
            SMALL.replace(b"\n", b"\r\n"),
            r"^line 1 of u.data .*; it is '196\\t242\\t3\\t881250949\\r'\.",
        ),
        (
            SMALL.replace(b"943", b"944"),
            r"^line 2 of u.data must have a user from 1 to 943 and an item from 1 to",
        ),
        (
            SMALL.replace(b"1682", b"1683"),
            r"an item from 1 to 1682; it is '943\\t1683\\t5\\t891717742'\.",
        ),
        (SMALL.replace(b"\n1\t1\t", b"\n0\t1\t"), r"^line 3 of u.data must have a user from 1"),
        (SMALL.replace(b"\n1\t1\t", b"\n1\t0\t"), r"^line 3 of u.data must have a user from 1"),
        (
            SMALL[:-5],
            r"^line 3 of u.data must end in a line break; it is cut off: '1\\t1\\t1\\t87888'\.",
        ),
        (SMALL[:50], r"^line 3 of u.data must end in a line break; it is cut off: "),
        (b"<!DOCTYPE html>\n" + 300 * b"x", r"^line 1 of u.data .*; it is '<!DOCTYPE html>'\."),
        (300 * b"\xff" + b"\n", r"^line 1 of u.data .*…'\."),
    ],
)
def test_an_invalid_line_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "u.data"
    file.write_bytes(content)
    with pytest.raises(BrokenDataError, match=message):
        movielens100k(file)


@pytest.mark.usefixtures("small")
def test_an_invalid_line_with_the_other_separator_is_named(tmp_path: Path) -> None:
    file = packed(tmp_path / "ml-1m.zip", "ratings.dat", SMALL_1M.replace(b"943::", b"943:"))
    with pytest.raises(
        BrokenDataError, match=r"^line 2 of ratings.dat .* with '::' between; it is '943:1682::5"
    ):
        movielens1m(file)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("content", "count"),
    [(SMALL[: SMALL.rindex(b"1\t1\t1")], 2), (SMALL.replace(b"\t3\t", b"\t4\t"), 3), (b"", 0)],
    ids=["a line less", "other stars", "empty"],
)
def test_valid_lines_with_a_wrong_checksum_are_refused_with_both_checksums(
    tmp_path: Path, content: bytes, count: int
) -> None:
    file = tmp_path / "u.data"
    file.write_bytes(content)
    right, wrong = (hashlib.sha256(some).hexdigest() for some in (SMALL, content))
    printed = f"must have the SHA-256 {right}; it has {wrong}, and {count} ratings instead of 3\\. Delete"
    with pytest.raises(BrokenDataError, match=printed):
        movielens100k(file)


@pytest.mark.usefixtures("small")
def test_a_truncated_archive_is_refused(tmp_path: Path) -> None:
    file = packed(tmp_path / "ml-100k.zip", "u.data", SMALL)
    file.write_bytes(file.read_bytes()[:-30])
    with pytest.raises(
        BrokenDataError, match=r"ml-100k.zip must be a complete zip archive; it is not: .*Delete it"
    ):
        movielens100k(file)


@pytest.mark.usefixtures("small")
def test_a_damaged_archive_is_refused(tmp_path: Path) -> None:
    file = packed(tmp_path / "ml-100k.zip", "u.data", SMALL)
    content = bytearray(file.read_bytes())
    content[content.index(b"ml-100k/u.data") + 20] ^= 0xFF
    file.write_bytes(content)
    with pytest.raises(BrokenDataError, match=r"ml-100k.zip must be a complete zip archive; it is not"):
        movielens100k(file)


@pytest.mark.usefixtures("small")
def test_an_archive_without_the_ratings_is_refused(tmp_path: Path) -> None:
    file = packed(tmp_path / "ml-1m.zip", "ratings.dat", SMALL_1M)
    with pytest.raises(BrokenDataError, match=r"ml-1m.zip must have u.data in it; it has \['ml-1m/README', "):
        movielens100k(file)


@needs_100k
def test_the_real_100k_has_its_published_statistics() -> None:
    ratings = movielens100k(REAL, download=False)
    assert (ratings.shape, len(ratings)) == ((943, 1682), 100_000)
    assert (len(np.unique(ratings.rows)), len(np.unique(ratings.cols))) == (943, 1682)
    assert ratings.values.mean() == pytest.approx(3.52986, abs=5e-6)  # as published, to five places
    assert ratings.values.std(ddof=1) == pytest.approx(1.12567, abs=5e-6)


@needs_1m
def test_the_real_1m_has_its_published_statistics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DCGS_DATA", str(REAL))
    ratings = movielens1m(download=False)
    assert (ratings.shape, len(ratings)) == ((6040, 3952), 1_000_209)
    assert (len(np.unique(ratings.rows)), len(np.unique(ratings.cols))) == (6040, 3706)
    assert ratings.values.mean() == pytest.approx(3.58156, abs=5e-6)  # as published, to five places


@needs_100k
def test_the_real_100k_without_its_last_bytes_names_its_last_line(tmp_path: Path) -> None:
    file = tmp_path / "u.data"
    file.write_bytes((REAL / "ml-100k" / "u.data").read_bytes()[:-4])
    with pytest.raises(
        BrokenDataError, match=r"^line 100000 of u.data must end in a line break; it is cut off"
    ):
        movielens100k(file)


def test_an_archive_that_unpacks_to_too_many_bytes_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(published, "_LARGEST", 1000)
    file = packed(tmp_path / "ml-100k.zip", "u.data", b"1\t" * 600)
    with pytest.raises(BrokenDataError, match=r"must have at most 1,000 bytes; it has 1,200\."):
        movielens100k(file)
