"""The runtime between sites: each site hosts one agent, in a process of its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import final

from dcgs.runtime.base import Job, Runtime, run_hosted
from dcgs.runtime.group import ProcessGroup, TransportGroup
from dcgs.secure.keys import Ed25519Signatures, Signatures
from dcgs.sites.study import Study
from dcgs.sites.transport import SiteTransport


@final
@dataclass(frozen=True, eq=False)
class StudySignatures(Signatures):
    """Signs keys of masked sums with the key of a site's certificate, for one run of one study."""

    study: Study
    inner: Ed25519Signatures
    nbytes = Ed25519Signatures.nbytes

    def sign(self, statement: bytes) -> bytes:
        return self.inner.sign(self._of_run(statement))

    def verifies(self, agent: int, statement: bytes, signature: bytes) -> bool:
        return self.inner.verifies(agent, self._of_run(statement), signature)

    def _of_run(self, statement: bytes) -> bytes:
        return self.study.hash + self.study.run.to_bytes(8, "little") + statement


@final
@dataclass(frozen=True, eq=False)
class SiteRuntime(Runtime):
    """Run the agent of this site; the other sites of the study run theirs."""

    transport: SiteTransport
    signing: bytes = field(repr=False)
    separate_sites = True

    def __repr__(self) -> str:
        return f"SiteRuntime({self.transport.study.name!r})"

    def run(self, job: Job) -> None:
        run_hosted(job, self.transport)

    def hosts(self, agents: int) -> range:
        if agents != self.transport.size:
            raise ValueError(
                f"a study must have an agent for each site; got {agents} agents and {self.transport.size} "
                "sites."
            )
        return range(self.transport.rank, self.transport.rank + 1)

    def journal(self) -> Path:
        return self.transport.next_journal()

    def signatures(self) -> StudySignatures:
        study = self.transport.study
        publics = [bytes.fromhex(site.ed25519) for site in study.sites]
        return StudySignatures(study, Ed25519Signatures(self.signing, publics))

    def group(self) -> ProcessGroup:
        return TransportGroup(self.transport)
