"""E2006-tfidf: the files, the binary copy of them, and the look-alike."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import lzma
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from dcgs.datasets import (
    BrokenDataError,
    DataNotFoundError,
    Regression,
    SourceKind,
    e2006,
    e2006_lookalike,
    published,
    read_libsvm,
    store,
)

TEXT = b"-3.5 1:-3.2 5:0.001 150360:0.5\n-0.51940953 1:-2.9\n-7.899578074 2:1e-4 3:2e-4\n"
TRAIN = "E2006.train"
REAL = Path(os.environ.get("DCGS_DATA", "DCGS_DATA is not set"))


needs_real = pytest.mark.skipif(
    not any(
        (REAL / folder / f"{TRAIN}{packed}").is_file()
        for folder in ("", "e2006", "E2006", "e2006-tfidf", "E2006-tfidf")
        for packed in ("", ".bz2", ".xz", ".gz")
    ),
    reason="E2006.train is not in the folder DCGS_DATA names",
)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let three lines be all there is of the set, and the cache a folder of the test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("DCGS_DATA", raising=False)
    return tmp_path / "cache" / "dcgs"


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    train, test = published.SPLITS["train"], published.SPLITS["test"]
    monkeypatch.setitem(published.SPLITS, "train", replace(train, rows=3, nonzeros=6))
    monkeypatch.setitem(published.SPLITS, "test", replace(test, rows=3, highest_index=150_360))


@pytest.fixture
def parses(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Return the files that were parsed, rather than taken from the binary copy."""
    files: list[Path] = []

    def noted(path: Path, features: int) -> tuple[sparse.csr_array, Any]:
        files.append(path)
        return read_libsvm(path, features)

    monkeypatch.setattr(published, "read_libsvm", noted)
    return files


def put(folder: Path, content: bytes = TEXT, name: str = TRAIN) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / name
    file.write_bytes(content)
    return file


def matrix(data: Regression) -> sparse.csr_array:
    assert isinstance(data.A, sparse.csr_array)
    return data.A


def same(one: Regression, other: Regression) -> bool:
    equal = [
        np.array_equal(getattr(one.A, part), getattr(other.A, part)) for part in ("data", "indices", "indptr")
    ]
    return all(equal) and np.array_equal(one.b, other.b) and one.A.shape == other.A.shape


# ---------------------------------------------------------------- the files


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("packed", "pack"), [("", bytes), (".bz2", bz2.compress), (".xz", lzma.compress), (".gz", gzip.compress)]
)
@pytest.mark.parametrize("split", ["train", "test"])
def test_samples_are_read_at_full_width_from_every_form_of_the_file(
    tmp_path: Path, packed: str, pack: Callable[[bytes], bytes], split: str
) -> None:
    file = put(tmp_path / "mine" / "E2006-tfidf", pack(TEXT), f"E2006.{split}{packed}")
    data = e2006(tmp_path / "mine", split=split)
    A = matrix(data)
    assert (A.shape, A.dtype) == ((3, 150_360), np.float64)
    assert A.indices.tolist() == [0, 4, 150_359, 0, 1, 2]
    assert A.data.tolist() == [-3.2, 0.001, 0.5, -2.9, 1e-4, 2e-4]
    assert data.b.tolist() == [-3.5, -0.51940953, -7.899578074]
    assert data.source.name == f"E2006-tfidf ({split})"
    assert data.source.kind is SourceKind.REAL
    assert data.source.files == {file.name: hashlib.sha256(file.read_bytes()).hexdigest()}


@pytest.mark.usefixtures("small")
def test_the_file_of_the_given_split_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "named")
    put(tmp_path / "named", TEXT.replace(b"-3.5 ", b"-4.5 "), "E2006.test")
    monkeypatch.setenv("DCGS_DATA", str(tmp_path / "named"))
    assert e2006(download=False).b[0] == -3.5
    assert e2006(split="test", download=False).b[0] == -4.5


def test_another_split_is_refused() -> None:
    with pytest.raises(ValueError, match=r"split must be 'train' or 'test'; got 'valid'\."):
        e2006(split="valid")


@pytest.mark.parametrize("split", ["train", "test"])
def test_the_error_for_missing_data_has_the_official_address(split: str) -> None:
    address = rf"Get https://www\.csie\.ntu\.edu\.tw/\S+/regression/E2006\.{split}\.bz2 and put it"
    with pytest.raises(
        DataNotFoundError, match=rf"E2006-tfidf \({split}\) must be on this machine; .*{address}"
    ):
        e2006(split=split, download=False)


