"""Memory that processes of one machine share, here between writers and readers of one process."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dcgs.points import Point
from dcgs.runtime.machine import sharers
from dcgs.runtime.sheets import Reader, View, Writer
from dcgs.runtime.wire import Header, Kind, MessageError

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="only Linux has files in memory")


def header(size: int) -> Header:
    return Header(Kind.MESSAGE, np.dtype(np.float64), (size,), 0, 0)


def readers(*ranks: int) -> list[Reader]:
    return [Reader(f"agent {rank}", os.getpid(), rank) for rank in ranks]


def files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_what_is_written_is_read_in_place() -> None:
    writer, (one, other) = Writer({3, 1}), readers(1, 3)
    message = np.arange(40_000.0)
    folio, sheet, squares = writer.write(message, 5)
    assert squares == pytest.approx(float(message @ message), rel=1e-12)
    came = [reader.read(folio, sheet, 5, header(message.size)) for reader in (one, other)]
    for theirs in came:
        np.testing.assert_array_equal(theirs, message)
        assert not theirs.flags.writeable
        assert not theirs.flags.owndata


@pytest.mark.parametrize("place", [0, 16_383, 16_384, 39_999])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_the_sum_of_squares_tells_of_what_is_not_finite(place: int, value: float) -> None:
    message = np.ones(40_000)
    message[place] = value
    assert not np.isfinite(Writer({1}).write(message, 1)[2])


def test_without_anyone_who_keeps_messages_two_sheets_are_enough() -> None:
    writer, (reader,) = Writer({1}), readers(1)
    used = set()
    for round in range(9):
        folio, sheet, _ = writer.write(np.full(600, float(round)), round)
        reader.strike()
        assert reader.read(folio, sheet, round, header(600))[-1] == round
        used.add((folio, sheet))
    assert len(used) == 2


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 1500), min_size=1, max_size=25),
    keep=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), min_size=25, max_size=25),
    ahead=st.lists(st.booleans(), min_size=25, max_size=25),
)
def test_a_message_stays_as_long_as_someone_holds_it(
    sizes: list[int], keep: list[tuple[int, int]], ahead: list[bool]
) -> None:
    """Whatever readers hold for however long, the writer finds a sheet, and what is held does not change."""
    before = files()
    writer, both = Writer({1, 2}), readers(1, 2)
    held: list[tuple[int, Point, Point]] = []
    messages = [np.random.default_rng(size).standard_normal(size) for size in sizes]
    lie: list[tuple[int, int]] = []
    for round, size in enumerate(sizes):
        for reader in both:
            reader.strike()  # and then tell the writer, who may write its next before they read this one
        due = range(len(lie), min(round + 1 + ahead[round], len(sizes)))
        lie += [writer.write(messages[k], k)[:2] for k in due]
        for reader, length in zip(both, keep[round], strict=True):
            theirs = reader.read(*lie[round], round, header(size))
            held.append((round + length, messages[round], theirs[size // 2 :]))
            del theirs
        held = [each for each in held if each[0] > round]
        assert all(np.array_equal(part, was[was.size // 2 :]) for _, was, part in held)
    held.clear()
    del writer, both, reader
    assert files() == before


def test_a_sheet_of_another_round_is_not_taken_for_the_message_that_is_due() -> None:
    writer, (reader,) = Writer({1}), readers(1)
    folio, sheet, _ = writer.write(np.ones(600), 4)
    for where, round, size in [(sheet, 5, 600), (sheet + 1, 4, 600), (99, 4, 600), (sheet, 4, 10_000)]:
        with pytest.raises(MessageError, match=rf"^agent 1 must leave its message of round {round} on sheet"):
            reader.read(folio, where, round, header(size))
    assert reader.read(folio, sheet, 4, header(600)).sum() == 600.0


def test_a_folio_that_is_gone_names_its_writer() -> None:
    with pytest.raises(MessageError, match=r"^the memory that agent 1 shares must be readable; No such file"):
        readers(1)[0].read(10**6, 0, 1, header(600))


def test_a_view_is_free_when_no_part_of_it_is_held() -> None:
    view = View(np.zeros(12), 2)
    view.settle()
    assert view.is_free()
    whole = view.shaped(Header(Kind.MESSAGE, np.dtype(np.float64), (5, 2), 0, 0))
    assert not view.is_free()
    part = whole[1:].T
    del whole
    assert not view.is_free()
    del part
    assert view.is_free()


class Near:
    """A communicator of one machine as this process sees it, in which others answered so."""

    def __init__(self, *others: list[int], able: bool = True) -> None:
        self._others = others
        self._able = able
        self.size = 1 + len(others)
        self.rank = 0
        self.able: list[bool] = []

    def Allgather(self, mine: Any, everyone: Any) -> None:  # noqa: N802
        if mine.dtype == np.bool_:
            self.able += mine.tolist()
            everyone[0], everyone[1:] = mine[0], self._able
        else:
            everyone[0] = mine
            everyone[1:] = np.array(self._others, dtype=np.int64).reshape(-1, mine.size)


def token(secret: bytes) -> list[int]:
    fd = os.memfd_create("test")
    os.write(fd, secret)
    return [os.getpid(), fd, int.from_bytes(b"12345678", "little")]


def test_processes_share_if_each_can_open_what_others_made() -> None:
    near = Near([7, *token(b"12345678")])
    assert sharers(near, 4) == {7: os.getpid()}
    assert near.able == [True]


def test_one_that_cannot_is_enough_for_none_to_share() -> None:
    near = Near([7, *token(b"12345678")], able=False)
    assert sharers(near, 4) == {}
    assert near.able == [True]


@pytest.mark.parametrize("what", ["no card", "another file", "no file", "no process", "a pipe"])
def test_processes_that_cannot_do_not_share(what: str) -> None:
    one, other = os.pipe()
    card = {
        "no card": [-1, -1, -1, -1],
        "another file": [7, *token(b"another!")],
        "no file": [7, os.getpid(), 10**6, 0],
        "no process": [7, 2**30, 3, 0],
        "a pipe": [7, os.getpid(), one, 0],
    }[what]
    near = Near(card)
    assert sharers(near, 4) == {}
    assert near.able == [False]
    os.close(one)
    os.close(other)


def test_a_process_that_may_not_make_files_in_memory_tells_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    near = Near([7, *token(b"12345678")])

    def forbidden(name: str) -> int:
        raise PermissionError

    monkeypatch.setattr(os, "memfd_create", forbidden)
    assert sharers(near, 4) == {}
    assert near.able == [False]


def test_what_is_kept_of_an_old_folio_takes_no_room_in_the_new_one() -> None:
    writer, (reader,) = Writer({1}), readers(1)
    held = []
    for round, size in enumerate((600, 600, 6000, 6000)):
        folio, sheet, _ = writer.write(np.full(size, float(round)), round)
        reader.strike()
        held.append(reader.read(folio, sheet, round, header(size)))
    assert [message.flags.owndata for message in held] == [False] * 4
    assert [float(message[0]) for message in held] == [0.0, 1.0, 2.0, 3.0]


def test_with_two_kept_and_one_not_yet_read_there_is_still_a_sheet() -> None:
    """The most that a reader may be behind, as the writer sees it."""
    writer, (reader,) = Writer({1}), readers(1)
    held = []
    for round in (1, 2):
        folio, sheet, _ = writer.write(np.full(600, float(round)), round)
        reader.strike()
        held.append(reader.read(folio, sheet, round, header(600)))
    lie = [writer.write(np.full(600, float(round)), round)[:2] for round in (3, 4)]
    came = [reader.read(*lie[k], 3 + k, header(600)) for k in range(2)]
    assert [float(message[0]) for message in (*held, *came)] == [1.0, 2.0, 3.0, 4.0]


def test_one_process_alone_shares_with_nobody() -> None:
    assert sharers(Near(), 0) == {}
