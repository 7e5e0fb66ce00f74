"""The masked sums of one agent in a run or a fit: its keys, its counters, and the exponents of its sums.

Numbers are wide where no exponent is known: those of short arrays of one dimension always, those of others in
the first sum of a kind. With it go flags that tell all agents the largest magnitude over all of them, and not
whose it is, and with that an exponent for the next sums. Exponents are kept; they are lowered, and a sum is
repeated, where numbers have grown too large for them.

Long arrays would have many bytes as wide numbers. Their first exponent is a guess; if the magnitude that is
told does not go with it, the sum is repeated. Exponents of short arrays whose numbers have an unusual size
are found by a sum of flags: one for each number, where numbers that are zero at all agents get the exponent
of the largest others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, final

import numpy as np

from dcgs.points import Point
from dcgs.protocol import Program
from dcgs.secure.fixed_point import WIDE_AGENTS, Exponent, exponent_for
from dcgs.secure.masks import CounterReuseError, Masks, MaskState, NoMasks, PairwiseMasks
from dcgs.secure.sum import (
    POWERS,
    MaskedReduction,
    Reduce,
    Summed,
    Total,
    Value,
    lowered,
    secure_powers,
    sum_once,
)

if TYPE_CHECKING:  # these import cryptography, which open runs do not need
    from dcgs.secure.journal import Journal
    from dcgs.secure.keys import AgentKeys, Signatures

T = TypeVar("T")

_RUN = "dcgs sums 1"  # keys are new in every run: transcripts of two runs differ
# Numbers may grow by this number of bits beyond their first magnitude before a sum is repeated.
_HEADROOM = 4
# Numbers above 2^_USUAL stand for what is not known.
_USUAL = 264
# Arrays of more numbers are not wide, and are below this power of two, by a guess.
_MOST_WIDE, _GUESS = 1 << 10, 16


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
    at most ``short`` numbers are wide, or have an exponent for each of them. ``errors`` bounds those of the
    arrays of the total that the root reads now, by an array where numbers have their own bounds.
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
    _keys: AgentKeys | None = None
    _publics: list[str] = field(default_factory=list)
    _labels: set[str] = field(default_factory=set)
    _inside: dict[str, list[int]] = field(default_factory=dict)
    _exponents: dict[str, list[int]] = field(default_factory=dict)
    _file: Journal | None = None

    @property
    def sums(self) -> int:
        """The sums so far; those of flags, and those that were repeated, count."""
        return 0 if self._masks is None else self._masks.counter

    @property
    def runs(self) -> int:
        """The runs inside so far."""
        return len(self._labels)

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
        arrays = dict(zip(kinds, value, strict=True))
        alone = [kind for kind, a in arrays.items() if self._has_own(a) and not self._can_be_wide(a)]
        yield from self._learn_magnitudes({kind: arrays[kind] for kind in alone}, reduction)
        first = reduction.masks.counter

        def opened(total: Total) -> Value:
            self.errors = total.errors
            return answer(total.arrays)

        while True:
            exponents = [self._exponents_of(kind, array) for kind, array in zip(kinds, value, strict=True)]
            known = {*self._exponents}
            told = [k for k, kind in enumerate(kinds) if kind not in known and not self._has_own(value[k])]
            program = sum_once(value, reduction, opened, exponents, "; ".join(names), told)
            summed = yield from self._counted(program, lambda: reduction.masks.counter > first + 1)
            self._keep([kinds[k] for k in told], summed)
            if summed.answered is not None:
                return summed.answered
            unknown = dict[str, Point]()
            for kind, exponent, too_large in zip(kinds, exponents, summed.too_large, strict=True):
                if kind in known:
                    assert exponent is not None
                    self._exponents[kind] = np.ravel(lowered(exponent, too_large)).tolist()
                elif too_large.any():  # unless its magnitude was told
                    unknown[kind] = arrays[kind]
            yield from self._learn_magnitudes(unknown, reduction)

    def inside(self, label: str) -> SecureSums:
        """Return the masked sums of a run inside a fit: no keys are exchanged, they follow from these.

        A label is given once: the same keys would mask other values by the same counters. Runs inside share
        exponents.
        """
        if label in self._labels:
            raise CounterReuseError(
                f"keys of a run must have a label of their own; {label!r} was given before."
            )
        self._labels.add(label)
        sums = SecureSums(self.index, self.agents, self.is_masked, fingerprint=self.fingerprint)
        sums._exponents = self._inside
        if not self.is_masked:
            sums._masks = NoMasks(self.agents)
            return sums
        from dcgs.secure.keys import keys_inside

        assert self._keys is not None
        sums._keys, sums._file = keys_inside(self._keys, label), self._file
        sums._masks = PairwiseMasks(sums._keys, None, self._file)
        return sums

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
        """Close the journal, unless it is that of a fit."""
        if self._file is not None and self.journal is not None:
            self._file.close()
            self._file = None

    def _open(self, path: Path) -> Journal:
        from dcgs.secure.journal import Journal

        self._file = Journal(path, _RUN)
        return self._file

    def _use(self, keys: AgentKeys, state: MaskState | None) -> None:
        self._publics, self.fingerprint = [public.hex() for public in keys.publics], keys.fingerprint
        self._keys = keys
        self._masks = PairwiseMasks(keys, state, self._file)

    def _keep(self, kinds: Sequence[str], summed: Summed) -> None:
        """Keep the exponents of kinds whose magnitudes were told; zeros stay wide."""
        for kind, power in zip(kinds, summed.powers, strict=True):
            if power > POWERS[0]:
                exponent = exponent_for(power + _HEADROOM, self.agents)
                self._exponents[kind] = [min([exponent, *self._exponents.get(kind, [])])]

    def _learn_magnitudes(self, arrays: Mapping[str, Point], reduction: MaskedReduction) -> Program[None]:
        """Find exponents of arrays by kind, unless they are known, from the magnitudes of all agents."""
        new = {kind: array for kind, array in arrays.items() if kind not in self._exponents}
        if not new:
            return
        parts = [
            np.abs(array).reshape(-1) if self._has_own(array) else np.array([np.abs(array).max(initial=0.0)])
            for array in new.values()
        ]
        sizes, name = np.concatenate([part.reshape(-1) for part in parts]), "magnitudes of " + "; ".join(new)
        powers = yield from self._counted(secure_powers(sizes, POWERS, reduction, name))
        is_zero = powers == POWERS[0]
        powers[is_zero] = powers[~is_zero & (powers <= _USUAL)].max(initial=0)
        exponents = [exponent_for(power + _HEADROOM, self.agents) for power in powers.tolist()]
        cuts = np.cumsum([part.size for part in parts])
        for kind, start, end in zip(new, [0, *cuts[:-1].tolist()], cuts.tolist(), strict=True):
            self._exponents[kind] = exponents[start:end] or [exponent_for(0, self.agents)]

    def _exponents_of(self, kind: str, array: Point) -> Exponent | None:
        """Return the exponent of an array, or those of its numbers; the least one if it had another size.

        Where none is known it is None: numbers are wide. For long arrays it is a guess.
        """
        known = self._exponents.get(kind)
        if known is None:
            return None if self._can_be_wide(array) else exponent_for(_GUESS, self.agents)
        if not self._has_own(array):
            return min(known)
        numbers = known if len(known) == array.size else [min(known)] * array.size
        return np.array(numbers, dtype=np.int64).reshape(array.shape)

    def _can_be_wide(self, array: Point) -> bool:
        """Return True if the numbers of an array may be wide."""
        return array.size <= _MOST_WIDE and self.agents <= WIDE_AGENTS

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
