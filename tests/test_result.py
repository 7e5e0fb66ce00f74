"""The result of a run, the file it is saved in, and the table it becomes."""

from __future__ import annotations

import dataclasses
import gc
import json
import os
import sys
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

import dcgs
from dcgs.run.result import Result
from dcgs.run.stopping import Status

MEASURES = [
    "local_loss",
    "mean_loss",
    "worst_loss",
    "disagreement",
    "gap",
    "certified_gap",
    "rounds",
    "messages",
    "bytes",
    "peak_bytes",
    "lmo_calls",
    "projections",
    "seconds",
    "computing",
]
ARRAYS = [
    "x",
    "agents",
    "hosted",
    "messages",
    "bytes",
    "lmo_calls",
    "projections",
    "computing",
    "waiting",
    "certificates",
]
FACTS = ["status", "iterations", "rounds", "seconds", "notes", "about"]


def run(**rules: Any) -> Result:
    """Return the result of a small run with a note, over matrices so that shapes matter."""
    rng = np.random.default_rng(7)
    objectives = [
        dcgs.MatrixCompletion([0, 1, 2, 2], [0, 3, 1, 2], rng.standard_normal(4), shape=(3, 4))
        for _ in range(3)
    ]
    ball = dcgs.NuclearNormBall((3, 4), radius=1.0)
    never = dcgs.Params(alpha=1.0, tau=3.0, eta=3.0, theta=1.0, e=0.0)
    method = dcgs.DCGS(inner=dcgs.CG(max_steps=3), schedule=lambda k: never)
    return dcgs.minimize(objectives, ball, nx.path_graph(3), method, **({"iterations": 5} | rules))


RESULT = run()


