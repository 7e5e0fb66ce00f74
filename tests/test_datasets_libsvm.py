"""LIBSVM text: what is read back is what was written, and what is at fault is printed by its line."""

from __future__ import annotations

import bz2
import gzip
import lzma
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dcgs.datasets import BrokenDataError, DataNotFoundError, libsvm, read_libsvm, store
from dcgs.datasets.libsvm import line_fault
from dcgs.datasets.store import cut_off

PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "plain": bytes,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "gz": gzip.compress,
}
TEXT = b"1.5 1:0.25 3:-2e-3\n-2\n+3. 2:.5\t4:1E2 \r\n"
DENSE = [[0.25, 0.0, -2e-3, 0.0], [0.0, 0.0, 0.0, 0.0], [0.0, 0.5, 0.0, 100.0]]


def put(folder: Path, content: bytes, name: str = "data.svm") -> Path:
    file = folder / name
    file.write_bytes(content)
    return file


@pytest.mark.parametrize("how", PACKERS)
def test_numbers_are_read_from_plain_and_compressed_text(tmp_path: Path, how: str) -> None:
    A, b = read_libsvm(put(tmp_path, PACKERS[how](TEXT)))
    np.testing.assert_array_equal(A.toarray(), DENSE)
    np.testing.assert_array_equal(b, [1.5, -2.0, 3.0])
    assert (A.format, A.dtype, A.indices.dtype, A.indptr.dtype) == ("csr", np.float64, np.int32, np.int32)
    assert A.has_canonical_format


