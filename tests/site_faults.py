"""Runs between sites that are disturbed, compared with undisturbed ones: ``site_faults.py KIND COUNT SEED``.

Sites and the relay are processes of their own; between them are links with a delay. KIND is one of

kills: COUNT times a random site gets SIGKILL at a random moment, and is started again;
relay: the same for the relay;
links: COUNT times a random link is cut, or stalls, for 1 to 60 s; all links lose connections;
disk:  COUNT times the disk of a site is full, and cleared after 10 s (a small tmpfs, as root);
late:  COUNT times a site is started when all others have waited for it for 20 s.

Runs follow each other until COUNT is reached. Each must end with the models, rounds and bytes of one process.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import numpy as np

from dcgs.sites.study import RELAY, StudyLimits
from fault_proxy import FaultyLink
from fit_runs import ENVIRONMENT
from site_cases import SiteCase, site_case
from site_runs import Sites, make_sites

CASES = (2, 3, 11, 14, 20, 22)  # four to six sites, masked and open
ROUNDS, DELAY = 60, 0.03


class Cluster:
    """The processes of a run; those that end without being killed have failed or are done."""

    def __init__(self, sites: Sites, number: int) -> None:
        self.sites, self.number = sites, number
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.done: set[str] = set()

    def start(self, name: str) -> None:
        """Start a site or the relay."""
        script = [str(Path(__file__).with_name("site_process.py")), str(self.sites.file(name))]
        command = [*script, str(self.number), str(ROUNDS), "0"]
        if name == RELAY:
            command = ["-m", "dcgs", "relay", "run", str(self.sites.file(name))]
        with (self.sites.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, *command], env=ENVIRONMENT, stdout=log, stderr=log
            )

    def kill(self, name: str) -> None:
        """End a process as a loss of power does."""
        self.processes[name].send_signal(signal.SIGKILL)
        self.processes[name].wait()

    def is_over(self) -> bool:
        """Return whether all sites are done; raise if one has failed."""
        for name, process in self.processes.items():
            status = process.poll()
            if name in self.done or status in (None, -signal.SIGKILL):
                continue
            if status != 0:
                raise RuntimeError(f"{name} failed:\n{(self.sites.folder / f'{name}.log').read_text()}")
            self.done.add(name)
        return self.done == set(self.sites.study.names)

    def running(self) -> list[str]:
        """Return the sites that are not done."""
        return [name for name in self.sites.study.names if name not in self.done]

    def end(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()


class Trial:
    """One run with its processes and links, and how often it was disturbed."""

    def __init__(self, number: int, folder: Path, chance: random.Random, stack: ExitStack) -> None:
        self.case: SiteCase = site_case(number, ROUNDS)
        limits = StudyLimits(patience_hours=1.0)
        self.sites = make_sites(folder, self.case.graph, self.case.listening, limits=limits, links=True)
        self.chance, self.count = chance, 0
        self.links = {
            name: FaultyLink(self.sites.port(name), port, DELAY) for name, port in self.sites.listen.items()
        }
        for link in self.links.values():
            stack.callback(link.close)
        self.cluster = Cluster(self.sites, number)
        stack.callback(self.cluster.end)

    def start(self, *left_out: str) -> None:
        for member in self.sites.study.members:
            if member.name not in left_out:
                self.cluster.start(member.name)

    def wait(self, seconds: float) -> bool:
        """Wait for so long; return whether the run goes on."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.cluster.is_over():
                return False
            time.sleep(0.05)
        return not self.cluster.is_over()

    def said(self, name: str, text: str) -> bool:
        file = self.sites.folder / f"{name}.log"
        return file.exists() and text in file.read_text(errors="replace")

    def wait_until(self, condition: Callable[[], bool]) -> None:
        while not condition() and self.wait(0.2):
            pass

    def differences(self) -> list[str]:
        """Return what differs from the run in one process."""
        expected, found = self.case.run(), []
        for i, name in enumerate(self.sites.study.names):
            with np.load(self.sites.file(name).with_suffix(".npz")) as saved:
                same = np.array_equal(saved["x"][0], expected.agents[i])
                same &= int(saved["rounds"]) == expected.rounds
                same &= np.array_equal(saved["bytes"], expected.bytes)
            found += [] if same else [name]
        return found


def kills(trial: Trial, most: int) -> None:
    trial.start()
    while trial.count < most and trial.wait(trial.chance.uniform(0.0, 6.0)):
        name = trial.chance.choice(trial.cluster.running())
        trial.cluster.kill(name)
        trial.count += 1
        time.sleep(trial.chance.choice((0.0, 2.0)))
        trial.cluster.start(name)


def relay(trial: Trial, most: int) -> None:
    trial.start()
    while trial.count < most and trial.wait(trial.chance.uniform(0.0, 8.0)):
        trial.cluster.kill(RELAY)
        trial.count += 1
        time.sleep(trial.chance.uniform(0.0, 4.0))
        trial.cluster.start(RELAY)


def links(trial: Trial, most: int) -> None:
    trial.start()
    for link in trial.links.values():
        link.loss = 0.01
    while trial.count < most and trial.wait(trial.chance.uniform(0.0, 8.0)):
        link = trial.chance.choice(list(trial.links.values()))
        disturb = trial.chance.choice((link.cut, link.stall))
        disturb(trial.chance.uniform(1.0, 60.0))
        trial.count += 1


def disk(trial: Trial, most: int) -> None:
    name = trial.sites.study.names[0]
    folder = trial.sites.file(name).with_name("run")
    agreed = {file.relative_to(folder): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(folder)], check=True)
    try:
        for path, content in agreed.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)
        trial.start()
        trial.wait_until(lambda: any(folder.rglob("received.db")))
        trial.wait(3.0)
        with (folder / "filler").open("wb", buffering=0) as filler, suppress(OSError):
            while filler.write(bytes(4096)):
                pass
        trial.wait_until(lambda: trial.said(name, "full"))
        trial.count += not trial.cluster.is_over()
        trial.wait(10.0)
        (folder / "filler").unlink()
        trial.wait_until(lambda: False)
    finally:
        trial.cluster.end()
        subprocess.run(["umount", str(folder)], check=True)


def late(trial: Trial, most: int) -> None:
    name = trial.chance.choice(trial.sites.study.names)
    trial.start(name)
    others = [other for other in trial.sites.study.names if other != name]
    trial.wait_until(lambda: all(trial.said(other, "waiting for") for other in others))
    trial.wait(20.0)
    trial.count += 1
    trial.cluster.start(name)


KINDS: dict[str, Callable[[Trial, int], None]] = {
    "kills": kills,
    "relay": relay,
    "links": links,
    "disk": disk,
    "late": late,
}


def main(kind: str, count: int, seed: int) -> int:
    """Disturb runs until so many disturbances are reached; return 1 if one has other bits."""
    chance, done, bad, runs = random.Random(seed), 0, 0, 0
    while done < count:
        number = CASES[(seed + runs) % len(CASES)]
        runs += 1
        with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
            trial, start = Trial(number, Path(folder), chance, stack), time.monotonic()
            if kind == "relay" and trial.sites.study.relay is None:
                continue
            KINDS[kind](trial, count - done)
            trial.wait_until(lambda: False)
            different = trial.differences()
            lost = sum(link.lost for link in trial.links.values())
        done += trial.count
        bad += bool(different)
        print(
            f"{kind} {trial.count}, {lost} connections lost, {time.monotonic() - start:.0f} s, "
            f"{f'DIFFERENT at {different}' if different else 'equal'}: {trial.case}",
            flush=True,
        )
    print(f"{kind}: {done} in {runs} runs, {bad} differ")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
