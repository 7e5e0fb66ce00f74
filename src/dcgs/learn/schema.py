"""What sites agree on before a fit: the schema of each, one union over the network, and a pure merge.

A schema says what an agent's data are: columns and their types, labels, how many rows, the user's options,
what is odd, or why the data cannot be used. It says nothing of a single row but where the first word and the
first number of a column are. All agents merge the same schemas, and so come to the same agreement, or to the
same error, which names the sites that differ, their values, and what to do.

What is equal at several sites is sent once. Levels of categories are sent without the name of their site.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import reduce
from hashlib import blake2b
from typing import Any, final

from dcgs import __version__
from dcgs.floors import Floors
from dcgs.learn.floors import SiteCells, Told, check_sites, refuse_small, told_cells
from dcgs.learn.sites import Remedy, SitesError
from dcgs.learn.sums import Reductions, Request, Steps
from dcgs.state import from_plain, to_plain
from dcgs.validation import Label, in_words, label_text, listed

MOST_LEVELS = 100
"""The most levels that a column of words may have at a site, unless the user says that it is a category."""
NOT_GIVEN = "not given"
_MOST_NAMED = 8
_SHARED = ("columns", "options", "labels")
"""Fields that are the same at many sites, and are sent once for all of them."""


class Note(Enum):
    """What may be odd about the data of a site; the value ends the sentence that begins with the sites."""

    COMMAS = ", which were read as such"
    CODES = "; if such a value stands for a missing one, write NA in its place"
    IDS = "; if these are ids, leave them out (of tables with --drop)"
    COPIES = "; leave it out (of tables with --drop) if it is not known when you predict"
    EMPTY = "; the means of the other sites take its place"
    SCALES = " (ten deviations, or a power of ten); see whether all sites use the same unit"
    REPEATED = "; the mean counts"
    OUTSIDE = ""
    CONSTANT = ", which cannot help to predict there"


_COUNTED = (Note.CODES, Note.REPEATED, Note.OUTSIDE)
"""Notes with values and counts of rows, which are not told with floors."""


@final
@dataclass(frozen=True)
class ColumnSchema:
    """A column at one agent.

    ``word`` and ``number`` say what the first word is, and where it and the first number are; None if there
    are none. ``levels`` is the number of levels of a column of words.
    """

    name: str
    word: str | None = None
    number: str | None = None
    levels: int = 0
    constant: bool = False


@final
@dataclass(frozen=True)
class SiteSchema:
    """What an agent says of its data.

    ``width`` is the number of columns; with ``is_open`` there may be more, as LIBSVM text does not say.
    ``columns`` are those of a table or a data frame, with names if ``has_names``. ``labels`` are the classes
    of its rows, as JSON; None for a model of numbers. ``lacking`` are columns to drop that it does not have.
    ``facts`` has what is odd, by the name of a :class:`Note`. ``levels`` has the levels of its categories.
    ``floors`` are those of the site; ``is_small`` if it has fewer rows. ``error`` says why there are no
    data, and nothing else is known then.
    """

    name: str
    rows: int = 0
    held_out: int = 0
    width: int = 0
    is_open: bool = False
    has_names: bool = False
    columns: tuple[ColumnSchema, ...] = ()
    labels: tuple[str, ...] | None = None
    lacking: tuple[str, ...] = ()
    options: dict[str, str] = field(default_factory=dict)
    facts: dict[str, str] = field(default_factory=dict)
    floors: Floors | None = None
    is_small: bool = False
    error: str | None = None
    levels: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def short_name(self) -> str:
        """The name without the file after it."""
        return self.name.partition(" (")[0]

    def structure(self) -> SiteSchema:
        """Return what may be told with floors: nothing that is counted in rows, no word, label or level.

        Labels and levels are found by counts of people. Of a site with fewer rows than its floor, which is to
        be refused, it is not told either which columns have words, or no values.
        """
        is_small = self.floors is not None and self.rows - self.held_out < self.floors.min_count
        columns = tuple(
            replace(
                column,
                word=None if column.word is None or is_small else "words",
                number=None if column.number is None or is_small else "numbers",
                levels=MOST_LEVELS + 1 if column.levels > MOST_LEVELS and not is_small else 0,
                constant=False,
            )
            for column in self.columns
        )
        facts = {
            name: text for name, text in self.facts.items() if Note[name] not in _COUNTED and not is_small
        }
        rows, held_out = min(self.rows, 1), min(self.held_out, 1)
        some = replace(self, rows=rows, held_out=held_out, labels=None, levels={}, is_small=is_small)
        return replace(some, columns=columns, facts=facts)


@final
@dataclass(frozen=True)
class MergeRules:
    """What the user said about columns, which all sites know.

    Columns are put into one order if they are ``ordered`` by name; else they must be in one order. With
    ``own_labels`` each site has written its labels itself, maybe in another way than the others.
    """

    drop: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    features: int | None = None
    ordered: bool = False
    own_labels: bool = False


@final
@dataclass(frozen=True)
class Schema:
    """What all sites have agreed on.

    ``columns`` are the names in the order of agent 0, or None. ``levels`` are those of each category, by the
    place of its column. ``labels`` are the classes in increasing order; None for a model of numbers.
    ``others`` has the places of categories with a level "other", and whether a missing value is that.
    ``left_out`` are the places of columns about too few people.
    """

    sites: Mapping[int, SiteSchema]
    width: int
    columns: tuple[str, ...] | None
    levels: Mapping[int, tuple[str, ...]]
    labels: tuple[Label, ...] | None
    notes: tuple[str, ...]
    floors: Floors | None = None
    others: Mapping[int, bool] = field(default_factory=dict)
    left_out: frozenset[int] = frozenset()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns, or their numbers from 1."""
        return self.columns or tuple(map(str, range(1, self.width + 1)))

    @property
    def held_out(self) -> int:
        """The number of rows that all sites hold out."""
        return sum(site.held_out for site in self.sites.values())

    def noted(self, facts: Mapping[int, str], note: Note | None = None) -> list[str]:
        """Return a note on the sites that have a text, if there are any."""
        end = "" if note is None else note.value
        return [f"{_listed(self.sites, facts)}{end}."] if facts else []

    def local_notes(self, local: Mapping[int, SiteSchema]) -> list[str]:
        """Return notes with counts on the sites of this process, which with floors no other is told."""
        if self.floors is None:
            return []
        odd = {note: {i: site.facts.get(note.name, "") for i, site in local.items()} for note in _COUNTED}
        facts = {note: {i: text for i, text in texts.items() if text} for note, texts in odd.items()}
        return [text for note in _COUNTED for text in self.noted(facts[note], note)]


