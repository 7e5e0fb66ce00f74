"""``--runtime mpi``: the command that is started, and its exit status."""

from __future__ import annotations

import os
import shlex
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from dcgs.cli import launch as launching
from dcgs.cli import main
from dcgs.cli.launch import launch
from dcgs.processes.environment import VARIABLES


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of an mpiexec that a test writes; mpi4py seems installed, and no MPI launcher started us."""
    path = tmp_path / "bin" / "mpiexec"
    monkeypatch.setattr(launching, "find_mpiexec", lambda: str(path))
    monkeypatch.setattr(launching, "find_spec", lambda _: object())
    for name in (*VARIABLES, launching._MARK):
        monkeypatch.delenv(name, raising=False)
    return path


def test_a_missing_mpi4py_is_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launching, "find_spec", lambda _: None)
    with pytest.raises(ImportError, match=r"needs mpi4py, which is not installed.*dcgs\[mpi\]"):
        launch(["fit"], 2)


def test_processes_get_the_arguments_one_thread_each_and_a_mark(
    fake: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    script(fake, 'echo run "$@"; echo threads $OMP_NUM_THREADS mark $DCGS_LAUNCHED')
    assert launch(["fit", "lasso"], 4) == 0
    printed = capfd.readouterr().out
    assert f"-n 4 {sys.executable} -m dcgs fit lasso" in printed
    assert "threads 1 mark 1" in printed
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert launch(["fit", "lasso"], 4) == 0
    assert "threads 3 mark 1" in capfd.readouterr().out


@pytest.mark.parametrize(("text", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137)])
def test_the_exit_status_is_that_of_mpiexec(text: str, code: int, fake: Path) -> None:
    script(fake, text)
    assert launch(["fit"], 2) == code


def test_processes_that_do_not_know_of_each_other_do_not_launch_again(
    fake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(fake, "exit 0")
    monkeypatch.setenv("DCGS_LAUNCHED", "1")
    with pytest.raises(RuntimeError, match="mpiexec must be of the MPI that mpi4py uses"):
        launch(["fit"], 2)


@pytest.mark.parametrize(
    ("options", "ranks"), [("--agents 3", 3), ("--agents 3 --ranks 2", 2), ("--agents 3 --ranks 9", 3)]
)
def test_fit_starts_itself_again_with_a_process_per_agent(
    options: str, ranks: int, fake: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script(fake, 'echo run "$@"; exit 5')
    np.save(tmp_path / "d.npy", np.eye(3))
    command = f"fit lasso --data {tmp_path}/d.npy --radius 1 --runtime mpi {options} --out {tmp_path}/m"
    assert main(shlex.split(command)) == 5
    assert f"-n {ranks} {sys.executable} -m dcgs {command}" in capfd.readouterr().out
    assert not (tmp_path / "m").exists()


def test_bad_input_is_refused_before_processes_start(
    fake: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script(fake, f"touch {tmp_path}/started")
    command = f"fit lasso --data {tmp_path}/d.npy --runtime mpi --agents 2 --out {tmp_path}"
    (tmp_path / "agent-000.npz").touch()
    for options, sentence in (("", "the set l1 needs --radius"), ("--radius 1", "must hold no models")):
        with pytest.raises(SystemExit):
            main(shlex.split(f"{command} {options}"))
        assert sentence in capsys.readouterr().err
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_are_forwarded_to_mpiexec_and_its_end_is_waited_for(
    number: signal.Signals, tmp_path: Path
) -> None:
    script(
        tmp_path / "mpiexec",
        f'trap "touch {tmp_path}/signaled; exit 3" TERM INT\n'
        f"touch {tmp_path}/up\nwhile :; do sleep 0.05; done",
    )
    program = (
        "import sys; from dcgs.cli import launch as l; "
        f"l.find_mpiexec = lambda: {str(tmp_path / 'mpiexec')!r}; "
        "l.find_spec = lambda _: object(); l._DEADLINE = 120.0; sys.exit(l.launch(['fit'], 2))"
    )
    process = subprocess.Popen([sys.executable, "-c", program], start_new_session=True)
    while process.poll() is None and not (tmp_path / "up").exists():
        time.sleep(0.01)
    if number == signal.SIGINT:
        os.killpg(process.pid, number)  # as a terminal does
    else:
        process.send_signal(number)
    assert process.wait(timeout=240) == 128 + number
    assert (tmp_path / "signaled").exists()


def test_the_command_runs_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dcgs", "fit", "--help"], capture_output=True, text=True, check=True
    )
    assert "usage: dcgs fit" in done.stdout


def test_a_signal_that_comes_while_mpiexec_starts_is_forwarded(tmp_path: Path) -> None:
    script(
        tmp_path / "mpiexec",
        f'trap "touch {tmp_path}/signaled; exit 3" TERM INT\n'
        f"touch {tmp_path}/up\nwhile :; do sleep 0.05; done",
    )
    program = (
        "import os, signal, subprocess, sys, time; from dcgs.cli import launch as l; "
        f"l.find_mpiexec = lambda: {str(tmp_path / 'mpiexec')!r}; l.find_spec = lambda _: object()\n"
        "l._DEADLINE = 120.0\n"
        "started = subprocess.Popen\n"
        "def slowly(*args, **options):\n"
        "    process = started(*args, **options)\n"
        f"    while not os.path.exists({str(tmp_path / 'up')!r}): time.sleep(0.01)\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    return process\n"
        "l.subprocess.Popen = slowly; sys.exit(l.launch(['fit'], 2))"
    )
    done = subprocess.run([sys.executable, "-c", program], timeout=240, check=False)
    assert done.returncode == 128 + signal.SIGTERM
    assert (tmp_path / "signaled").exists()