@pytest.mark.parametrize("size", [1, 2, 7, 16, 1000])
def test_chunks_of_any_size_give_the_same_matrix(
    tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(libsvm, "_CHUNK", size)
    A, b = read_libsvm(put(tmp_path, TEXT.rstrip()))
    np.testing.assert_array_equal(A.toarray(), DENSE)
    np.testing.assert_array_equal(b, [1.5, -2.0, 3.0])


def test_comments_and_blank_lines_are_skipped(tmp_path: Path) -> None:
    A, b = read_libsvm(put(tmp_path, b"# made by hand: 1:2\n\n1 1:2 # 3:x\n  \t\r\n#\n2 2:4\n\n"))
    np.testing.assert_array_equal(A.toarray(), [[2.0, 0.0], [0.0, 4.0]])
    np.testing.assert_array_equal(b, [1.0, 2.0])


def test_the_width_is_the_given_one(tmp_path: Path) -> None:
    A, _ = read_libsvm(str(put(tmp_path, TEXT)), features=9)
    assert A.shape == (3, 9)


def test_samples_may_have_no_features(tmp_path: Path) -> None:
    A, b = read_libsvm(put(tmp_path, b"1\n2\n"))
    assert (A.shape, A.nnz, b.tolist()) == ((2, 0), 0, [1.0, 2.0])


FAULTS = {
    b"1:2 2:3": "must start with a label; it starts with '1:2'",
    b"x 1:2": "must have a number as a label; it has 'x'",
    b"1e 1:2": "must have a number as a label; it has '1e'",
    b"1 2": "must have index:value pairs after its label; it has '2'",
    b"1 2 3": "must have index:value pairs after its label; it has '2'",
    b"1 2:": "must have index:value pairs after its label; it has '2:'",
    b"1 :2": "must have index:value pairs after its label; it has ':2'",
    b"1 2 :3": "must have index:value pairs after its label; it has '2'",
    b"1 2: 3": "must have index:value pairs after its label; it has '2:'",
    b"1 2:3:4": "must have a number as a value; it has '3:4'",
    b"1 2::4": "must have a number as a value; it has ':4'",
    b"1 0:3": "must have indices from 1 to 7, the columns; it has '0:3'",
    b"1 -1:3": "must have whole numbers from 1 as indices; it has '-1:3'",
    b"1 +1:3": "must have whole numbers from 1 as indices; it has '+1:3'",
    b"1 1.0:3": "must have whole numbers from 1 as indices; it has '1.0:3'",
    b"1 1e0:3": "must have whole numbers from 1 as indices; it has '1e0:3'",
    b"1 8:3": "must have indices from 1 to 7, the columns; it has '8:3'",
    b"1 99999999999999999999999:3": "must have indices from 1 to 7, the columns; it has '999",
    b"1 3:1 2:1": "must have increasing indices; it has 2 after 3",
    b"1 3:1 3:1": "must have increasing indices; it has 3 after 3",
    b"1 3:1-2": "must have a number as a value; it has '1-2'",
    b"1 3:1.2.3": "must have a number as a value; it has '1.2.3'",
    b"1 3:0x1": "must have a number as a value; it has '0x1'",
    b"1 3:nan": "must have finite numbers; it has 'nan' as a value",
    b"1 3:-INF": "must have finite numbers; it has '-INF' as a value",
    b"1 3:1e999": "must have finite numbers; it has '1e999' as a value",
    b"nan 3:1": "must have finite numbers; it has 'nan' as a label",
    b"1 qid:3 1:2": "must have whole numbers from 1 as indices; it has 'qid:3'",
    b"1,2:3": "must start with a label; it starts with '1,2:3'",
    b"1 2:3\x0c": r"must have a number as a value; it has '3\\x0c'",
    b"1 2:\xff\x00": r"must have a number as a value; it has '\\\\xff\\x00'",
    100 * b"z": "must have a number as a label; it has 'z{60}…'",
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault[:20].decode("latin-1"))
@pytest.mark.parametrize("size", [1, 1 << 20])
def test_an_invalid_line_is_named_with_its_content(
    tmp_path: Path, fault: bytes, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(libsvm, "_CHUNK", size)
    file = put(tmp_path, b"# one\n1 1:1\n\n" + fault + b"\n1 1:1\n")
    pattern = FAULTS[fault].replace("+", r"\+")
    with pytest.raises(
        BrokenDataError, match=rf"^line 4 of data\.svm {pattern}.*\. Correct the line, or get"
    ):
        read_libsvm(file, 7)


def test_indices_must_increase_only_within_a_line(tmp_path: Path) -> None:
    A, _ = read_libsvm(put(tmp_path, b"1 5:1\n1 2:1 3:1\n1\n1 1:1\n"))
    assert A.indices.tolist() == [4, 1, 2, 0]
    assert A.indptr.tolist() == [0, 1, 3, 3, 4]


@pytest.mark.parametrize("content", [b"", b"\n\n", b"# nothing\n"])
def test_a_file_without_samples_is_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(BrokenDataError, match=r"data.svm must have at least one sample; it has none\."):
        read_libsvm(put(tmp_path, content))


@pytest.mark.parametrize("how", ["bz2", "xz", "gz"])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.999])
def test_a_truncated_compressed_file_is_refused(tmp_path: Path, how: str, share: float) -> None:
    rng = np.random.default_rng(0)
    text = b"".join(b"%.17g 1:%.17g\n" % tuple(pair) for pair in rng.standard_normal((2000, 2)))
    packed = PACKERS[how](text)
    file = put(tmp_path, packed[: int(share * len(packed))])
    with pytest.raises(BrokenDataError, match=rf"must be a complete {how} file; it breaks off after line"):
        read_libsvm(file)


