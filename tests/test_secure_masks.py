"""Masks: noise to everybody, no more than the total to colluders, and no counter for two values."""

from __future__ import annotations

import multiprocessing
import os
import stat
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chi2

from dcgs.learn.sums import run_programs
from dcgs.protocol import Program
from dcgs.secure.fixed_point import LIMBS, carried, encode_wide
from dcgs.secure.journal import Journal
from dcgs.secure.keys import AgentKeys, agree, exchange_keys
from dcgs.secure.masks import CounterReuseError, Masks, MaskState, NoMasks, PairwiseMasks
from dcgs.secure.partners import partner_graph
from dcgs.secure.session import SecureSums
from dcgs.secure.sum import MaskedReduction, Summed, secure_answer, sum_once
from dcgs.state import from_plain, to_plain
from dcgs.tree import TreeNode
from secure_runs import (
    GRAPHS,
    Record,
    agent_keys,
    all_masks,
    along_tree,
    chi_square,
    key_pairs,
    no_masks,
    run_masked,
)

Words = NDArray[np.uint64]


def words(*numbers: int) -> Words:
    return np.array(numbers, dtype=np.uint64)


def test_masks_cancel_in_the_total_and_nowhere_else() -> None:
    values = np.random.default_rng(0).integers(0, 2**63, (5, 8), dtype=np.uint64)
    masked = [masks.seal(own, "sum") for masks, own in zip(all_masks(5), values, strict=True)]
    assert sum(masked[1:], start=masked[0]).tobytes() == values.sum(axis=0, dtype=np.uint64).tobytes()
    for size in range(1, 5):
        for group in combinations(range(5), size):
            partial = sum((masked[i] for i in group), start=np.zeros(8, dtype=np.uint64))
            assert not (partial == values[list(group)].sum(axis=0, dtype=np.uint64)).any()


def test_pads_of_limbs_cancel_mod_two_to_the_240_and_nowhere_else() -> None:
    limbs, masks = encode_wide(np.linspace(-1.0, 1.0, 400)), all_masks(5)
    hidden = [own.hide(limbs, start=7) for own in masks]
    total = sum(hidden[1:], start=hidden[0]).view(np.int64)
    assert carried(total).tobytes() == carried(5 * limbs.view(np.int64)).tobytes()
    for size in range(1, 5):
        for group in combinations(range(5), size):
            part = sum((hidden[i] for i in group), start=np.zeros_like(limbs)).view(np.int64)
            assert (carried(part) != carried(size * limbs.view(np.int64))).all()
    # The sums of limbs alone are not those of the values: what is carried would tell of single agents.
    assert (total != 5 * limbs.view(np.int64)).all()
    content = hidden[0].view(np.uint8).reshape(-1, 8)[:, :6].tobytes()
    assert chi_square(content) < 400.0  # 255 degrees of freedom


def test_words_and_limbs_have_pads_of_their_own_under_one_counter() -> None:
    """Taken off by hand, the first pads leave hidden limbs, and those behind them the wide number."""
    record, keys, value = Record(), agent_keys(4), np.array([3.0, -0.1])

    def program(i: int, reduction: MaskedReduction) -> Program[Summed]:
        return sum_once((value + i,), reduction, lambda total: total.arrays, [None], "wide")

    answers, _ = run_masked(nx.path_graph(4), program, [PairwiseMasks(own) for own in keys], record)
    total = answers[0].answered
    assert total is not None
    np.testing.assert_allclose(total[0], 4.0 * value + 6.0, rtol=1e-15)
    (sent,) = (arrays[0] for _, i, j, arrays in record.messages if (i, j) == (0, 1))
    size = 1 + 1 + 1 + 2 * LIMBS + 4
    assert len(sent) == size
    pads = [keys[0].pad(j, 0, size + 2 * LIMBS) for j in (1, 2, 3)]
    taken: Words = np.stack(pads)[:, :size].sum(axis=0, dtype=np.uint64)
    limbs = (sent - taken)[3 : 3 + 2 * LIMBS].astype(np.int64).reshape(2, LIMBS)
    for pad in pads:
        limbs -= (pad[size:] >> np.uint64(16)).astype(np.int64).reshape(2, LIMBS)
    assert carried(limbs).tobytes() == encode_wide(value).tobytes()


