"""Every door is closed the same way: junk for every parameter of every public name."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import dcgs
from junk import EXCLUDED, JUNK, PARAMETERS, SPECIAL, Call, Verdict, calls, doors, judge, parameters

SHOWN = 10


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DCGS_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.mark.parametrize("name", sorted(doors()))
def test_junk_is_refused_in_our_words_before_any_work(name: str) -> None:
    bad = [judgment for judgment in map(judge, calls(name)) if judgment.verdict.bad]
    count = Counter(judgment.verdict.value for judgment in bad)
    assert not bad, f"{dict(count)}\n" + "\n".join(map(str, bad[:SHOWN]))


@pytest.mark.parametrize(
    "name",
    sorted(
        set(doors()) - {"Result.load", "Record.load", "load_faults", "e2006", "movielens1m", "movielens100k"}
    ),
)
def test_the_calls_that_junk_spoils_are_sound(name: str) -> None:
    Path("no-such-file").write_text("1 1:2\n")
    assert judge(Call(name, {})).verdict is Verdict.RIGHT


def test_there_are_enough_calls_over_every_public_name() -> None:
    assert sum(len(calls(name)) for name in doors()) >= 5000
    assert set(doors()) | EXCLUDED >= {*dcgs.__all__, *dcgs.datasets.__all__}
    known = {f"{name}.{each}" for name in doors() for each in parameters(name)}
    assert set(SPECIAL) <= known
    assert {each.split(".")[-1] for each in known} <= {*PARAMETERS, *(each.split(".")[1] for each in SPECIAL)}
    assert len(set(JUNK)) == len(JUNK)
