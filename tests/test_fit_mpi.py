"""``dcgs fit`` over MPI: the models of one process to the bit, also when it is resumed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fit_runs import ENVIRONMENT, alone, own_lines, same, together, write_sites


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_sites(3, tmp_path)
    rng = np.random.default_rng(3)
    rows, cols = rng.integers(0, 6, 40), rng.integers(0, 7, 40)
    np.savez("ratings.npz", rows=rows, cols=cols, values=rng.integers(1, 6, 40) * 1.0)
    for i in range(3):
        users, items, stars = rng.integers(0, 9, 50), rng.integers(3 * i, 12, 50), rng.integers(1, 6, 50)
        pairs = zip(users.tolist(), items.tolist(), stars.tolist(), strict=True)
        Path(f"stars-{i}.csv").write_text("".join(f"user {u},film-{v},{s}\n" for u, v, s in pairs))
        A = rng.standard_normal((30, 3))
        np.savez(f"kinds-{i}.npz", A=A, b=np.digitize(A[:, 0] + rng.standard_normal(30), [-0.6, 0.6]))


@pytest.mark.parametrize(
    ("ranks", "command"),
    [
        (3, "fit lasso --data 'site-{rank}.npz' --open --radius 2 --graph path"),
        (2, "fit completion --data ratings.npz --shape 6,7 --radius 9 --agents 5 --rounds 25 --measure 5"),
        (3, "fit completion --data 'stars-{rank}.csv' --open --radius 9 --graph path"),
        (2, "fit completion --data 'stars-{rank}.csv' --open --radius auto --graph path --agents 3"),
        (2, "fit logistic --data 'kinds-{rank}.npz' --open --radius auto --agents 3 --class-weight balanced"),
    ],
)
def test_models_over_mpi_are_those_of_one_process_to_the_bit(ranks: int, command: str) -> None:
    assert alone(f"{command} --out one") == 0
    status, printed, errors = together(ranks, f"{command} --out many")
    assert (status, own_lines(errors)) == (0, [])
    assert same("one", "many")
    assert printed.count("written: many/agent-000.npz …, summary.json") == 1
    assert printed.count("s waiting") == 1
    one, many = (json.loads(Path(folder, "summary.json").read_text()) for folder in ("one", "many"))
    names = (
        "status",
        "iterations",
        "rounds",
        "messages",
        "bytes",
        "before the run",
        "offsets",
        "path",
        "paths",
        "classes",
        "sent",
    )
    for name in names:
        assert many.get(name) == one.get(name)
    assert all(agent["computing"] > 0.0 and agent["waiting"] > 0.0 for agent in many["agents"])
    assert many.get("measures") == one.get("measures")


def test_a_fit_that_starts_its_processes_itself_has_all_agents() -> None:
    """Three agents in two processes."""
    command = "fit lasso --data site-{agent}.npz --open --radius 2 --rounds 20"
    assert alone(f"{command} --out one") == 0
    argv = f"{command} --runtime mpi --ranks 2 --timeout 30 --out many".split()
    done = subprocess.run(
        [sys.executable, "-m", "dcgs", *argv], env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, own_lines(done.stderr)) == (0, [])
    assert same("one", "many")
    assert json.loads(Path("many/summary.json").read_text())["runtime"] == "MPI(timeout=30.0)"


def test_a_fit_resumed_in_another_number_of_processes_ends_with_the_same_bits() -> None:
    """From 3 processes to 2 and to this one; the folder of models is that of the unfinished fit."""
    command = (
        "fit lasso --data site-{agent}.npz --open --radius 2 --agents 3 --eta 3 --gap 1e-9"  # many iterations
    )
    saved = f"{command} --checkpoint saved --every 4 --out many"
    assert alone(f"{command} --iterations 30 --out one") == 0
    assert together(3, f"{saved} --iterations 10")[0] == 0
    status, printed, errors = together(2, f"{saved} --iterations 20 --resume")
    assert (status, own_lines(errors)) == (0, [])
    assert printed.count("resumed after iteration 10") == 1
    assert not same("one", "many")
    assert alone(f"{saved} --iterations 30 --resume") == 0
    assert same("one", "many")
    summary = json.loads(Path("many/summary.json").read_text())
    assert (summary["checkpoint"]["resumed"], summary["iterations"]) == (20, 30)
    assert summary["bytes"] == json.loads(Path("one/summary.json").read_text())["bytes"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("--every 3", "--every needs a folder for the state of the agents. Add --checkpoint DIR."),
        ("--resume", "--resume needs a folder for the state of the agents. Add --checkpoint DIR."),
        (
            "--checkpoint none --resume",
            "there must be a checkpoint to resume; 'none' has none that is complete. Leave out resume "
            "(--resume) to",
        ),
        (
            "--checkpoint saved",
            "'saved' has iterations [0, 10]. Resume them with resume=True (--resume), or choose another "
            "folder.",
        ),
        (
            "--checkpoint saved --resume --seed 4",
            "the checkpoint in 'saved' is of another run: it was made with seed 0, the run has 4.",
        ),
    ],
)
def test_what_cannot_be_resumed_is_refused_in_words_of_the_command(
    options: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = "fit lasso --data site-{agent}.npz --open --radius 2 --out m"
    assert alone(f"{command} --iterations 10 --checkpoint saved --every 20") == 0
    with pytest.raises(SystemExit) as stop:
        alone(f"{command} --iterations 30 --force {options}")
    assert stop.value.code == 2
    assert sentence in capsys.readouterr().err


def test_resume_auto_starts_a_new_fit_if_there_is_nothing_to_resume() -> None:
    command = "fit lasso --data site-{agent}.npz --open --radius 2 --out m --iterations 10"
    assert alone(f"{command} --checkpoint saved --resume auto") == 0
    assert alone(f"{command} --checkpoint saved --resume auto") == 0
    assert json.loads(Path("m/summary.json").read_text())["checkpoint"]["resumed"] == 10
