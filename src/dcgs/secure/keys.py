"""Keys: every agent has an X25519 key pair for one run, and a secret with each of its partners.

The public keys of all agents are known to all. The *transcript* is the SHA-256 of the run's id and of all
public keys in the order of agents. Two partners derive their secret from the shared point by HKDF-SHA256,
with the transcript as salt and their numbers as info. So a key that an active neighbor has changed for some
agents only gives other secrets everywhere: no sum of that run passes its check. A neighbor who changes keys
consistently for both sides of a cut is noticed by signatures, or by people who compare the fingerprint of
the transcript.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import final

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from dcgs.protocol import Program
from dcgs.secure.fixed_point import Words
from dcgs.secure.partners import partner_graph
from dcgs.secure.sum import Reduce

KEY_BYTES = 32
"""Bytes of a private key, of a public key and of a shared secret."""
LEAST_AGENTS = 3
"""Of two agents, each knows the other's value from the total and its own."""
# Blocks of ChaCha20 are numbered by 32 bits in RFC 8439, and have eight words.
_MOST_WORDS = 8 * 2**32


@final
@dataclass(frozen=True, eq=False)
class KeyPair:
    """The X25519 key pair of one agent for one run."""

    private: bytes = field(repr=False)
    public: bytes

    @classmethod
    def generate(cls) -> KeyPair:
        """Return a new pair from the operating system's random numbers."""
        return cls.of(secrets.token_bytes(KEY_BYTES))

    @classmethod
    def of(cls, private: bytes) -> KeyPair:
        """Return the pair of a private key."""
        return cls(private, X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw())


class Signatures(ABC):
    """How public keys are signed, where sites have certificates."""

    nbytes: int
    """The length of a signature, the same for all agents."""

    @abstractmethod
    def sign(self, statement: bytes) -> bytes:
        """Return this agent's signature of a statement."""

    @abstractmethod
    def verifies(self, agent: int, statement: bytes, signature: bytes) -> bool:
        """Return True if an agent has signed the statement."""


@final
class Unsigned(Signatures):
    """No signatures: neighbors are trusted not to change public keys."""

    nbytes = 0

    def sign(self, statement: bytes) -> bytes:
        return b""

    def verifies(self, agent: int, statement: bytes, signature: bytes) -> bool:
        return True


@final
@dataclass(frozen=True, eq=False)
class Ed25519Signatures(Signatures):
    """Signatures by long-term Ed25519 keys; the public ones of all agents are known beforehand."""

    private: bytes = field(repr=False)
    publics: Sequence[bytes]
    nbytes = 64

    @property
    def public(self) -> bytes:
        """The public key of this agent, which the others must have."""
        return Ed25519PrivateKey.from_private_bytes(self.private).public_key().public_bytes_raw()

    def sign(self, statement: bytes) -> bytes:
        return Ed25519PrivateKey.from_private_bytes(self.private).sign(statement)

    def verifies(self, agent: int, statement: bytes, signature: bytes) -> bool:
        try:
            Ed25519PublicKey.from_public_bytes(self.publics[agent]).verify(signature, statement)
        except InvalidSignature:
            return False
        return True


@final
@dataclass(frozen=True, eq=False)
class AgentKeys:
    """What one agent has after the exchange of keys.

    ``shared`` has the secret with each partner. ``noise_key`` is known to this agent only, ``publics`` to all
    agents: their public keys.
    """

    index: int
    agents: int
    transcript: bytes
    shared: Mapping[int, bytes] = field(repr=False)
    noise_key: bytes = field(repr=False)
    publics: tuple[bytes, ...] = ()

    @property
    def fingerprint(self) -> str:
        """Half of the transcript for people to compare, such as on the phone: equal at all sites, or not."""
        digits = self.transcript[:16].hex()
        return " ".join(digits[k : k + 4] for k in range(0, len(digits), 4))

    def pad(self, partner: int, counter: int, size: int) -> Words:
        """Return the words that this agent and a partner share for a counter."""
        return _stream(self.shared[partner], counter, size)

    def noise(self, counter: int, size: int) -> Words:
        """Return words that only this agent knows; again the same for the same counter."""
        return _stream(self.noise_key, counter, size)


