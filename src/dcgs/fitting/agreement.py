"""What sites agree on about their tables, over the network: columns, categories and their levels, labels.

All sites come to the same answer, or to the same error, which names the sites that differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import final

import numpy as np

from dcgs.datasets import BrokenDataError
from dcgs.fitting.encoding import EncodedColumn, Encoding
from dcgs.fitting.readers.layout import listed, shortened
from dcgs.fitting.tables import Column, Table, text_of
from dcgs.preprocessing.reductions import Reductions

MOST_LEVELS = 100
"""The most levels that a column of words may have at a site, unless the user says that it is a category."""
_MOST_NOTES = 8
_BETWEEN = "\t"


@final
@dataclass(eq=False)
class Agreement:
    """The network on which sites agree, what errors call a site, and notes for the user.

    ``pending`` are notes on sites of this process, with the end of their sentence, that were not sent yet.
    """

    network: Reductions
    who: Callable[[int], str]
    notes: list[str] = field(default_factory=list)
    pending: list[tuple[Mapping[int, str], str]] = field(default_factory=list)

    def columns(self, tables: Mapping[int, Table], drop: Sequence[str] = ()) -> dict[int, Table]:
        """Return the tables with their columns in one order, that of agent 0; they must be the same.

        A column of ``drop`` may be missing at some sites, but not at all of them.
        """
        own = {}
        for i, table in tables.items():
            has_names, width = float(table.names is not None), float(len(table.columns))
            dropped = [float(name not in table.lacking) for name in drop]
            own[i] = [[has_names, 1.0 - has_names, width, -width], dropped]
        which, found = self.network.max("which columns there are", own)
        named, unnamed, widest, narrowest = which.tolist()
        nowhere = [name for name, there in zip(drop, found, strict=True) if not there]
        if nowhere:
            others = listed(next(iter(tables.values())).names or ())
            raise BrokenDataError(
                f"some agent must have each column of --drop; none has {listed(nowhere)}, and the columns "
                f"are {others}. Correct the name."
            )
        if named == unnamed:  # both 1: some have names, and some have none
            has = {i: "no names" if table.names is None else "names" for i, table in tables.items()}
            raise BrokenDataError(
                f"the files of all agents must have names of columns, or none; {self._tell(has)}."
            )
        if unnamed:
            if widest != -narrowest:
                counts = {i: f"{len(table.columns)} columns" for i, table in tables.items()}
                raise BrokenDataError(f"all agents must have the same columns; {self._tell(counts)}.")
            return dict(tables)
        names = self.network.union("names of columns", {i: table.names or () for i, table in tables.items()})
        places = {i: [_places(table, names, first=i == 0)] for i, table in tables.items()}
        (order,) = self.network.sum("the order of columns", places)
        if order[-1]:  # a site lacks a column
            missing = {i: [name for name in names if name not in (t.names or ())] for i, t in tables.items()}
            lack = {i: f"no column {listed(lacking)}" for i, lacking in missing.items() if lacking}
            raise BrokenDataError(
                f"all agents must have the same columns; {self._tell(lack)}. Rename them, or leave them out "
                "at all agents with --drop, which takes columns that some agents lack."
            )
        agreed = tuple(names[at] for at in np.argsort(order[:-1], kind="stable"))
        return {i: table.in_order(agreed) for i, table in tables.items()}

    def encoding(self, tables: Mapping[int, Table], categorical: Sequence[str]) -> Encoding:
        """Return which columns are categories, and their levels."""
        first = next(iter(tables.values()))
        names = list(first.names or map(str, range(1, len(first.columns) + 1)))
        chosen = [_index(name, names) for name in categorical]
        kinds = {i: [(c.has_words, c.has_numbers) for c in table.columns] for i, table in tables.items()}
        flags = {i: np.array(each, dtype=float).T.tolist() for i, each in kinds.items()}
        words, numbers = self.network.max("which columns are of words", flags)
        for at, name in enumerate(names):
            if words[at] and numbers[at] and at not in chosen:
                raise self._mixed(tables, at, name)
            if not words[at] and not numbers[at]:
                raise BrokenDataError(
                    f"column {name!r} must have a value at some agent; it is empty at all of them. "
                    f"Leave it out with --drop {name}."
                )
        categories = [at for at in range(len(names)) if words[at] or at in chosen]
        levels = self._levels(tables, names, categories, chosen)
        return Encoding(tuple(EncodedColumn(name, levels.get(at)) for at, name in enumerate(names)))

    def labels(self, targets: Mapping[int, Column], own_files: bool) -> tuple[str | float, ...]:
        """Return the labels of all sites: numbers in their order, or words in that of the alphabet.

        With ``own_files`` every site has written its labels itself, maybe in another way than the others.
        """
        own = {i: column.levels for i, column in targets.items()}
        texts = self.network.union("labels", own)
        if len(texts) == 1:
            raise BrokenDataError(f"there must be two classes; all labels are {texts[0]}.")
        if len(texts) > 2:
            self._check_classes(own, texts, own_files)
        else:
            alone = {i: f"only rows of class {found[0]!r}" for i, found in own.items() if len(found) == 1}
            self.note(alone)
        return tuple(sorted(map(float, texts))) if all(map(_is_number, texts)) else texts

    def check_class_counts(self, targets: Mapping[int, Column]) -> None:
        """Raise if a site of this process has so many labels that they are no classes; nothing is sent."""
        for i, column in targets.items():
            count = len(column.levels)
            if count > MOST_LEVELS:
                raise BrokenDataError(
                    f"labels must be of at most {MOST_LEVELS} classes at each agent; {self.who(i)} has "
                    f"{count} different ones. To predict a number, fit lasso or least-squares."
                )

    def _check_classes(self, own: Mapping[int, list[str]], texts: Sequence[str], own_files: bool) -> None:
        """Raise if more than two labels look like fewer classes in several spellings; note who lacks one."""
        numbers = [text for text in texts if _is_number(text)]
        alike = _alike(texts)
        has = {i: np.isin(texts, found).astype(float) for i, found in own.items()}
        (count,) = self.network.sum("how many sites have a label", {i: [each] for i, each in has.items()})
        apart = {
            i: listed(own[i])
            for i, each in has.items()
            if own_files and len(count) > each.sum() > 1 and count[each > 0.0].max() == 1.0
        }
        others = self._any(apart, "sites whose labels no other site has")
        if others or alike or 0 < len(numbers) < len(texts):
            told = {i: listed([t for t in found if not alike or t in alike]) for i, found in own.items()}
            facts = {i: text for i, text in told.items() if text}
            raise BrokenDataError(
                f"labels must be of the same classes, written the same at all agents; {self._tell(facts)}. "
                "Write them alike."
            )
        lacking = {i: [t for t, there in zip(texts, has[i], strict=True) if not there] for i in own}
        without = {i: f"no rows of class {listed(found)}" for i, found in lacking.items() if found}
        self.note(without)

    def tell(self, name: str, facts: Mapping[int, str]) -> str:
        """Return a text on each site that has one, for a sentence; ``name`` says what was sent for it."""
        if not self._any(facts, name):
            return ""
        return self._tell(facts)

    def note(self, facts: Mapping[int, str], more: str = "") -> None:
        """Note what sites of this process have; ``more`` goes on with the sentence. Nothing is sent.

        All processes note the same kinds of things in the same order; :meth:`collect_notes` sends them.
        """
        self.pending.append((facts, more))

    def collect_notes(self) -> None:
        """Add the notes on the sites of all processes, in one union; in none if nothing could be noted."""
        if not self.pending:
            return
        own = {
            i: [f"{k:03d}{_BETWEEN}{i:09d}{_BETWEEN}{self.who(i)} has {facts[i]}" for k, (facts, _) in kinds]
            for i in self.network.hosts
            for kinds in [[(k, kind) for k, kind in enumerate(self.pending) if i in kind[0]]]
        }
        told: dict[int, list[str]] = {}
        for text in self.network.union("notes on the data of sites", own):
            kind, _, sentence = text.split(_BETWEEN, 2)
            told.setdefault(int(kind), []).append(sentence)
        self.notes += [f"{_some(each)}{self.pending[k][1]}." for k, each in told.items()]
        self.pending.clear()

    def _any(self, facts: Mapping[int, str], name: str) -> bool:
        flags = {i: [float(i in facts)] for i in self.network.hosts}
        return bool(self.network.max(name, flags)[0])

    def _tell(self, facts: Mapping[int, str]) -> str:
        """Return "agent 0 (a.csv) has …; agent 1 (b.csv) has …" for all sites that have a text."""
        texts = {
            i: [f"{i:09d}{_BETWEEN}{self.who(i)} has {facts[i]}"] if i in facts else []
            for i in self.network.hosts
        }
        return _some(
            [text.partition(_BETWEEN)[2] for text in self.network.union("which site has what", texts)]
        )

    def _mixed(self, tables: Mapping[int, Table], at: int, name: str) -> BrokenDataError:
        facts = {}
        for i, table in tables.items():
            column = table.columns[at]
            words = []
            if column.has_words:
                row = column.first(words=True)
                words = [f"the word {shortened((column.words or ())[row] or '')!r} in line {table.rows[row]}"]
            numbers = [f"a number in line {table.rows[column.first(False)]}"] if column.has_numbers else []
            if words or numbers:
                facts[i] = " and ".join(words + numbers)
        told = self._tell(facts)
        return BrokenDataError(
            f"column {name!r} must be of numbers or of words; {told}. Correct it, make it a category with "
            f"--categorical {name}, or leave it out with --drop {name}."
        )

    def _levels(
        self,
        tables: Mapping[int, Table],
        names: Sequence[str],
        categories: Sequence[int],
        chosen: Sequence[int],
    ) -> dict[int, tuple[str, ...]]:
        """Return the levels of each category at all sites; those that one site has alone are noted."""
        if not categories:
            return {}
        own = {
            i: [f"{at}{_BETWEEN}{level}" for at in categories for level in table.columns[at].levels]
            for i, table in tables.items()
        }
        self._check_counts(tables, names, [at for at in categories if at not in chosen])
        texts = self.network.union("levels of categories", own)
        has = {i: np.isin(texts, own[i]).astype(float) for i in own}
        count, index = self.network.sum("how many sites have a level", {i: [has[i], i * has[i]] for i in has})
        levels: dict[int, tuple[str, ...]] = dict.fromkeys(categories, ())
        alone: dict[int, list[str]] = {}
        for text, sites, site in zip(texts, count, index, strict=True):
            column, _, level = text.partition(_BETWEEN)
            levels[int(column)] += (level,)
            if sites == 1 and len(self.network.graph) > 1:
                alone.setdefault(int(site), []).append(f"{names[int(column)]}={level}")
        self.notes += [
            f"{self.who(i)} alone has {listed(found)}; its coefficient comes from that site."
            for i, found in sorted(alone.items())
        ]
        return levels

    def _check_counts(
        self, tables: Mapping[int, Table], names: Sequence[str], guessed: Sequence[int]
    ) -> None:
        """Raise if a column of words is no category: names, numbers of patients and texts are not sent."""
        many = {
            i: listed([f"{names[at]} with {count} levels" for at, count in counts if count > MOST_LEVELS])
            for i, table in tables.items()
            for counts in [[(at, len(table.columns[at].levels)) for at in guessed]]
            if any(count > MOST_LEVELS for _, count in counts)
        }
        if self._any(many, "sites with a column of too many levels"):
            raise BrokenDataError(
                f"a column of words must have at most {MOST_LEVELS} levels at each agent; {self._tell(many)}."
                " Leave it out with --drop, or if it is a category, name it with --categorical."
            )


def _some(told: Sequence[str]) -> str:
    """Return the first of these texts for a sentence, and the number of the others."""
    more = f"; and {len(told) - _MOST_NOTES} agents more" if len(told) > _MOST_NOTES else ""
    return "; ".join(told[:_MOST_NOTES]) + more


def _is_number(text: str) -> bool:
    """Return True if a label is a number; ``1_0`` and ``007`` among words are not."""
    try:
        return math.isfinite(float(text)) and text_of(float(text)) == text
    except ValueError:
        return False


def _alike(texts: Sequence[str]) -> set[str]:
    """Return the texts that differ from another one in capital letters and blanks only."""
    by_letters: dict[str, list[str]] = {}
    for text in texts:
        by_letters.setdefault("".join(text.casefold().split()), []).append(text)
    return {text for same in by_letters.values() if len(same) > 1 for text in same}


def _places(table: Table, names: Sequence[str], first: bool) -> list[float]:
    """Return the place of each name in the first site's table, and at last 1 if a name is missing here."""
    own = table.names or ()
    lacks = float(any(name not in own for name in names))
    return [*(float(own.index(name)) if first and name in own else 0.0 for name in names), lacks]


def _index(name: str, names: Sequence[str]) -> int:
    if name in names:
        return names.index(name)
    if name.isdecimal() and 1 <= int(name) <= len(names):
        return int(name) - 1
    raise BrokenDataError(
        f"--categorical must name a column of features; got {name!r}, and the columns are {listed(names)}."
    )
