"""Attack a site with the certificate of a neighbor, and without: ``site_adversary.py COUNT SEED``.

Graz runs as a process, and waits for Ulm and Bern. The attacker sends COUNT crafted requests of each kind,
opens 1,000 connections that stay idle, asks for mail hundreds of times at once, and repeats what it has
recorded, also after Graz was killed and started again. Then Ulm and Bern start, and the run must end with the
bits of one process. Graz must not have printed a traceback, nor have taken 100 MB of memory for it.
"""

from __future__ import annotations

import random
import re
import resource
import socket
import ssl
import string
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import networkx as nx
import numpy as np

import dcgs
from dcgs.sites.envelope import EnvelopeHeader, Sealer
from dcgs.sites.keys import host_of
from fit_runs import ENVIRONMENT
from site_process import answer, instance
from site_runs import Sites, make_sites

GRAPH, IDLE = nx.path_graph(3), 1000


class Attacker:
    """Connections to Graz, with the certificate of Ulm."""

    def __init__(self, sites: Sites, seed: int) -> None:
        self.sites, self.random = sites, random.Random(seed)
        self.port, self.hash = sites.port("graz"), sites.study.hash.hex()
        self.tls = ssl.create_default_context(cadata=sites.study.ca)
        site = sites.file("ulm")
        self.tls.load_cert_chain(site.with_suffix(".crt"), site.with_suffix(".key"))
        self.sealer = Sealer(sites.study, 0, sites.keys["ulm"].agreement)

    def connect(self, timeout: float = 5.0) -> ssl.SSLSocket:
        raw = socket.create_connection(("127.0.0.1", self.port), timeout=timeout)
        return self.tls.wrap_socket(raw, server_hostname=host_of("graz"))

    def send(self, content: bytes, wait: float = 5.0) -> str:
        """Send bytes; return the status of the answer, or what became of the connection."""
        try:
            with self.connect(wait) as connection:
                connection.sendall(content)
                found = re.match(rb"HTTP/1.[01] (\d+)", connection.recv(4096))
                return found[1].decode() if found else "closed"
        except TimeoutError:
            return "no answer"
        except OSError:
            return "closed"

    def put(self, body: bytes, path: str = "/v1/mail/graz", **headers: str) -> bytes:
        given = {"Host": "x", "Dcgs_Study": self.hash, "Content_Length": str(len(body))} | headers
        lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in given.items())
        return f"PUT {path} HTTP/1.1\r\n{lines}\r\n".encode() + body

    def envelope(self, message: bytes, **changed: int) -> bytes:
        header = EnvelopeHeader(0, 1, 1, self.sites.study.run, 1, self.random.randint(5000, 9000))
        return self.sealer.seal(header._replace(**changed), message)

    def requests(self) -> dict[str, bytes]:
        """Return crafted requests by kind."""
        chance = self.random
        junk = chance.randbytes(chance.randint(0, 300))
        name = "".join(chance.choices(string.printable, k=chance.randint(1, 60)))
        good = self.envelope(b"message")
        flipped = bytearray(good)
        flipped[chance.randrange(len(flipped))] ^= 1 << chance.randrange(8)
        traversal = chance.choice(("../../etc/passwd", "%2e%2e%2fulm.key", "graz/../bern", "graz%00", name))
        ahead = {chance.choice(("sequence", "round")): 2**63 + chance.randrange(2**62)}
        return {
            "junk after TLS": junk,
            "junk after a request line": b"PUT /v1/mail/graz HTTP/1.1\r\n" + junk + b"\r\n\r\n",
            "a huge header": self.put(good, X="y" * chance.choice((9000, 100_000, 1_000_000))),
            "many headers": self.put(good, **{f"X{i}": "y" for i in range(5000)}),
            "a path": self.put(good, f"/v1/mail/{traversal}"),
            "another method": self.put(good).replace(b"PUT", chance.choice((b"POST", b"DELETE", b"X"))),
            "a length that lies": self.put(good, Content_Length=chance.choice(("-1", "1e9", "9" * 30))),
            "two lengths": self.put(good, content_length="5"),
            "chunks without an end": self.put(b"", Transfer_Encoding="chunked") + b"fffffff\r\n" + junk,
            "compressed": self.put(good, Content_Encoding="gzip"),
            "an upgrade": self.put(good, Connection="Upgrade", Upgrade="websocket"),
            "a flipped bit": self.put(bytes(flipped)),
            "junk in an envelope": self.put(good[: chance.randrange(len(good))] + junk),
            "junk that is sealed": self.put(self.envelope(b"dcgs" + junk)),
            "an unknown kind": self.put(self.envelope(b"message", tag=chance.randrange(5, 65536))),
            "a place far ahead": self.put(self.envelope(b"message", **ahead)),
            "an acknowledgment": f"GET /v1/mail/ulm?done={name!r}&wait=0 HTTP/1.1\r\nHost: x\r\nDcgs-Study: "
            f"{self.hash}\r\n\r\n".encode(errors="replace"),
            "a study of another": self.put(good, Dcgs_Study=self.hash[:-1] + "x"),
        }


