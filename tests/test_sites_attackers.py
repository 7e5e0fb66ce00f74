"""What a site refuses, and what it says then; its run is not disturbed."""

from __future__ import annotations

import http.client
import os
import socket
import ssl
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import networkx as nx
import numpy as np
import pytest

import dcgs
from dcgs.runtime.encoding import EncodedArray
from dcgs.runtime.transport import Transfer
from dcgs.runtime.wire import ALL, BundleKind, Frame, Header, MessageError
from dcgs.runtime.wire import bundle as write
from dcgs.sites import client, events, server, transport
from dcgs.sites import mailbox as mailbox_module
from dcgs.sites.certificate import LiveCertificate
from dcgs.sites.config import SiteConfig, SiteLimits
from dcgs.sites.envelope import OVERHEAD, EnvelopeError, EnvelopeHeader, Sealer, read_header
from dcgs.sites.events import EVENTS, EventLog
from dcgs.sites.keys import Authority, Identity, SiteKeys, host_of
from dcgs.sites.lock import runs_in
from dcgs.sites.mailbox import Mailbox, Outgoing
from dcgs.sites.node import Site
from dcgs.sites.page import PAGE
from dcgs.sites.server import client_context, server_context
from dcgs.sites.signature import CALLER, SIGNATURE, TIME, sign_request
from dcgs.sites.study import Study, StudyLimits
from site_process import answer, instance
from site_runs import Sites, make_sites

GRAPH = nx.path_graph(3)  # Ulm – Graz – Bern; Graz is dialed by both


@pytest.fixture
def sites(tmp_path: Path) -> Sites:
    return make_sites(tmp_path, GRAPH, (1,))


def context(sites: Sites, certificate: bytes | None, keys: SiteKeys, folder: Path) -> ssl.SSLContext:
    found = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    found.load_verify_locations(cadata=sites.study.ca)
    if certificate is not None:
        folder.mkdir(exist_ok=True)
        (folder / "x.key").unlink(missing_ok=True)
        keys.save(folder / "x.key")
        (folder / "x.crt").write_bytes(certificate)
        found.load_cert_chain(folder / "x.crt", folder / "x.key")
    return found


def ask(
    sites: Sites,
    tls: ssl.SSLContext,
    method: str,
    path: str,
    body: bytes = b"",
    server: str = "graz",
    headers: Mapping[str, str] | None = None,
) -> tuple[int, str]:
    """Send a request to Graz, as anybody could; return status and text, 0 if the connection is closed."""
    raw = socket.create_connection(("127.0.0.1", sites.port(server)), timeout=60.0)
    try:
        connection = http.client.HTTPSConnection("127.0.0.1", context=tls)
        connection.sock = tls.wrap_socket(raw, server_hostname=host_of(server))
        connection.request(method, path, body, {"Dcgs-Study": sites.study.hash.hex()} | dict(headers or {}))
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    except (OSError, http.client.HTTPException):
        return 0, ""
    finally:
        with suppress(UnboundLocalError):
            connection.close()
        raw.close()


def envelope(sites: Sites, name: str, **changed: int) -> bytes:
    """Return an envelope from Ulm to Graz that is sealed with the keys of a site."""
    header = EnvelopeHeader(0, 1, 0, sites.study.run, 1, 500)
    sealer = Sealer(sites.study, 0, sites.keys[name].agreement)
    return sealer.seal(header._replace(**changed), b"message")