@pytest.mark.usefixtures("small")
def test_missing_data_are_downloaded_with_progress_and_read(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = put(tmp_path, bz2.compress(TEXT), f"{TRAIN}.bz2")
    train = published.SPLITS["train"]
    wanted = replace(train.wanted, remote=replace(train.wanted.remote, url=packed.as_uri()))
    monkeypatch.setitem(published.SPLITS, "train", replace(train, wanted=wanted))
    steps: list[tuple[int, int | None]] = []
    data = e2006(progress=lambda done, total: steps.append((done, total)))
    assert data.b[0] == -3.5
    assert steps == [(packed.stat().st_size, packed.stat().st_size)]
    assert (cache / packed.name).read_bytes() == packed.read_bytes()


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("content", "printed"),
    [
        (
            TEXT[: TEXT.rindex(b"-7")],
            r"rows must be 3, found 2; nonzeros must be 6, found 4; lowest and highest",
        ),
        (TEXT.replace(b"150360:", b"9:"), r"; highest index must be 150360, found 9\. Delete"),
        (TEXT.replace(b" 5:0.001", b""), r"; nonzeros must be 6, found 5\. Delete it and get https://"),
        (
            TEXT.replace(b"-7.8995", b"-7.8996"),
            r"; lowest and highest label must be \(-7.89957807, -0.51940953\)",
        ),
        (TEXT.replace(b"-0.5194", b"-0.5193"), r"found \(-7.899578074, -0.51930953\)\. Delete"),
    ],
    ids=["a row less", "narrower", "an entry less", "another lowest label", "another highest label"],
)
def test_an_incomplete_file_is_refused_with_every_fact_that_fails(
    tmp_path: Path, content: bytes, printed: str
) -> None:
    file = put(tmp_path, content)
    with pytest.raises(BrokenDataError, match=rf"{TRAIN} must be E2006-tfidf \(train\).*{printed}"):
        e2006(file)


def test_the_facts_of_the_real_files_are_the_known_ones() -> None:
    train, test = published.SPLITS["train"], published.SPLITS["test"]
    assert (train.rows, train.highest_index, train.nonzeros) == (16_087, 150_360, 19_971_015)
    assert train.labels == (-7.89957807, -0.51940953)
    assert (test.rows, test.highest_index) == (3_308, 150_358)


@pytest.mark.usefixtures("small")
def test_an_index_above_the_columns_names_its_line(tmp_path: Path) -> None:
    with pytest.raises(BrokenDataError, match=r"line 1 of E2006.train must have indices from 1 to 150360"):
        e2006(put(tmp_path, TEXT.replace(b"150360:", b"150361:")))


@pytest.mark.usefixtures("small")
def test_a_checksum_file_must_match_also_if_there_is_a_cached_copy(tmp_path: Path) -> None:
    file = put(tmp_path)
    e2006(file)
    put(tmp_path, b"0" * 64, f"{TRAIN}.sha256")
    with pytest.raises(
        BrokenDataError, match=r"E2006.train must have the SHA-256 in E2006.train.sha256, 0{64}; it"
    ):
        e2006(file)


# ---------------------------------------------------------------- the binary copy


@pytest.mark.usefixtures("small")
def test_a_file_is_parsed_once_and_then_read_from_the_cache(
    tmp_path: Path, cache: Path, parses: list[Path]
) -> None:
    first, second = e2006(put(tmp_path)), e2006(tmp_path)
    assert len(parses) == 1
    assert same(first, second)
    assert first.source == second.source
    sha256 = hashlib.sha256(TEXT).hexdigest()
    assert [file.name for file in cache.iterdir()] == [f"E2006.train-{sha256}.v{store.CACHE_FORMAT}.npz"]


