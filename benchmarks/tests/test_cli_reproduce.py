"""``dcgs reproduce`` and ``dcgs report``, as they are typed."""

from __future__ import annotations

import json
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dcgs.cli import main
from dcgs.run.minimize import minimize
from dcgs.run.result import Callback, Result, Snapshot
from dcgs_bench.paper import catalog, claims
from dcgs_bench.paper.catalog import Options
from dcgs_bench.paper.figures import study_figures
from dcgs_bench.paper.results import PaperStudy
from dcgs_bench.study import Budget

PNG, PDF = b"\x89PNG", b"%PDF"


def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the quick experiments, the oracle's matrix, and the figures: those of one experiment."""
    original = catalog.experiment

    def shortened(name: str, options: Options) -> object:
        made = original(name, options)
        return replace(
            made, runs=[replace(run, budget=Budget(8, lmo_calls=200, every=4)) for run in made.runs]
        )

    monkeypatch.setattr("dcgs_bench.cli.reproduce.experiment", shortened)

    def first(study: PaperStudy) -> object:
        return study_figures(replace(study, findings=study.findings[:1]))

    monkeypatch.setattr("dcgs_bench.cli.reproduce.PAPER_SIDE", 500)
    monkeypatch.setattr("dcgs_bench.paper.folder.study_figures", first)