def agree(
    network: Reductions,
    schemas: Mapping[int, SiteSchema],
    rules: MergeRules,
    cells: Mapping[int, SiteCells] | None = None,
) -> Schema:
    """Return what all sites agree on, by one union over the network; with floors also by counts of people.

    >>> import networkx as nx
    >>> own = {i: SiteSchema(f"site {i}", rows=5, width=2, labels=('"no"', '"yes"')) for i in range(3)}
    >>> agree(Reductions(nx.path_graph(3)), own, MergeRules()).labels
    ('no', 'yes')
    """
    (schema,) = network.run(agree_steps(schemas, rules, cells))
    return schema


def agree_steps(
    schemas: Mapping[int, SiteSchema], rules: MergeRules, cells: Mapping[int, SiteCells] | None = None
) -> Steps[Schema]:
    """Find what all sites agree on, by a union that other programs may share.

    With floors the union has no labels and levels; ``cells`` are what people are counted by for these.
    """
    shown = {i: schema if schema.floors is None else schema.structure() for i, schema in schemas.items()}
    texts = {i: packed(i, schema) for i, schema in shown.items()}
    union = yield Request("schemas: columns, types, levels, labels and options", texts, "union")
    schema = merge(*unpacked(union), rules)
    if schema.floors is None or cells is None:
        return schema
    names = {i: site.name for i, site in schema.sites.items()}
    categories = [schema.names[k] for k in schema.levels]
    told = yield from told_cells(cells, categories, names, schema.floors)
    return _with_told(schema, told, rules, any(site.labels is not None for site in schemas.values()))


def _with_told(schema: Schema, told: Told, rules: MergeRules, of_classes: bool) -> Schema:
    """Return the schema with the classes and levels that are above the floors."""
    labels, notes = schema.labels, list(schema.notes)
    if of_classes:
        sites = {i: replace(site, labels=told.labels) for i, site in schema.sites.items()}
        labels, more = merge_labels(sites, rules.own_labels)
        notes += more
    merged = list(told.others)
    if merged:
        assert schema.floors is not None
        notes.append(
            f"levels of {listed(merged)} with fewer than {schema.floors.min_count} people, or at fewer than "
            f"{schema.floors.min_sites} sites, are one level, 'other'."
        )
    places = {name: k for k, name in enumerate(schema.names)}
    levels = {places[name]: some for name, some in told.levels.items()}
    others = {places[name]: missing for name, missing in told.others.items()}
    return replace(schema, labels=labels, levels=levels, others=others, notes=tuple(notes))


