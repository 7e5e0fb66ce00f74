"""The union of texts, such as the levels of a category, without telling whose they are.

Three or four secure sums:

1. *How many.* The total of the agents' numbers of texts bounds the number of distinct texts.
2. *Which.* A text is known by a key of 80 bits, from the SHA-256 of the transcript of the run and the text.
   Every agent writes its keys and counts into a lookup table (``lookup_table``). The root reads the total of
   all tables: keys, with their counts over all agents and the number of agents that have them. If it cannot
   be read, all agents send another table, twice as wide.
3. *Texts.* The root names the keys with enough counts and agents. For each of them its holders send its
   length and its first bytes, masked; the total is s times what each of s holders sent. If some texts are
   longer, their further bytes take a fourth sum. All agents verify that every text has its key.

Texts below the floors are never sent. All agents learn the texts above the floors with their counts over all
agents, and the count of the rest if that is above the floor. The root also learns, of every text below the
floors, its key, its count and how many agents have it; not which. Every agent can compute the key of a text:
so the root can find out whether a text that it guesses is somewhere in the network, and its count. A name
that nobody guesses stays unknown. To hide keys below a floor from the root, someone would have to evaluate a
keyed hash of texts that they do not see (an oblivious pseudorandom function, as in STAR by Davidson and
others, 2022), and not collude with the root.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import final

import numpy as np
from numpy.typing import NDArray

from dcgs.floors import Floors
from dcgs.protocol import Program
from dcgs.secure.fixed_point import Integers
from dcgs.secure.lookup_table import KEY_BYTES, MOST_AGENTS, Entry, read_table, table, table_width
from dcgs.secure.sum import MaskedReduction, SecureSumError, Value, secure_integers

_MOST_ATTEMPTS = 8
# Words of a text that are sent together with its length.
_FIRST_WORDS = 3


@final
@dataclass(frozen=True)
class SecureUnion:
    """The texts above the floors, in increasing order, and the count of each over all agents.

    ``rest`` is the count of all other texts together: 0 if there are none, None if it is below the floor.
    """

    texts: tuple[str, ...]
    counts: tuple[int, ...]
    rest: int | None

    @classmethod
    def above(cls, counts: Mapping[str, tuple[int, int]], floors: Floors) -> SecureUnion:
        """Return what may be told of all texts, each with its count and the number of agents that have it.

        >>> SecureUnion.above({"surgery": (50, 3), "prison": (1, 1)}, Floors())
        SecureUnion(texts=('surgery',), counts=(50,), rest=None)
        """
        allowed = sorted(text for text, numbers in counts.items() if floors.allow(*numbers))
        told = {text: counts[text][0] for text in allowed}
        rest = sum(count for count, _ in counts.values()) - sum(told.values())
        return cls(tuple(told), tuple(told.values()), None if 0 < rest < floors.min_count else rest)


def secure_union(
    counts: Mapping[str, int], floors: Floors, reduction: MaskedReduction, name: str
) -> Program[SecureUnion]:
    """Return the texts that enough agents have; ``counts`` has this agent's texts, each with its count.

    The reduction must be one with a root: in one round on a complete graph all agents would read the table.
    """
    agents, transcript = reduction.masks.agents, reduction.masks.transcript
    few = sum(count < 1 for count in counts.values())
    if few:  # an error may be printed elsewhere: it has no text in it
        raise ValueError(f"every text of a union must have a count of at least 1; {few} have not.")
    if agents > MOST_AGENTS:
        raise ValueError(f"a union must have at most {MOST_AGENTS} agents; got {agents}.")
    texts = {_key(transcript, text): text for text in counts}
    tables = _Tables({key: counts[text] for key, text in texts.items()}, floors, reduction, name)
    keys, totals, rest = yield from tables.agree()
    revealed = yield from _reveal([texts.get(key) for key in keys], tables.holders, reduction, name)
    wrong = sum(_key(transcript, text) != key for key, text in zip(keys, revealed, strict=True))
    if wrong:
        raise SecureSumError(
            f"a text of a union must have the key by which it was asked for; {wrong} of {len(keys)} texts of "
            f"{name!r} have not. Two texts have the same key, or an agent sent another text. Start anew."
        )
    order = sorted(range(len(keys)), key=revealed.__getitem__)
    return SecureUnion(tuple(revealed[k] for k in order), tuple(totals[k] for k in order), rest)


def _key(transcript: bytes, text: str) -> bytes:
    return sha256(b"dcgs text\n" + transcript + text.encode()).digest()[:KEY_BYTES]


@final
@dataclass(eq=False)
class _Tables:
    """One agent's tables. At the root ``holders`` has the number of agents that have each key it tells."""

    counts: Mapping[bytes, int]
    floors: Floors
    reduction: MaskedReduction
    name: str
    holders: tuple[int, ...] = ()

    def agree(self) -> Program[tuple[list[bytes], list[int], int | None]]:
        """Return the keys above the floors, their counts over all agents, and the count of the rest."""
        size, number = np.array([len(self.counts)], dtype=np.int64), f"number of texts of {self.name}"
        (bound,) = yield from secure_integers(
            size, self.reduction, lambda total: (total.astype(float),), number
        )
        for attempt in range(_MOST_ATTEMPTS):
            width = table_width(int(bound[0])) << attempt
            cells = table(self.counts, width, attempt)

            def read(total: Integers, attempt: int = attempt, shape: tuple[int, ...] = cells.shape) -> Value:
                entries = read_table(total.reshape(shape), attempt)
                return () if entries is None else self._answer(entries)

            label = f"keys of {self.name}, attempt {attempt}"
            answered = yield from secure_integers(cells.reshape(-1), self.reduction, read, label)
            if answered:
                keys, totals, rest = answered
                return (
                    [key.tobytes() for key in keys],
                    [*map(int, totals)],
                    None if rest[0] < 0 else int(rest[0]),
                )
        raise SecureSumError(
            f"the table of a union must be readable after {_MOST_ATTEMPTS} attempts; that of {self.name!r} "
            f"is not, for at most {int(bound[0])} texts. An agent sent a wrong table. Start anew."
        )

    def _answer(self, entries: Mapping[bytes, Entry]) -> Value:
        """Return what the root tells: keys above the floors, counts, and the count of the rest."""
        floors = self.floors
        keys = sorted(key for key, entry in entries.items() if floors.allow(entry.count, entry.agents))
        self.holders = tuple(entries[key].agents for key in keys)
        counts = np.array([entries[key].count for key in keys], dtype=np.float64)
        rest = sum(entry.count for entry in entries.values()) - sum(entries[key].count for key in keys)
        content = np.frombuffer(b"".join(keys), dtype=np.uint8).reshape(-1, KEY_BYTES)
        return content, counts, np.array([-1.0 if 0 < rest < floors.min_count else float(rest)])