def test_keys_of_runs_inside_a_fit_differ_and_a_label_is_given_once(tmp_path: Path) -> None:
    pairs, path = key_pairs(3), tmp_path / "0.journal"
    with Journal(path, "dcgs sums 1") as journal:
        publics = [journal.pair.public, *(pair.public for pair in pairs[1:])]
    sums = SecureSums(0, 3, journal=path, replays=True)
    sums._use(agree(sums._open(path).pair, 0, publics, "dcgs sums 1"), None)
    one, other = (sums.inside(label)._masks for label in ("run 0", "run 1"))
    assert isinstance(one, PairwiseMasks)
    assert isinstance(other, PairwiseMasks)
    assert isinstance(sums._masks, PairwiseMasks)
    zeros = words(0, 0, 0)
    sealed = {masks.seal(zeros, "sum").tobytes() for masks in (sums._masks, one, other)}
    assert len(sealed) == 3
    with pytest.raises(CounterReuseError, match=r"^keys of a run must have a label of their own; 'run 0'"):
        sums.inside("run 0")
    sums.close()
    # A process that starts again has the same keys, and refuses other values.
    again = SecureSums(0, 3, journal=path, replays=True)
    again._use(agree(again._open(path).pair, 0, publics, "dcgs sums 1"), None)
    masks = again.inside("run 1")._masks
    assert isinstance(masks, PairwiseMasks)
    with pytest.raises(CounterReuseError, match=r"^a counter must mask one value only"):
        masks.seal(words(0, 0, 1), "sum")
    assert masks.seal(zeros, "sum").tobytes() in sealed
    again.close()


# Uniformity. Keys are fixed, so these numbers are the same in every run.

QUANTILES = chi2.ppf([1e-3, 1.0 - 1e-3], 255)


def recorded(masks: list[Masks], graph: nx.Graph) -> Record:
    """Return the messages of five sums of small and of equal numbers."""
    record = Record()

    def program(i: int, reduction: MaskedReduction) -> Any:
        for value in (0.0, 1.0, 1e-3 * i, -5.0, 0.0):
            total = yield from secure_answer((np.full(3000, value),), reduction, lambda t: (), (40,), "same")
        return total

    run_masked(graph, program, masks, record)
    return record


@pytest.mark.parametrize("name", ["path", "star", "grid"])
def test_masked_messages_are_uniform_and_open_ones_are_not(name: str) -> None:
    graph = GRAPHS[name]
    sent = recorded(all_masks(len(graph)), graph).words()
    assert len(sent) == 5 * (len(graph) - 1)
    content = b"".join(message.tobytes() for message in sent)
    assert QUANTILES[0] < chi_square(content) < QUANTILES[1]
    # What an attacker may look at: differences of messages of one sum, or of two; each byte of a word.
    by_sum = np.array(sent).reshape(-1, len(sent[0]))
    for difference in (by_sum[0] - by_sum[1], by_sum[0] - by_sum[-1], by_sum[0] + by_sum[1]):
        assert QUANTILES[0] < chi_square(difference.tobytes()) < QUANTILES[1]
    for place in range(8):
        assert QUANTILES[0] < chi_square(content[place::8]) < QUANTILES[1]
    plain = b"".join(message.tobytes() for message in recorded(no_masks(len(graph)), graph).words())
    assert chi_square(plain) > 1000 * QUANTILES[1]


# What colluders learn: linear algebra mod 2⁶⁴ with the pads as unknowns.


