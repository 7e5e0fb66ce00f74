"""``dcgs fit`` over MPI as separate sites start it: each with a folder, a file and options of its own."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from dcgs.cli import main
from fit_runs import ENVIRONMENT, MPIEXEC, own_lines, same

FIT = "fit logistic --open --target died --radius 1 --held-out 0 --out m"


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder for each of three sites, with a file of patients."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for i in range(3):
        age, hb = rng.normal(60.0, 10.0, 24 + i), rng.normal(14.0, 2.0, 24 + i)
        died = (age + 9.0 * rng.standard_normal(24 + i) > 60.0).astype(int)
        lines = [f"{a:.1f},{h:.2f},{d}" for a, h, d in zip(age, hb, died, strict=True)]
        Path(f"site{i}").mkdir()
        for name in (f"site{i}/patients.csv", f"site{i}/h-{i}.csv", f"h-{i}.csv"):
            Path(name).write_text("\n".join(["age,hb,died", *lines]) + "\n")


def at_sites(commands: Sequence[str]) -> tuple[int, str, str]:
    """Run a command at each site, in its own folder; return status, output and errors."""
    dcgs = [sys.executable, "-m", "dcgs"]
    parts = [
        ["-n", "1", "-wdir", str(Path(f"site{i}").resolve()), *dcgs, *shlex.split(each)]
        for i, each in enumerate(commands)
    ]
    argv = [word for part in parts for word in (":", *part)][1:]
    done = subprocess.run(
        [str(MPIEXEC), *argv], env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=600.0
    )
    return done.returncode, " ".join(done.stdout.split()), done.stderr


def test_a_name_without_a_number_is_the_own_file_of_each_site() -> None:
    status, printed, errors = at_sites([f"{FIT} --data patients.csv"] * 3)
    assert (status, own_lines(errors)) == (0, [])
    assert "note: processes have different files patients.csv: each was taken as that of its" in printed
    assert json.loads(Path("site0/m/summary.json").read_text())["agents"][0]["rows"] == 24  # all of its rows
    assert main(shlex.split(f"{FIT} --data h-{{agent}}.csv")) == 0
    Path("many").mkdir()
    for i in range(3):
        Path(f"site{i}/m/agent-00{i}.npz").rename(f"many/agent-00{i}.npz")
    assert same("m", "many")


def test_options_that_differ_at_one_site_are_refused_with_sites_and_values() -> None:
    plain = f"{FIT} --data patients.csv"
    status, _, errors = at_sites(
        [f"{plain} --name ulm", f"{plain} --class-weight balanced", f"{plain} --missing drop --name graz"]
    )
    assert status == 2
    (line,) = own_lines(errors)
    assert "--class-weight is not given at ulm and graz, and 'balanced' at agent 1. Give the" in line
    assert "same options; --missing is 'mean' at ulm and agent 1, and 'drop' at graz; " in line


def test_another_target_and_a_missing_file_are_named_with_their_site() -> None:
    plain = f"{FIT} --data 'h-{{agent}}.csv'"
    status, _, errors = at_sites([plain, plain.replace("died", "died30"), plain])
    assert status == 2
    assert "--target is 'died' at agents 0 and 2, and 'died30' at agent 1." in own_lines(errors)[0]
    Path("site2/h-2.csv").unlink()
    status, _, errors = at_sites([plain] * 3)
    assert own_lines(errors) == [
        "dcgs: error: agent 2 failed: h-2.csv must be a file that can be read; No such file or directory."
    ]


def test_every_site_gets_model_page_and_summary_and_can_show_and_predict(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = f"{FIT} --data patients.csv".replace("--radius 1", "--radius auto --folds 3")
    status, printed, errors = at_sites([f"{command} --name {name}" for name in ("ulm", "graz", "bern")])
    assert (status, own_lines(errors)) == (0, [])
    assert [printed.count(f"│ {name} │") for name in ("ulm", "graz", "bern")] == [2, 2, 2]
    assert printed.count("written: m/agent-000.npz …, summary.json, report.html") == 1
    names = ["path.json", "path.png", "report.html", "summary.json"]
    for i in range(3):
        assert sorted(file.name for file in Path(f"site{i}/m").iterdir()) == [
            f"agent-00{i}.npz",
            f"ledger-00{i}.jsonl",
            *names,
        ]
    summaries = [json.loads(Path(f"site{i}/m/summary.json").read_text()) for i in range(3)]
    for name in ("status", "rounds", "bytes", "scores", "sent", "path", "gap", "set", "data_notes"):
        assert summaries[1][name] == summaries[2][name] == summaries[0][name]
    assert [agent.get("rows") for agent in summaries[2]["agents"]] == [None, None, 26]  # of its own agent
    monkeypatch.chdir("site2")
    capsys.readouterr()
    assert main(["show", "m"]) == 0
    shown = capsys.readouterr().out
    assert "age" in shown
    assert "site: bern\n" in shown
    assert main(shlex.split("predict m --data patients.csv --out p.csv")) == 0
    assert len(Path("p.csv").read_text().splitlines()) == 27


def test_every_site_describes_its_own_file_under_its_name() -> None:
    names = ("ulm", "graz", "bern")
    status, printed, errors = at_sites([f"describe --data patients.csv --name {name}" for name in names])
    assert (status, own_lines(errors)) == (0, [])
    assert "┃ all ┃ ulm ┃ graz ┃ bern ┃" in printed
    assert "│ rows │ 75 │ 24 │ 25 │ 26 │" in printed
    assert "note: processes have different files patients.csv" in printed
    assert printed.count("suppressed: a number of less than 10") == 1


def test_with_masks_each_site_notes_what_is_odd_in_its_own_data_and_tells_no_other() -> None:
    head, *rows = Path("site1/patients.csv").read_text().splitlines()
    rows[:2] = [f"-999,{row.partition(',')[2]}" for row in rows[:2]]
    Path("site1/patients.csv").write_text("\n".join([head, *rows]) + "\n")
    head, *rows = Path("site2/patients.csv").read_text().splitlines()
    cells = [row.split(",") for row in rows]
    rows = [f"{age},{88.4 * float(hb):.1f},{died}" for age, hb, died in cells]
    Path("site2/patients.csv").write_text("\n".join([head, *rows]) + "\n")
    command = f"{FIT} --data patients.csv".replace("--open ", "")
    status, printed, errors = at_sites([command] * 3)
    assert (status, own_lines(errors)) == (0, [])
    codes = "agent 1 (patients.csv) has 2 × -999 in 'age'; if such a value stands for a missing one"
    scale = "agent 2 (patients.csv) has a mean of 'hb' far from that of the others"
    for note in ("sums over the sites are masked", codes, scale):
        assert f"note: {note}" in printed
    notes = [
        " ".join(json.loads(Path(f"site{i}/m/summary.json").read_text())["data_notes"]) for i in range(3)
    ]
    assert [codes in text for text in notes] == [False, True, False]
    assert [scale in text for text in notes] == [False, False, True]
    assert "the same value in all rows" not in printed  # a column that is left out is not constant


def test_a_misspelled_option_of_one_site_is_printed_there() -> None:
    plain = f"{FIT} --data patients.csv"
    status, _, errors = at_sites([plain, f"{plain} --clas-weight balanced", plain])
    assert status != 0
    assert "rank 1: dcgs: error: unrecognized arguments: --clas-weight balanced" in errors


def test_a_site_that_cannot_read_its_file_says_so_to_all_in_its_schema() -> None:
    Path("site1/patients.csv").write_text("age,hb,died\n60,14,1\n61,13\n")
    status, _, errors = at_sites([f"{FIT} --data patients.csv"] * 3)
    assert status == 2
    assert own_lines(errors) == [
        "dcgs: error: agent 1 failed: line 3 of patients.csv must have 3 columns, as the first line; it has "
        "2. Correct the line."
    ]


def test_what_is_wrong_in_a_file_stays_at_its_site_where_there_are_floors() -> None:
    Path("site1/patients.csv").write_text(Path("site1/patients.csv").read_text() + "secret,1\n")
    command = f"{FIT} --data patients.csv"
    _, _, told = at_sites([command] * 3)
    assert "secret" in told or "must have" in told
    status, _, errors = at_sites([command.replace(" --open", "")] * 3)
    assert status == 2
    hidden = "agent 1 failed: its file cannot be used; only its own output says why."
    assert f"dcgs: error: {hidden}" in own_lines(errors)
    assert sum("must have" in line for line in own_lines(errors)) == 1  # of the site itself
