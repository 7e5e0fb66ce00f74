"""Which contents are equal is found without telling them."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pytest

from dcgs.secure.equality import equal_contents
from dcgs.secure.keys import KeyPair
from thread_transport import Network


def compared(*contents: list[bytes]) -> tuple[list[list[list[int]]], list[str]]:
    """Return what each of several processes learns, and all texts that were sent."""
    from dcgs.runtime.group import TransportGroup

    sent: list[str] = []

    def run(rank: int, group: TransportGroup) -> list[list[int]]:
        def allgather(texts: Iterable[str]) -> list[str]:
            told = group.allgather_texts(texts)
            sent.extend(told if rank == 0 else [])
            return told

        return equal_contents(contents[rank], KeyPair.generate().private, allgather)

    learned = Network(len(contents)).run(lambda transport: run(transport.rank, TransportGroup(transport)))
    return learned, sent


@pytest.mark.parametrize(
    ("contents", "numbers"),
    [
        (([b"a"], [b"b"], [b"c"]), [[0], [1], [2]]),
        (([b"a"], [b"b"], [b"a"]), [[0], [1], [0]]),
        (([b"a"], [b"a"], [b"a"]), [[0], [0], [0]]),
        (([b"a", b"b"], [b"c", b"b"], [b""]), [[0, 1], [2, 1], [4]]),
    ],
)
def test_all_processes_learn_which_contents_are_equal(
    contents: tuple[list[bytes], ...], numbers: list[list[int]]
) -> None:
    learned, _ = compared(*contents)
    assert learned == [numbers] * len(contents)


def test_two_runs_with_the_same_contents_have_nothing_in_common() -> None:
    """A checksum would be the same; products with new numbers are not, and do not tell a guess."""
    texts = [set(map(str, flat(json.loads(text)))) for _ in range(2) for text in compared([b"a"], [b"b"])[1]]
    assert len(texts) == 8
    assert all(not a & b for k, a in enumerate(texts) for b in texts[k + 1 :])


def flat(content: object) -> list[object]:
    return [entry for part in content for entry in flat(part)] if isinstance(content, list) else [content]