@pytest.mark.parametrize("how", ["bz2", "xz", "gz"])
def test_a_damaged_compressed_file_is_refused(tmp_path: Path, how: str) -> None:
    packed = bytearray(PACKERS[how](TEXT * 50))
    packed[len(packed) // 2] ^= 0xFF
    with pytest.raises(BrokenDataError, match=rf"must be a complete {how} file; it breaks off"):
        read_libsvm(put(tmp_path, bytes(packed)))


def test_a_missing_file_has_its_error_message(tmp_path: Path) -> None:
    with pytest.raises(DataNotFoundError, match=r"none.svm must be a file that can be read; No such file"):
        read_libsvm(tmp_path / "none.svm")


@pytest.mark.parametrize("features", [0, -1, 2**31])
def test_an_impossible_width_is_refused(tmp_path: Path, features: int) -> None:
    with pytest.raises(
        ValueError,
        match=rf"features must be a whole number between 1 and 2147483647, or None; got {features}\.",
    ):
        read_libsvm(put(tmp_path, TEXT), features)


finite = st.floats(allow_nan=False, allow_infinity=False)
row = st.tuples(finite, st.dictionaries(st.integers(1, 50), finite, max_size=6))
forms = st.sampled_from([repr, "{:.17e}".format, "{:+.17E}".format])


@settings(derandomize=True, deadline=None)
@given(rows=st.lists(row, min_size=1, max_size=8), form=forms, size=st.integers(1, 200))
def test_what_is_written_is_read_back_to_the_bit(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[float, dict[int, float]]],
    form: Callable[[float], str],
    size: int,
) -> None:
    lines = [
        " ".join([form(label), *(f"{at}:{form(value)}" for at, value in sorted(entries.items()))])
        for label, entries in rows
    ]
    file = put(tmp_path_factory.getbasetemp(), "\n".join(lines).encode(), "round.svm")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(libsvm, "_CHUNK", size)
        A, b = read_libsvm(file, 50)
    dense = np.zeros((len(rows), 50))
    for i, (_, entries) in enumerate(rows):
        dense[i, [at - 1 for at in entries]] = list(entries.values())
    np.testing.assert_array_equal(A.toarray(), dense)
    np.testing.assert_array_equal(b, [label for label, _ in rows])
    assert A.nnz == sum(len(entries) for _, entries in rows)  # zeros that are written are kept


pieces = st.sampled_from(
    ["1", "2", "10", "007", "0", ".", "e", "-", "+", ":", " ", "\t", "\r", "\n", "#", "x"]
)
nearly = st.lists(st.one_of(pieces, st.sampled_from(["1 1:2", " 3:4", " 5:6", "\n", "1"])), max_size=14)


@settings(derandomize=True, deadline=None, max_examples=500)
@given(nearly.map("".join).map(str.encode))
def test_the_parser_refuses_exactly_the_text_with_an_invalid_line(text: bytes) -> None:
    faults = [fault for line in text.split(b"\n") if (fault := line_fault(line, 9)) is not None]
    assert (libsvm._parsed(text, 9) is None) == bool(faults)


def test_memory_stays_a_small_multiple_of_the_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libsvm, "_CHUNK", 1 << 17)
    line = b"1 " + b" ".join(b"%d:0.123456789" % at for at in range(1, 1001)) + b"\n"
    file = put(tmp_path, 300 * line)
    tracemalloc.start()
    A, _ = read_libsvm(file)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    size = A.data.nbytes + A.indices.nbytes + A.indptr.nbytes
    assert (
        peak < 2.5 * size
    )  # the arrays, their values once more in parts, and one chunk; Python objects: 20 times


@pytest.mark.parametrize(
    ("text", "line"),
    [(b"1 1:2\n3 4:5\n", None), (b"1 1:2\n3 4:5", 2), (b"1 1:2", 1), (b"", None), (b"\n", None)],
)
@pytest.mark.parametrize("size", [1, 4, 1 << 20])
def test_a_last_line_without_a_break_is_found_by_its_number(
    text: bytes, line: int | None, size: int, tmp_path: Path
) -> None:
    file = tmp_path / "cut.svm"
    file.write_bytes(text)
    assert cut_off(file, size) == line


def test_a_file_without_line_breaks_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "LONGEST_LINE", 100)
    monkeypatch.setattr(libsvm, "_CHUNK", 64)
    file = tmp_path / "noise.svm"
    file.write_bytes(b"1 1:2\n" + b"7" * 500)
    with pytest.raises(BrokenDataError, match=r"must be text; line 2 has over 100 bytes\."):
        read_libsvm(file)
