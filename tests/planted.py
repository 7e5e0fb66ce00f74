"""Planted patients and ratings, and curious neighbors who look for them: ``python tests/planted.py 200``.

Each case has four made-up sites. In the last one a patient is planted: the only one who died there, the only
one with a level, the only row of the site, or one with a value far outside. Or twelve at all sites have a
level, of whom some are alone in a part of the rows that is held out to find the radius. A case of ratings has
a shop of two customers, or a customer who alone has rated some items. Attackers read what the planted site
sends and what the root sends, in an open fit and in one as it is by default. A line for each kind has how
many are found.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import dcgs
from attackers import Sites, class_sums, column_rows, fold_differences, level_rows, ratings
from fit_runs import alone
from secure_runs import chi_square

PATIENTS = ("single death", "single level", "one row", "outlier", "twelve of a level")
OPEN, DEFAULT = "--open", ""
_FIT = "--graph star --no-report --held-out 0 --force"


def hospitals(folder: Path, kind: str, rng: Any) -> tuple[list[pd.DataFrame], int]:
    """Write four hospitals; return them and the row of the planted patient of the last."""
    tables = []
    for site, n in enumerate((90, 80, 70, 1 if kind == "one row" else 60)):
        table = pd.DataFrame(
            {
                "age": rng.normal(60, 12, n).round(),
                "creatinine": rng.gamma(8, 0.15, n).round(2),
                "hb": rng.normal(13, 1.5, n).round(1),
                "crp": rng.gamma(1, 20, n).round(1),
                "ward": rng.choice(["surgery", "medicine"], n),
                "ill": rng.choice(["no", "yes"], n, p=[0.7, 0.3]),
            }
        )
        row = int(rng.integers(n))
        if site == 3 and kind == "single death":
            table["ill"] = "no"
            table.loc[row, "ill"] = "yes"
        if site == 3 and kind == "single level":
            table.loc[row, "ward"] = "isolation"
        if kind == "twelve of a level":
            table.loc[table.index[:3], "ward"] = "isolation"
        if site == 3 and kind == "outlier":
            table.loc[row, "crp"] = 1e7
        table.to_csv(folder / f"h-{site}.csv", index=False)
        tables.append(table)
    return tables, row


def fitted(folder: Path, command: str) -> tuple[list[Any], bool]:
    """Return the messages of a fit, and whether it was refused."""
    record, printed = folder / "messages.npz", io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        try:
            refused = alone(f"{command} {_FIT} --out {folder}/m --record-messages {record}") != 0
        except SystemExit:
            refused = True
    assert not refused or "must" in printed.getvalue(), printed.getvalue()
    return list(dcgs.recorded_messages(record)), refused


def patient(folder: Path, kind: str, seed: int, mode: str) -> tuple[bool, bool, list[Any]]:
    """Return whether attackers find the planted patient and nobody else, whether the fit was refused, and
    the messages. Of twelve with a level, those that are alone in a part of the rows are to be found."""
    tables, row = hospitals(folder, kind, np.random.default_rng(seed))
    radius = "auto" if kind == "twelve of a level" else 3
    command = f"fit logistic --data {folder}/h-{{agent}}.csv --target ill --radius {radius}"
    messages, refused = fitted(folder, f"{command} --method-option form=newton {mode}")
    features = ["age", "creatinine", "hb", "crp", "ward=medicine", "ward=surgery"]
    if (folder / "m" / "agent-000.npz").exists() and not refused:
        meta = json.loads(str(np.load(folder / "m" / "agent-000.npz")["meta"]))
        features = [
            f"{column['name']}={level}" if column.get("levels") else column["name"]
            for column in meta["reading"]["columns"]
            for level in column.get("levels") or [""]
        ]
    sites = Sites.of(features, tables, "ill")
    if kind == "twelve of a level":
        everyone = pd.concat(tables, ignore_index=True)
        names = set(fold_differences(messages, 1, everyone[list(sites.numeric)], "ward=isolation", sites))
        return bool(names) and names <= {*everyone.index[everyone["ward"] == "isolation"]}, refused, messages
    candidates = tables[3][list(sites.numeric)]
    found: set[int] = set()
    for sender in (3, 0):
        found |= set(class_sums(messages, sender, candidates))
        if "ward=isolation" in features:
            found |= set(level_rows(messages, sender, candidates, "ward=isolation", sites))
        if kind == "outlier":
            found |= set(column_rows(messages, sender, candidates, "crp", sites))
    return found == {row}, refused, messages


def shop(folder: Path, kind: str, seed: int, mode: str) -> tuple[int, int]:
    """Return how many of the planted ratings attackers find, and how many there are."""
    rng, planted = np.random.default_rng(seed), dict[int, int]()
    total = list[int]()
    for site in range(4):
        lines = ["user,item,rating"]
        users = 2 if kind == "a shop of 20" and site == 3 else 30
        for user in range(users):
            items = range(user * 10, user * 10 + 10) if users == 2 else rng.choice(60, 12, replace=False)
            own = {item: int(rng.integers(1, 6)) for item in items}
            if users == 2:
                planted |= own
            lines += [f"u{user},{item:03d},{rating}" for item, rating in own.items()]
            total += own.values()
        if kind == "items of one rater" and site == 3:
            own = {60 + item: int(rng.integers(1, 6)) for item in range(4)}
            planted |= own
            lines += [f"rare,{item:03d},{rating}" for item, rating in own.items()]
            total += own.values()
        (folder / f"s-{site}.csv").write_text("\n".join(lines) + "\n")
    command = f"fit completion --data {folder}/s-{{agent}}.csv --radius 5 --ridge 5 --iterations 3"
    messages, _ = fitted(folder, f"{command} {mode}")
    found: dict[int, int] = {}
    for sender in (3, 0):
        found |= ratings(messages, sender, float(np.mean(total)), 5.0)
    return sum(found.get(item) == rating for item, rating in planted.items()), len(planted)


def main(count: int) -> None:
    """Print how many of so many patients, and of so many ratings, are found."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        print("| planted | how many | found, open | found, by default | fits refused by default |")
        print("| --- | ---: | ---: | ---: | ---: |")
        words = []
        for kind in PATIENTS:
            seeds = range(count // len(PATIENTS))
            in_open = sum(patient(folder, kind, seed, OPEN)[0] for seed in seeds)
            hidden = [patient(folder, kind, seed, DEFAULT) for seed in seeds]
            words += [
                array.tobytes()
                for *_, messages in hidden
                for message in messages
                if message.sender == 3
                for array in message.arrays
                if array.dtype == np.uint64
            ]
            found, refused = sum(entry[0] for entry in hidden), sum(entry[1] for entry in hidden)
            print(f"| {kind} | {len(seeds)} | {in_open} | {found} | {refused} |", flush=True)
        for kind, size in (("a shop of 20", 20), ("items of one rater", 4)):
            cases = range(count * (4 if size == 20 else 1) // 5 // size)
            both = [[shop(folder, kind, seed, mode) for seed in cases] for mode in (OPEN, DEFAULT)]
            in_open, hidden_count = (sum(found for found, _ in of) for of in both)
            print(
                f"| ratings: {kind} | {sum(n for _, n in both[0])} | {in_open} | {hidden_count} | |",
                flush=True,
            )
        content = b"".join(words)
        print(f"\nchi-square of {len(content):,} masked bytes, 255 degrees: {chi_square(content):.0f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
