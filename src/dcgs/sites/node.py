"""The life of a site: its consent, its mailbox and its connections; after an end of any kind it is started
again."""

from __future__ import annotations

import hashlib
import json
import platform
import ssl
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, final

from dcgs.files import atomic_write
from dcgs.runtime.errors import RunAbortedError, Scope, scope_of
from dcgs.sites.certificate import LiveCertificate, certificate_note, read_certificate
from dcgs.sites.client import Dialing
from dcgs.sites.config import SiteConfig
from dcgs.sites.envelope import Sealer
from dcgs.sites.events import EVENTS, EventLog, last_events, local_time
from dcgs.sites.keys import Identity, SiteKeys
from dcgs.sites.lock import alone, runs_in
from dcgs.sites.mailbox import RECEIVED, Mailbox
from dcgs.sites.page import PAGE, SiteView
from dcgs.sites.runtime import SiteRuntime
from dcgs.sites.server import client_context, server_context
from dcgs.sites.study import Member, Study
from dcgs.sites.transport import JOURNAL, SiteTransport

_AGREED, _DONE, _INPUTS = "agreed.json", "done", "inputs"


def load_keys(config: SiteConfig, member: Member) -> SiteKeys:
    """Return the private keys of a site; raise unless they are those in the study."""
    if not config.key.exists():
        raise ValueError(
            f"the key of {config.name} must be a file; there is no {config.key}. dcgs site key makes it."
        )
    keys = SiteKeys.load(config.key)
    if keys.publics != (member.ed25519, member.x25519):
        raise ValueError(
            f"the keys of {config.name} in the study must be those of {config.key}; they are others. Sign "
            "the request that belongs to this key."
        )
    return keys


def load_certificate(config: SiteConfig, member: Member) -> Identity:
    """Return what the certificate of a site says; raise unless it is that of the study."""
    if not config.certificate.exists():
        raise ValueError(
            f"the certificate of {config.name} must be a file; there is no {config.certificate}. The "
            f"coordinator makes it from {config.name}.csr with dcgs study sign; put it there."
        )
    return read_certificate(member, config.certificate)


