"""Data sets: what they can do, where their files are found, and how files are fetched."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from dcgs.datasets import (
    DataNotFoundError,
    DownloadError,
    Ratings,
    Regression,
    Source,
    SourceKind,
    cache_folder,
    completion_synthetic,
    lasso_synthetic,
)
from dcgs.datasets.base import BrokenDataError
from dcgs.datasets.store import Remote, Wanted, checked_sha256, fetch, sha256_of

CONTENT = bytes(range(256)) * 4000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Handler(BaseHTTPRequestHandler):
    """Serve CONTENT: whole, cut short, without its length, or not at all."""

    def do_GET(self) -> None:
        {"/whole": self.whole, "/cut": self.cut, "/open": self.open}.get(self.path, self.missing)()

    def whole(self, length: int = len(CONTENT), body: bytes = CONTENT) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.write(body)

    def cut(self) -> None:
        self.whole(body=CONTENT[:300_000])

    def open(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(CONTENT)

    def missing(self) -> None:
        self.send_error(404, "Not Found")

    def log_message(self, *args: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    """A server that does not print when a client leaves early."""

    def handle_error(self, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("DCGS_DATA", raising=False)
    return tmp_path / "cache" / "dcgs"


def put(file: Path, content: bytes = CONTENT) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    return file


def left(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.glob("*"))


# ---------------------------------------------------------------- what data sets can do


def regression() -> Regression:
    A = np.arange(20.0).reshape(10, 2)
    return Regression(A, A[:, 0], Source("ten rows", SourceKind.REAL))


def test_a_sample_has_matching_rows_and_labels_without_repetition() -> None:
    sample = regression().sample(6, seed=1)
    assert sample.A.shape == (6, 2)
    np.testing.assert_array_equal(sample.A[:, 0], sample.b)
    assert len(set(sample.b)) == 6
    assert set(sample.b) <= set(regression().b)
    assert sample.source == regression().source


def test_a_sample_of_sparse_rows_is_the_same_as_that_of_dense_ones() -> None:
    dense = regression()
    thin = Regression(sparse.csr_array(dense.A), dense.b, dense.source)
    np.testing.assert_array_equal((thin.sample(6).A @ np.eye(2)), dense.sample(6).A)


def test_a_sample_is_random_and_given_by_its_seed() -> None:
    first, again, other = (regression().sample(10, seed=seed).b.tolist() for seed in (0, 0, 1))
    assert first == again
    assert first != other
    assert sorted(first) == regression().b.tolist()


@pytest.mark.parametrize("count", [0, 11])
def test_a_sample_larger_than_the_data_is_refused(count: int) -> None:
    with pytest.raises(
        ValueError,
        match=rf"count must be a whole number between 1 and 10, the rows of ten rows; got {count}\.",
    ):
        regression().sample(count)


def test_entries_are_taken_in_the_given_order() -> None:
    ratings = completion_synthetic(10, 2, 30)
    chosen = np.array([7, 3, 7])
    taken = ratings.take(chosen)
    assert len(taken) == 3
    np.testing.assert_array_equal(taken.rows, ratings.rows[chosen])
    np.testing.assert_array_equal(taken.cols, ratings.cols[chosen])
    np.testing.assert_array_equal(taken.values, ratings.values[chosen])
    assert (taken.shape, taken.source, taken.made_from) == (ratings.shape, ratings.source, ratings.made_from)


def cells(ratings: Ratings) -> set[tuple[int, int, float]]:
    return set(zip(ratings.rows.tolist(), ratings.cols.tolist(), ratings.values.tolist(), strict=True))


def test_a_split_has_every_entry_once_in_the_given_shares() -> None:
    ratings = completion_synthetic(20, 2, 100)
    learn, held_out = ratings.split(0.3, seed=2)
    assert (len(learn), len(held_out)) == (70, 30)
    assert cells(learn) | cells(held_out) == cells(ratings)
    assert not cells(learn) & cells(held_out)


def test_a_split_is_random_and_given_by_its_seed() -> None:
    ratings = completion_synthetic(20, 2, 100)
    first, again, other = (ratings.split(seed=seed)[1].values.tolist() for seed in (0, 0, 1))
    assert first == again
    assert first != other
    assert first != ratings.values[80:].tolist()


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, float("nan")])
def test_a_share_that_leaves_nothing_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match="held_out must be a fraction between 0 and 1; got"):
        completion_synthetic(10, 2, 30).split(share)


def test_synthetic_data_have_a_known_truth() -> None:
    lasso = lasso_synthetic(20, 30, 5, noise=0.0)
    np.testing.assert_allclose(lasso.A @ lasso.truth, lasso.b, rtol=1e-12)  # rounding of one product
    assert completion_synthetic(10, 2, 30).truth.shape == (10, 10)


def test_real_data_have_no_known_truth() -> None:
    with pytest.raises(ValueError, match=r"only synthetic data have a known truth; ten rows is real data\."):
        _ = regression().truth


# ---------------------------------------------------------------- where files are found


def wanted(url: str = "http://127.0.0.1:9/pack.zip", sha256: str | None = SHA256) -> Wanted:
    return Wanted("Some Data", ("plain", "pack.zip"), ("some", "Some"), Remote(url, sha256))


def test_the_default_cache_folder_is_in_the_home_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "dcgs"


def test_a_given_file_may_have_any_name(tmp_path: Path) -> None:
    file = put(tmp_path / "my copy.txt")
    assert wanted().locate(file, False, None) == file


@pytest.mark.parametrize("inside", ["plain", "pack.zip", "some/plain", "Some/pack.zip"])
def test_a_file_is_found_in_a_given_folder(tmp_path: Path, inside: str) -> None:
    file = put(tmp_path / "mine" / inside)
    assert wanted().locate(str(tmp_path / "mine"), False, None) == file


def test_a_given_path_comes_before_every_other_place(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DCGS_DATA", str(tmp_path / "named"))
    put(tmp_path / "named" / "plain")
    put(cache / "plain")
    file = put(tmp_path / "mine" / "some" / "pack.zip")
    assert wanted().locate(tmp_path / "mine", True, None) == file


def test_the_folder_named_by_the_environment_comes_before_the_cache(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DCGS_DATA", str(tmp_path / "named"))
    put(cache / "plain")
    file = put(tmp_path / "named" / "some" / "pack.zip")
    assert wanted().locate(None, True, None) == file


def test_the_cache_comes_before_the_download(cache: Path) -> None:
    file = put(cache / "pack.zip")
    assert wanted().locate(None, True, None) == file


def test_missing_data_are_downloaded_into_the_cache(cache: Path, site: str) -> None:
    file = wanted(f"{site}/whole").locate(None, True, None)
    assert file == cache / "whole"
    assert file.read_bytes() == CONTENT


def test_a_wrong_path_is_not_replaced_by_another_place(cache: Path, tmp_path: Path) -> None:
    put(cache / "plain")
    with pytest.raises(
        DataNotFoundError, match=r"nowhere must be Some Data; there is no such file\. Get http"
    ):
        wanted().locate(tmp_path / "nowhere", True, None)
    with pytest.raises(DataNotFoundError, match=r"Some Data must be in the folder .*; it has no plain or"):
        wanted().locate(tmp_path, True, None)


def test_the_error_for_missing_data_says_where_they_were_searched_and_what_to_do(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DCGS_DATA", str(tmp_path / "named"))
    with pytest.raises(DataNotFoundError) as caught:
        wanted().locate(None, False, None)
    assert str(caught.value) == (
        "the data set Some Data must be on this machine; no plain or pack.zip was found in "
        f"{tmp_path / 'named'} and in {cache}. Get http://127.0.0.1:9/pack.zip and put it in the folder "
        f"that DCGS_DATA names or in {cache}, or give its path, or allow the download."
    )
    assert isinstance(caught.value, FileNotFoundError)


def test_the_error_for_missing_data_says_that_the_variable_is_not_set(cache: Path) -> None:
    with pytest.raises(DataNotFoundError, match=r"was found in .*dcgs \(DCGS_DATA is not set\)\. Get"):
        wanted().locate(None, False, None)


def test_an_unreadable_file_has_its_error_message(tmp_path: Path) -> None:
    with pytest.raises(DataNotFoundError, match=r"must be a file that can be read; Is a directory\."):
        sha256_of(tmp_path)


# ---------------------------------------------------------------- checksums beside files


@pytest.mark.parametrize("text", [SHA256, f"{SHA256}  data\n", f"  {SHA256.upper()} *data\r\n"])
def test_a_checksum_file_is_read_in_every_common_form(tmp_path: Path, text: str) -> None:
    file = put(tmp_path / "data")
    put(tmp_path / "data.sha256", text.encode())
    assert checked_sha256(file) == SHA256


def test_a_file_that_differs_from_its_checksum_file_is_refused_with_both(tmp_path: Path) -> None:
    file = put(tmp_path / "data", CONTENT + b"!")
    put(tmp_path / "data.sha256", SHA256.encode())
    changed = hashlib.sha256(CONTENT + b"!").hexdigest()
    with pytest.raises(
        BrokenDataError, match=rf"the SHA-256 in data.sha256, {SHA256}; it has {changed}\. Get"
    ):
        checked_sha256(file)


@pytest.mark.parametrize("text", [b"", b"\xff\xfe", SHA256[:-1].encode(), SHA256.encode() + b"0"])
def test_an_invalid_checksum_file_is_refused(tmp_path: Path, text: bytes) -> None:
    put(tmp_path / "data.sha256", text)
    with pytest.raises(
        BrokenDataError, match=r"data.sha256 must start with a SHA-256 of 64 hexadecimal digits"
    ):
        checked_sha256(put(tmp_path / "data"))


# ---------------------------------------------------------------- downloads


def test_a_download_reports_its_progress_up_to_the_end(cache: Path, site: str) -> None:
    steps: list[tuple[int, int | None]] = []
    file = fetch(Remote(f"{site}/whole", SHA256), cache, lambda done, total: steps.append((done, total)))
    assert file.read_bytes() == CONTENT
    assert left(cache) == ["whole"]
    done = [step for step, _ in steps]
    assert done == sorted(set(done))
    assert len(done) > 1
    assert steps[-1] == (len(CONTENT), len(CONTENT))


def test_a_download_without_a_known_length_is_complete_at_its_end(cache: Path, site: str) -> None:
    totals: list[int | None] = []
    fetch(Remote(f"{site}/open", SHA256), cache, lambda done, total: totals.append(total))
    assert set(totals) == {None}
    assert (cache / "open").read_bytes() == CONTENT


def stop(done: int, total: int | None) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("remote", "why"),
    [
        (Remote("/cut", SHA256), r"it broke off after 300,000 of 1,024,000 bytes"),
        (Remote("/cut"), r"it broke off after 300,000 of 1,024,000 bytes"),
        (Remote("/whole", "0" * 64), f"its SHA-256 must be {'0' * 64}; it is {SHA256}"),
        (Remote("/whole", start=b"BZh"), r"it must start with b'BZh'; it starts with b'\\x00\\x01\\x02'"),
        (Remote("/other", SHA256), r"the server answered 404 Not Found"),
    ],
    ids=["cut short", "cut short, no checksum", "wrong checksum", "another file", "not there"],
)
def test_a_download_that_fails_says_why_and_leaves_nothing(
    cache: Path, site: str, remote: Remote, why: str
) -> None:
    there = Remote(site + remote.url, remote.sha256, remote.start)
    message = rf"^the download of {there.url} failed; {why}\. Nothing was saved: .* put it in {cache} or"
    with pytest.raises(DownloadError, match=message) as caught:
        fetch(there, cache)
    assert isinstance(caught.value, OSError)
    assert left(cache) == []


def test_a_download_from_a_stopped_server_leaves_nothing(cache: Path) -> None:
    with Server(("127.0.0.1", 0), Handler) as server:
        port = server.server_port
    with pytest.raises(DownloadError, match=r"the connection failed: .*refused"):
        fetch(Remote(f"http://127.0.0.1:{port}/whole", SHA256), cache)
    assert left(cache) == []


def test_a_download_that_is_interrupted_leaves_nothing_and_stays_an_interrupt(cache: Path, site: str) -> None:
    with pytest.raises(
        KeyboardInterrupt, match=r"^the download of .*/whole was interrupted; nothing was saved\.$"
    ):
        fetch(Remote(f"{site}/whole", SHA256), cache, stop)
    assert left(cache) == []


def test_a_download_that_fails_leaves_an_earlier_file_as_it_was(cache: Path, site: str) -> None:
    file = put(cache / "cut", b"earlier")
    with pytest.raises(DownloadError):
        fetch(Remote(f"{site}/cut", SHA256), cache)
    assert file.read_bytes() == b"earlier"
    assert left(cache) == ["cut"]


def test_a_cache_folder_that_cannot_be_created_has_its_error_message(cache: Path, site: str) -> None:
    put(cache.parent, b"a file where the folder should be")
    with pytest.raises(DownloadError, match=r"failed; the cache folder cannot be written: .*\. Nothing"):
        fetch(Remote(f"{site}/whole", SHA256), cache)
