"""MPICH across namespaces: a launcher in place of ssh that enters them, and TCP in place of shared memory."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import final

from dcgs.processes.environment import find_mpiexec
from netns import BRIDGE, INTERFACE, PREFIX, Network

# Without these, processes on one machine find each other's memory and pass by the network.
TRANSPORT = {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp", "FI_TCP_IFACE": INTERFACE}
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def launcher(owner: str) -> str:
    """Return the program that MPICH calls in place of ssh: options, an address, and a command for a shell."""
    return f"""#!/bin/sh
# ssh [-x] ADDRESS COMMAND...: run the command in the namespace of the agent that has the address.
while [ "${{1#-}}" != "$1" ]; do shift; done
last="${{1##*.}}"
shift
exec ip netns exec "{PREFIX}-{owner}-$((last - 1))" sh -c "$*"
"""


@final
@dataclass(frozen=True)
class Launcher:
    """Starts a Python program as one process in each agent's namespace."""

    network: Network
    folder: Path

    def command(self, program: Sequence[str]) -> list[str]:
        """Return the command line: mpiexec itself runs where the bridge is, which everyone can reach."""
        exports = [
            word for name, value in (TRANSPORT | ONE_THREAD).items() for word in ("-genv", name, value)
        ]
        hosts = ",".join(self.network.hosts)
        return [
            *("ip", "netns", "exec", self.network.hub),
            *(find_mpiexec(), "-iface", BRIDGE, "-launcher", "ssh", "-launcher-exec", str(self.wrapper)),
            *("-hosts", hosts, "-ppn", "1", "-n", str(self.network.agents), *exports),
            *(sys.executable, *program),
        ]

    @property
    def wrapper(self) -> Path:
        """Where the launcher is."""
        return self.folder / "enter"

    def run(self, program: Sequence[str], seconds: float) -> str:
        """Run the program, at first on unshaped links; return what it printed, or raise after the seconds."""
        self.network.open()
        self.wrapper.write_text(launcher(self.network.owner))
        self.wrapper.chmod(0o755)
        process = subprocess.Popen(
            self.command(program),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=_environment(os.environ),
            start_new_session=True,
        )
        try:
            shown, wrong = process.communicate(timeout=seconds)
        except BaseException as error:
            with suppress(ProcessLookupError):
                process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(5.0)
            if process.poll() is None:
                process.kill()
                process.wait()
            if isinstance(error, subprocess.TimeoutExpired):
                raise RuntimeError(f"the processes must end within {seconds:.0f} s; they did not.") from None
            raise
        if process.returncode != 0:
            raise RuntimeError(
                f"the processes failed with status {process.returncode} and wrote: {last_line(wrong)}"
            )
        return shown


def last_line(wrong: str) -> str:
    """Return the last line that a process wrote, or else the launcher.

    >>> last_line("ValueError: no.\\n[proxy:0@vm] error waiting for event\\n"), last_line("")
    ('ValueError: no.', 'nothing')
    """
    lines = [line.strip() for line in wrong.splitlines() if line.strip()]
    own = [line for line in lines if not line.startswith(("[proxy", "[mpiexec", "="))]
    return (own or lines or ["nothing"])[-1]


def _environment(known: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without what another MPI launcher left in it."""
    foreign = ("PMI_", "PMIX_", "OMPI_", "HYDRA_", "MPIR_CVAR_", "FI_")
    return {name: value for name, value in known.items() if not name.startswith(foreign)}
