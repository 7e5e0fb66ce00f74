"""Reading .npz files: sizes are checked before memory is taken."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dcgs import files
from dcgs.datasets import read_libsvm
from dcgs.files import NpzReader


def archive(**arrays: Any) -> io.BytesIO:
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file


@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.bool_, "U5"])
def test_arrays_are_those_that_were_written(dtype: str) -> None:
    x = np.asfortranarray(np.arange(6).reshape(2, 3).astype(dtype))
    reader = NpzReader(archive(x=x, empty=np.zeros((0, 4))))
    assert reader.names == ["x", "empty"]
    assert reader.header("x").shape == (2, 3)
    assert reader.header("x").nbytes == x.nbytes
    assert reader.array("x").dtype == x.dtype
    assert (reader.array("x") == x).all()
    assert reader.array("empty").shape == (0, 4)


def test_an_array_larger_than_the_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "memory_size", lambda: 799)
    with pytest.raises(ValueError, match=r"'x' needs 800 bytes, more than the memory of this machine"):
        NpzReader(archive(x=np.zeros(100))).array("x")


def test_an_array_whose_shape_is_not_that_of_its_bytes_is_refused() -> None:
    content = io.BytesIO()
    np.save(content, np.zeros(3))
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as out:
        out.writestr("x.npy", content.getvalue().replace(b"(3,)", b"(9,)"))
    with pytest.raises(ValueError, match=r"the size of 'x' is not that of shape \(9,\)"):
        NpzReader(file).array("x")


def test_objects_and_other_files_are_refused() -> None:
    with pytest.raises(ValueError, match="never unpickled"):
        NpzReader(archive(x=np.array([{}], dtype=object))).header("x")
    with pytest.raises(ValueError, match="not a zip archive"):
        NpzReader(io.BytesIO(b"no archive"))


def test_a_huge_index_of_libsvm_text_is_read_if_the_number_of_features_allows_it(tmp_path: Path) -> None:
    file = tmp_path / "d.svm"
    file.write_text("1 1000000000:2\n")
    with pytest.raises(ValueError, match="indices from 1 to 134217728"):
        read_libsvm(file)
    assert read_libsvm(file, 1_000_000_000)[0].shape == (1, 1_000_000_000)