def start(sites: Sites, log: Path) -> subprocess.Popen[bytes]:
    """Start Graz, and wait until it listens."""
    code = (
        "import sys; from pathlib import Path; import networkx as nx, numpy as np, dcgs; "
        "from dcgs.sites.events import EventLog; from dcgs.sites.node import Site; "
        "from site_process import answer; file = Path(sys.argv[1])\n"
        "with Site.load(file).running(EventLog()) as runtime:\n"
        "    np.save(file.with_suffix('.npy'), answer(runtime, nx.path_graph(3), dcgs.FastDCGS()).x)"
    )
    with log.open("ab") as stream:
        command = [sys.executable, "-c", code, str(sites.file("graz"))]
        environment = ENVIRONMENT | {"PYTHONPATH": str(Path(__file__).parent)}
        process = subprocess.Popen(command, env=environment, stdout=stream, stderr=stream)
    while process.poll() is None:
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", sites.port("graz")), timeout=1.0).close()
            return process
        time.sleep(0.1)
    raise RuntimeError(log.read_text())


def memory(process: subprocess.Popen[bytes]) -> float:
    """Return the megabytes that a process has."""
    text = Path(f"/proc/{process.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", text)[1]) / 1024  # type: ignore[index]


def main(count: int, seed: int) -> int:
    """Attack; return 1 if Graz was harmed."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    with tempfile.TemporaryDirectory() as folder:
        sites, log = make_sites(Path(folder), GRAPH, (1,)), Path(folder) / "graz.log"
        objectives, X = instance(3)
        expected = dcgs.minimize(objectives, X, GRAPH, dcgs.FastDCGS(), rounds=40, gap=1e-3, every=None)
        graz, attacker = start(sites, log), Attacker(sites, seed)
        before = memory(graz)
        answers: dict[str, Counter[str]] = {}
        for _ in range(count):
            for kind, content in attacker.requests().items():
                answers.setdefault(kind, Counter())[attacker.send(content, 1.0)] += 1
        recorded = attacker.put(attacker.envelope(b"recorded"))
        first, again = attacker.send(recorded), attacker.send(recorded)
        idle = []
        for _ in range(IDLE):
            with suppress(OSError):
                idle.append(socket.create_connection(("127.0.0.1", attacker.port), timeout=1.0))
        polls = []
        request = f"GET /v1/mail/ulm HTTP/1.1\r\nHost: x\r\nDcgs-Study: {attacker.hash}\r\n\r\n".encode()
        for _ in range(300):
            with suppress(OSError):
                polls.append(attacker.connect(1.0))
                polls[-1].sendall(request)
        after = memory(graz)
        assert len(polls) > 10, "idle connections keep others out"
        for connection in (*idle, *polls):
            connection.close()
        graz.kill()
        graz.wait()
        graz = start(sites, log)
        later = attacker.send(recorded)
        results = sites.run(lambda runtime: answer(runtime, GRAPH, dcgs.FastDCGS()), ["ulm", "bern"])
        assert graz.wait(300.0) == 0, log.read_text()
        same = all(np.array_equal(result.x, expected.x) for result in results)
        same &= np.array_equal(np.load(sites.file("graz").with_suffix(".npy")), expected.x)
        text = log.read_text()
    if len(sys.argv) > 3:
        Path(sys.argv[3]).write_text(text)
    for kind, counted in answers.items():
        print(f"{kind}: {', '.join(f'{status} × {n}' for status, n in counted.items())}")
    print(f"recorded, repeated, repeated after a kill: {first}, {again}, {later}")
    print(f"{len(idle)} idle connections, {len(polls)} long polls: {before:.0f} MB, then {after:.0f} MB")
    refused = sorted({line[9:150] for line in text.splitlines() if "refused" in line})
    print("sentences:", *refused[:12], sep="\n  ")
    good = same and "Traceback" not in text and after - before < 100.0
    bits, traces = "equal" if same else "DIFFERENT", text.count("Traceback")
    print(f"{bits}; {traces} tracebacks; {'good' if good else 'HARMED'}")
    return int(not good)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
