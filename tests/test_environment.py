"""What the environment variables of MPI launchers say."""

from __future__ import annotations

from pathlib import Path

import pytest

from dcgs.processes.environment import find_mpiexec, hydra_channel, is_root, rank, started_by_mpi, wrong_size

STEP = {"SLURM_PROCID": "2", "SLURM_NTASKS": "4", "SLURM_STEP_NUM_TASKS": "4"}
"""srun -n 4, without support for an MPI."""
BATCH = {"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}
"""A batch script of Slurm."""
SHELL = {"SLURM_PROCID": "0", "SLURM_NTASKS": "1", "SLURM_STEP_NUM_TASKS": "1"}
"""srun --pty bash."""


@pytest.mark.parametrize(
    ("variables", "started", "number"),
    [
        ({}, False, None),
        ({"PMI_RANK": "0", "PMI_SIZE": "4"}, True, 0),  # mpiexec of MPICH, srun --mpi=pmi2
        ({"PMI_RANK": "0", "PMI_SIZE": "1"}, True, 0),
        ({"PMI_SIZE": "4"}, True, None),
        ({"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4", "PMIX_RANK": "3"}, True, 3),
        ({"PMIX_RANK": "2"}, True, 2),
        ({"MV2_COMM_WORLD_RANK": "1", "MV2_COMM_WORLD_SIZE": "4"}, True, 1),
        (STEP, True, 2),
        (STEP | {"PMIX_RANK": "2"}, True, 2),  # srun --mpi=pmix
        (BATCH, False, None),
        (SHELL, False, None),
        (BATCH | {"PMI_RANK": "1", "PMI_SIZE": "4"}, True, 1),  # mpiexec in a batch script
        (SHELL | {"PMI_RANK": "1", "PMI_SIZE": "4"}, True, 1),
    ],
)
def test_a_process_knows_from_its_variables_whether_mpi_started_it_and_its_rank(
    variables: dict[str, str], started: bool, number: int | None
) -> None:
    assert (started_by_mpi(variables), rank(variables)) == (started, number)
    assert is_root(variables) is (number in (None, 0))


@pytest.mark.parametrize(
    ("variables", "seen", "wrong"),
    [
        ({}, 1, None),
        ({"PMI_SIZE": "4"}, 4, None),
        ({"PMI_SIZE": "4"}, 1, ("PMI_SIZE", 4)),
        ({"OMPI_COMM_WORLD_SIZE": "4"}, 1, ("OMPI_COMM_WORLD_SIZE", 4)),
        (STEP, 1, ("SLURM_STEP_NUM_TASKS", 4)),  # srun without support for this MPI
        (STEP, 4, None),
        (STEP | {"PMI_SIZE": "2"}, 2, None),  # mpiexec -n 2 inside the step
        (BATCH, 1, None),
        (SHELL, 1, None),
    ],
)
def test_a_launcher_of_another_mpi_is_noticed(
    variables: dict[str, str], seen: int, wrong: tuple[str, int] | None
) -> None:
    assert wrong_size(seen, variables) == wrong


def executable(path: Path) -> str:
    path.parent.mkdir(parents=True)
    path.touch(mode=0o755)
    return str(path)


def test_the_mpiexec_beside_python_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    python = str(tmp_path / "venv" / "python")
    with pytest.raises(ValueError, match=r"needs mpiexec; it is neither in .* nor on the path.*dcgs\[mpi\]"):
        find_mpiexec(python)
    on_path = executable(tmp_path / "path" / "mpiexec")
    assert find_mpiexec(python) == on_path
    beside = executable(tmp_path / "venv" / "mpiexec")
    assert find_mpiexec(python) == beside


def test_commands_go_to_the_mpiexec_of_mpich_only() -> None:
    assert hydra_channel({"PMI_FD": "9", "PMI_HOSTNAME": "node"}) == 9
    assert hydra_channel({"PMI_FD": "9", "SLURM_PROCID": "0"}) is None
    assert hydra_channel({}) is None
