"""Runs between sites over HTTPS: bits and counters are those of Lockstep, also after kills."""

from __future__ import annotations

import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import networkx as nx
import numpy as np
import pytest

import dcgs
from fit_runs import ENVIRONMENT
from site_process import answer, instance
from site_runs import Sites, make_sites

CASES = {
    "a star whose center is dialed": (nx.star_graph(2), (0,), dcgs.FastDCGS()),
    "a cycle with all kinds of edges": (nx.cycle_graph(5), (0, 2), dcgs.FastDCGS()),
    "a path on which nobody can be dialed": (nx.path_graph(3), (), dcgs.DFW()),
    "two sites and the paper's method": (nx.path_graph(2), (1,), dcgs.DCGS(inner="pcg")),
    "a random graph": (
        nx.connected_watts_strogatz_graph(6, 4, 0.5, seed=1),
        (0, 1, 3),
        dcgs.NIDS(),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_sites_have_the_bits_and_the_counters_of_lockstep(case: str, tmp_path: Path) -> None:
    graph, listening, method = CASES[case]
    sites = make_sites(tmp_path, graph, listening)
    objectives, X = instance(len(graph))
    expected = dcgs.minimize(objectives, X, graph, method, rounds=40, gap=1e-3, every=None)
    if sites.study.relay is None:
        results = sites.run(lambda runtime: answer(runtime, graph, method))
    else:
        with sites.relay():
            results = sites.run(lambda runtime: answer(runtime, graph, method))
    assert np.array_equal(np.concatenate([result.agents for result in results]), expected.agents)
    for result in results:
        assert (result.rounds, result.status) == (expected.rounds, expected.status)
        assert np.array_equal(result.bytes, expected.bytes)
        assert np.array_equal(result.lmo_calls, expected.lmo_calls)


def start(sites: Sites, name: str, killed_at: int) -> int:
    """Run a site as a process, which kills itself when it has taken so many messages; return its status."""
    script = Path(__file__).with_name("site_process.py")
    done = subprocess.run(
        [sys.executable, str(script), str(sites.file(name)), str(killed_at)],
        env=ENVIRONMENT,
        check=False,
        timeout=300.0,
        capture_output=True,
        text=True,
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode


def test_a_site_that_is_killed_goes_on_to_the_bit_and_nobody_else_goes_back(tmp_path: Path) -> None:
    graph = nx.cycle_graph(4)
    sites = make_sites(tmp_path, graph, (0, 1))
    objectives, X = instance(4)
    expected = dcgs.minimize(objectives, X, graph, dcgs.FastDCGS(), rounds=40, gap=1e-3, every=None)
    others = ["ulm", "bern", "lyon"]
    with sites.relay(), ThreadPoolExecutor(1) as pool:
        undisturbed = pool.submit(sites.run, lambda runtime: answer(runtime, graph, dcgs.FastDCGS()), others)
        statuses = [start(sites, "graz", killed_at) for killed_at in (3, 40, 90, 0)]
        results = undisturbed.result(300.0)
    assert statuses == [-signal.SIGKILL] * 3 + [0]
    for result in results:
        assert np.array_equal(result.x, expected.x)
        assert np.array_equal(result.bytes, expected.bytes)
    assert np.array_equal(np.load(sites.file("graz").with_suffix(".npy")), expected.x)
