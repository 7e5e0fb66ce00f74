"""Runs between sites over HTTPS: bits and counters are those of Lockstep, also after kills."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import networkx as nx
import numpy as np
import pytest

import dcgs
from dcgs.secure.keys import Ed25519Signatures
from dcgs.sites import transport
from dcgs.sites.envelope import EnvelopeHeader
from dcgs.sites.mailbox import Mailbox
from dcgs.sites.relay import RelayMail
from dcgs.sites.runtime import SiteRuntime, StudySignatures
from fit_runs import ENVIRONMENT
from site_cases import site_case
from site_process import answer, instance
from site_runs import Sites, make_sites

CASES = {
    "a star whose center is dialed": (nx.star_graph(2), (0,), dcgs.FastDCGS()),
    "a cycle with all kinds of edges": (nx.cycle_graph(5), (0, 2), dcgs.FastDCGS()),
    "a path on which nobody can be dialed": (nx.path_graph(3), (), dcgs.DFW()),
    "two sites and the paper's method": (nx.path_graph(2), (1,), dcgs.DCGS(inner="pcg")),
    "a triangle with a tail": (
        nx.lollipop_graph(3, 2),
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


def start(sites: Sites, name: str, case: int, killed_at: int) -> int:
    """Run a site as a process, which kills itself when it has taken so many messages; return its status."""
    script, numbers = Path(__file__).with_name("site_process.py"), (str(case), "40", str(killed_at))
    done = subprocess.run(
        [sys.executable, str(script), str(sites.file(name)), *numbers],
        env=ENVIRONMENT,
        check=False,
        timeout=300.0,
        capture_output=True,
        text=True,
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode


def test_a_site_that_is_killed_goes_on_to_the_bit_with_the_same_masks_and_nobody_else_goes_back(
    tmp_path: Path,
) -> None:
    number = 11
    case = site_case(number)
    assert case.secure
    sites = make_sites(tmp_path, case.graph, case.listening)
    expected = case.run()
    killed = "lyon"
    others = [name for name in sites.study.names if name != killed]
    with sites.relay(), ThreadPoolExecutor(1) as pool:
        undisturbed = pool.submit(sites.run, case.run, others)
        # The second time it has masked some sums.
        statuses = [start(sites, killed, number, killed_at) for killed_at in (3, 175, 0)]
        results = undisturbed.result(300.0)
    assert statuses == [-signal.SIGKILL] * 2 + [0]
    for result in results:
        assert np.array_equal(result.x, expected.x)
        assert np.array_equal(result.bytes, expected.bytes)
    with np.load(sites.file(killed).with_suffix(".npz")) as found:
        assert np.array_equal(found["x"][0], expected.x)
    assert list(tmp_path.rglob("*.journal")) == []  # keys are gone when the run is done


class BadRelay:
    """Changes what a relay does with every seventh envelope: drops it, flips a bit, takes it twice, or
    late."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen = 0
        self._accept = RelayMail.accept
        monkeypatch.setattr(RelayMail, "accept", lambda mail, *what: self.accept(mail, *what))

    async def accept(self, mail: RelayMail, caller: str, hop: str, envelope: bytes) -> None:
        self.seen += 1
        kind = self.seen // 7 % 4 if self.seen % 7 == 0 and self.seen < 60 else None  # not the last one
        if kind == 0:
            return
        if kind == 1:
            envelope = bytes([*envelope[:-1], envelope[-1] ^ 1])
        if kind == 2:
            await self._accept(mail, caller, hop, envelope)
        if kind == 3:
            await asyncio.sleep(0.1)
        await self._accept(mail, caller, hop, envelope)


def test_a_relay_that_drops_repeats_and_flips_bits_delays_a_run_and_does_not_change_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "_ASK_AFTER", 0.2)
    monkeypatch.setattr(transport, "_ASK_AGAIN", 0.2)
    monkeypatch.setattr(transport, "_CHECK", 0.1)
    relay, graph = BadRelay(monkeypatch), nx.path_graph(3)
    sites = make_sites(tmp_path, graph, ())
    objectives, X = instance(3)
    expected = dcgs.minimize(objectives, X, graph, dcgs.FastDCGS(), rounds=40, gap=1e-3, every=None)
    with sites.relay():
        results = sites.run(lambda runtime: answer(runtime, graph, dcgs.FastDCGS()))
    assert relay.seen > 80
    assert all(np.array_equal(result.x, expected.x) for result in results)
    said = [text for name in ("ulm", "graz", "bern") for text in sites.said[name]]
    assert any("it was changed, or belongs elsewhere" in text for text in said)


def test_a_relay_that_is_started_again_and_a_full_disk_only_delay_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = nx.path_graph(2)
    sites = make_sites(tmp_path, graph, ())
    objectives, X = instance(2)
    expected = dcgs.minimize(objectives, X, graph, dcgs.DFW(), rounds=40, every=None)
    is_full, kept = threading.Event(), Mailbox.keep

    def keep(mailbox: Mailbox, header: EnvelopeHeader, message: bytes) -> bool:
        if is_full.is_set():
            raise OSError("database or disk is full")
        return kept(mailbox, header, message)

    monkeypatch.setattr(Mailbox, "keep", keep)

    def run(runtime: SiteRuntime) -> dcgs.Result:
        return dcgs.minimize(objectives, X, graph, dcgs.DFW(), rounds=40, every=None, runtime=runtime)

    with ThreadPoolExecutor(1) as pool:
        is_full.set()
        results = pool.submit(sites.run, run)
        with sites.relay():
            wait_for(lambda: any("disk is full" in text for text in sites.said.get("ulm", [])))
        wait_for(lambda: any("nothing passes" in text for text in sites.said.get("graz", [])))
        is_full.clear()
        with sites.relay():
            parts = [result.agents for result in results.result(300.0)]
    assert np.array_equal(np.concatenate(parts), expected.agents)


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 240.0
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_keys_of_masked_sums_are_signed_for_one_run_of_one_study(tmp_path: Path) -> None:
    sites = make_sites(tmp_path, nx.path_graph(3), (0, 1, 2))
    again = make_sites(tmp_path / "again", nx.path_graph(3), (0, 1, 2))

    def signed(by: Sites, name: str) -> StudySignatures:
        publics = [bytes.fromhex(site.ed25519) for site in sites.study.sites]
        private = by.keys[name].signing.private_bytes_raw()
        return StudySignatures(by.study, Ed25519Signatures(private, publics))

    names = sites.study.names
    own, other = signed(sites, names[0]), signed(sites, names[1])
    signature = own.sign(b"a public key")
    assert other.verifies(0, b"a public key", signature)
    assert not other.verifies(1, b"a public key", signature)
    assert not other.verifies(0, b"another key", signature)
    assert not replace(other, study=again.study).verifies(0, b"a public key", signature)
    rerun = replace(other, study=replace(sites.study, run=2))
    assert not rerun.verifies(0, b"a public key", signature)
