"""The time of a round between sites over HTTPS, beside a bare TLS socket and the model, in one run.

``python benchmarks/links/sites.py [--rounds N] [--json FILE]``, as root for the network. Two sites in
network namespaces, with a veth link between them, exchange vectors; one of them dials the other. A bare TLS
socket with the same certificates does the same with the same bytes. Rounds of both alternate, so that the
machine is as busy for one as for the other. With tbf each end may send 10 MB/s; the model is bytes / speed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

import dcgs
from dcgs.runtime.transport import Transfer
from dcgs.sites.events import EventLog
from dcgs.sites.keys import host_of
from dcgs.sites.node import Site
from dcgs.sites.study import Member, Study, StudyLimits, edges_between
from netns import network, refusal, shaping
from site_runs import sign_study

SIZES = {"80 kB": 80_000, "1.2 MB": 1_200_000, "12.7 MB": 12_700_000}
SPEED = 10e6
TAG, PORT, BARE_PORT = 1, 8443, 8444


def rounds_of_sites(transport: Any, size: int, count: int) -> list[float]:
    """Exchange vectors by the transport of a site; return the seconds of each round."""
    sent, received = np.random.default_rng(0).bytes(size), np.empty(size, np.uint8)
    buffer, other, seconds = np.frombuffer(sent, np.uint8), 1 - transport.rank, []
    for _ in range(count):
        start = time.perf_counter()
        transport.heartbeat.begin_step()
        transport.transfer([Transfer(buffer, other, TAG)], [Transfer(received, other, TAG)])
        seconds.append(time.perf_counter() - start)
    return seconds


class BareSocket:
    """The same exchange over one TLS connection: both ends send at once."""

    def __init__(self, site: Site, rank: int, host: str) -> None:
        files = site.config.certificate, site.config.key
        if rank == 1:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            listener = socket.create_server((host, BARE_PORT))
        else:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_verify_locations(cadata=site.study.ca)
        context.load_cert_chain(*files)
        if rank == 1:
            context.verify_mode = ssl.CERT_REQUIRED
            raw, _ = listener.accept()
            listener.close()
            self.socket = context.wrap_socket(raw, server_side=True)
        else:
            self.socket = context.wrap_socket(_connected(host), server_hostname=host_of("graz"))
        self.socket.setblocking(False)

    def round(self, sent: memoryview, received: memoryview) -> None:
        """Send and receive so many bytes."""
        put = got = 0
        while put < len(sent) or got < len(received):
            moved = False
            if put < len(sent):
                try:
                    put += self.socket.send(sent[put : put + (1 << 18)])
                    moved = True
                except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
                    pass
            if got < len(received):
                try:
                    got += self.socket.recv_into(received[got:])
                    moved = True
                except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
                    pass
            if not moved:
                time.sleep(2e-5)

    def rounds(self, size: int, count: int) -> list[float]:
        """Return the seconds of each round."""
        sent, received = memoryview(np.random.default_rng(0).bytes(size)), memoryview(bytearray(size))
        seconds = []
        for _ in range(count):
            start = time.perf_counter()
            self.round(sent, received)
            seconds.append(time.perf_counter() - start)
        return seconds


def _summary(sites: NDArray[Any], bare: NDArray[Any]) -> dict[str, float]:
    """Return medians in ms, of pairs that were measured one after the other; and of their ratio."""
    kinds = {"sites": sites, "bare": bare, "difference": sites - bare}
    return {"ratio": float(np.median(sites / bare))} | {
        kind: 1e3 * float(np.median(seconds)) for kind, seconds in kinds.items()
    }


def _connected(host: str) -> socket.socket:
    for _ in range(3000):
        try:
            return socket.create_connection((host, BARE_PORT), timeout=1.0)
        except OSError:
            time.sleep(0.02)
    raise RuntimeError("the other end does not listen")


def at_site(file: Path, host: str, count: int, sizes: dict[str, int]) -> dict[str, Any]:
    """Run at one site; return the times of a round, by the size."""
    site, times = Site.load(file), {}
    with site.running(EventLog(show=lambda text: None)) as runtime:
        transport = runtime.transport
        bare = BareSocket(site, transport.rank, host)
        for name, size in sizes.items():
            few = max(3, count if size < 1_000_000 else count // 5)
            pairs: dict[str, list[float]] = {"sites": [], "bare": []}
            for _ in range(few):
                pairs["sites"] += rounds_of_sites(transport, size, 1)
                pairs["bare"] += bare.rounds(size, 1)
            times[name] = _summary(*(np.array(pairs[kind][1:]) for kind in ("sites", "bare")))
        bare.socket.close()
    return times


def measure(count: int, shaped: bool, sizes: dict[str, int]) -> dict[str, Any]:
    """Return the times of one network, whose links are as fast as they can be or shaped."""
    with network(2) as made, tempfile.TemporaryDirectory() as folder:
        hosts = made.hosts
        if shaped:
            for i in range(2):
                subprocess.run(["ip", "netns", "exec", made.name(i), *shaping(SPEED)], check=True)
        sites = (Member("ulm"), Member("graz", f"https://{hosts[1]}:{PORT}"))
        limits = StudyLimits(message_mb=64, patience_hours=0.1)
        signed = sign_study(Path(folder), Study("test", sites, edges_between(sites, [(0, 1)]), {}, limits))
        processes = []
        for i, name in enumerate(("ulm", "graz")):
            inside = ["ip", "netns", "exec", made.name(i), sys.executable, __file__, "--site"]
            command = [*inside, str(signed.file(name)), hosts[1], str(count), json.dumps(sizes)]
            processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        outputs = [process.communicate(timeout=540.0)[0] for process in processes]
        return dict(json.loads(outputs[0]))


def main() -> int:
    """Measure, print a table, and write it to a file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--site", nargs=4, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.site:
        file, host, count, sizes = args.site
        print(json.dumps(at_site(Path(file), host, int(count), json.loads(sizes))))
        return 0
    if (why := refusal()) is not None:
        sys.exit(why)
    kinds = {"as fast as it can be": SIZES, "10 MB/s": {k: v for k, v in SIZES.items() if k != "80 kB"}}
    rows = []
    for link, chosen in kinds.items():
        shaped = link == "10 MB/s"
        for name, times in measure(args.rounds, shaped, chosen).items():
            model = 1e3 * SIZES[name] / SPEED
            ratios = {"over_model": times["sites"] / model, "bare_over_model": times["bare"] / model}
            rows.append({"link": link, "message": name, **times, **(ratios if shaped else {})})
    for row in rows:
        over = f", {row['over_model']:.2f} times the model" if "over_model" in row else ""
        print(
            f"{row['link']}, {row['message']}: sites {row['sites']:.2f} ms, bare TLS {row['bare']:.2f}, "
            f"{row['difference']:.2f} more, {row['ratio']:.2f} times{over}",
        )
    versions = {package: version(package) for package in ("numpy", "aiohttp", "cryptography")}
    versions |= {"dcgs": dcgs.__version__}
    environment = {
        "command": f"python benchmarks/links/sites.py {' '.join(sys.argv[1:])}".strip(),
        "versions": versions | {"python": platform.python_version()},
        "machine": {"cores": os.cpu_count(), "wanted by processes": round(os.getloadavg()[0], 1)},
    }
    if args.json is not None:
        args.json.write_text(json.dumps({"environment": environment, "rows": rows}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
