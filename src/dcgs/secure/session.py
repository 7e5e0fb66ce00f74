"""The masked sums of one agent in a run or a fit: its keys, its counters, and the exponents of its sums.

Short arrays of one dimension have an exponent for each number, all others have one. The
first sum of a kind follows one of flags, which tells for each exponent the largest magnitude over all agents,
and not whose it is. Numbers that are zero at all agents get the exponent of the largest others. Exponents are
kept; they are lowered, and a sum is repeated, where numbers have grown too large for them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, final

import numpy as np

from dcgs.points import Point
from dcgs.protocol import Program
from dcgs.secure.fixed_point import Exponent, exponent_for
from dcgs.secure.masks import Masks, MaskState, NoMasks, PairwiseMasks
from dcgs.secure.sum import MaskedReduction, Reduce, Total, Value, secure_answer, secure_powers

if TYPE_CHECKING:  # these need the package cryptography
    from dcgs.secure.journal import Journal
    from dcgs.secure.keys import AgentKeys, Signatures

T = TypeVar("T")

_RUN = "dcgs sums 1"  # keys are new in every run: transcripts of two runs differ
# Numbers may grow by this number of bits beyond their first magnitude before a sum is repeated.
_HEADROOM = 4
# Magnitudes are told as one of these powers of two; numbers above 2^_USUAL stand for what is not known.
_USUAL = 264
_MAGNITUDES = np.array([-1072, *range(-128, _USUAL + 1, 8), 512, 1024])


@final
@dataclass
class SecureState:
    """What a checkpoint has of masked sums: public keys, counters and exponents, and no private key."""

    publics: list[str]
    masks: MaskState | None
    exponents: dict[str, list[int]]
    rounds: int


@final
@dataclass(eq=False)
class SecureSums:
    """How agent ``index`` of ``agents`` takes part in masked sums.

    ``is_masked`` is False for sums of the same integers without masks: totals have the same bits, and
    neighbors read partial sums. ``journal`` is the file of the journal, for runs that are saved, or that
    are executed again from their beginning with the same keys, if ``replays``. Arrays of one dimension with
    at most ``short`` numbers have an exponent for each of them. ``errors`` bounds those of the arrays of the
    total that the root reads now, by an array where numbers have their own exponents.
    ``rounds`` are those of keys, magnitudes and repeated sums.
    """

    index: int
    agents: int
    is_masked: bool = True
    journal: Path | None = None
    short: int = 64
    errors: tuple[Any, ...] = ()
    rounds: int = 0
    replays: bool = False
    signatures: Signatures | None = None
    fingerprint: str = ""
    _masks: Masks | None = None
    _publics: list[str] = field(default_factory=list)
    _exponents: dict[str, list[int]] = field(default_factory=dict)
    _file: Journal | None = None

    @property
    def sums(self) -> int:
        """The sums so far; those of flags, and those that were repeated, count."""
        return 0 if self._masks is None else self._masks.counter

    def begin(self, reduce: Reduce) -> Program[None]:
        """Exchange keys, unless they are known."""
        if self._masks is not None:
            return
        if not self.is_masked:
            self._masks = NoMasks(self.agents)
            return
        from dcgs.secure.keys import KeyPair, exchange_keys

        if self.journal is not None and not self.replays:
            self.journal.unlink(missing_ok=True)  # of an earlier run, whose keys are not used again
        pair = KeyPair.generate() if self.journal is None else self._open(self.journal).pair
        exchange = exchange_keys(pair, self.index, self.agents, _RUN, reduce, self.signatures)
        keys = yield from self._counted(exchange)
        self._use(keys, None)

    def masked(self, reduce: Reduce) -> MaskedReduction:
        """Return the reduction of masked words."""
        assert self._masks is not None
        return MaskedReduction(self._masks, reduce)

    def answer(
        self, value: Value, reduce: Reduce, answer: Callable[[Value], Value], names: Sequence[str]
    ) -> Program[Value]:
        """Return at all agents what the root computes from the sum of all agents' arrays.

        There is a name for each array; arrays of one name and number of axes share exponents.
        """
        reduction = self.masked(reduce)
        kinds = [f"{name}, {array.ndim} axes" for name, array in zip(names, value, strict=True)]
        yield from self._learn_magnitudes(kinds, value, reduction)
        exponents = [self._exponents_of(kind, array) for kind, array in zip(kinds, value, strict=True)]

        def opened(total: Total) -> Value:
            self.errors = total.errors
            return answer(total.arrays)

        first = reduction.masks.counter
        program = secure_answer(value, reduction, opened, exponents, "; ".join(names))
        answered, used = yield from self._counted(program, lambda: reduction.masks.counter > first + 1)
        for kind, exponent in zip(kinds, used, strict=True):
            self._exponents[kind] = np.ravel(exponent).tolist() or self._exponents[kind]
        return answered

    def state(self) -> SecureState | None:
        """Return what a checkpoint has of it; None before keys are known."""
        if self._masks is None:
            return None
        state = self._masks.state if isinstance(self._masks, PairwiseMasks) else None
        kept = None if state is None else MaskState(state.transcript, state.counter, [*state.digests])
        return SecureState(self._publics, kept, {k: [*e] for k, e in self._exponents.items()}, self.rounds)

    def restore(self, state: SecureState | None) -> None:
        """Go on from a checkpoint, with the private key that is in the journal."""
        if state is None:
            return
        self._exponents, self.rounds = state.exponents, state.rounds
        if state.masks is None:
            self._masks = NoMasks(self.agents)
            return
        from dcgs.secure.keys import agree

        if self.journal is None or not self.journal.exists():
            raise ValueError(
                "a run with masked sums is resumed with the journals of all agents; that of agent "
                f"{self.index}, {str(self.journal)!r}, is not there, and its key is lost. Start a new run."
            )
        pair = self._open(self.journal).pair
        publics = [bytes.fromhex(public) for public in state.publics]
        self._use(agree(pair, self.index, publics, _RUN), state.masks)

    def close(self) -> None:
        """Close the journal."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self, path: Path) -> Journal:
        from dcgs.secure.journal import Journal

        self._file = Journal(path, _RUN)
        return self._file

    def _use(self, keys: AgentKeys, state: MaskState | None) -> None:
        self._publics, self.fingerprint = [public.hex() for public in keys.publics], keys.fingerprint
        self._masks = PairwiseMasks(keys, state, self._file)

    def _learn_magnitudes(
        self, kinds: Sequence[str], value: Value, reduction: MaskedReduction
    ) -> Program[None]:
        """Find exponents of arrays of a new kind, from the magnitudes of all agents' numbers."""
        new = {kind: array for kind, array in zip(kinds, value, strict=True) if kind not in self._exponents}
        if not new:
            return
        parts = [
            np.abs(array).reshape(-1) if self._has_own(array) else np.array([np.abs(array).max(initial=0.0)])
            for array in new.values()
        ]
        sizes, name = np.concatenate([part.reshape(-1) for part in parts]), "magnitudes of " + "; ".join(new)
        powers = yield from self._counted(secure_powers(sizes, _MAGNITUDES, reduction, name))
        is_zero = powers == _MAGNITUDES[0]
        powers[is_zero] = powers[~is_zero & (powers <= _USUAL)].max(initial=0)
        exponents = [exponent_for(power + _HEADROOM, self.agents) for power in powers.tolist()]
        cuts = np.cumsum([part.size for part in parts])
        for kind, start, end in zip(new, [0, *cuts[:-1].tolist()], cuts.tolist(), strict=True):
            self._exponents[kind] = exponents[start:end] or [exponent_for(0, self.agents)]

    def _exponents_of(self, kind: str, array: Point) -> Exponent:
        """Return the exponent of an array, or those of its numbers; the least one if it had another size."""
        known = self._exponents[kind]
        if not self._has_own(array):
            return min(known)
        numbers = known if len(known) == array.size else [min(known)] * array.size
        return np.array(numbers, dtype=np.int64).reshape(array.shape)

    def _has_own(self, array: Point) -> bool:
        """Return True if each number of an array has an exponent of its own."""
        return array.ndim <= 1 and array.size <= self.short

    def _counted(self, program: Program[T], counts: Callable[[], bool] = lambda: True) -> Program[T]:
        """Run a program; its rounds in which ``counts`` is True are further ones."""
        inbox: Any = None
        while True:
            try:
                outbox = program.send(inbox)
            except StopIteration as end:
                result: T = end.value
                return result
            self.rounds += counts()
            inbox = yield outbox
