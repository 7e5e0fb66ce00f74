"""One network namespace per agent, tied together by a bridge in a namespace of its own.

The host is not connected: nothing here shows among its interfaces, and no packet of it gets in.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import final

PREFIX = "dcgs-links"
INTERFACE = "eth0"
BRIDGE = "br0"
MTU = 9000
MOST_AGENTS = 200
_NET = "10.77.0"
_HUB = 254
_OURS = re.compile(rf"{PREFIX}-(\d+-\d+)-(\d+|hub|work)")
# What may leave at once after a rest, and how long a packet may queue: a few frames, little beside a message.
_BURST, _QUEUE = "32kb", "100ms"


def refusal(root: bool | None = None, system: str | None = None, path: str | None = None) -> str | None:
    """Return why no namespaces can be made here, in one sentence, or None if they can be tried."""
    if (sys.platform if system is None else system) != "linux":
        return (
            "network namespaces must be Linux's; this is another system. Run the benchmark on Linux, as root."
        )
    missing = [name for name in ("ip", "tc") if shutil.which(name, path=path) is None]
    if missing:
        return f"ip and tc must be on the path; there is no {' and no '.join(missing)}. Install iproute2."
    if not (os.geteuid() == 0 if root is None else root):
        return (
            "only root may make network namespaces, and you are not. Run the same command with sudo; "
            "nothing of the host's network is changed."
        )
    return None


def shaping(speed: float) -> list[str]:
    """Return the command that lets the link of the namespace it runs in send so many bytes a second.

    >>> " ".join(shaping(10e6))
    'tc qdisc replace dev eth0 root tbf rate 80000000bit burst 32kb latency 100ms'
    """
    rate = f"{8.0 * speed:.0f}bit"
    tbf = ["tbf", "rate", rate, "burst", _BURST, "latency", _QUEUE]
    return ["tc", "qdisc", "replace", "dev", INTERFACE, "root", *tbf]


def sent_on_wire(interface: str = INTERFACE) -> int:
    """Return the bytes that have left by the interface, headers and acknowledgments included."""
    return int(Path(f"/sys/class/net/{interface}/statistics/tx_bytes").read_text())


@final
@dataclass(frozen=True)
class Network:
    """So many agents' namespaces and the one of the bridge, named by the process that made them.

    ``owner`` is its number and when it started, so that a later process of the same number is told apart.
    """

    agents: int
    owner: str

    def name(self, i: int) -> str:
        """Return the name of agent i's namespace."""
        return f"{PREFIX}-{self.owner}-{i}"

    @property
    def hub(self) -> str:
        """The name of the namespace that has the bridge."""
        return f"{PREFIX}-{self.owner}-hub"

    @property
    def names(self) -> list[str]:
        """The names of all namespaces."""
        return [*(self.name(i) for i in range(self.agents)), self.hub]

    @property
    def hosts(self) -> list[str]:
        """The addresses of the agents.

        >>> Network(2, "7-100").hosts
        ['10.77.0.1', '10.77.0.2']
        """
        return [f"{_NET}.{i + 1}" for i in range(self.agents)]

    def commands(self) -> list[list[str]]:
        """Return what builds it, one command after the other."""
        lines = [f"ip netns add {name}" for name in self.names]
        lines += [
            f"ip -n {self.hub} link add {BRIDGE} mtu {MTU} type bridge",
            f"ip -n {self.hub} addr add {_NET}.{_HUB}/24 dev {BRIDGE}",
            f"ip -n {self.hub} link set lo up",
            f"ip -n {self.hub} link set {BRIDGE} up",
        ]
        for i, host in enumerate(self.hosts):
            lines += [
                f"ip link add {INTERFACE} mtu {MTU} netns {self.name(i)} type veth "
                f"peer name port{i} mtu {MTU} netns {self.hub}",
                f"ip -n {self.hub} link set port{i} master {BRIDGE} up",
                f"ip -n {self.name(i)} addr add {host}/24 dev {INTERFACE}",
                f"ip -n {self.name(i)} link set lo up",
                f"ip -n {self.name(i)} link set {INTERFACE} up",
            ]
        return [line.split() for line in lines]

    def open(self) -> None:
        """Let all links be as fast as they can."""
        for i in range(self.agents):
            subprocess.run(
                ["tc", "-n", self.name(i), "qdisc", "del", "dev", INTERFACE, "root"],
                check=False,
                capture_output=True,
            )

    def remove(self) -> None:
        """Remove what there is of it, and end what still runs in it."""
        remove(self.names)