@pytest.mark.usefixtures("small")
def test_other_content_another_split_and_another_format_are_parsed_again(
    tmp_path: Path, parses: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    e2006(put(tmp_path))
    assert e2006(put(tmp_path, TEXT.replace(b"-3.5 ", b"-4.5 "))).b[0] == -4.5
    e2006(tmp_path / TRAIN, split="test")
    monkeypatch.setattr(store, "CACHE_FORMAT", store.CACHE_FORMAT + 1)
    e2006(tmp_path)
    assert len(parses) == 4


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("share", [0.0, 0.02, 0.1, 0.3, 0.5, 0.7, 0.9])
def test_a_damaged_cached_copy_is_made_again(
    tmp_path: Path, cache: Path, parses: list[Path], share: float
) -> None:
    first = e2006(put(tmp_path))
    (copy,) = cache.iterdir()
    sound = copy.read_bytes()
    for damaged in (hit(sound, share), sound[: int(share * len(sound))]):
        copy.write_bytes(damaged)
        assert same(first, e2006(tmp_path))
    assert len(parses) == 3
    e2006(tmp_path)
    assert len(parses) == 3


@pytest.mark.parametrize("claim", [b"(1000,), }" + b" " * 10, b"(100009999999,), }  "], ids=["less", "more"])
def test_a_cached_copy_with_a_wrong_size_is_made_again(cache: Path, claim: bytes) -> None:
    arrays = {"numbers": np.arange(10_000.0)}
    store.cached_arrays("some", lambda: arrays)
    (copy,) = cache.iterdir()
    sound = copy.read_bytes()
    changed = sound.replace(b"(10000,), }" + b" " * 9, claim)
    assert changed != sound
    assert len(changed) == len(sound)
    copy.write_bytes(changed)
    np.testing.assert_array_equal(store.cached_arrays("some", lambda: arrays)["numbers"], arrays["numbers"])
    assert copy.read_bytes() == sound


def hit(content: bytes, share: float) -> bytes:
    """Change some letters in a row."""
    at = int(share * len(content))
    return content[:at] + bytes(letter ^ 0x55 for letter in content[at : at + 24]) + content[at + 24 :]


@pytest.mark.usefixtures("small")
def test_a_cache_folder_that_cannot_be_written_is_no_error(
    tmp_path: Path, cache: Path, parses: list[Path]
) -> None:
    put(cache.parent.parent, b"a file where the folder should be", cache.parent.name)
    assert same(e2006(put(tmp_path)), e2006(tmp_path))
    assert len(parses) == 2


@pytest.mark.usefixtures("small")
def test_an_interrupted_copy_leaves_nothing(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(stream: Any, **arrays: object) -> None:
        stream.write(b"PK and no more")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    e2006(put(tmp_path))
    assert list(cache.iterdir()) == []


# ---------------------------------------------------------------- the look-alike


@pytest.fixture(scope="module")
def lookalike() -> Regression:
    return e2006_lookalike(2000)


def test_the_lookalike_says_what_it_is(lookalike: Regression) -> None:
    assert lookalike.source.name == "E2006-tfidf"
    assert lookalike.source.kind is SourceKind.LOOKALIKE
    assert (lookalike.source.seed, dict(lookalike.source.files)) == (0, {})
    assert lookalike.made_from is None


def test_the_lookalike_is_determined_by_its_seed() -> None:
    first, again, other = (e2006_lookalike(300, 4000, seed=seed) for seed in (3, 3, 4))
    assert same(first, again)
    assert not same(first, other)


def test_the_lookalike_has_the_width_and_the_density_of_the_real_data(lookalike: Regression) -> None:
    A = matrix(lookalike)
    assert (A.shape, A.dtype, A.indices.dtype) == ((2000, 150_360), np.float64, np.int32)
    assert A.has_canonical_format
    assert A.nnz / 2000 == pytest.approx(1241.4, rel=0.06)  # lengths vary: 1.7 % is one deviation of the mean


def test_the_words_of_the_lookalike_are_few_common_and_many_rare_ones(lookalike: Regression) -> None:
    words = matrix(lookalike)[:, 1:]
    assert words.data.min() > 0.0
    assert np.median(words.data) < 1e-3
    used = np.sort(np.bincount(words.indices, minlength=words.shape[1]) / 2000)[::-1]
    assert used[50] > 0.8
    assert np.median(used) < 0.01
    ranks = np.array([1000, 10_000])
    slope = np.diff(np.log(used[ranks]))[0] / np.diff(np.log(ranks))[0]
    assert -1.3 < slope < -0.8  # Zipf's law is −1 where words are rare


def test_documents_of_the_lookalike_have_log_normal_lengths(lookalike: Regression) -> None:
    sizes = np.log(np.diff(matrix(lookalike).indptr))
    skew = ((sizes - sizes.mean()) ** 3).mean() / sizes.std() ** 3
    assert abs(skew) < 0.3
    assert 0.5 < sizes.std() < 0.9


def test_a_narrower_lookalike_is_as_dense_and_has_the_same_labels() -> None:
    data = e2006_lookalike(2000, 5000)
    A = matrix(data)
    assert A.shape == (2000, 5000)
    assert (A.nnz - 2000) / 2000 / 4999 == pytest.approx(1240.4 / 150_359, rel=0.06)
    assert (data.b.min(), data.b.max()) == (-7.89957807, -0.51940953)


@pytest.mark.parametrize("samples", [2, 3, 50, 999])
def test_few_samples_stay_within_the_labels_of_the_real_data(samples: int) -> None:
    b = e2006_lookalike(samples, 300).b
    assert np.isfinite(b).all()
    assert b.min() > -7.89957807
    assert b.max() < -0.51940953


@pytest.mark.parametrize(
    ("samples", "features", "message"),
    [
        (1, 100, r"samples must be a whole number between 2 and 1000000000; got 1\."),
        (100, 1, r"features must be a whole number between 2 and 150360, as the real data have; got 1\."),
        (
            100,
            150_361,
            r"features must be a whole number between 2 and 150360, as the real data have; got 150361\.",
        ),
    ],
)
def test_impossible_sizes_are_refused(samples: int, features: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        e2006_lookalike(samples, features)


# ---------------------------------------------------------------- the real data


@needs_real
def test_the_real_set_has_its_published_statistics() -> None:
    data = e2006(REAL, download=False)
    assert (data.A.shape, matrix(data).nnz) == ((16_087, 150_360), 19_971_015)
    assert data.b.mean() == pytest.approx(-3.51405314, abs=1e-8)  # known to eight places
    assert data.b.std() == pytest.approx(0.63227835, abs=1e-4)  # known without saying whether over n or n − 1


@pytest.mark.usefixtures("cache", "small")
def test_a_text_cut_off_in_its_last_line_names_that_line(tmp_path: Path) -> None:
    file = tmp_path / "E2006.train"
    file.write_bytes(TEXT.rstrip(b"\n").rpartition(b" ")[0])
    with pytest.raises(
        BrokenDataError, match=r"nonzeros must be 6, found 5; .*line 3, the last, does not end"
    ):
        e2006(file)
