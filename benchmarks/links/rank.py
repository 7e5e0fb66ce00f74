"""What each process does in its namespace: bare exchanges, or one method on its own agent's data.

Started by run.py under mpiexec: ``rank.py exchange FOLDER SPEED ROUNDS NUMBERS...`` or
``rank.py METHOD FOLDER SPEED SECONDS [ROUNDS]`` or
``rank.py instance FOLDER SPEED METHOD ROUNDS REPEATS``. It writes its results to the folder.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import dcgs
import instances
from dcgs.methods.base import Agent
from dcgs.protocol import Outbox
from dcgs.runtime.mpi_transport import MPITransport
from dcgs.runtime.transport import Transfer
from netns import sent_on_wire, shaping
from problem import ENTRIES, ProblemFolder, cycle
from recorder import Recorded, Recorder, bytes_each

# While a large message occupies the link, no heartbeat gets through.
_TIMEOUT = 60.0
# Rounds of 8 bytes a message before each run of an instance.
_BARE = 50


def exchange(folder: Path, speed: float, rounds: int, sizes: list[int]) -> None:
    """Exchange bare messages of these sizes with both neighbors, and time them."""
    transport = dcgs.MPI(timeout=_TIMEOUT).transport
    near = sorted(cycle(transport.size)[transport.rank])
    subprocess.run(shaping(speed), check=True)
    rows = []
    for numbers in sizes:
        message = np.full(numbers, float(transport.rank))
        places = {j: np.empty(numbers) for j in near}
        seconds = []
        before = 0
        for turn in range(rounds + 1):
            if turn == 1:  # connections are made in the first, which is not counted
                before = sent_on_wire()
            transport.allreduce_max(np.zeros(1))
            start = time.perf_counter()
            transport.transfer(
                [Transfer(message.view(np.uint8), j, 1) for j in near],
                [Transfer(place.view(np.uint8), j, 1) for j, place in places.items()],
            )
            seconds.append(time.perf_counter() - start)
        wire = sent_on_wire() - before
        slowest = transport.allreduce_max(np.array(seconds[1:]))
        rows.append({"bytes": 8 * numbers, "neighbors": len(near), "seconds": slowest.tolist(), "wire": wire})
    _write(folder / f"exchange-{transport.rank}.json", rows)


def run(key: str, folder: Path, speed: float, seconds: float, rounds: int | None) -> None:
    """Run the agent of this process with one method, within limits on seconds and rounds."""
    problem = ProblemFolder(folder)
    rows, cols = problem.places()

    def sample(x: Any) -> Any:
        return x[rows, cols]

    recorder = Recorder(sample, speed)
    runtime = dcgs.MPI(timeout=_TIMEOUT)
    (i,) = runtime.hosts(int(problem.facts["agents"]))
    method = ENTRIES[key].make(problem.facts["distance"])
    result = dcgs.minimize(
        {i: problem.objective(i)},
        problem.ball,
        problem.graph,
        Recorded(method, recorder),
        seconds=seconds,
        rounds=rounds,
        runtime=runtime,
        every=None,
    )
    wire = sent_on_wire() - recorder.wire
    recorder.save(folder / f"{key}-{i}.npz")
    notes = {
        "method": repr(method),
        "status": str(result.status),
        "seconds": result.seconds,
        "iterations": result.iterations,
        "rounds": result.rounds,
        "computing": float(result.computing[i]),
        "waiting": float(result.waiting[i]),
        "bytes": int(result.bytes[i]),
        "wire": wire,
        "lmo_calls": int(result.lmo_calls[i]),
        "projections": int(result.projections[i]),
    }
    _write(folder / f"{key}-{i}.json", notes)


def run_instance(key: str, folder: Path, speed: float, rounds: int, repeats: int) -> None:
    """Run the agent of this process for exactly so many rounds of a method, several times.

    A first run, which is not timed, loads what is loaded at first use and counts the bytes of each round.
    """
    problem = instances.InstanceFolder(folder)
    runtime = dcgs.MPI(timeout=_TIMEOUT)
    X, graph, transport = problem.ball, problem.graph, runtime.transport
    (i,) = runtime.hosts(len(graph))

    def barrier() -> None:
        transport.allreduce_max(np.zeros(1))

    for repeat in range(-1, repeats):
        measure = bytes_each if repeat < 0 else _no_bytes
        latency = _bare_round(transport, sorted(graph[i]))
        recorder = Recorder(lambda x: np.zeros(0), speed, barrier, measure)
        result = dcgs.minimize(
            {i: problem.objective(i)},
            X,
            graph,
            Recorded(instances.method(key), recorder),
            rounds=rounds,
            runtime=runtime,
            every=None,
        )
        barrier()  # what was sent has left
        if repeat < 0:
            np.save(folder / f"{key}-bytes-{i}.npy", len(graph[i]) * np.array(recorder.sent[:rounds]))
            continue
        wire = sent_on_wire() - recorder.wire
        recorder.save(folder / f"{key}-{repeat}-{i}.npz")
        instances.save_model(folder / f"model-{key}-{repeat}-{i}.npz", result.agents[0])
        notes = {
            "method": instances.settings(key),
            "rounds": result.rounds,
            "bytes": int(result.bytes[i]),
            "wire": wire,
            "latency": latency,
        }
        _write(folder / f"{key}-{repeat}-{i}.json", notes)


def _no_bytes(agent: Agent, message: Outbox) -> float:
    return 0.0


def _bare_round(transport: MPITransport, near: list[int]) -> float:
    """Return the seconds of a round in which all agents exchange 8 bytes with all their neighbors."""
    message = np.zeros(1)
    places = {j: np.zeros(1) for j in near}

    def exchange_all() -> None:
        transport.transfer(
            [Transfer(message.view(np.uint8), j, 1) for j in near],
            [Transfer(place.view(np.uint8), j, 1) for j, place in places.items()],
        )

    exchange_all()  # makes the connections
    transport.allreduce_max(np.zeros(1))
    start = time.perf_counter()
    for _ in range(_BARE):
        exchange_all()
    return float(transport.allreduce_max(np.array([time.perf_counter() - start]))[0]) / _BARE


def _write(path: Path, notes: object) -> None:
    path.write_text(json.dumps(notes))


if __name__ == "__main__":
    _job, _folder, _speed, *_rest = sys.argv[1:]
    if _job == "exchange":
        exchange(Path(_folder), float(_speed), int(_rest[0]), [int(numbers) for numbers in _rest[1:]])
    elif _job == "instance":
        run_instance(_rest[0], Path(_folder), float(_speed), int(_rest[1]), int(_rest[2]))
    else:
        run(_job, Path(_folder), float(_speed), float(_rest[0]), int(_rest[1]) if _rest[1:] else None)
