"""Table one: what sites have in each column, without small counts; and what may be odd about it.

A site says of each column how many values are missing, the mean and the deviation, or how often each level
occurs. A count below the floor, of less than ten people, is suppressed, as is a number that it follows from.
All sites get the tables of all by one union over the network, and see the same differences between them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, final

import numpy as np
from scipy import sparse

from dcgs.learn.encoding import TableSums, have_other_scale
from dcgs.learn.files.graphs import GraphSpec
from dcgs.learn.files.layout import SamplesLayout
from dcgs.learn.files.rows import ERRORS, MOST_INSPECTED, read_files
from dcgs.learn.files.source import (
    DataSource,
    Samples,
    exchange_records,
    file_notes,
    has_own_files,
    site_names,
)
from dcgs.learn.files.tables import Column, Table, odd_facts, suspects
from dcgs.learn.schema import MOST_LEVELS, Note, listed_facts
from dcgs.learn.sites import SitesError
from dcgs.learn.summary import FitTable
from dcgs.learn.sums import Reductions
from dcgs.runtime import Runtime
from dcgs.state import from_plain, to_plain
from dcgs.validation import in_words, listed

_SITES = 5  # that are beside each other on a screen


@final
@dataclass(frozen=True)
class ColumnFacts:
    """A column at one site; ``missing``, and numbers that small counts would follow from, are None.

    ``levels`` has how often each level occurs, those that are sent; ``others`` counts the values of the other
    levels, None if small numbers would follow from it. A column of numbers has ``mean`` and ``deviation``.
    """

    name: str
    is_category: bool = False
    missing: int | None = None
    mean: float | None = None
    deviation: float | None = None
    levels: dict[str, int] = field(default_factory=dict)
    others: int | None = None


@final
@dataclass(frozen=True)
class SiteTable:
    """Table one of a site: its name, how many rows it has, its columns, and what is odd, by names of notes.

    ``rows`` is None if there are fewer than the floor. With ``is_open`` there may be more columns, of zeros;
    LIBSVM text does not say. ``error`` says why there are no data.
    """

    name: str
    rows: int | None = None
    columns: tuple[ColumnFacts, ...] = ()
    facts: dict[str, str] = field(default_factory=dict)
    is_open: bool = False
    error: str | None = None


def site_table(
    name: str, data: Table | Samples, categories: Sequence[str], floor: int, has_target: bool = True
) -> SiteTable:
    """Return what a site sends of its data; nothing that is about fewer than ``floor`` rows.

    Without ``has_target`` the last column need not be the one to predict, and copies of it are not odd.
    """
    if len(data) < floor:
        return SiteTable(name)
    if isinstance(data, Samples):
        named, target, odd = _columns(data), data.b if data.b is None else Column(data.b), suspects(data)
    else:
        names = data.names or [f"column {k + 1}" for k in range(len(data.columns))]
        named, target = list(zip(names, data.columns, strict=True)), data.target
        odd = named
    of_classes = target is not None and (target.has_words or 5 * len(target.levels) <= len(data))
    words = [label for label, column in named if column.has_words or label in categories]
    facts = dict(odd_facts(odd, target if has_target else None, of_classes, words, floor))
    if isinstance(data, Table) and data.commas:
        facts[Note.COMMAS.name] = "decimal commas"
    if target is not None:
        named = [*named, (getattr(data, "target_name", None) or "the target", target)]
    columns = [column_facts(label, column, label in words, floor) for label, column in named]
    constant = [column.name for column in columns if _is_constant(column)]
    if constant:
        facts[Note.CONSTANT.name] = f"one value only in {listed(constant)}"
    return SiteTable(name, len(data), tuple(columns), facts, isinstance(data, Samples) and data.open)


def column_facts(name: str, column: Column, is_category: bool, floor: int) -> ColumnFacts:
    """Return what a site sends of a column, without counts below the floor.

    >>> sex = Column.of_texts(["m"] * 30 + ["f"] * 20 + ["x"] * 3)
    >>> facts = column_facts("sex", sex, True, 10)
    >>> facts.levels, facts.others, facts.missing
    ({'m': 30}, 23, 0)
    """
    missing, there = int(column.missing.sum()), int((~column.missing).sum())
    if is_category or column.has_words:
        levels = Counter(text for text in column.texts if text is not None)
        sent, others, holes = _above(levels if len(levels) <= MOST_LEVELS else {}, there, missing, floor)
        return ColumnFacts(name, True, holes, levels=sent, others=others)
    numbers, holes = column.numbers[~column.missing], _above({}, there, missing, floor)[2]
    if there < floor or _is_rare(numbers, floor):
        return ColumnFacts(name, missing=holes)
    return ColumnFacts(name, False, holes, float(numbers.mean()), float(numbers.std()))


def _above(
    levels: Mapping[str, int], there: int, missing: int, floor: int
) -> tuple[dict[str, int], int | None, int | None]:
    """Return the levels that may be sent, how many values have others, and how many are missing.

    What is suppressed must not follow from the number of rows and what is. So the least of the numbers sent
    is taken back, until those that are not are together none, or many.
    """
    sent = {level: count for level, count in levels.items() if count >= floor}
    holes = None if 0 < missing < floor else missing
    while 0 < (hidden := there + missing - sum(sent.values()) - (holes or 0)) < floor:
        least = min(sent, key=lambda level: sent[level], default=None)
        if least is not None and not (holes and holes < sent[least]):
            del sent[least]
        elif holes:
            holes = None
        else:
            break
    return sent, None if holes is None else hidden, holes


def _is_rare(numbers: np.ndarray[Any, Any], floor: int) -> bool:
    """Return True if the mean would be about a few: all others have one value, or these are far from them."""
    _, counts = np.unique(numbers, return_counts=True)
    squares = (numbers - numbers.mean()) ** 2
    is_dominated = 0.0 < squares.sum() ** 2 < floor * (squares**2).sum()
    return bool(0 < len(numbers) - counts.max() < floor or is_dominated)


def _is_constant(column: ColumnFacts) -> bool:
    return column.deviation == 0.0 or (len(column.levels) == 1 and column.others == 0)


def _columns(samples: Samples) -> list[tuple[str, Column]]:
    """Return the first columns of an array, by name."""
    first: Any = samples.A[:, :MOST_INSPECTED]
    dense = first.toarray() if sparse.issparse(first) else first
    return [(f"feature {k + 1}", Column(values)) for k, values in enumerate(dense.T)]


@final
@dataclass(frozen=True)
class TableOne:
    """The tables of all sites, in the order of agents, and notes: on files, and on differences of sites."""

    sites: tuple[SiteTable, ...]
    floor: int
    of_files: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """The names of all columns, in the order of the first site that has them."""
        return list(dict.fromkeys(column.name for site in self.sites for column in site.columns))

    def notes(self) -> Iterator[str]:
        """Yield sentences on what is odd at sites, and on columns that differ between them."""
        yield from self.of_files
        few = [site.name for site in self.sites if site.rows is None]
        if few:
            yield f"{in_words(few)}: fewer than {self.floor} rows, of which nothing is sent."
        yield from (
            f"{listed_facts(odd)}{note.value}."
            for note in Note
            if (odd := {site.name: site.facts[note.name] for site in self.sites if note.name in site.facts})
        )
        known = [site for site in self.sites if site.rows is not None]
        for name in self.names:
            cells = {site.name: _cell(site, name) for site in known}
            without = [site.name for site in known if cells[site.name] is None and not site.is_open]
            if without:
                yield f"column {name!r} is at other sites, and not at {in_words(without)}."
            words = [site for site, cell in cells.items() if cell is not None and cell.is_category]
            if 0 < len(words) < sum(cell is not None for cell in cells.values()):
                yield f"column {name!r} has words at {in_words(words)}, and numbers at other sites."
        yield from self._scales(known)

    def _scales(self, sites: Sequence[SiteTable]) -> Iterator[str]:
        """Yield a note on sites whose means are so far from those of the others that units may differ."""
        for name in self.names:
            cells = [(site, cell) for site in sites if (cell := _cell(site, name)) and _has_scale(cell)]
            sums = [_sums(site, cell) for site, cell in cells]
            if not cells:
                continue
            everyone = TableSums(*(sum(parts) for parts in zip(*map(_parts, sums), strict=True)))
            odd = {
                site.name: f"a mean of {cell.mean:.4g} in {name!r}"
                for (site, cell), local in zip(cells, sums, strict=True)
                if have_other_scale(local, everyone)[0]
            }
            if odd:
                yield f"{listed_facts(odd)}, far from that of the others{Note.SCALES.value}."

    def tables(self) -> Iterator[FitTable]:
        """Yield the table for a screen: a line for each column or level, a column for each site and all."""
        for start in range(0, len(self.sites), _SITES):
            some = self.sites[start : start + _SITES]
            groups = ([self.sites] if start == 0 and len(self.sites) > 1 else []) + [[site] for site in some]
            heads = ["all"] * (len(groups) > len(some)) + [site.name for site in some]
            lines = [["rows", *(_count([site.rows for site in group], self.floor) for group in groups)]]
            for name in self.names:
                lines += self._lines(name, groups)
            yield FitTable("", {"": "text"} | dict.fromkeys(heads, "text"), lines)

    def _lines(self, name: str, groups: Sequence[Sequence[SiteTable]]) -> Iterator[list[str]]:
        """Yield the lines of a column."""
        cells = [[(site, cell) for site in group if (cell := _cell(site, name))] for group in groups]
        flat = [cell for group in cells for _, cell in group]
        if any(cell.mean is not None or not cell.is_category for cell in flat):
            yield [name, *map(_mean, cells)]
        for level in sorted({level for cell in flat for level in cell.levels}):
            yield [f"{name}={level}", *(self._share(group, level) for group in cells)]
        if any(cell.others != 0 for cell in flat if cell.is_category):
            yield [f"{name}, other levels", *(_count([c.others for _, c in g]) for g in cells)]
        if any(cell.missing != 0 for cell in flat):
            yield [f"{name}, missing", *(_count([c.missing for _, c in g]) for g in cells)]

    def _share(self, cells: Sequence[tuple[SiteTable, ColumnFacts]], level: str) -> str:
        """Return how often a level occurs, and the share of rows."""
        if not any(level in cell.levels for _, cell in cells):
            return "–"
        count = sum(cell.levels.get(level, 0) for _, cell in cells)
        hidden = any(level not in cell.levels and cell.others != 0 for _, cell in cells)
        rows = sum(site.rows or 0 for site, _ in cells)
        return f"{'≥ ' if hidden else ''}{count:,} ({count / rows:.0%})"


def _cell(site: SiteTable, name: str) -> ColumnFacts | None:
    return next((column for column in site.columns if column.name == name), None)


def _count(counts: Sequence[int | None], floor: int = 0) -> str:
    """Return a sum of counts, some of which may be suppressed: less than ``floor``, if that is given."""
    total, hidden = sum(count or 0 for count in counts), [None for count in counts if count is None]
    if not counts:
        return "–"
    if len(hidden) == len(counts):
        return f"< {floor * len(counts):,}" if floor else "suppressed"
    return f"{'≥ ' if hidden else ''}{total:,}"


def _has_scale(cell: ColumnFacts) -> bool:
    """Return True for a column of numbers but flags, whose mean is a share."""
    mean, deviation = cell.mean, cell.deviation
    if mean is None or deviation is None:
        return False
    return not (0.0 <= mean <= 1.0 and abs(deviation**2 - mean * (1.0 - mean)) < 1e-9)


def _sums(site: SiteTable, cell: ColumnFacts) -> TableSums:
    """Return the sums that a mean and a deviation are of."""
    assert cell.mean is not None
    assert cell.deviation is not None
    there = float((site.rows or 0) - (cell.missing or 0))
    squares = there * (cell.deviation**2 + cell.mean**2)
    return TableSums(*(np.array([value]) for value in (there * cell.mean, there, squares, 0.0)))


def _parts(sums: TableSums) -> tuple[Any, ...]:
    return sums.total, sums.there, sums.squares, sums.missing


def _mean(cells: Sequence[tuple[SiteTable, ColumnFacts]]) -> str:
    """Return mean and deviation over those sites that send theirs."""
    sent = [_sums(site, cell) for site, cell in cells if cell.mean is not None]
    if not sent:
        return "–"
    total, there, squares = (float(sum(getattr(sums, name)[0] for sums in sent)) for name in _NAMES)
    mean = total / there
    deviation = np.sqrt(max(squares / there - mean**2, 0.0)) if len(sent) > 1 else cells[0][1].deviation
    return f"{mean:.4g} ± {deviation:.3g}"


_NAMES = ("total", "there", "squares")


def agree_on_tables(tables: Mapping[int, SiteTable], network: Reductions, floor: int) -> TableOne:
    """Return the tables of all sites, by one union over the network; raise if a site has no data."""
    texts = {i: [json.dumps([i, to_plain(table)])] for i, table in tables.items()}
    agreed = dict(map(json.loads, network.union("table one of each site", texts)))
    sites = [from_plain(SiteTable, agreed[i]) for i in sorted(agreed)]
    for site in sites:
        if site.error is not None:
            raise SitesError(f"{site.name.partition(' (')[0]} failed: {site.error}")
    return TableOne(tuple(sites), floor)


@final
@dataclass(frozen=True)
class TableSpec:
    """Whose data to describe, and how they are read; no count below ``floor`` is sent.

    ``options`` are the user's options by flag, as texts; they must be the same at all sites.
    """

    source: DataSource
    layout: SamplesLayout
    graph: GraphSpec
    agents: int | None = None
    categorical: tuple[str, ...] = ()
    floor: int = 10
    options: Mapping[str, str] = field(default_factory=dict)


def describe_files(spec: TableSpec, runtime: Runtime) -> tuple[TableOne, Reductions]:
    """Return table one of all sites, and the network with what was sent; a process reads its own files."""
    group = runtime.group()
    agents = spec.source.count_agents(spec.agents, spec.graph.node_count(), group.size)
    hosts = runtime.hosts(agents)
    options = {"--agents": str(agents), "--min-count": str(spec.floor), **spec.options}
    records, _ = exchange_records(spec.source, spec.layout.target_file, hosts, options, runtime)
    with group.common_errors():
        source = replace(spec.source, own=has_own_files(records), names=site_names(records))
    network = Reductions(spec.graph.build(agents).graph, runtime)
    try:
        data = read_files(source, spec.layout, agents, hosts)
        has_target = spec.layout.target is not None or isinstance(next(iter(data.values())), Samples)
        tables = {
            i: site_table(source.name(i), local, spec.categorical, spec.floor, has_target)
            for i, local in data.items()
        }
    except ERRORS as error:
        if group.size == 1:
            raise
        tables = {i: SiteTable(source.name(i), error=str(error)) for i in hosts}
    with group.common_errors():
        table = agree_on_tables(tables, network, spec.floor)
    return replace(table, of_files=tuple(file_notes(records))), network