def _reveal(
    texts: Sequence[str | None], holders: Sequence[int], reduction: MaskedReduction, name: str
) -> Program[list[str]]:
    """Return the texts that the agents have together; None stands for one that this agent does not have."""
    if not texts:
        return []
    size = (63 - reduction.masks.agents.bit_length()) // 8  # bytes that all agents can add up in a word
    head = _FIRST_WORDS * size
    contents = [None if text is None else text.encode() for text in texts]
    lengths = [0 if content is None else len(content) for content in contents]

    def read(total: Integers) -> Value:
        shares = _shares(total.reshape(len(texts), -1), np.array(holders)[:, None], name)
        return shares[:, 0].astype(np.float64), _bytes(shares[:, 1:], size)

    first = [_words((content or b"")[:head], _FIRST_WORDS, size) for content in contents]
    rows = np.column_stack([lengths, first]).astype(np.int64)
    told, begun = yield from secure_integers(rows.reshape(-1), reduction, read, f"texts of {name}")
    lengths = [int(length) for length in told]
    revealed = [begun[k].tobytes()[:length] for k, length in enumerate(lengths)]
    further = [-(-max(0, length - head) // size) for length in lengths]
    if any(further):
        ends = [
            _words((content or b"")[head:], words, size)
            for content, words in zip(contents, further, strict=True)
        ]
        (tail,) = yield from secure_integers(
            np.concatenate(ends),
            reduction,
            lambda total: (_bytes(_shares(total, np.repeat(holders, further), name), size),),
            f"ends of texts of {name}",
        )
        starts = np.cumsum([0, *further])
        for k, length in enumerate(lengths):
            revealed[k] += tail[starts[k] : starts[k + 1]].tobytes()[: max(0, length - head)]
    return [content.decode(errors="replace") for content in revealed]


def _shares(totals: Integers, holders: NDArray[np.int64], name: str) -> Integers:
    """Return what each holder sent, if all holders of a text sent the same."""
    if (totals % holders).any():
        raise SecureSumError(
            f"all holders of a text must send the same bytes; those of a text of {name!r} did not. Two texts "
            "have the same key, or an agent sent another text. Start anew."
        )
    return totals // holders


def _words(content: bytes, count: int, size: int) -> Integers:
    """Return so many words with ``size`` bytes each, the last ones filled up with 0."""
    padded = np.zeros((count, 8), dtype=np.uint8)
    padded[:, :size] = np.frombuffer(content[: count * size].ljust(count * size, b"\0"), np.uint8).reshape(
        count, size
    )
    return padded.view("<i8").astype(np.int64, copy=False).reshape(-1)


def _bytes(words: Integers, size: int) -> NDArray[np.uint8]:
    """Return the ``size`` bytes of every word, one row for each row of words."""
    content = np.ascontiguousarray(words, dtype="<i8").view(np.uint8).reshape(*words.shape, 8)[..., :size]
    return np.ascontiguousarray(content.reshape(len(words), -1))
