"""Every message can be seen as it is sent: in runs, in sums beside them, with faults, and in a file."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

import dcgs
from fit_runs import alone, write_sites

Seen = list[tuple[int, int, int, tuple[np.ndarray, ...]]]
OBJECTIVES = [dcgs.LeastSquares(np.eye(3), [float(i), 1.0, -1.0]) for i in range(4)]


def recorded(seen: Seen, **arguments: Any) -> dcgs.Lockstep:
    return dcgs.Lockstep(on_message=lambda *message: seen.append(message), **arguments)


@pytest.mark.parametrize("arguments", [{}, {"faults": dcgs.Faults(loss=0.3)}, {"speeds": 1.0}], ids=str)
@pytest.mark.parametrize("threads", [1, 2])
def test_a_run_shows_as_many_messages_as_it_counts(arguments: dict[str, Any], threads: int) -> None:
    seen: Seen = []
    runtime = recorded(seen, threads=threads, **arguments)
    result = dcgs.minimize(OBJECTIVES, dcgs.L1Ball(3), nx.cycle_graph(4), rounds=12, runtime=runtime)
    counts = Counter(sender for _, sender, _, _ in seen)
    assert [counts[i] for i in range(4)] == result.messages.tolist()
    assert {round for round, *_ in seen} == set(range(1, result.rounds + 1))


def test_what_is_seen_is_what_the_receiver_gets_and_cannot_be_changed() -> None:
    seen: Seen = []
    values: Any = [[1.0, [2.0]], [10.0, [20.0]], [100.0, [200.0]]]
    total = dcgs.allreduce(values, nx.path_graph(3), recorded(seen))  # along the tree
    (_, sender, receiver, arrays), *_, (_, back, _, answer) = seen
    assert (len(seen), sender, receiver, back) == (4, 0, 1, 1)
    assert [array.tolist() for array in arrays] == [[1.0], [2.0]]
    assert [array.tolist() for array in answer] == [array.reshape(-1).tolist() for array in total.arrays]
    with pytest.raises(ValueError, match="read-only"):
        arrays[0][0] = 3.0


def test_a_fit_writes_all_messages_of_the_run_and_of_the_sums_before_it(tmp_path: Path) -> None:
    write_sites(3, tmp_path)
    file = tmp_path / "messages.npz"
    command = (
        f"fit lasso --data {tmp_path}/site-{{agent}}.npz --open --radius 2 --out {tmp_path}/m --no-report"
    )
    assert alone(f"{command} --record-messages {file}") == 0
    messages = list(dcgs.recorded_messages(file))
    assert {message.sender for message in messages} == {0, 1, 2}
    own = np.load(tmp_path / "site-1.npz")
    shapes = [array.shape for message in messages for array in message.arrays]
    assert (1, own["A"].shape[1]) in shapes  # a row of each agent, of what is flooded
    first = messages[0]
    assert first.arrays[0].dtype == np.uint8  # the schema of a site, before the run


def test_messages_of_several_processes_are_not_recorded(tmp_path: Path, capsys: Any) -> None:
    write_sites(2, tmp_path)
    command = (
        f"fit lasso --data {tmp_path}/site-{{agent}}.npz --open --radius 2 --out {tmp_path}/m --runtime mpi"
    )
    with pytest.raises(SystemExit):
        alone(f"{command} --record-messages {tmp_path}/f.npz")
    assert "--record-messages needs all agents in one process" in capsys.readouterr().err.replace("\n", " ")


def test_on_message_must_be_a_function() -> None:
    with pytest.raises(TypeError, match=r"^on_message must be a function of a round, a sender"):
        dcgs.Lockstep(on_message=3)  # type: ignore[arg-type]