@dataclass
class SymbolicKeys:
    """Keys whose pad with a partner is a unit vector: a masked zero is the agent's row of coefficients."""

    index: int
    partners: tuple[tuple[int, ...], ...]
    transcript = b"symbolic"

    @property
    def agents(self) -> int:
        return len(self.partners)

    @property
    def edges(self) -> list[tuple[int, int]]:
        return [(i, j) for i, near in enumerate(self.partners) for j in near if i < j]

    @property
    def shared(self) -> Mapping[int, bytes]:
        return dict.fromkeys(self.partners[self.index], b"")

    def pad(self, partner: int, counter: int, size: int) -> Words:
        pair = min(self.index, partner), max(self.index, partner)
        unit = np.zeros(size, dtype=np.uint64)
        unit[self.edges.index(pair)] = 1
        return unit


def coefficients(partners: tuple[tuple[int, ...], ...]) -> tuple[Words, list[tuple[int, int]]]:
    """Return the coefficient of every pad in the masked words of every agent, as masks have it."""
    rows, edges = [], SymbolicKeys(0, partners).edges
    for i in range(len(partners)):
        keys: Any = SymbolicKeys(i, partners)
        rows.append(PairwiseMasks(keys).seal(np.zeros(len(edges), dtype=np.uint64), "symbolic"))
    return np.array(rows), edges


def rank_by_units(matrix: Words) -> int:
    """Return the rank mod 2⁶⁴ by elimination with odd pivots; fail if something even is left."""
    matrix, rank = matrix.copy(), 0
    for column in range(matrix.shape[1]):
        odd = rank + np.flatnonzero(matrix[rank:, column] & np.uint64(1))
        if len(odd) == 0:
            continue
        matrix[[rank, odd[0]]] = matrix[[odd[0], rank]]
        inverse = np.uint64(pow(int(matrix[rank, column]), -1, 2**64))
        factors = matrix[rank + 1 :, column] * inverse
        matrix[rank + 1 :] -= factors[:, None] * matrix[rank]
        rank += 1
    assert not matrix[rank:].any()
    return rank


def learned_sums(rows: Words, edges: list[tuple[int, int]], honest: list[int]) -> int:
    """Return how many independent sums of honest values colluders learn who see all masked words.

    They know each pad with one of them. The others, uniform and independent, hide all combinations of the
    honest words except those in the left kernel of their coefficients.
    """
    unknown = [k for k, (i, j) in enumerate(edges) if i in honest and j in honest]
    return len(honest) - rank_by_units(rows[np.ix_(honest, unknown)])


@pytest.mark.parametrize("agents", [3, 4, 5, 7])
def test_any_colluders_learn_one_sum_of_the_others_values_and_it_is_their_total(agents: int) -> None:
    rows, edges = coefficients(partner_graph(agents, b""))
    for size in range(2, agents + 1):  # the honest ones: down to two, so up to m − 2 colluders
        for honest in map(list, combinations(range(agents), size)):
            assert learned_sums(rows, edges, honest) == 1
            unknown = [k for k, (i, j) in enumerate(edges) if i in honest and j in honest]
            assert not rows[np.ix_(honest, unknown)].sum(axis=0, dtype=np.uint64).any()  # that is their total


@pytest.mark.parametrize("seed", range(5))
def test_half_of_many_agents_learn_one_sum_of_the_others_values(seed: int) -> None:
    rows, edges = coefficients(partner_graph(60, f"seed {seed}".encode()))
    rng = np.random.default_rng(seed)
    for _ in range(3):
        assert learned_sums(rows, edges, sorted(rng.permutation(60)[:30].tolist())) == 1


def test_with_too_few_partners_colluders_learn_a_sum_for_each_part_of_the_others() -> None:
    """The linear algebra notices: on a cycle two colluders cut the others into two parts."""
    cycle = tuple(tuple(sorted(((i - 1) % 6, (i + 1) % 6))) for i in range(6))
    rows, edges = coefficients(cycle)
    assert learned_sums(rows, edges, [1, 2, 4, 5]) == 2
    assert learned_sums(rows, edges, [1, 2, 3, 4, 5]) == 1


# Counters.


def sealed(masks: PairwiseMasks, *numbers: int) -> bytes:
    return masks.seal(words(*numbers), "gradient").tobytes()