def attack(sites: Sites, folder: Path) -> dict[str, tuple[int, str]]:
    """Attack Graz in all ways; return the answers."""
    ulm, other, now = sites.keys["ulm"], SiteKeys.generate(), datetime.now(UTC)
    who = Identity("ulm", *ulm.publics)
    signed = sites.authority.sign(who)
    good = context(sites, signed, ulm, folder)
    bad = {
        "no certificate": context(sites, None, ulm, folder),
        "another CA": context(sites, Authority.create("x").sign(who), ulm, folder),
        "other keys": context(sites, sites.authority.sign(Identity("ulm", *other.publics)), other, folder),
        "expired": context(sites, sites.authority.sign(who, 1, now - timedelta(days=2)), ulm, folder),
    }
    own = envelope(sites, "ulm")
    flipped = bytes([*own[:-1], own[-1] ^ 1])
    path = "/v1/mail/graz"
    asked = {name: ask(sites, tls, "GET", "/v1/hello") for name, tls in bad.items()}
    asked |= {
        "sealed by another": ask(sites, good, "PUT", path, envelope(sites, "bern")),
        "another run": ask(sites, good, "PUT", path, envelope(sites, "ulm", run=2)),
        "a flipped bit": ask(sites, good, "PUT", path, flipped),
        "far ahead": ask(sites, good, "PUT", path, envelope(sites, "ulm", sequence=10**9)),
        "back to its sender": ask(sites, good, "PUT", path, envelope(sites, "ulm", sender=2, receiver=0)),
        "another study": ask(sites, good, "PUT", path, own, headers={"Dcgs-Study": "0" * 64}),
        "10 GB": ask(sites, good, "PUT", path, b"", headers={"Content-Length": str(10**10)}),
        "the mail of another": ask(sites, good, "GET", "/v1/mail/bern"),
        "the relay of others": ask(sites, good, "PUT", "/v1/mail/bern", own),
        "no such path": ask(sites, good, "GET", "/v1/../secret"),
    }
    with socket.create_connection(("127.0.0.1", sites.port("graz"))) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
        asked["plaintext"] = (0, plain.recv(100).decode(errors="replace"))
    return asked


def test_attackers_are_refused_with_a_sentence_and_the_run_has_the_same_bits(
    sites: Sites, tmp_path: Path
) -> None:
    objectives, X = instance(3)
    expected = dcgs.minimize(objectives, X, GRAPH, dcgs.FastDCGS(), rounds=40, gap=1e-3, every=None)
    with ThreadPoolExecutor(1) as pool:
        graz = pool.submit(sites.run, lambda runtime: answer(runtime, GRAPH, dcgs.FastDCGS()), ["graz"])
        wait_for_port(sites.port("graz"))
        asked = attack(sites, tmp_path / "attacker")
        results = sites.run(lambda runtime: answer(runtime, GRAPH, dcgs.FastDCGS()), ["ulm", "bern"])
        results += graz.result(300.0)
    assert all(np.array_equal(result.x, expected.x) for result in results)
    statuses = {name: status for name, (status, _) in asked.items()}
    closed = dict.fromkeys(("no certificate", "another CA", "expired", "plaintext"), 0)
    forbidden = (
        *("other keys", "sealed by another", "another run", "a flipped bit", "far ahead"),
        *("back to its sender", "the relay of others"),
    )
    assert statuses == closed | dict.fromkeys(forbidden, 403) | {
        "another study": 409,
        "10 GB": 413,
        "the mail of another": 405,
        "no such path": 404,
    }
    said = "\n".join(sites.said["graz"])
    for sentence in (
        "it has shown no certificate",
        "its certificate is not one of this study that is valid now",
        "certificate has expired",
        "nothing is sent or taken in plaintext",
        "a certificate must have the keys of a neighbor in this study",
        "one from ulm is not: it was changed, or belongs elsewhere",
        "an envelope must be of run 1; got one of run 2",
        "all sites must hold the same study; that of ulm has another SHA-256",
        "at most 67108932 bytes; got 10000000000",
        "message 1000000000 is too far ahead of the run",
    ):
        assert sentence in said


def wait_for_port(port: int) -> None:
    for _ in range(3000):
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", port), timeout=0.02).close()
            return
        time.sleep(0.02)
    raise AssertionError(f"nobody listens on port {port}")


