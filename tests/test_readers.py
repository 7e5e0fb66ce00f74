"""Users' files: every format gives the same numbers, and every fault its sentence."""

from __future__ import annotations

import bz2
import gzip
import lzma
import pickle
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dcgs.datasets import BrokenDataError, DataNotFoundError
from dcgs.learn.files.layout import EntriesLayout, SamplesLayout
from dcgs.learn.files.readers import kind_of, read_entries, read_samples, read_table
from dcgs.learn.files.source import DataSource, Samples

Write: TypeAlias = Callable[[Path], object]

A = np.array([[1.0, 0.0, -2.5], [0.0, 3.0, 0.125], [4.0, 5.0, 0.0], [0.0, 0.0, 1.0]])
B = np.array([1.0, -1.0, 2.0, 0.5])
NAMES = ["size", "rooms", "age"]

ROWS, COLS = np.array([1, 2, 2, 3]), np.array([1, 1, 4, 2])
VALUES = np.array([5.0, 3.5, 1.0, 4.0])


def text_table(between: str = ",", names: bool = True) -> str:
    lines = [between.join([*NAMES, "price"])] if names else []
    lines += [between.join(map(repr, [*map(float, row), float(b)])) for row, b in zip(A, B, strict=True)]
    return "\n".join(lines) + "\n"


def libsvm() -> str:
    pairs = [" ".join(f"{j + 1}:{v!r}" for j, v in enumerate(row.tolist()) if v) for row in A]
    return "".join(f"{b!r} {line}\n" for b, line in zip(B.tolist(), pairs, strict=True))


def _npz(path: Path) -> None:
    np.savez(path, A=A, b=B)


def _npz_xy(path: Path) -> None:
    np.savez(path, X=A.astype(np.float32), y=B[:, None])


def _sparse_parts(path: Path, make: Callable[[Any], Any] = sp.csr_array) -> None:
    matrix = make(A)
    np.savez(
        path,
        data=matrix.data,
        indices=matrix.indices,
        indptr=matrix.indptr,
        shape=matrix.shape,
        b=B,
        format=matrix.format.encode(),
    )


def _csc_parts(path: Path) -> None:
    _sparse_parts(path, sp.csc_array)


def _named_parts(path: Path) -> None:
    matrix = sp.csr_array(A)
    np.savez(
        path, A_data=matrix.data, A_indices=matrix.indices, A_indptr=matrix.indptr, A_shape=matrix.shape, b=B
    )


def _coo_parts(path: Path) -> None:
    matrix = sp.coo_array(A)
    row, col = matrix.coords
    np.savez(path, data=matrix.data, row=row, col=col, shape=matrix.shape, format=b"coo", b=B)