def restored(masks: PairwiseMasks, keys: AgentKeys, journal: Journal | None = None) -> PairwiseMasks:
    """Return masks with the state as a checkpoint has it."""
    return PairwiseMasks(keys, from_plain(MaskState, to_plain(masks.state)), journal)


def test_every_sum_has_a_new_pad() -> None:
    masks = PairwiseMasks(agent_keys(3)[0])
    assert len({sealed(masks, 5, 5) for _ in range(50)}) == 50
    assert masks.counter == 50


def test_after_a_checkpoint_the_same_value_gives_the_same_bytes_and_another_is_refused() -> None:
    keys = agent_keys(3)[0]
    masks = PairwiseMasks(keys)
    first = [sealed(masks, k, 7) for k in range(3)]
    masks.state.counter = 1  # a resumed run repeats what it did after its checkpoint
    again = restored(masks, keys)
    assert sealed(again, 1, 7) == first[1]
    with pytest.raises(
        CounterReuseError, match=r"^a counter must mask one value only; counter 2, now for 'gradient'"
    ):
        sealed(again, 2, 8)
    assert again.counter == 2  # nothing was sent, and the right value still can be
    assert sealed(again, 2, 7) == first[2]
    assert sealed(again, 3, 7) not in first


def test_the_same_words_for_another_sum_are_refused() -> None:
    keys = agent_keys(3)[0]
    masks = PairwiseMasks(keys)
    sealed(masks, 1)
    masks.state.counter = 0
    with pytest.raises(CounterReuseError, match="now for 'hessian'"):
        masks.seal(words(1), "hessian")


def test_a_planted_reuse_would_show_the_difference_of_two_values() -> None:
    """Why counters matter: two masks that forget what they sent."""
    keys = agent_keys(3)[0]
    one, other = (
        np.frombuffer(sealed(PairwiseMasks(keys), number), dtype=np.uint64) for number in (100, 142)
    )
    assert (other - one).tolist() == [42]


def test_a_state_of_other_keys_is_refused() -> None:
    masks = PairwiseMasks(agent_keys(3)[0])
    with pytest.raises(ValueError, match=r"must be of the keys that are used; .* Leave the state out"):
        restored(masks, agent_keys(3, seed=1)[0])


def test_a_state_without_the_digests_of_its_counters_is_refused() -> None:
    keys = agent_keys(3)[0]
    with pytest.raises(ValueError, match=r"a digest of every counter that was used; it has 0 for 4 counters"):
        PairwiseMasks(keys, MaskState(keys.transcript.hex(), counter=4))


def test_open_words_stay_as_they_are_and_count() -> None:
    masks = NoMasks(3)
    assert masks.seal(words(4), "sum").tolist() == [4]
    assert masks.counter == 1


# The journal.


def keys_of(journal: Journal) -> AgentKeys:
    publics = [journal.pair.public, *(pair.public for pair in key_pairs(2))]
    return agree(journal.pair, 0, publics, "study 7")


def test_what_was_sent_after_the_last_checkpoint_is_known_from_the_journal(tmp_path: Path) -> None:
    path = tmp_path / "secure" / "agent-0.journal"
    with Journal(path, "study 7") as journal:
        masks = PairwiseMasks(keys_of(journal), journal=journal)
        sealed(masks, 1)
        checkpoint = to_plain(masks.state)
        sent = sealed(masks, 2)
    # The process was killed. It resumes from the checkpoint, which is older than its last message.
    with Journal(path, "study 7") as journal:
        masks = PairwiseMasks(keys_of(journal), from_plain(MaskState, checkpoint), journal)
        assert masks.counter == 1
        with pytest.raises(
            CounterReuseError, match="counter 1, now for 'gradient', has masked another value"
        ):
            sealed(masks, 3)
        assert sealed(masks, 2) == sent
        sealed(masks, 3)
    with Journal(path, "study 7") as journal:
        assert len(journal.digests(masks.state.transcript)) == 3


