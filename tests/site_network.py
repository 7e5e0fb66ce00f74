"""Runs between sites in network namespaces, with firewalls and proxies: ``site_network.py [PROXIES]``.

Ulm, Graz and a relay have a namespace each, and so has a proxy. Every case must end with the bits of one
process. PROXIES is a folder that has ``proxy`` of proxy.py and ``mitmdump`` of mitmproxy; without it their
cases are left out. It needs root, nftables and iproute2.

outbound only: the firewalls of both sites refuse every incoming connection; they meet at the relay.
CONNECT: the firewall of Ulm lets it connect to the proxy alone, by which it dials Graz.
inspected, direct: the proxy opens TLS; Ulm refuses it, and says so.
inspected, relay: the proxy opens TLS to a relay that may be inspected; the run is undisturbed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks" / "links"))

from dcgs.sites.study import RELAY, Member, Study, StudyLimits, edges_between
from fit_runs import ENVIRONMENT
from netns import Network, network
from site_cases import site_case
from site_runs import Sites, sign_study

CASE, ROUNDS, PORT, PROXY_PORT = 4, 40, 8443, 8899
HOSTS = ("ulm", "graz", RELAY, "proxy")
OUTBOUND_ONLY = "type filter hook input priority 0; policy drop;"
ONLY_PROXY = "type filter hook output priority 0; policy drop;"


class Case:
    """Two sites and a relay in namespaces; ``listening`` are the sites that can be dialed."""

    def __init__(self, made: Network, folder: Path, listening: tuple[str, ...], inspected: bool) -> None:
        self.made, self.case = made, site_case(CASE, ROUNDS)
        self.hosts = dict(zip(HOSTS, made.hosts, strict=True))
        address = {name: f"https://{self.hosts[name]}:{PORT}" for name in (*listening, RELAY)}
        sites = tuple(Member(name, address.get(name)) for name in HOSTS[:2])
        edges = edges_between(sites, [(0, 1)])
        relay = Member(RELAY, address[RELAY], inspected=inspected) if edges[0].dials is None else None
        study = Study("test", sites, edges, {}, StudyLimits(patience_hours=0.1), 1, relay)
        self.sites: Sites = sign_study(folder, study)

    def namespace(self, name: str) -> str:
        return self.made.name(HOSTS.index(name))

    def start(self, name: str, *command: str, **environment: str) -> subprocess.Popen[str]:
        """Start a command in the namespace of a host."""
        log = (self.sites.folder / f"{name}.log").open("a")
        inside = ["ip", "netns", "exec", self.namespace(name), *command]
        return subprocess.Popen(inside, env=ENVIRONMENT | environment, stdout=log, stderr=log, text=True)

    def site(self, name: str, **environment: str) -> subprocess.Popen[str]:
        script = str(Path(__file__).with_name("site_process.py"))
        numbers = (str(CASE), str(ROUNDS), "0")
        return self.start(name, sys.executable, script, str(self.sites.file(name)), *numbers, **environment)

    def relay(self) -> subprocess.Popen[str]:
        return self.start(RELAY, sys.executable, "-m", "dcgs", "relay", "run", str(self.sites.file(RELAY)))

    def firewall(self, name: str, hook: str, *rules: str) -> None:
        """Set the rules of a host: what belongs to a connection that it has made may always pass."""
        lines = [
            "flush ruleset",
            "add table inet own",
            f"add chain inet own kept {{ {hook} }}",
            "add rule inet own kept ct state established,related accept",
            "add rule inet own kept iif lo accept",
            *(f"add rule inet own kept {rule}" for rule in rules),
        ]
        command = ["ip", "netns", "exec", self.namespace(name), "nft", "-f", "-"]
        subprocess.run(command, input="\n".join(lines) + "\n", text=True, check=True)

    def can_connect(self, name: str, host: str, port: int) -> bool:
        """Return whether a host can connect to a port of another one."""
        code = f"import socket; socket.create_connection(({host!r}, {port}), 2)"
        command = ["ip", "netns", "exec", self.namespace(name), sys.executable, "-c", code]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def said(self, name: str) -> str:
        return (self.sites.folder / f"{name}.log").read_text()

    def check(self) -> None:
        """Raise unless both sites have the models of one process."""
        expected = self.case.run()
        for i, name in enumerate(self.sites.study.names):
            with np.load(self.sites.file(name).with_suffix(".npz")) as found:
                assert np.array_equal(found["x"][0], expected.agents[i]), name


@contextmanager
def ended(*processes: subprocess.Popen[str]) -> Iterator[None]:
    """End these processes afterwards."""
    try:
        yield
    finally:
        for process in processes:
            process.terminate()
            process.wait()


def finish(*sites: subprocess.Popen[str]) -> None:
    for site in sites:
        assert site.wait(300.0) == 0, "a site failed"


def outbound_only(made: Network, folder: Path, proxies: Path | None) -> str:
    case = Case(made, folder, (), inspected=False)
    listener = case.start("ulm", sys.executable, "-m", "http.server", "9000")
    while not case.can_connect("graz", case.hosts["ulm"], 9000):
        time.sleep(0.5)
    for name in ("ulm", "graz"):
        case.firewall(name, OUTBOUND_ONLY)
    assert not case.can_connect("graz", case.hosts["ulm"], 9000)
    with ended(case.relay(), listener):
        finish(case.site("ulm"), case.site("graz"))
    case.check()
    return "both firewalls refuse what comes in, also to a port that was open before; equal"


def connect(made: Network, folder: Path, proxies: Path | None) -> str:
    assert proxies is not None
    case = Case(made, folder, ("graz",), inspected=False)
    case.firewall("ulm", ONLY_PROXY, f"ip daddr {case.hosts['proxy']} tcp dport {PROXY_PORT} accept")
    command = [str(proxies / "proxy"), "--hostname", case.hosts["proxy"], "--port", str(PROXY_PORT)]
    with ended(case.start("proxy", *command, "--num-workers", "1", "--log-level", "d")):
        graz = case.site("graz")
        time.sleep(8.0)
        assert not case.can_connect("ulm", case.hosts["graz"], PORT)
        finish(case.site("ulm", HTTPS_PROXY=f"http://{case.hosts['proxy']}:{PROXY_PORT}"), graz)
    case.check()
    return "by proxy.py alone, with CONNECT; equal"


def mitmdump(case: Case, proxies: Path, folder: Path) -> subprocess.Popen[str]:
    (folder / "study-ca.pem").write_text(case.sites.study.ca)
    command = [str(proxies / "mitmdump"), "--listen-host", case.hosts["proxy"], "-p", str(PROXY_PORT)]
    trust = f"ssl_verify_upstream_trusted_ca={folder / 'study-ca.pem'}"
    process = case.start("proxy", *command, "--set", f"confdir={folder / 'mitm'}", "--set", trust)
    while not (folder / "mitm" / "mitmproxy-ca-cert.pem").exists():
        time.sleep(0.2)
    return process


def inspected_direct(made: Network, folder: Path, proxies: Path | None) -> str:
    assert proxies is not None
    case = Case(made, folder, ("graz",), inspected=False)
    proxy = f"http://{case.hosts['proxy']}:{PROXY_PORT}"
    with ended(mitmdump(case, proxies, folder)):
        graz, ulm = case.site("graz"), case.site("ulm", HTTPS_PROXY=proxy)
        end = time.monotonic() + 60.0
        while "its certificate is not that of" not in case.said("ulm"):
            assert time.monotonic() < end, case.said("ulm")
            time.sleep(0.5)
        sentence = next(line for line in case.said("ulm").splitlines() if "its certificate" in line)
        ulm.kill()
        ulm.wait()
        finish(case.site("ulm"), graz)  # without the proxy
    case.check()
    return f"refused: {sentence.partition(' ')[2]}"


def inspected_relay(made: Network, folder: Path, proxies: Path | None) -> str:
    assert proxies is not None
    case = Case(made, folder, (), inspected=True)
    proxy = f"http://{case.hosts['proxy']}:{PROXY_PORT}"
    with ended(mitmdump(case, proxies, folder), case.relay()):
        file = case.sites.file("ulm")
        file.write_text(f'proxy_ca = "{folder / "mitm" / "mitmproxy-ca-cert.pem"}"\n{file.read_text()}')
        case.firewall("ulm", ONLY_PROXY, f"ip daddr {case.hosts['proxy']} tcp dport {PROXY_PORT} accept")
        finish(case.site("ulm", HTTPS_PROXY=proxy), case.site("graz"))
        seen = sum("/v1/mail/" in line for line in case.said("proxy").splitlines())
    case.check()
    assert seen > 10
    return f"{seen} requests passed mitmproxy, with sealed envelopes; equal"


CASES = {
    "outbound only": outbound_only,
    "CONNECT": connect,
    "inspected, direct": inspected_direct,
    "inspected, relay": inspected_relay,
}


def main(proxies: Path | None) -> int:
    """Run all cases; return 1 if one fails."""
    bad = 0
    for name, run in CASES.items():
        if name != "outbound only" and proxies is None:
            print(f"{name}: LEFT OUT, no folder with proxies was given")
            continue
        with network(len(HOSTS)) as made, tempfile.TemporaryDirectory() as folder:
            try:
                print(f"{name}: {run(made, Path(folder), proxies)}", flush=True)
            except Exception as error:
                bad += 1
                logs = "\n".join(
                    f"--- {file.name}\n{file.read_text()[-1500:]}" for file in Path(folder).glob("*.log")
                )
                print(f"{name}: FAILED: {error!r}\n{logs}", flush=True)
    return int(bad > 0)


if __name__ == "__main__":
    if os.geteuid() != 0 or shutil.which("nft") is None:
        sys.exit("network namespaces and firewalls need root, iproute2 and nftables.")
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else None))