def test_idle_connections_are_closed_and_do_not_keep_others_out(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_HANDSHAKE", 2.0)
    monkeypatch.setattr(server, "_MOST_HANDSHAKES", 8)
    with ThreadPoolExecutor(1) as pool:
        with sites.running("graz"):
            idle = [socket.create_connection(("127.0.0.1", sites.port("graz"))) for _ in range(20)]
            for connection in idle:
                with suppress(OSError):
                    assert connection.recv(1) == b""
                connection.close()
            others = pool.submit(sites.run, lambda runtime: None, ["ulm", "bern"])
        others.result(300.0)
    said = "\n".join(sites.said["graz"])
    assert "more than 8 have not shown a certificate yet" in said
    assert "it has not shown a certificate within" in said


def test_an_envelope_that_comes_again_is_not_used_again(sites: Sites, tmp_path: Path) -> None:
    ulm = sites.keys["ulm"]
    tls = context(sites, sites.authority.sign(Identity("ulm", *ulm.publics)), ulm, tmp_path / "ulm again")
    header = EnvelopeHeader(0, 1, 1, 1, 0, 1)
    sealer = Sealer(sites.study, 0, ulm.agreement)
    first, again, changed = (sealer.seal(header, message) for message in (b"one", b"one", b"two"))
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(sites.run, lambda runtime: None, ["ulm", "bern"])
        with sites.running("graz") as runtime:
            answers = [ask(sites, tls, "PUT", "/v1/mail/graz", body) for body in (first, again, changed)]
            taken = np.zeros(10, np.uint8)
            runtime.transport.transfer([], [Transfer(taken, 0, 1)])
        other.result(300.0)
    assert [status for status, _ in answers] == [204, 204, 403]
    assert taken.tobytes().rstrip(b"\0") == b"one"
    assert "a message that is sent again must be the same" in answers[2][1]


def test_a_message_of_another_step_is_asked_for_again_and_then_names_its_sender(sites: Sites) -> None:
    def ahead(runtime: object) -> None:
        transport = getattr(runtime, "transport")  # noqa: B009
        if transport.rank == 0:
            transport.heartbeat.begin_step()
            transport.transfer([Transfer(np.zeros(3, np.uint8), 1, 1)], [])
        elif transport.rank == 1:
            with pytest.raises(
                MessageError, match="a message of step 0 was expected; ulm sent one of step 1"
            ):
                transport.transfer([], [Transfer(np.zeros(3, np.uint8), 0, 1)])
        transport.heartbeat.begin_run()

    sites.run(ahead)
    assert "ulm sent one of step 1; it is asked for again" in "\n".join(sites.said["graz"])


def test_a_message_of_a_wrong_round_or_size_by_a_stolen_key_does_not_disturb_the_run(
    sites: Sites, tmp_path: Path
) -> None:
    objectives, X = instance(3)
    expected = dcgs.minimize(objectives, X, GRAPH, dcgs.FastDCGS(), rounds=40, gap=1e-3, every=None)
    ulm = sites.keys["ulm"]
    tls = context(sites, sites.authority.sign(Identity("ulm", *ulm.publics)), ulm, tmp_path / "thief")
    sealer, path = Sealer(sites.study, 0, ulm.agreement), "/v1/mail/graz"
    with ThreadPoolExecutor(1) as pool:
        graz = pool.submit(sites.run, lambda runtime: answer(runtime, GRAPH, dcgs.FastDCGS()), ["graz"])
        wait_for_port(sites.port("graz"))
        for sequence, round, size in ((1, 77, 10), (2, 1, 10_000_000), (5, 0, 10)):
            header = EnvelopeHeader(0, 1, 1, 1, (1 << 32) + round, sequence)
            assert ask(sites, tls, "PUT", path, sealer.seal(header, bytes(size)))[0] == 204
        results = sites.run(lambda runtime: answer(runtime, GRAPH, dcgs.FastDCGS()), ["ulm", "bern"])
        results += graz.result(300.0)
    assert all(np.array_equal(result.x, expected.x) for result in results)
    said = "\n".join(sites.said["graz"])
    assert "ulm sent one of step 1.77; it is asked for again" in said


def test_a_message_of_the_wrong_shape_ends_a_site_with_a_sentence_and_is_asked_for_again_at_its_next_start(
    sites: Sites, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "_ASK_AFTER", 0.2)
    objectives, X = instance(3)
    expected = dcgs.minimize(objectives, X, GRAPH, dcgs.FastDCGS(), rounds=40, gap=1e-3, every=None)
    ulm = sites.keys["ulm"]
    tls = context(sites, sites.authority.sign(Identity("ulm", *ulm.publics)), ulm, tmp_path / "thief")
    frame = Frame(0, ALL, [EncodedArray(np.ones(3))])
    bundle = write([frame], Header(BundleKind.MESSAGE, 0, 1)).tobytes()
    first = EnvelopeHeader(0, 1, 1, 1, (1 << 32) + 41, 1)  # the step of the first message of a round
    with ThreadPoolExecutor(2) as pool:
        graz = pool.submit(sites.run, lambda runtime: answer(runtime, GRAPH, dcgs.FastDCGS()), ["graz"])
        wait_for_port(sites.port("graz"))
        sealed = Sealer(sites.study, 0, ulm.agreement).seal(first, bundle)
        assert ask(sites, tls, "PUT", "/v1/mail/graz", sealed)[0] == 204
        rest = pool.submit(
            sites.run, lambda runtime: answer(runtime, GRAPH, dcgs.FastDCGS()), ["ulm", "bern"]
        )
        with pytest.raises(ValueError, match="must be a tuple of arrays; agent 0 sent an array"):
            graz.result(300.0)
        (page,) = sites.file("graz").parent.glob(f"run/*/{PAGE}")
        assert "It has ended, and is not done: a message must be a tuple" in page.read_text()
        results = sites.run(lambda runtime: answer(runtime, GRAPH, dcgs.FastDCGS()), ["graz"])
        results += rest.result(300.0)
    assert all(np.array_equal(result.x, expected.x) for result in results)


def test_envelopes_are_refused_before_they_are_parsed(sites: Sites) -> None:
    graz = Sealer(sites.study, 1, sites.keys["graz"].agreement)
    assert graz.open(envelope(sites, "ulm"))[1] == b"message"
    assert len(envelope(sites, "ulm")) == OVERHEAD + len(b"message")
    for changed in ({"sender": 1}, {"receiver": 2}, {"sender": 7}):
        with pytest.raises(EnvelopeError, match="an envelope must be from another site to this one"):
            graz.open(EnvelopeHeader(0, 1, 0, 1, 1, 500)._replace(**changed).pack() + bytes(40))
    with pytest.raises(EnvelopeError, match="must have at least"):
        read_header(b"short")
    with pytest.raises(EnvelopeError, match="must be of this version"):
        read_header(bytes(100))
    text = sites.study.to_toml().replace("message_mb = 64", "message_mb = 65")
    other = Sealer(Study.read(text.encode()), 1, sites.keys["graz"].agreement)
    with pytest.raises(EnvelopeError, match="must be sealed by its sender for this study"):
        other.open(envelope(sites, "ulm"))


def test_a_site_runs_only_what_it_has_agreed_to_and_with_what_it_began_with(sites: Sites) -> None:
    site = Site.load(sites.file("ulm"))
    assert site.has_agreed
    with ThreadPoolExecutor(1) as pool:
        others = pool.submit(sites.run, lambda runtime: None, ["graz", "bern"])
        with sites.running("ulm"):
            pass
        others.result(300.0)
    site.config.data_file.write_text("changed\n")
    with pytest.raises(ValueError, match="the data changed"), sites.running("ulm"):
        pass
    changed = sites.study.content.replace(b"patience_hours = 0.05", b"patience_hours = 0.06")
    sites.file("ulm").with_name("study.toml").write_bytes(changed)
    with pytest.raises(ValueError, match="must agree to the study as it is now"), sites.running("ulm"):
        pass


def test_a_site_stops_before_it_sends_more_than_its_own_limits(sites: Sites) -> None:
    file = sites.file("ulm")

    def sends(runtime: object) -> None:
        transport = getattr(runtime, "transport")  # noqa: B009
        for _ in range(3):
            transport.heartbeat.begin_step()
            transport.transfer([Transfer(np.zeros(3, np.uint8), 1, 1)], [])

    for limit, message in (("messages_sent = 2", "2 messages"), ("rounds = 2", "2 rounds of messages")):
        file.write_text(file.read_text().partition("[limits]")[0] + f"[limits]\n{limit}\n")
        said = f"must send at most {message}, as its file or the study says"
        with pytest.raises(RuntimeError, match=said):
            sites.run(sends, ["ulm"])


def test_a_site_stops_at_the_limits_of_the_study_also_if_its_own_are_higher() -> None:
    limits = StudyLimits(rounds=50, sent_mb=7)
    assert SiteLimits(0.0, 3, 80).within(limits) == SiteLimits(7, 3, 50)
    assert SiteLimits(2.5, 0, 20).within(limits) == SiteLimits(2.5, 0, 20)


def test_keys_that_others_may_read_and_certificates_of_others_are_refused(sites: Sites) -> None:
    config = SiteConfig.load(sites.file("ulm"))
    config.key.chmod(0o644)
    with pytest.raises(ValueError, match="only its owner may read a private key"):
        Site.load(config.file)
    config.key.chmod(0o600)
    config.certificate.write_bytes(sites.file("bern").with_suffix(".crt").read_bytes())
    with pytest.raises(ValueError, match="must be the certificate of ulm with the keys in the study"):
        Site.load(config.file)


def test_a_renewed_certificate_is_used_without_a_restart_and_one_that_ends_is_told(sites: Sites) -> None:
    who, said = Identity("graz", *sites.keys["graz"].publics), list[str]()
    config = SiteConfig.load(sites.file("graz"))
    config.certificate.write_bytes(sites.authority.sign(who, days=10))
    site = Site.load(config.file)
    assert "the certificate of graz expires on" in (site.certificate_note() or "")
    context = server_context(sites.study, config.certificate, config.key)
    member = sites.study.member("graz")
    live = LiveCertificate(member, config.certificate, config.key, [context], EventLog(show=said.append))
    for _ in range(3):
        live.look()
    assert len(said) == 1
    assert "the certificate of graz expires on" in said[0]
    first = shown_by(context, sites)
    config.certificate.write_bytes(b"-----BEGIN")  # half of a file
    live.look()
    assert "and the last one is" in said[-1]
    assert shown_by(context, sites) == first
    config.certificate.write_bytes(sites.authority.sign(who, days=500))
    live.look()
    assert "a renewed certificate is used, valid until" in said[-1]
    assert shown_by(context, sites) != first
    config.certificate.write_bytes(sites.authority.sign(replace(who, name="ulm"), days=500))
    live.look()
    assert "it is another" in said[-1]


def shown_by(context: ssl.SSLContext, sites: Sites) -> bytes:
    """Return the certificate that a server shows in new connections."""
    files = (sites.file("ulm").with_suffix(end) for end in (".crt", ".key"))
    sent, received = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = context.wrap_bio(sent, received, server_side=True)
    ours = client_context(sites.study, *files).wrap_bio(received, sent, server_hostname=host_of("graz"))
    for end in (ours, server, ours):
        with suppress(ssl.SSLWantReadError):
            end.do_handshake()
    found = ours.getpeercert(True)
    assert found is not None
    return found


def test_a_clock_that_is_ten_minutes_off_is_told_once(sites: Sites, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "clocks_apart", lambda date: -600.0)
    sites.run(lambda runtime: None)
    said = [text for text in sites.said["ulm"] if "clock" in text]
    assert len(said) == 1
    assert "the clock here and that of graz are 600 s apart: set the one that is wrong" in said[0]


def test_a_study_is_refused_with_what_it_must_have(sites: Sites) -> None:
    good = sites.study.content.decode()
    for old, new, message in (
        ("format = 1", "format = 2", "must have format = 1"),
        ("https://127", "http://127", "nothing is sent in plaintext"),
        ('name = "bern"', 'name = "relay"', "and not 'relay'"),
        ('name = "bern"', 'name = "graz"', "different names"),
        ('dials = "ulm"', 'dials = "graz"', "one end must dial the other"),
        ('dials = "ulm"', 'via = "relay"', "or a relay"),
        ("run = 1", 'run = 1\nserver = "x"', "known entries only; got server"),
        ("run = 1", "run = ", "a study must be TOML"),
    ):
        assert old in good
        with pytest.raises(ValueError, match=message):
            Study.read(good.replace(old, new).encode())
    unsigned = replace(
        sites.study, sites=tuple(replace(site, ed25519="", x25519="") for site in sites.study.sites)
    )
    with pytest.raises(ValueError, match="those of ulm, graz, bern are not"):
        unsigned.check_signed()


def test_a_relay_that_may_be_inspected_takes_signed_requests_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_HANDSHAKE", 4.0)
    graph = nx.path_graph(2)
    sites = make_sites(tmp_path, graph, (), inspected=True)
    bare = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # as that of a proxy, which has no certificate
    bare.load_verify_locations(cadata=sites.study.ca)
    dialing = Site.dialing
    monkeypatch.setattr(Site, "dialing", lambda site: replace(dialing(site), inspected=bare))
    objectives, X = instance(2)
    expected = dcgs.minimize(objectives, X, graph, dcgs.DFW(), rounds=10, every=None)

    def signed(name: str, body: bytes = b"", later: float = 0.0, path: str = "/v1/hello") -> tuple[int, str]:
        request = "GET" if not body else "PUT", path, body
        headers = sign_request(sites.study, name, sites.keys[name].signing, time.time() + later, request)
        return ask(sites, bare, *request, server="relay", headers=headers)

    with sites.relay():
        wait_for_port(sites.port("relay"))
        idle = bare.wrap_socket(
            socket.create_connection(("127.0.0.1", sites.port("relay"))), server_hostname=host_of("relay")
        )
        assert ask(sites, bare, "GET", "/v1/hello", server="relay")[0] == 403
        assert signed("ulm") == (204, "")
        late = signed("ulm", later=-1000.0)[1]
        assert "must be signed within 900 s; by the clock of ulm this one was 100" in late
        good = sign_request(
            sites.study, "ulm", sites.keys["ulm"].signing, time.time(), ("GET", "/v1/hello", b"")
        )
        for changed in ({CALLER: "graz"}, {TIME: str(int(time.time()) + 5)}, {SIGNATURE: "00" * 64}):
            answer = ask(sites, bare, "GET", "/v1/hello", server="relay", headers=good | changed)
            assert "must be signed with the key of" in answer[1]
        assert ask(sites, bare, "GET", "/v1/mail/ulm", server="relay", headers=good)[0] == 403  # another path
        path = "/v1/mail/graz"
        one = sign_request(
            sites.study, "ulm", sites.keys["ulm"].signing, time.time(), ("PUT", path, b"1" * 90)
        )
        assert ask(sites, bare, "PUT", path, b"2" * 90, server="relay", headers=one)[0] == 403
        results = sites.run(
            lambda runtime: dcgs.minimize(
                objectives, X, graph, dcgs.DFW(), rounds=10, every=None, runtime=runtime
            )
        )
        assert idle.recv(1) == b""  # closed
        idle.close()
    assert np.array_equal(np.concatenate([result.agents for result in results]), expected.agents)
    said = "\n".join(sites.said["relay"])
    for sentence in (
        "a request without a certificate must be signed by a site",
        "the body of a signed request must be the one that was signed",
        "no signed request came within 4 s",
    ):
        assert sentence in said


def test_a_body_of_one_byte_a_second_a_nan_and_an_old_message_are_refused_on_arrival(
    sites: Sites, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_BODY", 1.0)
    ulm = sites.keys["ulm"]
    tls = context(sites, sites.authority.sign(Identity("ulm", *ulm.publics)), ulm, tmp_path / "ulm again")
    sealer, header = Sealer(sites.study, 0, ulm.agreement), EnvelopeHeader(0, 1, 1, 1, 1, 500)
    frame = Frame(0, ALL, [EncodedArray(np.array([1.0, np.nan]))])
    bundle = write([frame], Header(BundleKind.MESSAGE, 0, 1)).tobytes()
    path = "/v1/mail/graz"
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(sites.run, lambda runtime: None, ["ulm", "bern"])
        with sites.running("graz"):
            answers = {
                "a NaN": ask(sites, tls, "PUT", path, sealer.seal(header, bundle)),
                "cut": ask(sites, tls, "PUT", path, sealer.seal(header, bundle[:20])),
                "slow": ask(sites, tls, "PUT", path, b"", headers={"Content-Length": "100"}),
            }
        other.result(300.0)
    assert answers["a NaN"] == (403, "a message must be finite; agent 0 sent nan at (1,).")
    assert answers["cut"][0] == 403
    assert answers["slow"] == (408, "an envelope must arrive completely within 1 s.")
    said = "\n".join(sites.said["graz"])
    assert "refused what ulm (127.0.0.1) sent: a message must be finite" in said


def test_a_site_may_have_some_connections_and_no_more(
    sites: Sites, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_MOST_CONNECTIONS", 8)
    ulm = sites.keys["ulm"]
    tls = context(sites, sites.authority.sign(Identity("ulm", *ulm.publics)), ulm, tmp_path / "ulm again")
    with ThreadPoolExecutor(1) as pool:
        with sites.running("graz"):
            held = []
            for _ in range(12):
                raw = socket.create_connection(("127.0.0.1", sites.port("graz")), timeout=60.0)
                held.append(tls.wrap_socket(raw, server_hostname=host_of("graz")))
                with suppress(OSError):
                    held[-1].sendall(b"GET /v1/hello HTTP/1.1\r\nHost: x\r\n")  # and never ends
            time.sleep(0.5)
            for connection in held:
                connection.close()
            others = pool.submit(sites.run, lambda runtime: None, ["ulm", "bern"])
        others.result(300.0)
    assert "refused a connection of ulm from 127.0.0.1: it has 8 others." in sites.said["graz"]


def test_a_server_with_keys_that_are_not_in_the_study_is_refused_also_if_its_ca_has_signed_them(
    sites: Sites, tmp_path: Path
) -> None:
    keys = SiteKeys.generate()
    keys.save(tmp_path / "false.key")
    (tmp_path / "false.crt").write_bytes(sites.authority.sign(Identity("graz", *keys.publics)))
    false = server_context(sites.study, tmp_path / "false.crt", tmp_path / "false.key")
    ulm = sites.file("ulm")
    dialing = client_context(sites.study, ulm.with_suffix(".crt"), ulm.with_suffix(".key"))
    with pytest.raises(ssl.SSLCertVerificationError, match="its keys are not those in the study"):
        shake_hands(dialing, false)
    true = server_context(sites.study, *(sites.file("graz").with_suffix(end) for end in (".crt", ".key")))
    shake_hands(dialing, true)


def shake_hands(dialing: ssl.SSLContext, serving: ssl.SSLContext) -> None:
    sent, received = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = serving.wrap_bio(sent, received, server_side=True)
    ours = dialing.wrap_bio(received, sent, server_hostname=host_of("graz"))
    for end in (ours, server, ours):
        with suppress(ssl.SSLWantReadError):
            end.do_handshake()


def test_a_site_runs_once_at_a_time(sites: Sites) -> None:
    state = Site.load(sites.file("ulm")).state
    with ThreadPoolExecutor(1) as pool:
        with sites.running("ulm"):
            with pytest.raises(ValueError, match="one process at a time must run for a site; process"):
                sites.run(lambda runtime: None, ["ulm"])
            assert runs_in(state) == str(os.getpid())
            others = pool.submit(sites.run, lambda runtime: None, ["graz", "bern"])
        others.result(300.0)
    assert runs_in(state) is None


def test_what_a_neighbor_sends_and_nobody_takes_is_bounded(tmp_path: Path) -> None:
    with closing(Mailbox(tmp_path, capacity=1000)) as mailbox:
        header = EnvelopeHeader(1, 0, 1, 1, 0, 1)
        mailbox.keep(header, bytes(600))
        with pytest.raises(EnvelopeError, match="must have at most 1000 bytes; with this one they have 1200"):
            mailbox.keep(header._replace(sequence=2), bytes(600))
        mailbox.keep(header._replace(sender=2), bytes(600))
        assert mailbox.take(1, 1, 1) == (0, bytes(600))
        mailbox.keep(header._replace(sequence=2), bytes(600))
        mailbox.forget(1, 1, 2)
        mailbox.keep(header._replace(sequence=2), bytes(700))
        assert mailbox.take(1, 1, 2) == (0, bytes(700))


def test_messages_beyond_what_memory_has_are_taken_from_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mailbox_module, "_IN_MEMORY", 10)
    with closing(Mailbox(tmp_path, capacity=1000)) as mailbox:
        for sequence in (1, 2):
            mailbox.keep(EnvelopeHeader(1, 0, 1, 1, 0, sequence), bytes(8))
        assert [mailbox.take(1, 1, sequence) for sequence in (1, 2)] == [(0, bytes(8))] * 2


def test_sentences_that_others_cause_do_not_fill_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "_LARGEST", 1000)
    log = EventLog(tmp_path / EVENTS, show=lambda text: None)
    for i in range(1000):
        log.say(f"refused number {i}")
    lines = [line for file in tmp_path.iterdir() for line in file.read_text().splitlines()]
    assert len(lines) <= 201
    lines = (tmp_path / EVENTS).read_text().splitlines()
    assert "more than 200 sentences in a minute" in lines[-1]
    assert (tmp_path / EVENTS).stat().st_size < 1200


def test_an_envelope_that_is_sent_again_is_not_acknowledged_by_what_was_said_before(tmp_path: Path) -> None:
    with closing(Mailbox(tmp_path, capacity=1000)) as mailbox:
        header = EnvelopeHeader(0, 1, 1, 1, 0, 1)
        mailbox.add([Outgoing("graz", header, b"envelope", b"digest")])
        first = mailbox.next_for("graz")
        assert first is not None
        assert mailbox.next_for("graz", [first.id]) is None  # it is on its way
        mailbox.delivered("graz", first.id)
        mailbox.send_again(header)
        mailbox.delivered("graz", first.id)  # said by a request that was late
        again = mailbox.next_for("graz", [first.id])
        assert again is not None
        assert again.envelope == b"envelope"
        mailbox.delivered("graz", again.id)
        assert mailbox.waiting() == {}
        request = Outgoing("graz", header._replace(tag=4), b"request", b"")
        for _ in range(2):  # the first is not acknowledged, but may have been read
            mailbox.add([request])
            pending = mailbox.next_for("graz", [again.id])
            assert pending is not None
            again = pending


def test_envelopes_that_a_kill_kept_from_the_disk_are_made_again(tmp_path: Path) -> None:
    header = EnvelopeHeader(0, 1, 1, 1, 0, 1)
    with closing(Mailbox(tmp_path, capacity=1000)) as mailbox:
        mailbox.add([Outgoing("graz", header, b"envelope", b"digest")])
        mailbox.recover()
        assert mailbox.sent(header) == b"digest"
        mailbox._outgoing.execute("delete from envelopes")
        mailbox._outgoing.commit()
        mailbox.recover()
        assert mailbox.sent(header) is None