def agree(pair: KeyPair, index: int, publics: Sequence[bytes], run: str) -> AgentKeys:
    """Return an agent's keys, from its own pair and the public keys of all agents of a run.

    >>> pairs = [KeyPair.generate() for _ in range(3)]
    >>> keys = [agree(pair, i, [pair.public for pair in pairs], "study 7") for i, pair in enumerate(pairs)]
    >>> bool((keys[0].pad(2, counter=5, size=4) == keys[2].pad(0, counter=5, size=4)).all())
    True
    """
    agents = len(publics)
    if agents < LEAST_AGENTS:
        raise ValueError(
            f"a secure sum needs at least {LEAST_AGENTS} agents; got {agents}: with fewer, the total and "
            "its own value tell an agent the other's. Run openly, or with more agents."
        )
    _check_publics(pair, index, publics)
    encoded = run.encode()
    transcript = sha256(
        b"dcgs secure run 1\n" + _number(len(encoded)) + encoded + _number(agents) + b"".join(publics)
    ).digest()
    private = X25519PrivateKey.from_private_bytes(pair.private)
    shared = {}
    for j in partner_graph(agents, transcript)[index]:
        try:
            point = private.exchange(X25519PublicKey.from_public_bytes(publics[j]))
        except ValueError as error:
            raise ValueError(
                f"public keys must be points of large order; that of agent {j} is not. Make a new one."
            ) from error
        shared[j] = _derived(point, transcript, b"mask" + _number(min(index, j)) + _number(max(index, j)))
    noise_key = _derived(pair.private, transcript, b"noise")
    return AgentKeys(index, agents, transcript, shared, noise_key, tuple(publics))


def keys_inside(keys: AgentKeys, label: str) -> AgentKeys:
    """Return keys that follow from others by HKDF, for what has this label; other labels give other keys."""
    encoded = label.encode()
    content = b"dcgs keys inside 1\n" + keys.transcript + _number(len(encoded)) + encoded
    transcript = sha256(content).digest()
    shared = {j: _derived(secret, transcript, b"mask inside") for j, secret in keys.shared.items()}
    noise_key = _derived(keys.noise_key, transcript, b"noise inside")
    return AgentKeys(keys.index, keys.agents, transcript, shared, noise_key, keys.publics)


def _check_publics(pair: KeyPair, index: int, publics: Sequence[bytes]) -> None:
    """Raise unless every agent has a key, all differ, and this agent's key has arrived unchanged."""
    odd = [j for j, public in enumerate(publics) if len(public) != KEY_BYTES]
    if odd:
        raise ValueError(f"public keys must have {KEY_BYTES} bytes; those of agents {odd} have not.")
    missing = [j for j, public in enumerate(publics) if public == bytes(KEY_BYTES)]
    if missing:
        raise ValueError(f"all agents must have a public key; agents {missing} have none.")
    if len(set(publics)) < len(publics):
        twice = [j for j, public in enumerate(publics) if publics.count(public) > 1]
        raise ValueError(f"public keys of agents must differ; agents {twice} have the same as another.")
    if publics[index] != pair.public:
        raise ValueError(
            f"the public key of agent {index} must arrive as it was sent; another one arrived. A neighbor "
            "has changed it, or two agents have the same number."
        )


def exchange_keys(
    pair: KeyPair, index: int, agents: int, run: str, reduce: Reduce, signatures: Signatures | None = None
) -> Program[AgentKeys]:
    """Tell all agents this agent's public key, and return what follows from those of all.

    ``run`` is the id of the run, the same for all agents and never used before. It takes one reduction.
    """
    signed = Unsigned() if signatures is None else signatures
    table = np.zeros((agents, KEY_BYTES + signed.nbytes), dtype=np.uint8)
    signature = signed.sign(_statement(run, index, pair.public))
    table[index] = np.frombuffer(pair.public + signature, dtype=np.uint8)
    (total,) = yield from reduce((table,), answer=lambda value: value)
    rows = [row.tobytes() for row in total]
    publics = [row[:KEY_BYTES] for row in rows]
    wrong = [
        j
        for j, row in enumerate(rows)
        if not signed.verifies(j, _statement(run, j, publics[j]), row[KEY_BYTES:])
    ]
    if wrong:
        raise ValueError(
            f"public keys must be signed by their agents; those of agents {wrong} are not. A neighbor may "
            "have changed them: do not run before you know why."
        )
    return agree(pair, index, publics, run)


def _statement(run: str, agent: int, public: bytes) -> bytes:
    """Return what an agent signs."""
    encoded = run.encode()
    return b"dcgs public key 1\n" + _number(len(encoded)) + encoded + _number(agent) + public


def _derived(secret: bytes, transcript: bytes, info: bytes) -> bytes:
    return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=transcript, info=b"dcgs " + info).derive(secret)


def _number(value: int) -> bytes:
    return value.to_bytes(8, "little")


def _stream(key: bytes, counter: int, size: int) -> Words:
    """Return the ChaCha20 stream of a key with the counter as nonce; blocks are numbered from 0."""
    if size > _MOST_WORDS:
        raise ValueError(f"a secure sum must have at most {_MOST_WORDS} numbers; got {size}. Cut it.")
    cipher = Cipher(ChaCha20(key, bytes(8) + _number(counter)), mode=None).encryptor()
    words: Words = np.frombuffer(cipher.update(bytes(8 * size)), dtype="<u8").astype(np.uint64, copy=False)
    return words
