"""Envelopes: messages that are sealed between two sites. No I/O.

An envelope is a header, a nonce and the message, encrypted by ChaCha20-Poly1305. The key is that of a
direction between two sites: it follows from their X25519 keys, the study and the run. The SHA-256 of the
study and the whole header are authenticated with the message. So whoever carries an envelope can read the
header only, and an envelope of another study, run, sender, receiver, round or place in the sequence cannot
be opened. Nonces are random: a message that is sealed again, after a restart, gets another.
"""

from __future__ import annotations

import secrets
import struct
from dataclasses import dataclass, field
from hashlib import sha256
from typing import NamedTuple, final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from dcgs.sites.study import Study

_MAGIC, _VERSION = b"dcgs-env", 1
# Magic, version, tag, sender, receiver, run, round, sequence.
_HEADER = struct.Struct("<8sHHIIIQQ")
_MOST = 2**63
_NONCE, _CHECK = 12, 16
OVERHEAD = _HEADER.size + _NONCE + _CHECK
"""Bytes of an envelope beside those of its message."""


class EnvelopeError(ValueError):
    """Raised for an envelope that is refused; says why."""


@final
class EnvelopeHeader(NamedTuple):
    """Where an envelope belongs: sites by their numbers, and its place in the sequence of its sender,
    receiver and tag.

    ``round`` is how far the sender's program was.
    """

    sender: int
    receiver: int
    tag: int
    run: int
    round: int
    sequence: int

    def pack(self) -> bytes:
        """Return the bytes of the header."""
        return _HEADER.pack(
            _MAGIC, _VERSION, self.tag, self.sender, self.receiver, self.run, self.round, self.sequence
        )


def read_header(envelope: bytes) -> EnvelopeHeader:
    """Return the header of an envelope, which whoever carries it can read."""
    if len(envelope) < OVERHEAD:
        raise EnvelopeError(f"an envelope must have at least {OVERHEAD} bytes; got {len(envelope)}.")
    magic, version, tag, sender, receiver, run, round, sequence = _HEADER.unpack_from(envelope)
    if (magic, version) != (_MAGIC, _VERSION):
        raise EnvelopeError("an envelope must be of this version of dcgs; install the same at all sites.")
    if max(round, sequence) >= _MOST:
        raise EnvelopeError(f"rounds and places must be below 2⁶³; got {round} and {sequence}.")
    return EnvelopeHeader(sender, receiver, tag, run, round, sequence)


@final
@dataclass(frozen=True)
class Sealer:
    """Seals the messages of a site, and opens those for it."""

    study: Study
    rank: int
    key: X25519PrivateKey = field(repr=False)
    _ciphers: dict[tuple[int, int], ChaCha20Poly1305] = field(default_factory=dict, repr=False)

    def seal(self, header: EnvelopeHeader, message: bytes) -> bytes:
        """Return the envelope of a message of this site."""
        packed, nonce = header.pack(), secrets.token_bytes(_NONCE)
        cipher = self._cipher(self.rank, header.receiver)
        return packed + nonce + cipher.encrypt(nonce, message, self.study.hash + packed)

    def open(self, envelope: bytes) -> tuple[EnvelopeHeader, bytes]:
        """Return header and message of an envelope; raise unless it is for this site, of this study and
        run."""
        header = read_header(envelope)
        sites = range(len(self.study.sites))
        if header.receiver != self.rank or header.sender not in sites or header.sender == self.rank:
            raise EnvelopeError(
                f"an envelope must be from another site to this one, number {self.rank}; got one from "
                f"{header.sender} to {header.receiver}."
            )
        if header.run != self.study.run:
            raise EnvelopeError(f"an envelope must be of run {self.study.run}; got one of run {header.run}.")
        start = _HEADER.size
        nonce, sealed = envelope[start : start + _NONCE], envelope[start + _NONCE :]
        try:
            cipher = self._cipher(header.sender, self.rank)
            return header, cipher.decrypt(nonce, sealed, self.study.hash + envelope[:start])
        except InvalidTag as error:
            raise EnvelopeError(
                f"an envelope must be sealed by its sender for this study; one from "
                f"{self.study.names[header.sender]} is not: it was changed, or belongs elsewhere."
            ) from error

    def _cipher(self, sender: int, receiver: int) -> ChaCha20Poly1305:
        cipher = self._ciphers.get((sender, receiver))
        if cipher is None:
            other = self.study.sites[sender if receiver == self.rank else receiver]
            shared = self.key.exchange(X25519PublicKey.from_public_bytes(bytes.fromhex(other.x25519)))
            info = b"dcgs envelope" + struct.pack("<III", self.study.run, sender, receiver)
            derived = HKDF(SHA256(), 32, salt=self.study.hash, info=info).derive(shared)
            cipher = self._ciphers[sender, receiver] = ChaCha20Poly1305(derived)
        return cipher


def digest(message: bytes) -> bytes:
    """Return by what a message is recognized that is sent or received again."""
    return sha256(message).digest()