def refused(argv: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        main(argv)
    assert ended.value.code == 2
    return " ".join(capsys.readouterr().err.split())


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run") / "report"
    empty = tmp_path_factory.mktemp("no data")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("DCGS_DATA", str(empty))
        monkeypatch.setenv("XDG_CACHE_HOME", str(empty))
        small(monkeypatch)
        assert main(["reproduce", "--quick", "--out", str(out)]) == 0
    return out


def test_all_that_is_promised_is_in_the_folder(report: Path) -> None:
    assert (report / "index.html").read_text().startswith("<!doctype html>")
    for asked in ("lasso-synthetic", "lasso-e2006", "completion-synthetic"):
        made = catalog.experiment(asked, Options(quick=True))
        name = made.name
        for kind in ("data", "timing"):
            kept = {file.stem for file in (report / kind / name).glob("*.csv")}
            assert kept == {run.key for run in made.runs}
        assert {file.stem for file in (report / "runs" / name).glob("*.json")} == {
            run.key for run in made.runs
        }
    for view in ("paper", "all-data"):
        assert (report / "figures" / f"lasso-synthetic-{view}.png").read_bytes().startswith(PNG)
        assert (report / "figures" / f"lasso-synthetic-{view}.pdf").read_bytes().startswith(PDF)
    assert list(report.rglob("*.part")) == []


def test_the_manifest_has_command_seed_versions_machine_and_time(report: Path) -> None:
    manifest = json.loads((report / "manifest.json").read_text())
    assert manifest["seed"] == 0
    assert manifest["quick"] is True
    assert manifest["command"].startswith("dcgs")
    assert {"dcgs", "numpy", "scipy", "python"} <= set(manifest["versions"])
    assert set(manifest["machine"]) == {"system", "processor", "cores"}
    assert manifest["seconds"] > 0.0
    assert manifest["started"].endswith("+00:00")
    assert manifest["cost"]["side"] == 100


def test_the_page_says_which_data_are_missing_and_how_to_get_them(report: Path) -> None:
    page = (report / "index.html").read_text()
    assert "MovieLens 100K was not found." in page
    assert "ml-100k.zip" in page
    assert not (report / "data" / "completion-movielens").exists()


def test_real_and_look_alike_cannot_be_mistaken_on_the_page(report: Path) -> None:
    page = (report / "index.html").read_text()
    assert "Not the real data: a look-alike of E2006-tfidf, made from seed 0." in page


def test_report_writes_the_same_page_and_figures_without_running(
    report: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*_: object, **__: object) -> None:
        pytest.fail("something was run")

    small(monkeypatch)
    monkeypatch.setattr("dcgs_bench.study.minimize", run)
    names = ["index.html", "figures/lasso-synthetic-paper.png", "figures/lasso-synthetic-all-data.pdf"]
    before = {name: (report / name).read_bytes() for name in names}
    for name in names:
        (report / name).unlink()
    assert main(["report", str(report)]) == 0
    assert {name: (report / name).read_bytes() for name in names} == before
    assert str(report / "index.html") in capsys.readouterr().out.replace("\n", "")


def test_the_same_command_again_finds_all_done(
    report: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DCGS_DATA", str(report))
    monkeypatch.setenv("XDG_CACHE_HOME", str(report))
    small(monkeypatch)
    monkeypatch.setattr("dcgs_bench.paper.folder.study_figures", lambda study: {})
    before = json.loads((report / "manifest.json").read_text())
    assert main(["reproduce", "--quick", "--out", str(report)]) == 0
    shown = capsys.readouterr().out
    assert "runs:" not in shown
    after = json.loads((report / "manifest.json").read_text())
    assert after["experiments"]["lasso-synthetic"] == before["experiments"]["lasso-synthetic"]
    assert after["cost"] == before["cost"]


def test_another_seed_does_not_go_into_the_same_folder(
    report: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    message = refused(["reproduce", "--quick", "--seed", "1", "--out", str(report)], capsys)
    assert "seed was 0, is 1" in message


def test_another_link_changes_the_page_and_nothing_else(
    report: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dcgs_bench.paper.folder.study_figures", lambda study: {})
    shutil.copytree(report, tmp_path / "copy", ignore=shutil.ignore_patterns("figures"))
    study = [*(tmp_path / "copy" / "data").rglob("*.csv"), tmp_path / "copy" / "manifest.json"]
    before = [file.read_bytes() for file in study]
    assert main(["report", str(tmp_path / "copy"), "--link", "3GB/s"]) == 0
    assert "on links of 3 GB/s" in (tmp_path / "copy" / "index.html").read_text()
    assert [file.read_bytes() for file in study] == before


def test_help_lists_the_experiments_and_teaches_by_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["reproduce", "--help"])
    shown = capsys.readouterr().out
    assert all(name in shown for name in catalog.NAMES)
    assert "examples:" in shown


def test_an_unknown_experiment_is_refused_with_the_known_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    message = refused(["reproduce", "lasso", "--out", str(tmp_path / "out")], capsys)
    assert (
        "must be one of lasso-synthetic, lasso-e2006, completion-synthetic, completion-movielens" in message
    )
    assert "got lasso." in message
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("job", [["reproduce"], ["report", "somewhere"]])
def test_a_link_that_is_none_is_refused(job: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert "such as 10MB/s" in refused([*job, "--link", "fast"], capsys)


def test_a_negative_seed_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert "must be at least 0" in refused(["reproduce", "--seed", "-1"], capsys)


def test_a_folder_with_other_files_is_refused_and_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    assert "must be empty" in refused(["reproduce", "--quick", "--out", str(tmp_path)], capsys)
    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_report_of_no_study_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "must be a manifest written by dcgs reproduce" in refused(["report", str(tmp_path)], capsys)
    assert list(tmp_path.iterdir()) == []


def test_broken_data_are_refused_by_their_line_and_leave_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "u.data").write_text("196\t242\t3\t881250949\n186\t302\tthree\t891717742\n")
    argv = ["reproduce", "completion-movielens", "--data", str(tmp_path), "--out", str(tmp_path / "out")]
    message = refused(argv, capsys)
    assert "line 2" in message
    assert list((tmp_path / "out").iterdir()) == []


def test_ctrl_c_keeps_every_finished_run_and_writes_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started: list[str] = []

    def interrupted(*args: Any, callback: Callback, **settings: Any) -> Result:
        started.append(type(args[3]).__name__)

        def observe(snapshot: Snapshot) -> bool | None:
            if len(started) == 2:
                signal.raise_signal(signal.SIGINT)  # in the middle of the second run
            return callback(snapshot)

        return minimize(*args, callback=observe, **settings)

    monkeypatch.setattr("dcgs_bench.study.minimize", interrupted)
    small(monkeypatch)
    monkeypatch.setattr("dcgs_bench.paper.folder.study_figures", lambda study: {})
    out = tmp_path / "out"
    assert main(["reproduce", "lasso-synthetic", "--quick", "--out", str(out)]) == 130
    assert started == ["DFW", "DCGS"]
    shown = " ".join(capsys.readouterr().out.split())
    assert "Run the same command again to continue." in shown
    assert [record.stem for record in (out / "runs" / "lasso-synthetic").iterdir()] == ["dfw"]
    assert "run the same command again" in (out / "index.html").read_text()


# The cost of a round.


def test_the_share_of_waiting_follows_from_the_seconds_of_a_call() -> None:
    calls = [{"case": "a", "seconds": s} for s in (8.0, 4.0, 1.0)]
    judged = claims.judged({"side": 10_000, "threads": 2, "calls": calls})
    assert [row["waiting_share"] for row in judged.rows] == [80 / 88, 80 / 84, 80 / 81]
    assert judged.rows[0]["waiting_share_dfw"] == 160 / 168
    assert str(judged.claim.verdict) == "holds"


@pytest.mark.parametrize(
    ("side", "seconds", "verdict"),
    [(10_000, 1.9, "holds"), (10_000, 2.1, "does not hold"), (2000, 0.01, "not settled here")],
)
def test_the_verdict_is_on_the_papers_size_only(side: int, seconds: float, verdict: str) -> None:
    calls = [{"case": "a", "seconds": s} for s in (8.0, 4.0, seconds)]
    assert str(claims.judged({"side": side, "threads": 2, "calls": calls}).claim.verdict) == verdict


def test_the_oracle_is_really_called_at_the_size_asked_for() -> None:
    measured = claims.measure(300, seed=0)
    assert measured["side"] == 300
    assert len(measured["calls"]) == 3
    assert all(call["seconds"] > 0.0 for call in measured["calls"])


# Progress.


def test_when_nothing_asked_for_could_be_run_the_status_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    small(monkeypatch)
    argv = ["reproduce", "completion-movielens", "--quick", "--data", str(tmp_path)]
    assert main([*argv, "--out", str(tmp_path / "out")]) == 1
    assert "MovieLens 100K was not found." in " ".join(capsys.readouterr().out.split())


def test_a_path_with_brackets_is_shown_as_it_is(
    report: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(report, tmp_path / "out[old]")
    monkeypatch.setattr("dcgs_bench.paper.folder.study_figures", lambda study: {})
    assert main(["report", str(tmp_path / "out[old]")]) == 0
    assert "out[old]/index.html" in capsys.readouterr().out.replace("\n", "")


def test_the_link_of_the_run_is_that_of_its_report(
    report: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(report, tmp_path / "copy")
    manifest = json.loads((report / "manifest.json").read_text())
    (tmp_path / "copy" / "manifest.json").write_text(json.dumps(manifest | {"link": 7e6}))
    monkeypatch.setattr("dcgs_bench.paper.folder.study_figures", lambda study: {})
    assert main(["report", str(tmp_path / "copy")]) == 0
    assert "on links of 7 MB/s" in (tmp_path / "copy" / "index.html").read_text()


def test_an_interruption_elsewhere_ends_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("dcgs_bench.over_mpi.run_ranks", interrupted)
    with pytest.raises(SystemExit) as ended:
        main(["bench", "exchange"])
    assert ended.value.code == 130
    assert capfd.readouterr().err == "dcgs: interrupted.\n"
