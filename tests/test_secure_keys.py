"""Keys: known answers of the standards, one transcript for all agents, and what is refused."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import networkx as nx
import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from dcgs.learn.sums import run_programs
from dcgs.protocol import Program
from dcgs.secure import keys as keys_module
from dcgs.secure.keys import AgentKeys, Ed25519Signatures, KeyPair, Signatures, agree, exchange_keys
from dcgs.secure.masks import PairwiseMasks
from dcgs.secure.sum import MaskedReduction, Reduce, SecureSumError, Value, secure_answer
from dcgs.tree import TreeNode
from secure_runs import GRAPHS, agent_keys, along_tree, key_pairs

BOB = bytes.fromhex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb")


def test_a_public_key_is_that_of_rfc_7748() -> None:
    assert KeyPair.of(BOB).public.hex() == "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"


def test_a_pad_is_the_stream_of_rfc_8439() -> None:
    # Section 2.4.2: the nonce is four bytes of 0, then the counter. Its example begins with the second block.
    stream = keys_module._stream(bytes(range(32)), 0x4A << 24, 16).tobytes()[64:]
    assert stream.hex().startswith("224f51f3401bd9e12fde276fb8631ded8c131f823d2c06e27e4fcaec9ef3cf78")


def test_a_shared_secret_is_x25519_and_hkdf_of_the_transcript() -> None:
    pairs, keys = key_pairs(3), agent_keys(3, run="läuft")
    content = (
        b"dcgs secure run 1\n" + (6).to_bytes(8, "little") + "läuft".encode() + (3).to_bytes(8, "little")
    )
    transcript = sha256(content + b"".join(pair.public for pair in pairs)).digest()
    assert keys[1].transcript == transcript
    point = X25519PrivateKey.from_private_bytes(pairs[1].private).exchange(
        X25519PublicKey.from_public_bytes(pairs[2].public)
    )
    extracted = hmac.digest(transcript, point, "sha256")
    info = b"dcgs mask" + (1).to_bytes(8, "little") + (2).to_bytes(8, "little")
    expected = hmac.digest(extracted, info + b"\x01", "sha256")
    assert keys[1].shared[2] == keys[2].shared[1] == expected


def test_all_secrets_of_a_run_differ_and_other_keys_or_another_run_change_all_of_them() -> None:
    def secrets(keys: list[AgentKeys]) -> set[bytes]:
        return {secret for each in keys for secret in (*each.shared.values(), each.noise_key)}

    first = secrets(agent_keys(5))
    assert len(first) == 5 * 4 // 2 + 5
    pairs = key_pairs(5)
    changed = [*pairs[:4], KeyPair.of(BOB)]
    publics = [pair.public for pair in changed]
    one_is_new = [agree(pair, i, publics, "test") for i, pair in enumerate(changed)]
    assert first.isdisjoint(secrets(one_is_new))
    assert first.isdisjoint(secrets(agent_keys(5, run="test 2")))


def test_generated_keys_differ() -> None:
    assert len({KeyPair.generate().private for _ in range(20)}) == 20


def test_no_secret_is_in_the_text_of_an_object() -> None:
    pair, keys = key_pairs(3)[0], agent_keys(3)[0]
    signatures = Ed25519Signatures(pair.private, [])
    for text in (repr(pair), repr(keys), repr(signatures)):
        assert repr(pair.private)[2:-1] not in text
        assert not any(repr(secret)[2:-1] in text for secret in (*keys.shared.values(), keys.noise_key))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda p: p[:2], r"^a secure sum needs at least 3 agents; got 2: with fewer"),
        (lambda p: [p[0], p[1][:-1], p[2]], r"must have 32 bytes; those of agents \[1\] have not\.$"),
        (lambda p: [p[0], bytes(32), p[2]], r"must have a public key; agents \[1\] have none\.$"),
        (lambda p: [p[0], p[2], p[2]], r"must differ; agents \[1, 2\] have the same as another\.$"),
        (lambda p: [p[1], p[0], p[2]], r"^the public key of agent 0 must arrive as it was sent"),
        (lambda p: [p[0], b"\x01" + bytes(31), p[2]], r"points of large order; that of agent 1 is not\."),
    ],
    ids=["two agents", "short", "missing", "twice", "changed", "small order"],
)
def test_public_keys_that_cannot_be_right_are_refused(
    change: Callable[[list[bytes]], list[bytes]], sentence: str
) -> None:
    pairs = key_pairs(3)
    with pytest.raises(ValueError, match=sentence):
        agree(pairs[0], 0, change([pair.public for pair in pairs]), "test")


def test_a_sum_that_is_longer_than_a_stream_is_refused() -> None:
    with pytest.raises(ValueError, match=r"at most 34359738368 numbers; got 34359738369\. Cut it\.$"):
        agent_keys(3)[0].pad(1, 0, 2**35 + 1)


# The exchange.


def exchanged(
    graph: nx.Graph,
    signatures: Callable[[int], Signatures | None] = lambda i: None,
    reduce_of: Callable[[int, TreeNode], Reduce] = lambda i, tree: along_tree(tree),
) -> list[AgentKeys]:
    pairs = key_pairs(len(graph))

    def program(i: int, tree: TreeNode) -> Program[AgentKeys]:
        return exchange_keys(pairs[i], i, len(graph), "test", reduce_of(i, tree), signatures(i))

    return list(run_programs(program, graph)[0].values())


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_all_agents_get_the_keys_of_all_with_one_fingerprint(graph: nx.Graph) -> None:
    keys = exchanged(graph)
    assert {each.fingerprint for each in keys} == {agent_keys(len(graph))[0].fingerprint}
    assert [each.shared for each in keys] == [each.shared for each in agent_keys(len(graph))]
    assert len(keys[0].fingerprint.split()) == 8


IDENTITIES = [Ed25519PrivateKey.from_private_bytes(bytes([i + 1]) * 32) for i in range(5)]
KNOWN = [identity.public_key().public_bytes_raw() for identity in IDENTITIES]


def signed(i: int) -> Ed25519Signatures:
    return Ed25519Signatures(IDENTITIES[i].private_bytes_raw(), KNOWN)


def swapping(i: int, tree: TreeNode) -> Reduce:
    """The key of agent 3 is exchanged for another one on its way to the root."""

    def reduce(value: Value, *, answer: Callable[[Value], Value]) -> Program[Value]:
        table = value[0].copy()
        table[3, :32] = np.frombuffer(KeyPair.of(BOB).public, dtype=np.uint8)
        inner = along_tree(tree)((table,), answer=answer)
        return (yield from inner)

    return reduce if i == 3 else along_tree(tree)


def test_signed_keys_are_accepted_and_a_changed_one_names_its_agent() -> None:
    assert len({keys.fingerprint for keys in exchanged(nx.star_graph(4), signed)}) == 1
    with pytest.raises(
        ValueError, match=r"^public keys must be signed by their agents; those of agents \[3\]"
    ):
        exchanged(nx.star_graph(4), signed, swapping)


@pytest.mark.parametrize(
    "other", [lambda statement: bytes(64), IDENTITIES[0].sign], ids=["none", "another's"]
)
def test_a_key_with_a_wrong_signature_is_refused(
    other: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    sign = Ed25519Signatures.sign

    def signs(self: Ed25519Signatures, statement: bytes) -> bytes:
        is_second = self.private == IDENTITIES[2].private_bytes_raw()
        return other(statement) if is_second else sign(self, statement)

    monkeypatch.setattr(Ed25519Signatures, "sign", signs)
    with pytest.raises(ValueError, match=r"those of agents \[2\] are not"):
        exchanged(nx.path_graph(5), signed)


def test_a_signature_is_for_one_run_and_one_agent() -> None:
    statement = keys_module._statement("test", 1, key_pairs(3)[1].public)
    signature = signed(1).sign(statement)
    assert signed(0).verifies(1, statement, signature)
    assert not signed(0).verifies(2, statement, signature)
    for run, agent in (("test 2", 1), ("test", 2)):
        other = keys_module._statement(run, agent, key_pairs(3)[1].public)
        assert not signed(0).verifies(1, other, signature)


def test_without_signatures_a_key_that_is_changed_for_some_agents_stops_the_first_sum() -> None:
    """A neighbor who reads what one agent shares with another must change keys for both sides of a cut."""
    pairs = key_pairs(4)
    publics = [pair.public for pair in pairs]
    changed = [*publics[:2], KeyPair.of(BOB).public, publics[3]]
    views = [publics, changed, publics, publics]
    keys = [agree(pair, i, view, "test") for i, (pair, view) in enumerate(zip(pairs, views, strict=True))]
    assert len({each.fingerprint for each in keys}) == 2

    def program(i: int, tree: TreeNode) -> Program[Any]:
        reduction = MaskedReduction(PairwiseMasks(keys[i]), along_tree(tree))
        return secure_answer((np.ones(3),), reduction, lambda total: total.arrays, (20,), "ones")

    with pytest.raises(SecureSumError, match=r"^masks must cancel; in sum 0, .* of 4 agents they do not"):
        run_programs(program, nx.path_graph(4))