def packed(agent: int, schema: SiteSchema) -> list[str]:
    """Return a schema as texts; those that are equal at several sites are in their union once."""
    plain: dict[str, Any] = to_plain(replace(schema, levels={}))
    blank = to_plain(SiteSchema(""))
    plain = {name: value for name, value in plain.items() if value != blank[name]}  # most are as in a blank
    parts = {name: json.dumps(plain[name]) for name in _SHARED if name in plain}
    digests = {name: blake2b(part.encode(), digest_size=8).hexdigest() for name, part in parts.items()}
    levels = [["level", name, level] for name, some in schema.levels.items() for level in some]
    shared = [["part", digests[name], part] for name, part in parts.items()]
    site = ["site", agent, {"version": __version__, "schema": plain | digests}]
    return [json.dumps(entry) for entry in (site, *shared, *levels)]


def unpacked(texts: Iterable[str]) -> tuple[dict[int, SiteSchema], dict[str, tuple[str, ...]]]:
    """Return the schemas of all agents, and the levels of each category, from the union of their texts."""
    entries = [json.loads(text) for text in texts]
    parts = {digest: json.loads(part) for kind, digest, part in entries if kind == "part"}
    given = {agent: site for kind, agent, site in entries if kind == "site"}
    check_options({f"agent {i}": {"the version of dcgs": given[i]["version"]} for i in sorted(given)})
    sites = {}
    for i in sorted(given):
        plain = given[i]["schema"]
        known = {name: parts[plain[name]] for name in _SHARED if name in plain}
        sites[i] = from_plain(SiteSchema, plain | known, lenient=True)
    levels: dict[str, list[str]] = {}
    for kind, column, level in entries:
        if kind == "level":
            levels.setdefault(column, []).append(level)
    return sites, {column: tuple(sorted(some)) for column, some in levels.items()}


def merge(sites: Mapping[int, SiteSchema], levels: Mapping[str, Sequence[str]], rules: MergeRules) -> Schema:
    """Return what the schemas of all sites have in common; raise if something differs that must not."""
    check_options({site.short_name: site.options for site in sites.values()})
    for site in sites.values():
        if site.error is not None:
            raise SitesError(f"{site.short_name} failed: {site.error}")
    empty = [site.name for site in sites.values() if site.rows == 0]
    if empty:
        problem = f"every site must have rows; there are none at {', '.join(empty)}."
        raise SitesError(problem, Remedy.LEAVE_OUT_SITE)
    floors = _floors(sites)
    if floors is not None:
        refuse_small([site.name for site in sites.values() if site.is_small], floors)
    columns = merge_columns(sites, rules)
    width = merge_width(sites, rules) if columns is None else len(columns)
    names = columns or tuple(map(str, range(1, width + 1)))
    chosen = [_place(name, names) for name in rules.categorical]
    words = merge_types(sites, names, chosen)
    labels, notes = merge_labels(sites, rules.own_labels)
    for note in Note:
        facts = {i: site.facts[note.name] for i, site in sites.items() if note.name in site.facts}
        notes += [f"{_listed(sites, facts)}{note.value}."] if facts else []
    places = {k: tuple(levels.get(names[k], ())) for k in range(width) if k in words or k in chosen}
    return Schema(sites, width, columns, places, labels, tuple(notes), floors)


def _floors(sites: Mapping[int, SiteSchema]) -> Floors | None:
    """Return the floors of all sites: the strictest; None if no site has any."""
    given = [site.floors for site in sites.values() if site.floors is not None]
    if not given:
        return None
    check_options({s.name: {"floors": NOT_GIVEN if s.floors is None else "given"} for s in sites.values()})
    floors = reduce(Floors.stricter, given)
    check_sites(len(sites), floors)
    return floors