def test_without_a_state_a_run_begins_anew_and_must_send_the_same(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal", "study 7") as journal:
        sent = sealed(PairwiseMasks(keys_of(journal), journal=journal), 1)
    with Journal(tmp_path / "journal", "study 7") as journal:
        assert sealed(PairwiseMasks(keys_of(journal), journal=journal), 1) == sent
        with pytest.raises(CounterReuseError):
            sealed(PairwiseMasks(keys_of(journal), journal=journal), 2)


def test_a_digest_is_on_disk_before_the_masked_words_are_returned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Journal(tmp_path / "journal", "study 7") as journal:
        masks = PairwiseMasks(keys_of(journal), journal=journal)
        synced: list[int] = []
        monkeypatch.setattr(os, "fsync", lambda handle: synced.append((tmp_path / "journal").stat().st_size))
        sealed(masks, 1)
    assert synced == [(tmp_path / "journal").stat().st_size]

    def full(handle: int) -> None:
        raise OSError("no space left on device")

    with Journal(tmp_path / "journal", "study 7") as journal:
        masks = PairwiseMasks(keys_of(journal), journal=journal)
        sealed(masks, 1)
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="no space"):
            sealed(masks, 2)


def test_an_incomplete_last_line_is_of_a_message_that_was_not_sent(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with Journal(path, "study 7") as journal:
        masks = PairwiseMasks(keys_of(journal), journal=journal)
        sealed(masks, 1)
        complete = path.stat().st_size
        sealed(masks, 2)
    for size in range(complete, path.stat().st_size):
        content = path.read_bytes()
        path.write_bytes(content[:size])
        with Journal(path, "study 7") as journal:
            assert len(journal.digests(masks.state.transcript)) == 1
        assert path.stat().st_size == complete
        path.write_bytes(content)


def test_a_changed_line_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with Journal(path, "study 7") as journal:
        masks = PairwiseMasks(keys_of(journal), journal=journal)
        for k in range(3):
            sealed(masks, k)
    lines = path.read_bytes().splitlines(keepends=True)
    for wrong in ([*lines[:2], lines[3]], [*lines[:2], b"x" + lines[2][1:], lines[3]], [*lines, lines[1]]):
        path.write_bytes(b"".join(wrong))
        with pytest.raises(
            ValueError, match=r"must have a transcript, the next counter and a digest in each line"
        ):
            Journal(path, "study 7")
    for header in (b"nothing\n", b"[1]\n", b'{"format": 1}\n', b""):
        path.write_bytes(header)
        with pytest.raises(ValueError, match=r"must be a journal of secure sums; it is not\.$"):
            Journal(path, "study 7")


def test_a_journal_that_is_older_than_the_checkpoint_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with Journal(path, "study 7") as journal:
        masks = PairwiseMasks(keys_of(journal), journal=journal)
        sealed(masks, 1)
        backup = path.read_bytes()
        sealed(masks, 2)
    path.write_bytes(backup)
    with Journal(path, "study 7") as journal, pytest.raises(CounterReuseError, match="It is an older copy"):
        restored(masks, keys_of(journal), journal)


def test_a_journal_of_another_run_is_refused(tmp_path: Path) -> None:
    Journal(tmp_path / "journal", "study 7").__exit__()
    with pytest.raises(
        ValueError, match=r"of format 1 and of the run 'study 8'; it is of format 1 and of the run"
    ):
        Journal(tmp_path / "journal", "study 8")


def test_new_keys_of_another_agent_begin_with_counter_0_in_the_same_journal(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal", "study 7") as journal:
        first = sealed(PairwiseMasks(keys_of(journal), journal=journal), 1)
        publics = [journal.pair.public, *(pair.public for pair in key_pairs(2, seed=5))]
        keys = agree(journal.pair, 0, publics, "study 7")
        other = sealed(PairwiseMasks(keys, journal=journal), 2)
        assert first != other
        assert [len(journal.digests(each.transcript.hex())) for each in (keys, keys_of(journal))] == [1, 1]


def test_only_its_owner_can_read_a_journal_and_erasing_it_removes_the_key(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = Journal(path, "study 7")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert journal.pair.private.hex() in path.read_text()
    journal.erase()
    assert not path.exists()
    with Journal(path, "study 7") as other:
        assert other.pair.public != journal.pair.public


def _open_journal(path: Path, sentence: Any) -> None:
    try:
        Journal(path, "study 7")
    except ValueError as error:
        sentence.send(str(error))


def test_a_second_process_with_the_same_journal_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with Journal(path, "study 7"):
        receiver, sender = multiprocessing.Pipe(duplex=False)
        process = multiprocessing.get_context("spawn").Process(target=_open_journal, args=(path, sender))
        process.start()
        process.join(60.0)
        assert receiver.poll()
        assert "must be used by one process at a time" in receiver.recv()


# A run that is killed.


class KilledError(Exception):
    """The end of a process."""


@dataclass
class Study:
    """Eight sums of three agents on a path, with journals and with a checkpoint after the third sum."""

    folder: Path
    checkpoints: dict[int, Any] = field(default_factory=dict)

    def run(self, first: int, killed_after: int, scale: float = 1.0) -> tuple[list[float], list[bytes]]:
        """Run from a sum on, with new processes; return the totals and the masked messages, sum by sum."""
        record, totals = Record(), list[float]()
        with ExitStack() as stack:
            journals = [
                stack.enter_context(Journal(self.folder / f"agent-{i}.journal", "study 7")) for i in range(3)
            ]

            def program(i: int, tree: TreeNode) -> Program[None]:
                keys = yield from exchange_keys(journals[i].pair, i, 3, "study 7", along_tree(tree))
                state = from_plain(MaskState, self.checkpoints[i]) if first else None
                reduction = MaskedReduction(PairwiseMasks(keys, state, journals[i]), along_tree(tree))
                yield from self.sums(i, reduction, range(first, killed_after), scale, totals)

            with suppress(KilledError):
                run_programs(lambda i, tree: record.of(i, program(i, tree)), nx.path_graph(3))
        return totals, [words.tobytes() for words in record.words()]

    def sums(
        self, i: int, reduction: MaskedReduction, numbers: range, scale: float, totals: list[float]
    ) -> Program[None]:
        """Run some sums and be killed."""
        for number in numbers:
            value = (np.array([scale * number, float(i)]),)
            told, _ = yield from secure_answer(value, reduction, lambda total: total.arrays, (30,), "sum")
            totals.append(float(told[0][0]))
            masks: Any = reduction.masks
            if number == 2:
                self.checkpoints[i] = to_plain(masks.state)
        raise KilledError


def test_a_run_that_is_killed_and_resumed_sends_the_same_bytes_and_no_counter_twice(tmp_path: Path) -> None:
    study = Study(tmp_path)
    totals, sent = study.run(first=0, killed_after=6)
    assert totals[::3] == [3.0 * number for number in range(6)]
    assert len(sent) == 6 * 2  # from both ends of the path to the root
    # The checkpoint is older than three sums that were sent: they are sent again, to the bit.
    more, again = study.run(first=3, killed_after=8)
    assert more[::3] == [3.0 * number for number in range(3, 8)]
    assert again[:6] == sent[6:]
    assert len(set(sent) | set(again)) == 8 * 2
    # Other data for the same counters: refused, and nothing is sent.
    study.checkpoints.clear()
    with pytest.raises(
        CounterReuseError, match=r"counter 1, now for 'sum of shapes .*', has masked another value"
    ):
        study.run(first=0, killed_after=8, scale=2.0)


def test_a_run_that_lost_a_journal_has_new_masks_for_all_agents(tmp_path: Path) -> None:
    study = Study(tmp_path)
    totals, sent = study.run(first=0, killed_after=4)
    (tmp_path / "agent-1.journal").unlink()
    with pytest.raises(ValueError, match="must be of the keys that are used"):
        study.run(first=3, killed_after=4)
    again, other = study.run(first=0, killed_after=4)
    assert again == totals
    assert set(sent).isdisjoint(other)
