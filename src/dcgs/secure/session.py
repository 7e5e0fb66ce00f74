"""The masked sums of one agent in a run or a fit: its keys, its counters, and the exponents of its sums.

Arrays of one dimension with at most SHORT numbers have an exponent for each number, all others have one. The
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
from dcgs.secure.fixed_point import exponent_for
from dcgs.secure.masks import Masks, MaskState, NoMasks, PairwiseMasks
from dcgs.secure.sum import MaskedReduction, Reduce, Total, Value, secure_answer, secure_max_exponent

if TYPE_CHECKING:  # these need the package cryptography
    from dcgs.secure.journal import Journal
    from dcgs.secure.keys import AgentKeys

T = TypeVar("T")

SHORT = 64
"""An array of one dimension with at most this many numbers has an exponent for each of them."""
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
    neighbors read partial sums. ``journal`` is the file of the journal, for runs that are saved. ``errors``
    bounds the errors of the arrays of the total that the root reads now, by a number for each exponent.
    ``rounds`` are those of keys, magnitudes and repeated sums.
    """

    index: int
    agents: int
    is_masked: bool = True
    journal: Path | None = None
    errors: tuple[Any, ...] = ()
    rounds: int = 0
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

        if self.journal is not None:
            self.journal.unlink(missing_ok=True)  # of an earlier run, whose keys are not used again
        pair = KeyPair.generate() if self.journal is None else self._open(self.journal).pair
        keys = yield from self._counted(exchange_keys(pair, self.index, self.agents, _RUN, reduce))
        self._use(keys, None)

    def masked(self, reduce: Reduce) -> MaskedReduction:
        """Return the reduction of masked words."""
        assert self._masks is not None
        return MaskedReduction(self._masks, reduce)

    def answer(
        self, value: Value, reduce: Reduce, answer: Callable[[Value], Value], name: str = ""
    ) -> Program[Value]:
        """Return at all agents what the root computes from the sum of all agents' arrays.

        Sums of one ``name`` and arrays of the same form share exponents.
        """
        reduction, blocks = self.masked(reduce), _blocks(value)
        kinds = [f"{name}: {k}, {_form(array)}" for k, array in enumerate(value)]
        exponents = yield from self._exponents_of(kinds, value, reduction)

        def opened(total: Total) -> Value:
            self.errors = _joined(total.errors, value)
            return answer(_joined(total.arrays, value))

        first = reduction.masks.counter
        program = secure_answer(tuple(blocks), reduction, opened, exponents, f"{name} sum")
        answered, used = yield from self._counted(program, lambda: reduction.masks.counter > first + 1)
        rest = iter(used)
        self._exponents |= {
            kind: [next(rest) for _ in _blocks((array,))] for kind, array in zip(kinds, value, strict=True)
        }
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

    def _exponents_of(
        self, kinds: Sequence[str], value: Value, reduction: MaskedReduction
    ) -> Program[list[int]]:
        """Return the exponents of all numbers; those of arrays of a new kind follow from magnitudes."""
        new = {kind: array for kind, array in zip(kinds, value, strict=True) if kind not in self._exponents}
        if new:
            parts = {kind: _blocks((array,)) for kind, array in new.items()}
            blocks = tuple(block for some in parts.values() for block in some)
            name = f"magnitudes of {', '.join(new)}"
            told = yield from self._counted(secure_max_exponent(blocks, reduction, name, _MAGNITUDES))
            zero = int(_MAGNITUDES[0])
            largest = max((power for power in told if zero < power <= _USUAL), default=0)
            powers = iter([largest if power == zero else power for power in told])
            for kind, some in parts.items():
                self._exponents[kind] = [exponent_for(next(powers) + _HEADROOM, self.agents) for _ in some]
        return [exponent for kind in kinds for exponent in self._exponents[kind]]

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


def _is_short(array: Point) -> bool:
    return array.ndim <= 1 and array.size <= SHORT


def _form(array: Point) -> str:
    """Return what arrays have in common that share exponents."""
    return f"{array.size} numbers" if _is_short(array) else f"{array.ndim} axes"


def _blocks(value: Value) -> list[Point]:
    """Return the parts of a value that have an exponent each."""
    blocks: list[Point] = []
    for array in value:
        blocks += [*array.reshape(-1, 1)] if _is_short(array) else [array]
    return blocks


def _joined(blocks: Sequence[Any], like: Value) -> tuple[Any, ...]:
    """Return the arrays that these blocks are the parts of, or such arrays of one number for each block."""
    rest = iter(blocks)
    return tuple(
        np.array([np.ravel(next(rest))[0] for _ in range(array.size)], dtype=np.float64).reshape(array.shape)
        if _is_short(array)
        else next(rest)
        for array in like
    )