def check_options(options: Mapping[str, Mapping[str, str]]) -> None:
    """Raise if options differ that must be the same at all sites; name each with its values and sites.

    >>> check_options({"ulm": {"--missing": "'mean'"}, "graz": {"--missing": "'drop'"}})
    Traceback (most recent call last):
    dcgs.learn.sites.SitesError: all sites must be given the same options; --missing is 'mean' at ulm, and
    'drop' at graz. Give the same at all sites.
    """
    differences = []
    for name in dict.fromkeys(name for given in options.values() for name in given):
        owners: dict[str, list[str]] = {}
        for site, given in options.items():
            owners.setdefault(given.get(name, NOT_GIVEN), []).append(site)
        if len(owners) > 1:
            values = ", and ".join(f"{value} at {in_words(who)}" for value, who in owners.items())
            differences.append(f"{name} is {values}")
    if differences:
        problem = f"all sites must be given the same options; {'; '.join(differences)}."
        raise SitesError(problem, Remedy.SAME_OPTIONS)


def merge_columns(sites: Mapping[int, SiteSchema], rules: MergeRules) -> tuple[str, ...] | None:
    """Return the names of the columns in the order of agent 0; None if there are none."""
    lacking = [set(site.lacking) for site in sites.values()]
    nowhere = [name for name in rules.drop if all(name in lacks for lacks in lacking)]
    names = {i: tuple(column.name for column in site.columns) for i, site in sites.items()}
    first = next(iter(names.values()))
    if nowhere:
        raise SitesError(
            f"some site must have each column of --drop; none has {listed(nowhere)}, and the columns are "
            f"{listed(first)}.",
            Remedy.CORRECT_NAME,
        )
    if len({site.has_names for site in sites.values()}) > 1:
        has = {i: "names" if site.has_names else "no names" for i, site in sites.items()}
        problem = f"the data of all sites must have names of columns, or none; {_listed(sites, has)}."
        raise SitesError(problem, Remedy.SAME_NAMES)
    if not next(iter(sites.values())).has_names:
        return None
    every = dict.fromkeys(name for local in names.values() for name in local)
    missing = {i: [name for name in every if name not in local] for i, local in names.items()}
    lack = {i: f"no column {listed(sorted(some))}" for i, some in missing.items() if some}
    if lack:
        problem = f"all sites must have the same columns; {_listed(sites, lack)}."
        raise SitesError(problem, Remedy.SAME_COLUMNS)
    differ = {i: _differences(local, first) for i, local in names.items() if local != first}
    if differ and not rules.ordered:
        problem = f"all sites must have the same columns in the same order; {_listed(sites, differ)}."
        raise SitesError(problem, Remedy.SAME_ORDER)
    return first


def merge_width(sites: Mapping[int, SiteSchema], rules: MergeRules) -> int:
    """Return the number of columns without names; only LIBSVM text may have fewer."""
    width = max(site.width for site in sites.values()) if rules.features is None else rules.features
    wrong = {
        i: f"{site.width}"
        for i, site in sites.items()
        if site.width != width and not (site.is_open and site.width < width)
    }
    if wrong:
        raise SitesError(
            f"all sites must have the same features; {_listed(sites, wrong)}, and {width} are asked for or "
            "another site has them."
        )
    return width


def merge_types(sites: Mapping[int, SiteSchema], names: Sequence[str], chosen: Sequence[int]) -> list[int]:
    """Return which columns are of words; raise if one is of words and numbers, or empty, and not chosen."""
    tables = {i: {column.name: column for column in site.columns} for i, site in sites.items()}
    if not all(tables.values()):
        return []
    words = []
    for k, name in enumerate(names):
        columns = {i: table[name] for i, table in tables.items()}
        has_words = any(column.word is not None for column in columns.values())
        has_numbers = any(column.number is not None for column in columns.values())
        if has_words and has_numbers and k not in chosen:
            facts = {
                i: " and ".join(filter(None, (column.word, column.number)))
                for i, column in columns.items()
                if column.word is not None or column.number is not None
            }
            problem = f"column {name!r} must be of numbers or of words; {_listed(sites, facts)}."
            raise SitesError(problem, Remedy.CORRECT_COLUMN, name)
        if not has_words and not has_numbers:
            problem = f"column {name!r} must have a value at some site; it is empty at all of them."
            raise SitesError(problem, Remedy.LEAVE_OUT_COLUMN, name)
        words += [k] if has_words else []
    many = {
        i: listed([f"{names[k]} with {table[names[k]].levels} levels" for k in some])
        for i, table in tables.items()
        if (some := [k for k in words if k not in chosen and table[names[k]].levels > MOST_LEVELS])
    }
    if many:
        most = f"a column of words must have at most {MOST_LEVELS} levels at each site"
        raise SitesError(f"{most}; {_listed(sites, many)}.", Remedy.NO_CATEGORY)
    return words