def _parquet(path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    pq.write_table(pa.table({**{n: A[:, j] for j, n in enumerate(NAMES)}, "price": B}), path)


def _text(text: str) -> Write:
    return lambda path: path.write_text(text)


def _bytes(content: bytes) -> Write:
    return lambda path: path.write_bytes(content)


FORMATS: dict[str, tuple[str, Write]] = {
    "libsvm": ("d.svm", _text(libsvm())),
    "libsvm of any name": ("data", _text(libsvm())),
    "libsvm gz": ("d.svm.gz", _bytes(gzip.compress(libsvm().encode()))),
    "libsvm bz2": ("d.bz2", _bytes(bz2.compress(libsvm().encode()))),
    "libsvm xz": ("d.svm.xz", _bytes(lzma.compress(libsvm().encode()))),
    "npz": ("d.npz", _npz),
    "npz of X and y": ("d.npz", _npz_xy),
    "npz csr": ("d.npz", _sparse_parts),
    "npz csc": ("d.npz", _csc_parts),
    "npz coo": ("d.npz", _coo_parts),
    "npz of A_ parts": ("d.npz", _named_parts),
    "npy": ("d.npy", lambda path: np.save(path, np.column_stack([A, B]))),
    "csv": ("d.csv", _text(text_table())),
    "csv without names": ("d.csv", _text(text_table(names=False))),
    "csv of semicolons": ("d.csv", _text(text_table(";"))),
    "csv with a mark of UTF-8": ("d.csv", _bytes(b"\xef\xbb\xbf" + text_table().encode())),
    "csv of Windows": ("d.csv", _bytes(text_table().replace("\n", "\r\n").encode())),
    "csv gz": ("d.csv.gz", _bytes(gzip.compress(text_table().encode()))),
    "csv with blank lines": ("d.csv", _text("# made by hand\n\n" + text_table().replace("\n", "\n\n"))),
    "csv in quotes": ("d.csv", _text(text_table().replace("size", '"size"').replace("4.0", '"4.0"'))),
    "tsv": ("d.tsv", _text(text_table("\t"))),
    "parquet": ("d.parquet", _parquet),
}


def as_dense(samples: Samples) -> np.ndarray[Any, Any]:
    A: Any = samples.A
    return np.asarray(A.toarray() if sp.issparse(A) else A)


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_gives_the_same_samples(name: str, tmp_path: Path) -> None:
    file, write = FORMATS[name]
    write(tmp_path / file)
    samples = read_samples(tmp_path / file, SamplesLayout())
    np.testing.assert_array_equal(as_dense(samples), A)
    np.testing.assert_array_equal(samples.b, B)


@pytest.mark.parametrize("target", ["rooms", "2", "-3"])
def test_the_target_is_a_column_by_name_or_by_number(target: str, tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text(text_table())
    samples = read_samples(tmp_path / "d.csv", SamplesLayout(target))
    np.testing.assert_array_equal(samples.b, A[:, 1])
    np.testing.assert_array_equal(samples.A, np.column_stack([A[:, [0, 2]], B]))
    assert (samples.names, samples.target) == (("size", "age", "price"), "rooms")


def test_targets_may_be_in_a_separate_file(tmp_path: Path) -> None:
    np.save(tmp_path / "d.npy", A)
    np.save(tmp_path / "y.npy", B)
    samples = read_samples(tmp_path / "d.npy", SamplesLayout(str(tmp_path / "y.npy")))
    np.testing.assert_array_equal(samples.A, A)
    np.testing.assert_array_equal(samples.b, B)


def test_a_matrix_saved_by_scipy_is_read_with_a_separate_file_of_targets(tmp_path: Path) -> None:
    sp.save_npz(tmp_path / "d.npz", sp.csr_array(A))
    np.save(tmp_path / "y.npy", B)
    samples = read_samples(tmp_path / "d.npz", SamplesLayout(str(tmp_path / "y.npy")))
    np.testing.assert_array_equal(as_dense(samples), A)


def test_a_first_line_of_numbers_is_data_unless_the_header_option_is_given(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("0,1,2\n5,6,7\n8,9,10\n")
    assert len(read_samples(tmp_path / "d.csv", SamplesLayout())) == 3
    assert len(read_samples(tmp_path / "d.csv", SamplesLayout(header=True))) == 2


def test_a_column_whose_name_is_a_number_is_found_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("0,1,x\n5,6,7\n8,9,10\n")
    assert read_samples(tmp_path / "d.csv", SamplesLayout("1")).target == "1"


@settings(deadline=None, derandomize=True, max_examples=40)
@given(
    hnp.arrays(np.float64, st.tuples(st.integers(1, 5), st.integers(2, 4)), elements=st.floats(-1e300, 1e300))
)
def test_numbers_of_text_are_exact_to_the_bit(
    tmp_path_factory: pytest.TempPathFactory, numbers: np.ndarray[Any, Any]
) -> None:
    file = tmp_path_factory.mktemp("bits") / "d.csv"
    file.write_text("\n".join(",".join(map(repr, row)) for row in numbers.tolist()))
    samples = read_samples(file, SamplesLayout())
    assert samples.b is not None
    np.testing.assert_array_equal(np.column_stack([samples.A, samples.b]), numbers)


def test_large_tables_are_read_in_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dcgs.learn.files.text._CHUNK", 50)
    lines = [f"{i},{i / 7!r}" for i in range(200)]
    (tmp_path / "d.csv").write_text("\n".join(["i,x", *lines]) + "\n")
    samples = read_samples(tmp_path / "d.csv", SamplesLayout())
    np.testing.assert_array_equal(samples.b, np.arange(200) / 7)
    (tmp_path / "d.csv").write_text("\n".join(["i,x", *lines[:150], "150,oops", *lines[151:]]) + "\n")
    with pytest.raises(
        BrokenDataError, match=r"line 152 of .*d.csv must have a finite number in column 2, 'x'"
    ):
        read_samples(tmp_path / "d.csv", SamplesLayout())


def ratings(between: str, names: str = "") -> str:
    rows = zip(ROWS, COLS, VALUES, strict=True)
    return names + "".join(between.join([str(i), str(j), str(v), "2020-01-01"]) + "\n" for i, j, v in rows)


def _entries_parquet(path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"rating": VALUES, "note": ["a"] * 4, "user_id": ROWS, "item_id": COLS}), path)


def _entries_sparse(path: Path) -> None:
    sp.save_npz(path, sp.coo_array((VALUES, (ROWS, COLS)), shape=(4, 5)).tocsr())


ENTRIES: dict[str, tuple[str, Write]] = {
    "csv with names": ("r.csv", _text(ratings(",", "userId,movieId,rating,day\n"))),
    "csv without": ("r.csv", _text(ratings(","))),
    "csv with other names": ("r.csv", _text(ratings(",", "who,what,how much,when\n"))),
    "tsv": ("u.data", _text(ratings("\t"))),
    "double colons": ("ratings.dat", _text(ratings("::"))),
    "blanks": ("r.txt", _text(ratings("  "))),
    "compressed": ("r.tsv.xz", _bytes(lzma.compress(ratings("\t").encode()))),
    "npy": ("r.npy", lambda path: np.save(path, np.column_stack([ROWS, COLS, VALUES]))),
    "npz": ("r.npz", lambda path: np.savez(path, rows=ROWS, cols=COLS, values=VALUES)),
    "sparse npz": ("r.npz", _entries_sparse),
    "parquet": ("r.parquet", _entries_parquet),
}


@pytest.mark.parametrize("name", ENTRIES)
def test_every_format_gives_the_same_entries(name: str, tmp_path: Path) -> None:
    file, write = ENTRIES[name]
    write(tmp_path / file)
    entries = read_entries(tmp_path / file, EntriesLayout())
    np.testing.assert_array_equal(entries.rows, ROWS)
    np.testing.assert_array_equal(entries.cols, COLS)
    np.testing.assert_array_equal(entries.values, VALUES)


def test_columns_of_ratings_are_found_by_name_in_any_order(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("when,Rating,Item ID,USER\n9,4.5,7,3\n")
    entries = read_entries(tmp_path / "r.csv", EntriesLayout())
    assert entries.values is not None
    assert (entries.rows[0], entries.cols[0], entries.values[0]) == (3, 7, 4.5)
    asked = read_entries(tmp_path / "r.csv", EntriesLayout(("3", "USER", "when")))
    assert asked.values is not None
    assert (asked.rows[0], asked.cols[0], asked.values[0]) == (7, 3, 9.0)


def test_entries_to_predict_need_no_values(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("user,item\n1,2\n")
    assert read_entries(tmp_path / "r.csv", EntriesLayout(values=False)).values is None


class _Trap:
    """What runs when it is unpickled."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return pytest.fail, ("a file was unpickled",)


def _archive_named_npy(path: Path) -> None:
    np.savez(path.with_suffix(".npz"), A=A)
    path.with_suffix(".npz").rename(path)


def _cut_npz(path: Path) -> None:
    _npz(path)
    path.write_bytes(path.read_bytes()[:-30])


def _object_npz(path: Path) -> None:
    np.savez(path, A=np.array([_Trap()], dtype=object), b=B)


FAULTS: dict[str, tuple[str, Write, str]] = {
    "no file": ("no.csv", lambda _: None, r"no.csv must be a file that can be read; No such file"),
    "no npz": ("no.npz", lambda _: None, r"no.npz must be a file that can be read"),
    "no npy": ("no.npy", lambda _: None, r"no.npy must be a file that can be read"),
    "no parquet": ("no.parquet", lambda _: None, r"no.parquet must be a file that can be read"),
    "empty": ("d.csv", _text(""), r"d.csv must have at least one line"),
    "names only": ("d.csv", _text("a,b\n"), r"d.csv must have a line below its names"),
    "a word": (
        "d.csv",
        _text("a,b\n1,2\n3,x\n"),
        r"line 3 of .*d.csv must have a finite number in column 2, 'b'; it has 'x'",
    ),
    "a gap": (
        "d.csv",
        _text("1,2\n3,\n"),
        r"line 2 of .*d.csv must have a finite number in column 2; it is empty",
    ),
    "not finite": ("d.csv", _text("1,2\n3,nan\n"), r"line 2 .* finite number in column 2; it has 'nan'"),
    "too large": ("d.csv", _text("1,2\n3,1e999\n"), r"line 2 .* finite number in column 2; it has '1e999'"),
    "decimal commas": ("d.csv", _text("1;2\n3;4,5\n"), r"it has '4,5'. Write a decimal point"),
    "uneven": (
        "d.csv",
        _text("1,2\n3,4,5\n"),
        r"line 2 of .*d.csv must have 2 columns, as the first line; it has 3",
    ),
    "uneven in quotes": ("d.csv", _text('1,2\n"3,4"\n'), r"line 2 of .* must have 2 columns, .* it has 1"),
    "row numbers of pandas": ("d.csv", _text(",a,b\n0,1,2\n"), r"column 1 has none, like the row numbers"),
    "names twice": (
        "d.csv",
        _text("a,a,b\n0,1,2\n"),
        r"names of columns of .*d.csv must differ; 'a' occur twice",
    ),
    "one column": ("d.csv", _text("1\n2\n"), r"d.csv must have at least one row and one feature"),
    "broken gz": (
        "d.csv.gz",
        _bytes(gzip.compress(b"1,2\n" * 99)[:-9]),
        r"d.csv.gz must be a complete gz file",
    ),
    "libsvm": (
        "d.svm",
        _text("1 1:2\n1 2:x\n"),
        r"line 2 of d.svm must have a number as a value; it has 'x'",
    ),
    "no zip": ("d.npz", _bytes(b"no zip"), r"the archive in .*d.npz must be readable; it is not"),
    "cut npz": ("d.npz", _cut_npz, r"the archive in .*d.npz must be readable; it is not"),
    "no A": ("d.npz", lambda p: np.savez(p, M=A, b=B), r"must have an array A \(or X\), .* it has 'M', 'b'"),
    "no b": (
        "d.npz",
        lambda p: np.savez(p, A=A),
        r"must have an array b \(or y\) .* it has 'A'. Add it, or give",
    ),
    "A a vector": (
        "d.npz",
        lambda p: np.savez(p, A=B, b=B),
        r"A in .*d.npz must be a matrix; it has shape \(4,\)",
    ),
    "b too short": (
        "d.npz",
        lambda p: np.savez(p, A=A, b=B[:3]),
        r"a target for each of the 4 rows of .*; it has 3",
    ),
    "b a matrix": (
        "d.npz",
        lambda p: np.savez(p, A=A, b=A),
        r"b in .*d.npz must be a vector; it has shape \(4, 3\)",
    ),
    "complex": (
        "d.npz",
        lambda p: np.savez(p, A=A * 1j, b=B),
        r"array 'A' of .* must be of real numbers; it is of complex",
    ),
    "a hole in A": (
        "d.npz",
        lambda p: np.savez(p, A=np.where(A == 3.0, np.nan, A), b=B),
        r"A\[1, 1\] in .*d.npz must be finite; it is nan",
    ),
    "pickled": (
        "d.npz",
        _object_npz,
        r"array 'A' in .*d.npz must be plain numbers; it is not, and files are never unpickled",
    ),
    "sparse of another kind": (
        "d.npz",
        lambda p: sp.save_npz(p, sp.dia_array(A)),
        r"must be in format csr, csc or coo; it is 'dia'",
    ),
    "sparse without a part": (
        "d.npz",
        lambda p: np.savez(p, data=B, shape=(4, 3)),
        r"'indices', 'indptr' are missing",
    ),
    "sparse out of bounds": (
        "d.npz",
        lambda p: np.savez(p, data=[1.0], indices=[9], indptr=[0, 1], shape=(1, 3), b=[1.0]),
        r"the sparse matrix in .*d.npz must be readable; it is not",
    ),
    "pickle for npy": ("d.npy", _bytes(pickle.dumps(_Trap())), r"the array in .*d.npy must be plain numbers"),
    "npz for npy": (
        "d.npy",
        _archive_named_npy,
        r"d.npy must be an .npy file with one array; it is an archive",
    ),
    "npy of a vector": (
        "d.npy",
        lambda p: np.save(p, B),
        r"the array in .*d.npy must be a matrix; it has shape \(4,\)",
    ),
    "npy not finite": (
        "d.npy",
        lambda p: np.save(p, A / 0.0 * 0.0),
        r"the array\[0, 0\] in .*d.npy must be finite; it is nan, and",
    ),
    "no parquet file": ("d.parquet", _bytes(b"PAR1 no"), r"d.parquet must be a complete Parquet file"),
}


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value")
def test_every_invalid_file_of_samples_has_its_error_message(name: str, tmp_path: Path) -> None:
    file, write, sentence = FAULTS[name]
    with np.errstate(all="ignore"):
        write(tmp_path / file)
    with pytest.raises((BrokenDataError, DataNotFoundError), match=sentence):
        read_samples(tmp_path / file, SamplesLayout())


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("weight", r"must have a column 'weight'; its columns are 'size', 'rooms', 'age', 'price'"),
        ("5", r"a column of .*d.csv must be a number from 1 to 4, or from -1 at the end; got 5"),
        ("0", r"got 0"),
        ("none.npy", r"none.npy must be a file that can be read"),
    ],
)
def test_a_missing_target_is_named(target: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text(text_table())
    with pytest.raises((BrokenDataError, DataNotFoundError), match=sentence):
        read_samples(tmp_path / "d.csv", SamplesLayout(target))


def test_a_target_by_name_needs_names(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text(text_table(names=False))
    with pytest.raises(BrokenDataError, match="must have names in its first line, for a column 'price'"):
        read_samples(tmp_path / "d.csv", SamplesLayout("price", header=False))


ENTRY_FAULTS: dict[str, tuple[str, Write, str]] = {
    "text ids": (
        "r.csv",
        _text("user,item,rating\nann,1,2\n"),
        r"line 2 of .* finite number in column 1, 'user'; it has 'ann'",
    ),
    "halves": (
        "r.csv",
        _text("1,1,2\n1.5,1,2\n"),
        r"rows in .*r.csv must be whole numbers.*; entry 2 is 1.5",
    ),
    "negative": (
        "r.csv",
        _text("1,1,2\n1,-1,2\n"),
        r"columns in .*r.csv must be whole numbers.*; entry 2 is -1",
    ),
    "two columns": (
        "r.csv",
        _text("1,1\n"),
        r"must have row, column and value on each line; it has 2 columns",
    ),
    "no values": (
        "r.npz",
        lambda p: np.savez(p, rows=ROWS, cols=COLS),
        r"must have arrays rows, cols, values.*; 'values' are missing",
    ),
    "lengths": (
        "r.npz",
        lambda p: np.savez(p, rows=ROWS, cols=COLS, values=VALUES[:2]),
        r"must have one length; they have \[2, 4\]",
    ),
    "none": (
        "r.npz",
        lambda p: np.savez(p, rows=[0][:0], cols=[0][:0], values=[0.0][:0]),
        r"must have at least one entry",
    ),
}


@pytest.mark.parametrize("name", ENTRY_FAULTS)
def test_every_invalid_file_of_entries_has_its_error_message(name: str, tmp_path: Path) -> None:
    file, write, sentence = ENTRY_FAULTS[name]
    write(tmp_path / file)
    with pytest.raises(BrokenDataError, match=sentence):
        read_entries(tmp_path / file, EntriesLayout())


def test_columns_of_entries_must_be_three_different_ones(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("1,1,2\n")
    with pytest.raises(BrokenDataError, match=r"must name three different columns.* got 1,1,3 for"):
        read_entries(tmp_path / "r.csv", EntriesLayout(("1", "1", "3")))


@pytest.mark.parametrize(
    ("column", "sentence"),
    [
        (["a", "b"], r"column 'x' of .*d.parquet must be of numbers; it is of string"),
        ([1.0, None], r"column 'x' of .*d.parquet must be finite; row 2 is empty"),
        ([1.0, float("inf")], r"column 'x' of .*d.parquet must be finite; row 2 is inf"),
    ],
)
def test_invalid_columns_of_parquet_have_their_error_messages(
    column: list[Any], sentence: str, tmp_path: Path
) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"x": column, "y": [1.0, 2.0]}), tmp_path / "d.parquet")
    with pytest.raises(BrokenDataError, match=sentence):
        read_samples(tmp_path / "d.parquet", SamplesLayout())


def test_parquet_reads_whole_numbers_truth_values_and_decimals(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    decimals = pa.array([Decimal("1.00"), Decimal("2.00")])
    pq.write_table(pa.table({"i": [3, 4], "t": [True, False], "d": decimals}), tmp_path / "d.pq")
    samples = read_samples(tmp_path / "d.pq", SamplesLayout())
    np.testing.assert_array_equal(samples.A, [[3.0, 1.0], [4.0, 0.0]])
    np.testing.assert_array_equal(samples.b, [1.0, 2.0])


def test_without_pyarrow_the_error_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"needs pyarrow, which is not installed.*dcgs\[parquet\]"):
        read_samples(tmp_path / "d.parquet", SamplesLayout())


def test_a_table_cannot_be_an_npz_file(tmp_path: Path) -> None:
    with pytest.raises(BrokenDataError, match=r"must be one table.*; it is an .npz file"):
        read_table(tmp_path / "p.npz", lambda head: range(head.width), None)


def test_the_name_of_a_file_tells_its_format() -> None:
    names = ["a.npz", "b.NPY", "c.csv.gz", "d.tsv", "e.pq", "f", "g.svm.bz2", "h.2024.csv", "i.xz"]
    assert [kind_of(Path(name)) for name in names] == [
        "npz",
        "npy",
        "text",
        "text",
        "parquet",
        "other",
        "other",
        "text",
        "other",
    ]


def read_numbers(file: Path, agent: int) -> Samples:
    return read_samples(file, SamplesLayout())


def test_one_file_is_split_evenly_in_its_order(tmp_path: Path) -> None:
    np.save(tmp_path / "d.npy", np.column_stack([np.arange(10.0), np.arange(10.0)]))
    parts = DataSource(str(tmp_path / "d.npy")).parts(3, range(3), read_numbers)
    assert [part.A[:, 0].tolist() for part in parts.values()] == [[0, 1, 2], [3, 4, 5], [6, 7, 8, 9]]


@pytest.mark.parametrize("split", ["even", "random", "sorted"])
def test_the_part_of_an_agent_does_not_depend_on_the_other_hosted_agents(split: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.save(tmp_path / "d.npy", rng.standard_normal((11, 3)))
    source = DataSource(str(tmp_path / "d.npy"), split, seed=3)
    together = source.parts(4, range(4), read_numbers)
    for i in range(4):
        (alone,) = source.parts(4, [i], read_numbers).values()
        np.testing.assert_array_equal(alone.A, together[i].A)
        np.testing.assert_array_equal(alone.b, together[i].b)
        assert alone.A.base is None or alone.A.base.shape == alone.A.shape  # keeps nobody else's rows
    everything = np.concatenate([np.column_stack([p.A, p.b]) for p in together.values()])  # type: ignore[list-item]
    np.testing.assert_array_equal(np.sort(everything, axis=0), np.sort(np.load(tmp_path / "d.npy"), axis=0))


def test_sorted_parts_are_in_order_of_the_target(tmp_path: Path) -> None:
    np.save(tmp_path / "d.npy", np.array([[0.0, 3.0], [1.0, 1.0], [2.0, 2.0], [3.0, 0.0]]))
    parts = DataSource(str(tmp_path / "d.npy"), "sorted").parts(2, range(2), read_numbers)
    assert [part.b.tolist() for part in parts.values() if part.b is not None] == [[0.0, 1.0], [2.0, 3.0]]


def test_each_agent_reads_its_own_file_and_no_other(tmp_path: Path) -> None:
    np.save(tmp_path / "site-01.npy", np.ones((2, 3)))
    source = DataSource(str(tmp_path / "site-{rank:02d}.npy"))
    assert list(source.parts(3, [1], read_numbers)) == [1]  # the files of 0 and 2 are not even there


def test_files_are_counted_from_agent_0(tmp_path: Path) -> None:
    source = DataSource(str(tmp_path / "site-{agent}.npy"))
    with pytest.raises(DataNotFoundError, match=r"there is no .*site-0.npy.$"):
        source.count_files()
    np.save(tmp_path / "site-1.npy", A)
    with pytest.raises(DataNotFoundError, match=r"there is no .*site-0.npy, and there is .*site-1.npy"):
        source.count_files()
    np.save(tmp_path / "site-0.npy", A)
    assert source.count_files() == 2
    with pytest.raises(
        ValueError, match=r"as many files .* as agents; there are 1 agents .* Give --agents 2"
    ):
        source.check(1)


def test_more_agents_than_rows_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "d.npy", A)
    with pytest.raises(ValueError, match="agents must be a whole number between 1 and 4"):
        DataSource(str(tmp_path / "d.npy")).parts(5, range(5), read_numbers)
