"""Masks: what an agent adds to its words so that only the total of all agents can be read.

Agent i adds Σⱼ ± pad(i, j, counter) over its partners j, + for i < j and − for i > j, mod 2⁶⁴. Each masked
array takes the next counter. The same pad under two values would show their difference. So for every counter
the SHA-256 of what was masked is kept: the same words give the same bytes again, other words are refused.
The digest is that of the masked words, which tells no more than the message itself.

After a restart from an older checkpoint an agent masks again what it has masked before. What it sent after
that checkpoint is in the journal (``journal``), which is written before a message leaves and is not rolled
back with a checkpoint. The private key is in the journal as well, and not in the checkpoint. So an agent that
has lost its journal has lost its key: it makes a new one, and the new transcript gives all agents new pads.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, final

import numpy as np

from dcgs.secure.fixed_point import LIMB_BITS, Words, carried

if TYPE_CHECKING:  # these two import cryptography, which masks of other kinds do not need
    from dcgs.secure.journal import Journal
    from dcgs.secure.keys import AgentKeys


class CounterReuseError(RuntimeError):
    """Raised when a counter would mask a second value; nothing has been sent."""


class Masks(ABC):
    """How one agent of ``agents`` masks its words."""

    agents: int
    transcript: bytes
    """What all agents of a run have in common, and no other run has."""

    @property
    @abstractmethod
    def counter(self) -> int:
        """The number of the next masked array."""

    @abstractmethod
    def seal(self, words: Words, name: str) -> Words:
        """Return the masked words, and advance the counter. ``name`` is that of the sum."""

    @abstractmethod
    def hide(self, limbs: Words, start: int) -> Words:
        """Return the limbs of wide numbers with pads that cancel mod 2²⁴⁰, for the current counter.

        Sums of limbs tell no more than the total then. They are sealed as well, from which on they are
        uniform words; the pads of limbs come from behind the first ``start`` words.
        """

    @abstractmethod
    def noise(self, size: int) -> Words:
        """Return words for the current counter that hide what they are added to from all other agents."""


@final
class NoMasks(Masks):
    """No masks: neighbors read partial sums. Totals have the same bits as with masks."""

    transcript = b""

    def __init__(self, agents: int) -> None:
        self.agents, self._counter = agents, 0

    @property
    def counter(self) -> int:
        return self._counter

    def seal(self, words: Words, name: str) -> Words:
        self._counter += 1
        return words

    def hide(self, limbs: Words, start: int) -> Words:
        return limbs

    def noise(self, size: int) -> Words:
        return np.ones(size, dtype=np.uint64)


@final
@dataclass
class MaskState:
    """Which counters an agent has used with the keys of a transcript, and for what; saved in checkpoints.

    ``digests`` has the SHA-256 of what was masked with the counters 0, 1, …; ``counter`` is the next one. It
    is smaller than the number of digests while an agent repeats what it did before a restart.
    """

    transcript: str
    counter: int = 0
    digests: list[str] = field(default_factory=list)


@final
class PairwiseMasks(Masks):
    """Masks by pads that two partners share.

    ``state`` is that of a checkpoint, None at first. If there is a journal, it must be the one that the key
    pair is from.
    """

    def __init__(
        self, keys: AgentKeys, state: MaskState | None = None, journal: Journal | None = None
    ) -> None:
        transcript = keys.transcript.hex()
        self.agents, self.transcript = keys.agents, keys.transcript
        self.state = MaskState(transcript) if state is None else state
        self._keys, self._journal = keys, journal
        if self.state.transcript != transcript:
            raise ValueError(
                "the state of masks must be of the keys that are used; its keys are of transcript "
                f"{self.state.transcript[:16]}, those of this run of {transcript[:16]}. Leave the state out: "
                "new keys begin with counter 0."
            )
        if journal is not None:
            self._merge(journal.digests(transcript))
        if self.state.counter > len(self.state.digests):
            raise ValueError(
                f"a state must have a digest of every counter that was used; it has {len(self.state.digests)}"
                f" for {self.state.counter} counters. Start a new run, with new keys."
            )

    @property
    def counter(self) -> int:
        return self.state.counter

    def _merge(self, written: list[str]) -> None:
        """Take the digests of the journal; raise if the checkpoint knows of others."""
        known = self.state.digests
        if written[: len(known)] != known:
            raise CounterReuseError(
                f"the journal must have all that was sent before the checkpoint; of {len(known)} digests it "
                f"has {len(written)}, or others. It is an older copy. Start a new run, with new keys."
            )
        self.state.digests = written

    def seal(self, words: Words, name: str) -> Words:
        counter, masked = self.state.counter, words.copy()
        for j in self._keys.shared:
            pad = self._keys.pad(j, counter, len(words))
            if self._keys.index < j:
                masked += pad
            else:
                masked -= pad
        digest = sha256(name.encode() + b"\n" + masked.tobytes()).hexdigest()
        if counter == len(self.state.digests):
            if self._journal is not None:
                self._journal.append(self.state.transcript, counter, digest)
            self.state.digests.append(digest)
        elif self.state.digests[counter] != digest:
            raise CounterReuseError(
                f"a counter must mask one value only; counter {counter}, now for {name!r}, has masked another"
                " value, and the two messages would show their difference. Nothing was sent. Restore the same"
                " data and options, or start a new run with new keys."
            )
        self.state.counter += 1
        return masked

    def hide(self, limbs: Words, start: int) -> Words:
        hidden = limbs.astype(np.int64)
        for j in self._keys.shared:
            pad = self._keys.pad(j, self.state.counter, start + limbs.size)[start:] >> np.uint64(
                64 - LIMB_BITS
            )
            hidden += (1 if self._keys.index < j else -1) * pad.astype(np.int64).reshape(limbs.shape)
        return carried(hidden)

    def noise(self, size: int) -> Words:
        return self._keys.noise(self.state.counter, size)