def merge_labels(
    sites: Mapping[int, SiteSchema], own_labels: bool
) -> tuple[tuple[Label, ...] | None, list[str]]:
    """Return the labels of all sites in increasing order, and notes; None if targets are numbers."""
    labels = {i: [json.loads(text) for text in site.labels or ()] for i, site in sites.items()}
    if all(site.labels is None for site in sites.values()):
        return None, []
    distinct = {label for some in labels.values() for label in some}
    is_mixed = len({isinstance(label, str) for label in distinct}) > 1
    every = sorted(distinct, key=label_text) if is_mixed else sorted(distinct)
    if len(every) == 1:
        raise SitesError(f"there must be two classes; all rows are of one class, {label_text(every[0])}.")
    alike = _alike([label for label in every if isinstance(label, str)])
    numbers = [label for label in every if not isinstance(label, str) or _is_number(label)]
    is_mixed = is_mixed or (len(every) > 2 and 0 < len(numbers) < len(every))
    is_apart = own_labels and len(every) > 2 and any(_is_apart(i, labels) for i in labels)
    if is_mixed or is_apart or (alike and len(every) > 2):
        shown = {i: [label for label in some if not alike or label in alike] for i, some in labels.items()}
        facts = {i: listed(list(map(label_text, some))) for i, some in shown.items() if some}
        raise SitesError(
            f"labels must be of the same classes, written the same at all sites; {_listed(sites, facts)}.",
            Remedy.SAME_LABELS,
        )
    lacking = {i: [label_text(label) for label in every if label not in some] for i, some in labels.items()}
    without = {i: f"no rows of class {listed(some)}" for i, some in lacking.items() if some}
    if len(every) == 2:
        without = {i: f"only rows of class {label_text(labels[i][0])!r}" for i in without}
    return tuple(every), [f"{_listed(sites, without)}."] if without else []


def _listed(sites: Mapping[int, SiteSchema], facts: Mapping[int, str]) -> str:
    """Return what sites have, by their names."""
    return listed_facts({sites[i].name: text for i, text in sorted(facts.items())})


def listed_facts(facts: Mapping[str, str]) -> str:
    """Return what sites have; those that have the same are named together.

    >>> listed_facts({"agent 0": "one row", "agent 1": "no column 'b'", "agent 2": "no column 'b'"})
    "agent 0 has one row; agents 1 and 2 have no column 'b'"
    """
    sentences = []
    for fact in dict.fromkeys(list(facts.values())[:_MOST_NAMED]):
        names = [name for name, other in facts.items() if other == fact]
        more = [f"{len(names) - _MOST_NAMED} sites more"] if len(names) > _MOST_NAMED else []
        named = in_words([*names[:_MOST_NAMED], *more])
        sentences.append(f"{named} {'has' if len(names) == 1 else 'have'} {fact}")
    others = sum(fact not in list(facts.values())[:_MOST_NAMED] for fact in facts.values())
    return "; ".join([*sentences, *([f"and {others} sites more"] if others else [])])


def _differences(names: Sequence[str], first: Sequence[str]) -> str:
    """Return which columns are in other places than at the first site."""
    pairs = [(a, b) for a, b in zip(names, first, strict=True) if a != b]
    here, there = (listed(some) for some in zip(*pairs, strict=True))
    return f"{here} where the first site has {there}"


def _place(name: str, names: Sequence[str]) -> int:
    """Return the place of a column that the user calls a category, by its name or number."""
    if name in names:
        return names.index(name)
    if name.isdecimal() and 1 <= int(name) <= len(names):
        return int(name) - 1
    raise SitesError(
        f"--categorical must name a column of features; got {name!r}, and the columns are {listed(names)}."
    )


def _is_apart(i: int, labels: Mapping[int, Sequence[Label]]) -> bool:
    """Return True if a site has several labels, none of which another site has."""
    others = {label for j, some in labels.items() if j != i for label in some}
    return len(labels[i]) > 1 and bool(others) and not others.intersection(labels[i])


def _is_number(text: str) -> bool:
    """Return True if a text is a number as :func:`label_text` writes it; ``1_0`` and ``007`` are not."""
    try:
        return math.isfinite(float(text)) and label_text(float(text)) == text
    except ValueError:
        return False


def _alike(texts: Sequence[str]) -> set[str]:
    """Return the texts that differ from another one in capital letters and blanks only."""
    by_letters: dict[str, list[str]] = {}
    for text in texts:
        by_letters.setdefault("".join(text.casefold().split()), []).append(text)
    return {text for same in by_letters.values() if len(same) > 1 for text in same}