def rewritten(path: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """Return the path of a saved result in which some arrays were changed."""
    with np.load(RESULT.save(path)) as file:
        arrays = {name: file[name] for name in file.files}
    change(arrays)
    np.savez(path, **arrays)
    return path


def with_meta(path: Path, meta: object) -> Path:
    return rewritten(path, lambda arrays: arrays.update(meta=np.array(json.dumps(meta))))


def meta_of(path: Path) -> dict[str, Any]:
    with np.load(RESULT.save(path)) as file:
        return dict(json.loads(str(file["meta"])))


def assert_clear(caught: pytest.ExceptionInfo[Exception], path: Path) -> None:
    """Assert that the message is in the house style and names the file."""
    message = str(caught.value)
    assert repr(str(path)) in message
    assert message[0] == message[0].lower()
    assert message.endswith(".")


# Save and load.


def test_a_result_has_no_field_that_these_tests_do_not_know() -> None:
    assert {field.name for field in dataclasses.fields(Result)} == {*ARRAYS, *FACTS, "history"}


def test_a_saved_result_comes_back_to_the_bit_and_with_its_types(tmp_path: Path) -> None:
    back = Result.load(RESULT.save(tmp_path / "run.npz"))
    arrays = [(getattr(back, name), getattr(RESULT, name)) for name in ARRAYS]
    columns = [(getattr(back.history, name), column) for name, column in RESULT.history.columns().items()]
    for got, sent in arrays + columns:
        assert (got.dtype, got.shape) == (sent.dtype, sent.shape)
        assert got.tobytes() == sent.tobytes()
    for name in FACTS:
        assert getattr(back, name) == getattr(RESULT, name)
        assert type(getattr(back, name)) is type(getattr(RESULT, name))


def test_the_run_that_is_saved_here_has_something_of_everything() -> None:
    assert len(RESULT.notes) == 1
    assert len(RESULT.history) == 6
    assert RESULT.seconds > 0.0
    assert RESULT.about["seed"] == 0


@pytest.mark.parametrize("status", list(Status), ids=lambda s: s.name)
def test_every_status_comes_back(status: Status, tmp_path: Path) -> None:
    result = dataclasses.replace(RESULT, status=status)
    assert Result.load(result.save(tmp_path / "run.npz")).status is status


def test_numbers_that_are_no_ordinary_numbers_come_back(tmp_path: Path) -> None:
    odd = np.array([[-0.0, 5e-324, np.inf, np.nan]])
    result = dataclasses.replace(RESULT, x=odd, seconds=0.1 + 0.2)
    back = Result.load(result.save(tmp_path / "run.npz"))
    assert back.x.tobytes() == odd.tobytes()
    assert back.seconds == 0.1 + 0.2


def test_notes_come_back_in_any_alphabet(tmp_path: Path) -> None:
    result = dataclasses.replace(RESULT, notes=("η τ ≥ ‖L‖² · 収束", ""))
    assert Result.load(result.save(tmp_path / "run.npz")).notes == ("η τ ≥ ‖L‖² · 収束", "")


def test_a_seed_of_numpy_can_be_saved(tmp_path: Path) -> None:
    result = run(seed=np.int64(3))
    assert Result.load(result.save(tmp_path / "run.npz")).about["seed"] == 3


def test_the_file_is_read_without_pickle(tmp_path: Path) -> None:
    path = RESULT.save(tmp_path / "run.npz")
    with np.load(path, allow_pickle=False) as file:
        kinds = {name: file[name].dtype.kind for name in file.files}
        assert kinds.pop("certificates") == "V"  # a table
        kinds |= {name: dtype.kind for name, (dtype, _) in (file["certificates"].dtype.fields or {}).items()}
    assert set(kinds.values()) <= {"f", "i", "U"}
    with zipfile.ZipFile(path) as archive:
        assert all(name.endswith(".npy") for name in archive.namelist())


@pytest.mark.parametrize("name", ["run", "run.dcgs", "run.npz", "a b", "lauf-ä"])
@pytest.mark.parametrize("kind", [str, Path])
def test_the_file_has_exactly_the_name_that_was_given(
    name: str, kind: Callable[[Path], Any], tmp_path: Path
) -> None:
    path = RESULT.save(kind(tmp_path / name))
    assert path == tmp_path / name
    assert [entry.name for entry in tmp_path.iterdir()] == [name]
    assert_array_equal(Result.load(kind(path)).x, RESULT.x)


def test_saving_again_replaces_the_file(tmp_path: Path) -> None:
    run(iterations=2).save(tmp_path / "run.npz")
    RESULT.save(tmp_path / "run.npz")
    assert Result.load(tmp_path / "run.npz").iterations == 5


def fail_halfway(file: Any, **arrays: Any) -> None:
    file.write(b"half a result")
    raise OSError(28, "No space left on device")


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = RESULT.save(tmp_path / "run.npz")
    before = path.read_bytes()
    monkeypatch.setattr("numpy.savez_compressed", fail_halfway)
    with pytest.raises(OSError, match="No space left"):
        run(iterations=2).save(path)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["run.npz"]


def test_a_file_appears_only_when_it_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("numpy.savez_compressed", fail_halfway)
    with pytest.raises(OSError, match="No space left"):
        RESULT.save(tmp_path / "run.npz")
    assert not (tmp_path / "run.npz").exists()


def test_what_cannot_be_written_as_json_leaves_nothing_behind(tmp_path: Path) -> None:
    result = dataclasses.replace(RESULT, about={"method": object()})
    with pytest.raises(TypeError):
        result.save(tmp_path / "run.npz")
    assert list(tmp_path.iterdir()) == []


# Files that are no results.


def garbage(path: Path) -> None:
    path.write_bytes(np.random.default_rng(0).bytes(1000))


def text(path: Path) -> None:
    path.write_text("iterations,gap\n1,2\n", encoding="utf-8")


def empty(path: Path) -> None:
    path.write_bytes(b"")


def truncated(path: Path) -> None:
    path.write_bytes(RESULT.save(path).read_bytes()[:-200])


def a_few_bytes_of_it(path: Path) -> None:
    path.write_bytes(RESULT.save(path).read_bytes()[:10])


def one_array(path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, np.arange(3.0))


def other_npz(path: Path) -> None:
    np.savez(path, x=np.zeros(3), agents=np.zeros((2, 3)))


def npz_of_objects(path: Path) -> None:
    np.savez(path, meta=np.array([{"format": 3}], dtype=object))


def meta_that_is_no_json(path: Path) -> None:
    rewritten(path, lambda arrays: arrays.update(meta=np.array("{format: 1")))


def meta_that_is_a_list(path: Path) -> None:
    with_meta(path, [1, 2])


def without_an_array(path: Path) -> None:
    rewritten(path, lambda arrays: arrays.pop("agents"))


def without_a_column(path: Path) -> None:
    rewritten(path, lambda arrays: arrays.pop("history.gap"))


def with_an_array_too_many(path: Path) -> None:
    rewritten(path, lambda arrays: arrays.update(extra=np.zeros(2)))


def without_a_fact(path: Path) -> None:
    with_meta(path, {name: fact for name, fact in meta_of(path).items() if name != "rounds"})


def with_a_status_of_its_own(path: Path) -> None:
    with_meta(path, meta_of(path) | {"status": "LUCK"})


@pytest.mark.parametrize(
    "damage",
    [
        garbage,
        text,
        empty,
        truncated,
        a_few_bytes_of_it,
        one_array,
        other_npz,
        npz_of_objects,
        meta_that_is_no_json,
        meta_that_is_a_list,
        without_an_array,
        without_a_column,
        with_an_array_too_many,
        without_a_fact,
        with_a_status_of_its_own,
    ],
)
def test_a_file_that_is_no_result_is_refused_by_its_name(
    damage: Callable[[Path], None], tmp_path: Path
) -> None:
    path = tmp_path / "run.npz"
    damage(path)
    with pytest.raises(ValueError, match=r"must be a result written by Result\.save") as caught:
        Result.load(path)
    assert_clear(caught, path)


@dataclasses.dataclass
class Evil:
    """What a pickle may do to whoever opens it: here, make a folder."""

    folder: Path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.folder,)


