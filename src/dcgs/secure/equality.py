"""Which contents of several processes are equal, such as files, without telling what they are.

A checksum tells a content to whoever guesses it: that of a table with one row, or all rows of which but one
are known. So a process multiplies the point of X25519 that a content stands for by a secret number, and sends
it; the others multiply it by theirs, and send it back. Two contents are equal if the products with both
numbers are. A process can try one guess for each content that it puts in, and no other one later on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

# Products are compared by this number of their hexadecimal digits.
_DIGITS = 32


def equal_contents(
    contents: Sequence[bytes], private: bytes, allgather: Callable[[Iterable[str]], list[str]]
) -> list[list[int]]:
    """Return numbers of the contents of all processes; equal contents have the same number.

    ``allgather`` returns the texts of all processes. ``private`` is used for this alone.

    >>> equal_contents([b"a", b"b", b"a"], bytes(range(32)), list)
    [[0, 1, 0]]
    """
    own = X25519PrivateKey.from_private_bytes(private)

    def product(point: bytes) -> bytes:
        return own.exchange(X25519PublicKey.from_public_bytes(point))

    points = [sha256(b"dcgs content\n" + content).digest() for content in contents]
    told = allgather([json.dumps([product(point).hex() for point in points])])
    products = [[bytes.fromhex(text) for text in json.loads(part)] for part in told]
    twice = [[product(point).hex()[:_DIGITS] for point in part] for part in products]
    tables = [json.loads(part) for part in allgather([json.dumps(twice)])]
    places = [(p, k) for p, part in enumerate(products) for k in range(len(part))]
    numbers: dict[tuple[int, int], int] = {}
    for number, (p, k) in enumerate(places):
        same = (numbers[q, j] for q, j in places[:number] if tables[p][q][j] == tables[q][p][k])
        numbers[p, k] = next(same, number)
    return [[numbers[p, k] for k in range(len(part))] for p, part in enumerate(products)]