@contextmanager
def network(agents: int) -> Iterator[Network]:
    """Build the network, and remove it at the end, however that comes about."""
    if not 1 <= agents <= MOST_AGENTS:
        raise ValueError(f"agents must be between 1 and {MOST_AGENTS}; got {agents!r}.")
    clean()
    made = Network(agents, identity(os.getpid()))
    with _ended_politely():
        try:
            for command in made.commands():
                _do(command)
            yield made
        finally:
            made.remove()


def clean() -> list[str]:
    """Remove namespaces and folders of runs that are over, which were killed; return their names."""
    left = leftovers(_listed(), _is_running)
    remove(left)
    folders = {path.name: path for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}-*")}
    stale = [name for name in leftovers(list(folders), _is_running) if _is_own(folders[name])]
    for name in stale:
        shutil.rmtree(folders[name])
    return left + stale


@contextmanager
def work_folder() -> Iterator[Path]:
    """Make a folder that all processes see, named as the namespaces are, and remove it at the end."""
    folder = Path(tempfile.gettempdir()) / f"{PREFIX}-{identity(os.getpid())}-work"
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def _is_own(folder: Path) -> bool:
    return not folder.is_symlink() and folder.stat().st_uid == os.geteuid()


def leftovers(names: Sequence[str], is_running: Callable[[str], bool]) -> list[str]:
    """Return those of the names that are ours and whose owner does not run any more.

    >>> leftovers(["dcgs-links-7-100-0", "dcgs-links-8-120-0", "web"], lambda owner: owner == "8-120")
    ['dcgs-links-7-100-0']
    """
    ours = ((name, match) for name in names if (match := _OURS.fullmatch(name)))
    return [name for name, match in ours if not is_running(match.group(1))]


def remove(names: Sequence[str]) -> None:
    """End the processes in these namespaces, and remove those that exist; with them go their interfaces."""
    listed = _listed()
    there = [name for name in names if name in listed]
    for name in there:
        pids = subprocess.run(["ip", "netns", "pids", name], check=False, capture_output=True, text=True)
        for pid in pids.stdout.split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
    for name in there:
        subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
    left = [name for name in there if name in _listed()]
    if left:
        raise RuntimeError(f"all namespaces of the run must go; {', '.join(left)} did not. Try ip netns del.")


def _listed() -> list[str]:
    return [line.split()[0] for line in _output(["ip", "netns", "list"]).splitlines() if line.strip()]


def identity(pid: int) -> str:
    """Return the number of a process and when it started, in ticks since the machine did; 0 if it is gone."""
    try:
        # The name before may have spaces and parentheses in it; the start is the 20th field after.
        started = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        started = "0"
    return f"{pid}-{started}"


def _is_running(owner: str) -> bool:
    return identity(int(owner.partition("-")[0])) == owner


def _output(command: Sequence[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _do(command: Sequence[str]) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(
            f"the network could not be built: {' '.join(command)!r} says {done.stderr.strip()!r}. "
            "Containers often forbid it; try on the machine itself."
        )


@contextmanager
def _ended_politely() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the program as Ctrl-C does, so that what was built is removed."""

    def end(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def wait_until_up(made: Network, seconds: float = 10.0) -> None:
    """Wait until every agent's namespace reaches the bridge's."""
    end = time.monotonic() + seconds
    for i in range(made.agents):
        while f"{_NET}.0/24" not in _output(["ip", "-n", made.name(i), "route"]):
            if time.monotonic() > end:
                raise RuntimeError(f"the link of agent {i} must come up within {seconds:g} s; it has not.")
            time.sleep(0.05)