@pytest.mark.parametrize("name", ["meta", "x", "history.gap", "extra"])
def test_nothing_in_a_file_is_executed(name: str, tmp_path: Path) -> None:
    evil = np.array([Evil(tmp_path / "made")], dtype=object)
    path = rewritten(tmp_path / "run.npz", lambda arrays: arrays.update({name: evil}))
    with pytest.raises(ValueError, match=r"must be a result written by Result\.save"):
        Result.load(path)
    assert not (tmp_path / "made").exists()


def outcome(path: Path) -> str:
    """Return what comes of loading: the same result, a refusal by name, or something else."""
    try:
        back = Result.load(path)
    except ValueError as error:
        return "refused" if repr(str(path)) in str(error) else repr(error)
    except Exception as error:
        return repr(error)
    return "same" if back.agents.tobytes() == RESULT.agents.tobytes() else "another"


def test_wherever_a_file_is_damaged_it_gives_the_same_result_or_is_refused(tmp_path: Path) -> None:
    path = RESULT.save(tmp_path / "run.npz")
    whole = path.read_bytes()
    outcomes = set()
    for at in range(0, len(whole), 23):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        outcomes.add(outcome(path))
    assert outcomes == {"same", "refused"}


def test_wherever_a_file_is_cut_it_is_refused(tmp_path: Path) -> None:
    path = RESULT.save(tmp_path / "run.npz")
    whole = path.read_bytes()
    outcomes = set()
    for length in range(0, len(whole), 97):
        path.write_bytes(whole[:length])
        outcomes.add(outcome(path))
    assert outcomes == {"refused"}


@pytest.mark.parametrize("damage", [garbage, truncated, one_array, other_npz])
def test_a_file_that_is_refused_is_closed(damage: Callable[[Path], None], tmp_path: Path) -> None:
    damage(tmp_path / "run.npz")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        outcome(tmp_path / "run.npz")
        gc.collect()
    assert [str(warning.message) for warning in caught] == []


def test_a_file_that_is_no_result_is_not_taken_for_a_pickle(tmp_path: Path) -> None:
    path = tmp_path / "run.npz"
    garbage(path)
    with pytest.raises(ValueError, match=r"^(?!.*pickle)"):
        Result.load(path)


@pytest.mark.parametrize("version", [1, 6, 8, "7", None])
def test_a_result_of_another_format_is_refused_with_its_format(version: object, tmp_path: Path) -> None:
    path = with_meta(tmp_path / "run.npz", meta_of(tmp_path / "run.npz") | {"format": version})
    with pytest.raises(ValueError, match=rf"a result must be of format 7; .* has {version!r}\.") as caught:
        Result.load(path)
    assert_clear(caught, path)


def test_a_missing_file_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none\.npz"):
        Result.load(tmp_path / "none.npz")


def test_a_missing_folder_is_created(tmp_path: Path) -> None:
    assert Result.load(RESULT.save(tmp_path / "new" / "run.npz")).rounds == RESULT.rounds


# Statuses.


@pytest.mark.parametrize("status", list(Status), ids=lambda s: s.name)
def test_a_status_is_a_sentence(status: Status) -> None:
    sentence = str(status)
    assert sentence == f"{status}"
    assert sentence[0].islower()
    assert sentence.endswith(".")
    assert len(sentence.split()) >= 4


def test_no_two_statuses_say_the_same() -> None:
    assert len({str(status) for status in Status}) == len(Status.__members__) == 12


# The history as a table.


def test_the_columns_of_the_frame_have_the_names_used_everywhere() -> None:
    assert sorted(RESULT.history.to_frame().columns) == sorted(["iterations", *MEASURES])


def test_the_frame_holds_the_numbers_of_the_history() -> None:
    frame = RESULT.history.to_frame()
    assert isinstance(frame, pd.DataFrame)
    assert len(frame) == len(RESULT.history) == 6
    for name in ["iterations", *MEASURES]:
        assert_array_equal(frame[name].to_numpy(), getattr(RESULT.history, name), err_msg=name)


def test_the_frame_is_a_copy_that_may_be_changed() -> None:
    history = run().history
    before = history.gap.copy()
    frame = history.to_frame()
    frame.loc[:, "gap"] = -1.0
    assert_array_equal(history.gap, before)


def test_without_pandas_a_frame_is_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"^to_frame needs pandas; install it with: .*dcgs\[frame\].*\.$"):
        RESULT.history.to_frame()


def test_counts_are_whole_numbers_and_measures_are_not() -> None:
    kinds = {name: column.dtype for name, column in RESULT.history.columns().items()}
    whole = {"iterations", "rounds", "messages", "bytes", "peak_bytes", "lmo_calls", "projections"}
    assert {name for name, kind in kinds.items() if kind == np.int64} == whole
    assert {name for name, kind in kinds.items() if kind == np.float64} == set(kinds) - whole
    per_agent = ("messages", "bytes", "lmo_calls", "projections")
    assert [getattr(RESULT, name).dtype for name in per_agent] == [np.int64] * 4
