"""Private fits of files: all that other fits compute from rows is given, and noisy sums alone leave a site.

A table of bounds has a line for each column: ``column,low,high`` for one of numbers, and ``levels``,
separated by ``|``, for a category and for the labels of the target, of which the first is −1. A value outside
its bounds is moved onto them. A missing value, a word among numbers and a level that is not given count as
the middle between the bounds, and a row without a target that is given is left out: each row is prepared by
itself. So a decimal mark is not found from a file: it is the point, unless it is given. A file that cannot be
read ends the fit, of which others learn.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, final

import numpy as np

from dcgs import __version__
from dcgs.checkpoints.fingerprint import library_versions
from dcgs.learn.encoding import EncodedColumn, Encoding
from dcgs.learn.files.fit import FitConfig, Watch
from dcgs.learn.files.folder import model_name
from dcgs.learn.files.layout import SamplesLayout
from dcgs.learn.files.model import Model, Reading
from dcgs.learn.files.readers import kind_of
from dcgs.learn.files.rows import ERRORS, TABLES, read_files, told_here
from dcgs.learn.files.tables import Table
from dcgs.learn.linear.classes import class_numbers
from dcgs.learn.private import ENOUGH, Bounds, PrivacyBudget, PrivateFit, PrivateSpec, fit_private
from dcgs.learn.schema import check_options
from dcgs.learn.sites import Rows, Sites
from dcgs.learn.sums import Reductions, Sent
from dcgs.runtime import Runtime, agreed
from dcgs.runtime.ledger import Entry
from dcgs.validation import Label, label_text, listed

_HEADER = ["column", "low", "high", "levels"]
STATUS = "noisy sums were taken as often as was paid for; no gap is certified."


@final
@dataclass(frozen=True)
class PrivateOptions:
    """What the user said about a private fit; ``most`` is the ε of all private fits of the same data."""

    epsilon: float
    delta: float
    bounds: Path
    radius: float
    most: float | None = None
    colluders: int = 1
    trusts_root: bool = False


@final
@dataclass(frozen=True, eq=False)
class Given:
    """What is known without a look at the data: columns and their bounds, and the labels of the target."""

    encoding: Encoding
    bounds: Bounds
    labels: tuple[Label, ...]

    @classmethod
    def read(cls, path: Path, target: str, of_classes: bool) -> Given:
        """Return what a table of bounds says; raise if a column lacks bounds."""
        with path.open(newline="", encoding="utf-8") as file:
            table = csv.DictReader(file)
            lines = {str(line.get("column", "")).strip(): line for line in table}
        if not set(_HEADER[:1]) <= set(table.fieldnames or ()) <= set(_HEADER):
            first = ",".join(table.fieldnames or ())
            raise ValueError(f"{path} must have a first line {','.join(_HEADER)}; it has {first}.")
        if target not in lines:
            raise ValueError(
                f"{path} must have a line for the target {target!r}: its levels for classes, its bounds for "
                f"numbers; it has lines for {listed(list(lines))}."
            )
        own = lines.pop(target)
        labels = tuple(map(_label, _levels(own))) if of_classes else ()
        if of_classes and len(set(labels)) != 2:
            raise ValueError(
                f"a private fit must be of two classes, which {path} names as levels of {target!r}, such as "
                f"no|yes; it has {listed(list(map(label_text, labels)))}."
            )
        columns, low, high = [], list[float](), list[float]()
        for name, line in lines.items():
            levels = _levels(line)
            ends = [(0.0, 1.0)] * len(levels) if levels else [_ends(path, name, line)]
            low += [a for a, _ in ends]
            high += [b for _, b in ends]
            fill = tuple(0.5 * (a + b) for a, b in ends)
            columns.append(EncodedColumn(name, fill, tuple(levels) or None))
        if not columns:
            raise ValueError(f"{path} must have a line for each column of the model; it has none.")
        bounds = Bounds(np.array(low), np.array(high), None if of_classes else _ends(path, target, own))
        return cls(Encoding(tuple(columns)), bounds, labels)

    def odd(self, table: Table, name: str) -> list[str]:
        """Return a note on columns most of whose values are not as the bounds say; raise if none is."""
        shares = [self._share(table, place) for place in range(len(self.encoding.columns))]
        names = [column.name for column in self.encoding.columns]
        none = [name for name, share in zip(names, shares, strict=True) if share == 0.0]
        if none:
            raise ValueError(
                f"columns must have numbers, or levels that are given; {listed(none)} of {table.file} "
                f"{'has' if len(none) == 1 else 'have'} none. See --decimal, and the levels in the bounds."
            )
        odd = [name for name, share in zip(names, shares, strict=True) if share < 0.5]
        what = "are no numbers, or no levels that are given, and count as the middle of the bounds"
        return [f"{name}: most values of {listed(odd)} {what}."] * bool(odd)

    def _share(self, table: Table, place: int) -> float:
        column, levels = table.columns[place], self.encoding.columns[place].levels
        if levels is None:
            return float(np.mean(np.isfinite(column.numbers)))
        return sum(text in levels for text in column.texts) / len(table)

    def rows(self, table: Table) -> Rows:
        """Return the rows whose target is known, as numbers; targets of classes are −1 and 1."""
        assert table.target is not None
        if self.labels:
            classes, texts = list(map(label_text, self.labels)), table.target.texts
            known = np.array([text in classes for text in texts], dtype=np.bool_)
            chosen = [text for text in texts if text in classes]
            targets = 2.0 * class_numbers(chosen, classes) - 1.0
        else:
            known = np.isfinite(table.target.numbers)
            targets = table.target.numbers[known]
        rest = table.take(np.flatnonzero(known))
        return Rows(self.encoding.filled(self.encoding.matrix(rest)), targets)


def _levels(line: Mapping[str, Any]) -> list[str]:
    return [text.strip() for text in (line.get("levels") or "").split("|") if text.strip()]


def _label(text: str) -> Label:
    try:
        return float(text)
    except ValueError:
        return text


def _ends(path: Path, name: str, line: Mapping[str, Any]) -> tuple[float, float]:
    try:
        return float(line.get("low") or "none"), float(line.get("high") or "none")
    except ValueError as error:
        raise ValueError(
            f"{path} must have a number as low and as high of {name!r}, or its levels; it has "
            f"{line.get('low')!r} and {line.get('high')!r}."
        ) from error


@final
@dataclass(frozen=True, eq=False)
class PrivateFileFit:
    """A private fit of files: the model, and what was promised and spent, by the file of a budget."""

    config: FitConfig
    options: PrivateOptions
    given: Given
    fit: PrivateFit
    reading: Reading
    sent: tuple[Sent, ...]
    spent: Mapping[str, float]
    hosts: tuple[int, ...]
    ledger: tuple[Entry, ...] = ()


def fit_private_files(
    config: FitConfig, options: PrivateOptions, runtime: Runtime, watch: Watch | None = None
) -> PrivateFileFit:
    """Read the tables of the agents of this process, pay for the fit, and find a model of those of all."""
    watch, group = watch or Watch(), runtime.group()
    agents = config.count_agents(group.size)
    hosts = runtime.hosts(agents)
    own = runtime.separate_sites or (group.size > 1 and not config.source.is_numbered)
    config = replace(config, source=replace(config.source, own=own), agents=agents).decided(agents)
    shared = {**config.options, "--agents": str(agents), "the version of dcgs": __version__}
    texts = group.allgather_texts([json.dumps(shared)])
    with group.common_errors():
        check_options({f"process {rank}": json.loads(text) for rank, text in enumerate(texts)})
    spec, given, layout = agreed(group, lambda: _specified(config, options))
    spec.check_agents(agents)
    watch.note(_cost(spec, agents))
    graph = config.graph.build(agents)
    network = Reductions(graph.graph, runtime, named=watch.named, secure=True)
    if options.trusts_root:
        watch.note(f"agent {network.root} reads totals without noise: the promise holds against all others.")
    names = dict(zip(hosts, config.source.local_names(hosts, agents), strict=True))
    tables, odd = agreed(group, lambda: _tables(config, layout, given, names, alone=group.size == 1))
    rows = {i: given.rows(table) for i, table in tables.items()}
    watch.noted_here(odd)
    watch.note(_estimate(sum(map(len, rows.values())) * agents / len(rows), spec, agents))
    budgets = [
        PrivacyBudget.at(Path(f"{file}.budget.json"), options.epsilon, options.delta, options.most)
        for file in dict.fromkeys(config.source.file(i) for i in hosts)
    ]
    agreed(group, lambda: [budget.check(spec.rho) for budget in budgets])
    name = f"{config.problem.name} of {layout.target}, {datetime.now(UTC).isoformat(timespec='seconds')}"
    spent = agreed(group, lambda: {str(item.path): item.spend(spec.rho, name) for item in budgets})
    fit = fit_private(Sites(network, rows, names), spec)
    first = next(iter(tables.values()))
    reading = Reading(first.names, first.target_name, first.target_at, given.encoding.columns, given.labels)
    sent = network.sent_by_all()
    return PrivateFileFit(config, options, given, fit, reading, sent, spent, tuple(hosts))


def _specified(config: FitConfig, options: PrivateOptions) -> tuple[PrivateSpec, Given, SamplesLayout]:
    layout = config.layout
    assert isinstance(layout, SamplesLayout)
    if layout.target is None or layout.target_file is not None:
        raise ValueError("a private fit must have --target, a column of the table by its name.")
    given = Given.read(options.bounds, layout.target, config.problem.labels)
    columns = tuple(column.name for column in given.encoding.columns)
    spec = PrivateSpec(
        "logistic" if config.problem.labels else "squared",
        options.radius,
        given.bounds,
        options.epsilon,
        options.delta,
        colluders=options.colluders,
        trusted="root" if options.trusts_root else "nobody",
    )
    text = replace(layout.text, decimal=layout.text.decimal or ".")
    return spec, given, replace(layout, use=columns, text=text)


def _tables(
    config: FitConfig, layout: SamplesLayout, given: Given, names: Mapping[int, str], alone: bool
) -> tuple[dict[int, Table], list[str]]:
    """Return the tables, and notes; with several processes an error says nothing of a file to the others."""
    hosts = list(names)
    try:
        if kind_of(config.source.file(hosts[0])) not in TABLES:
            raise ValueError("a private fit must be of tables with names, as CSV or Parquet.")
        assert config.agents is not None
        tables = read_files(config.source, layout, config.agents, hosts)
        return tables, [note for i, table in tables.items() for note in given.odd(table, names[i])]
    except ERRORS as error:
        if alone:
            raise
        raise told_here(error, names[hosts[0]]) from None


def _cost(spec: PrivateSpec, agents: int) -> str:
    """Return what is known before a row is read of what the promise costs."""
    rows = spec.enough_rows(agents)
    return (
        f"ε = {spec.epsilon:g} and δ = {spec.delta:g} with {len(spec.bounds.low)} features of {agents} "
        f"sites: about {rows:,.0f} rows in all are needed (a signal of {ENOUGH:.0f}). With fewer, one site "
        "alone, without a promise, may have the better model."
    )


def _estimate(rows: float, spec: PrivateSpec, agents: int) -> str:
    signal = ENOUGH * rows / spec.enough_rows(agents)
    worse = ": expect a model that may be worse than that of one site alone" if signal < ENOUGH else ""
    return f"if all sites have as many rows as those here, the signal is {signal:.0f}{worse}."


def describe_private(found: PrivateFileFit, command: str) -> dict[str, Any]:
    """Return the content of summary.json."""
    config, fit, agents = found.config, found.fit, len(found.fit.agent_bytes)
    options = found.options
    return {
        "format": 1,
        "command": command,
        "problem": config.problem.name,
        "shape": [len(fit.model.coef)],
        "status": STATUS,
        "certified": False,
        "rounds": sum(entry.rounds for entry in found.sent),
        "bytes": sum(entry.bytes for entry in found.sent),
        "agents": [
            {"agent": i, "model": model_name(i), "bytes": int(sent)} for i, sent in enumerate(fit.agent_bytes)
        ],
        "data": {"target": found.reading.target, "labels": list(found.reading.labels)},
        "set": {"name": "l1", "radius": options.radius},
        "graph": {"name": config.graph.text},
        "method": "noisy vertices" if options.trusts_root else "noisy projected gradient steps",
        "versions": library_versions(),
        "sums": "masked",
        "privacy": {
            "epsilon": fit.epsilon,
            "delta": options.delta,
            "sites that may collude": options.colluders,
            "trusted": "the root" if options.trusts_root else "nobody",
            "of sites": agents,
            "noisy number of rows": fit.rows,
            "signal": fit.signal,
        },
        "intercept": True,
        "standardized": False,
        "sent": [record.to_dict() for record in found.sent],
        "ledger": [asdict(entry) for entry in found.ledger],
        "data_notes": [],
    }


def private_models(found: PrivateFileFit, summary: Mapping[str, Any]) -> dict[int, Model]:
    """Return the models of the agents of this process."""
    names = ("set", "status", "certified", "rounds", "bytes", "versions", "sent", "method", "privacy")
    about = {name: summary[name] for name in (*names, "intercept", "standardized")}
    about["agents"] = len(summary["agents"])
    model, problem = found.fit.model, found.config.problem
    return {
        i: Model(model.coef, problem, found.reading, {"agent": i} | about, model.intercept)
        for i in found.hosts
    }
