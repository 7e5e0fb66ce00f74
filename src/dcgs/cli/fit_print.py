"""What ``dcgs fit`` prints at its end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from dcgs.cli.tables import screen_table
from dcgs.learn.files.describe import reading_lines, summary_of
from dcgs.learn.files.fit import FileFit
from dcgs.learn.files.folder import REPORT
from dcgs.learn.linear.scores import warning
from dcgs.learn.summary import agents_table, classes_table, path_table, scores_table
from dcgs.report.numbers import size

_PRINTED_AGENTS = 20


def print_fit(fit: FileFit, described: Mapping[str, Any], out: Path, page: bool, console: Console) -> None:
    """Print why the run ended, what it cost, how good the models are, and where they are."""
    say, summary = partial(console.print, soft_wrap=True), summary_of(fit, described)
    say(summary.status)
    if summary.classes:
        console.print(screen_table(classes_table(summary)))
    console.print(screen_table(agents_table(summary, fit.config.method.projects), _PRINTED_AGENTS))
    if summary.count > _PRINTED_AGENTS:
        say(f"and {summary.count - _PRINTED_AGENTS} agents more, in summary.json")
    say(f"{summary.rounds} rounds, {size(summary.bytes)} in all, {described['seconds']:.2f} s")
    rounds, sent = sum(entry.rounds for entry in summary.sent), sum(entry.bytes for entry in summary.sent)
    beside = f"{rounds} rounds and {size(sent)}"
    say(f"beside the run {beside}, for what the agents agree on: summary.json lists it")
    if described.get("checkpoint", {}).get("resumed"):
        say(f"resumed after iteration {described['checkpoint']['resumed']}")
    for line in (*reading_lines(fit), *_measures(described.get("measures", {}))):
        say(line)
    what = "rows" if fit.prepared is not None else "ratings"
    for label, path in fit.paths.items():
        console.print(screen_table(path_table(summary.all_paths[label], label, what)))
        say(str(path))
    if summary.scores is not None and fit.scores is not None:
        console.print(screen_table(scores_table(summary.scores), _PRINTED_AGENTS))
        worse = warning(dict(fit.scores.everyone.scores), summary.balanced)
        if worse:
            say(f"warning: {worse}")
    for note in described["notes"]:
        say(note)
    if fit.notes:
        say(f"notes: {len(fit.notes)}, above and in summary.json")
    written = [f"{out}/agent-000.npz{' …' if summary.count > 1 else ''}", "summary.json"]
    say(f"written: {', '.join(written + [REPORT] * page)}")


def _measures(measures: Mapping[str, Any]) -> Iterator[str]:
    """Yield the last measures; those of several classes with their label."""
    for name, value in measures.items():
        if isinstance(value, Mapping):
            yield f"{name}: " + ", ".join(f"{measure} {number:.6g}" for measure, number in value.items())
        else:
            yield f"{name} {value:.6g}"