@final
@dataclass(frozen=True)
class Site:
    """A site with its study; both have been checked."""

    config: SiteConfig
    study: Study
    keys: SiteKeys

    @classmethod
    def load(cls, file: Path) -> Site:
        """Return the site of a file; raise if its study, its keys or its certificate do not fit."""
        config = SiteConfig.load(file)
        study = Study.load(config.study)
        study.check_signed()
        member = study.member(config.name)
        keys = load_keys(config, member)
        load_certificate(config, member)
        return cls(config, study, keys)

    @property
    def state(self) -> Path:
        """The folder of this study."""
        return self.config.state(self.study.hash)

    @property
    def output(self) -> Path:
        """The folder of the models."""
        return self.state / "model"

    def dialing(self) -> Dialing:
        """Return how this site connects to others."""
        files = self.study, self.config.certificate, self.config.key
        inspected = client_context(*files)
        if self.config.proxy_ca is not None:
            inspected.load_verify_locations(self.config.proxy_ca)
            inspected.sslobject_class = ssl.SSLObject  # the proxy has other keys than the relay
        return Dialing(self.config.name, self.keys.signing, client_context(*files), inspected)

    def certificate_note(self) -> str | None:
        """Return a sentence if the certificate has expired or will soon, else None."""
        return certificate_note(self.study.member(self.config.name), self.config.certificate)

    def agree(self, text: str) -> None:
        """Record that this site agrees to the study as it is now."""
        self.state.mkdir(parents=True, exist_ok=True)
        record = {"study": self.study.hash.hex(), "time": datetime.now(UTC).isoformat(), "to": text}
        atomic_write(self.state / _AGREED, json.dumps(record, indent=2, ensure_ascii=False).encode())

    @property
    def has_agreed(self) -> bool:
        """Whether this site has agreed to this study, to the byte."""
        file = self.state / _AGREED
        return file.exists() and json.loads(file.read_text())["study"] == self.study.hash.hex()

    def status(self) -> Iterator[str]:
        """Yield lines on how far this site is; it may run or not."""
        yield f"{self.config.name} in study {self.study.name}, SHA-256 {self.study.hash.hex()[:12]}…"
        done, process = self.done, runs_in(self.state)
        start = f"start it with: dcgs site run {self.config.file}"
        if process is not None:
            yield f"it runs, as process {process}"
        elif done is not None:
            yield f"done at {local_time(done)}; the models are in {self.output}"
        elif not self.has_agreed:
            yield f"it has not agreed to the study; read it with: dcgs site agree {self.config.file}"
        elif not (self.state / RECEIVED).exists():
            yield f"it has agreed, and was not started yet; {start}"
        else:
            yield f"it does NOT run, and is not done; {start}"
        view = SiteView.read(self.state)
        if view is not None:
            yield from view.lines()
            yield f"page: {self.state / PAGE}"
        yield from (f"{local_time(when)}: {text}" for when, text in last_events(self.state / EVENTS))
        note = self.certificate_note()
        if note is not None:
            yield note

    @property
    def done(self) -> str | None:
        """When the run of this study has ended at all sites; None if it has not."""
        if not (self.state / RECEIVED).exists():
            return None
        with closing(Mailbox(self.state, self.study.limits.mailbox_bytes)) as mailbox:
            return mailbox.fact(_DONE)

    @contextmanager
    def running(self, log: EventLog, again: bool = False) -> Iterator[SiteRuntime]:
        """Connect this site with the others; when the run has ended, stay until they do not need it.

        With ``again`` the run was done before, and what was not delivered is.
        """
        if not self.has_agreed:
            raise ValueError(
                f"{self.config.name} must agree to the study as it is now, SHA-256 "
                f"{self.study.hash.hex()[:12]}…; "
                f"it has not. Read it and agree with: dcgs site agree {self.config.file}"
            )
        with alone(self.state):
            mailbox = Mailbox(self.state, self.study.limits.mailbox_bytes)
            self._check_inputs(mailbox)
            mailbox.recover()
            sealer = Sealer(self.study, self.study.rank(self.config.name), self.keys.agreement)
            transport = SiteTransport(self.study, sealer, mailbox, log, self.config.limits)
            try:
                self._open(transport, log)
                yield from self._taking_part(transport)
                if again:
                    transport.deliver()
                else:
                    transport.finish()
                    log.say("all sites have ended")
                    mailbox.record(_DONE, datetime.now(UTC).isoformat())
                    for journal in self.state.glob(JOURNAL.format("*")):
                        journal.unlink()  # nobody can unmask what was recorded of this run
                transport.ended = "It is done: all sites have ended."
            except BaseException as error:
                transport.ended = f"It has ended, and is not done: {str(error) or 'it was stopped'}"
                log.say(transport.ended, is_shown=False)
                raise
            finally:
                transport.close()

    def _open(self, transport: SiteTransport, log: EventLog) -> None:
        """Connect a transport, and begin its page."""
        files = self.study, self.config.certificate, self.config.key
        serving, dialing = server_context(*files), self.dialing()
        contexts = serving, dialing.context, dialing.inspected
        member = self.study.member(self.config.name)
        certificate = LiveCertificate(member, *files[1:], contexts, log)
        transport.open(self.config.listen, serving, dialing)
        transport.keep_page(self.state, certificate)
        log.say(f"{self.config.name} takes part in {self.study.name}, run {self.study.run}")

    def _taking_part(self, transport: SiteTransport) -> Iterator[SiteRuntime]:
        """Yield the runtime; if the run fails, the others hear of what concerns them."""
        try:
            yield SiteRuntime(transport, self.keys.signing.private_bytes_raw())
        except Exception as error:
            if not isinstance(_cause(error), RunAbortedError):  # it may be that of a message
                transport.forget_step()
            if scope_of(error) is Scope.ALL:
                transport.finish()
            raise

    def _check_inputs(self, mailbox: Mailbox) -> None:
        """Raise if this run was started with other data or on another kind of machine."""
        inputs = {"the data": _sha256(self.config.data_file), **library_facts()}
        before = mailbox.fact(_INPUTS)
        if before is None:
            mailbox.record(_INPUTS, json.dumps(inputs))
            return
        known = json.loads(before)
        changed = [name for name, value in inputs.items() if known.get(name) != value]
        if changed:
            raise ValueError(
                "a run that goes on must have what it began with, or sums would be told twice; "
                f"{', '.join(changed)} changed. Put it back, or agree with the other sites on a new run: a "
                "study with another number of run."
            )


def _cause(error: BaseException) -> BaseException:
    """Return the error that was raised first."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def library_facts() -> Mapping[str, str]:
    """Return what bits depend on beside the data."""
    from importlib.metadata import version

    packages = {name: version(name) for name in ("dcgs", "numpy", "scipy")}
    return packages | {"Python": platform.python_version(), "the kind of processor": platform.machine()}


def _sha256(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise ValueError(f"the data of a site must be a file; {file}: {error.strerror}.") from error


def as_flags(options: Mapping[str, Any]) -> list[str]:
    """Return options of a study as those of the command.

    >>> as_flags({"target": "ill", "drop": ["name", "ward"], "intercept": False, "radius": 2.5})
    ['--target=ill', '--drop', 'name', 'ward', '--no-intercept', '--radius=2.5']
    """
    flags: list[str] = []
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        if isinstance(value, bool):
            flags.append(flag if value else f"--no-{flag[2:]}")
        elif isinstance(value, list):
            flags += [flag, *map(str, value)]
        else:
            flags.append(f"{flag}={value}")
    return flags
