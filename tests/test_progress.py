"""Progress: bars on a terminal, lines on stderr elsewhere; the clock is the test's own."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from rich.console import Console

import dcgs
from dcgs.report import Progress
from dcgs.report.progress import observed
from fit_runs import together, write_sites

SNAPSHOT = dcgs.Snapshot(5, 10, 0, 0, 0, 6, 0, 0.0, 0.0, 1.0, 1.0, 12345.0, 0.0, 0.5)


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def terminal() -> tuple[Console, io.StringIO]:
    screen = io.StringIO()
    return Console(file=screen, force_terminal=True, width=120), screen


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().err.splitlines()


def test_lines_come_at_powers_of_two_when_a_second_has_passed(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with Progress(Console(), clock) as progress:
        advance = progress.counter("runs", 200)
        for _ in range(100):
            clock.now += 0.25
            advance()
    assert lines(capsys) == [
        "runs: 1 of 200 (0%), 0.2 s",
        "runs: 8 of 200 (4%), 2.0 s",
        "runs: 16 of 200 (8%), 4.0 s",
        "runs: 32 of 200 (16%), 8.0 s",
        "runs: 64 of 200 (32%), 16.0 s",
        "runs: 100 of 200 (50%), 25.0 s",
    ]


def test_a_line_comes_after_thirty_seconds_at_any_step(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with Progress(Console(), clock) as progress:
        advance = progress.counter("runs", 8)
        for seconds in (1.0, 1.0, 29.0, 1.0, 1.0, 30.0):
            clock.now += seconds
            advance()
        assert [line.split()[1] for line in lines(capsys)] == ["1", "2", "4", "6"]


def test_a_download_begins_with_its_first_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(Console(), Clock()) as progress:
        progress.download("never begun")
        progress.download("ml-100k.zip")(2_000_000, 5_000_000)
        progress.download("no length")(2_000, None)
    assert lines(capsys) == ["ml-100k.zip: 2.00 MB (40%), 0.0 s", "no length: 2.00 kB, 0.0 s"]


def test_work_that_fails_prints_no_last_line(capsys: pytest.CaptureFixture[str]) -> None:
    def work() -> None:
        with Progress(Console(), Clock()) as progress:
            advance = progress.counter("runs", 5)
            for _ in range(3):
                advance()
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        work()
    assert lines(capsys) == ["runs: 1 of 5 (20%), 0.0 s"]


def test_a_run_prints_its_rounds_bytes_and_measured_gap(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    objectives = [dcgs.LeastSquares(np.eye(2), np.array([i, 1.0])) for i in range(3)]
    with Progress(Console(), clock) as progress:
        task = progress.rounds("lasso", 6)
        task.measured(SNAPSHOT)
        runtime = observed(dcgs.Lockstep(), task.after_round)
        dcgs.minimize(
            objectives, dcgs.L1Ball(2), nx.cycle_graph(3), dcgs.DFW(), rounds=6, every=0, runtime=runtime
        )
    first, last = lines(capsys)
    # Three agents send two messages each: headers of 32 and 24 bytes, a vector of 16 + 8 and two numbers.
    assert first == "lasso: 1 round, 576 B sent here, worst_loss 1.234e+04, gap 5.0e-01 (17%), 0.0 s"
    assert last.startswith("lasso: 6 rounds, 3.46 kB")


def test_a_terminal_has_bars_and_no_lines(capsys: pytest.CaptureFixture[str]) -> None:
    console, screen = terminal()
    with Progress(console, Clock()) as progress:
        progress.counter("runs", 10)()
        progress.counter("problems", 20)()
        progress.download("a.zip")(2_000_000, None)
    shown = screen.getvalue()
    places = [shown.index(word) for word in ("runs", "problems", "a.zip")]
    assert places == sorted(places)
    assert "1 of 20" in shown
    assert "2.00 MB" in shown
    assert capsys.readouterr().err == ""


def test_under_mpi_only_the_root_prints_progress(tmp_path: Path) -> None:
    write_sites(2, tmp_path)
    command = (
        f"fit lasso --data '{tmp_path}/site-{{rank}}.npz' --open --radius 2 --rounds 3 --out {tmp_path}/m"
    )
    status, _, errors = together(2, command)
    assert status == 0
    assert len([line for line in errors.splitlines() if line.startswith("lasso: 1 round, ")]) == 1
