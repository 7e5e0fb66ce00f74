"""Tables with small cells of every kind: each is merged, left out, suppressed or refused.

Four sites of 40 patients, with floors of 10 people and 3 sites. Each case plants one thing. docs/privacy.md
says how each ends.
"""

from __future__ import annotations

import csv
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp

import dcgs
from dcgs.estimators import DecentralizedCompletion, DecentralizedLasso, DecentralizedLogisticRegression
from dcgs.learn.files.describe import describe, summary_of
from dcgs.learn.files.fit import FileFit, FitConfig, RowsOptions, fit_files
from dcgs.learn.files.graphs import GraphSpec
from dcgs.learn.files.layout import SamplesLayout
from dcgs.learn.files.rows import Preparation
from dcgs.learn.files.source import DataSource
from dcgs.learn.files.specs import SetSpec, method_named, problem_named
from dcgs.learn.linear.scores import warning
from dcgs.learn.schema import ColumnSchema, MergeRules, SiteSchema, agree
from dcgs.learn.sites import RunSpec, SitesError
from dcgs.learn.summary import ScoresSummary, scores_table
from dcgs.learn.sums import Reductions

Tables = list[list[dict[str, Any]]]
FLOORS = dcgs.Floors()


def tables(sites: int = 4, rows: int = 40) -> Tables:
    rng = np.random.default_rng(7)
    parts = []
    for _ in range(sites):
        age, ward, flag = rng.integers(30, 80, rows), np.arange(rows) % 3, np.arange(rows) // 3 % 2
        ill = (age + 10 * flag + rng.normal(0, 15, rows)) > 60
        columns = zip(age.tolist(), ward.tolist(), flag.tolist(), ill.tolist(), strict=True)
        parts.append(
            [
                {"age": a, "ward": "abc"[w], "flag": f, "patient": f"p{k}", "ill": "yes" if y else "no"}
                for k, (a, w, f, y) in enumerate(columns)
            ]
        )
    return parts


def put(places: Mapping[int, Sequence[int]], column: str, value: Any) -> Callable[[Tables], None]:
    """Plant a value of a column in some rows of some sites."""

    def plant(parts: Tables) -> None:
        for site, rows in places.items():
            for row in rows:
                parts[site][row][column] = value

    return plant


def all_of(column: str, value: Any) -> Callable[[Tables], None]:
    return put({site: range(40) for site in range(4)}, column, value)


def all_of_rows(rows: int, column: str, value: Any) -> Callable[[Tables], None]:
    return put({site: range(rows) for site in range(4)}, column, value)


def both(*plants: Callable[[Tables], None]) -> Callable[[Tables], None]:
    def plant(parts: Tables) -> None:
        for each in plants:
            each(parts)

    return plant


def many_classes(parts: Tables) -> None:
    for site, rows in enumerate(parts):
        for k, row in enumerate(rows):
            row["ill"] = f"c{site}{k % 5}"


def many_levels(parts: Tables) -> None:
    for site, rows in enumerate(parts):
        for k, row in enumerate(rows):
            row["ward"] = f"w{site}-{k}"


def short(site: int, rows: int) -> Callable[[Tables], None]:
    def plant(parts: Tables) -> None:
        del parts[site][rows:]

    return plant


def fit(
    folder: Path, parts: Tables, problem: str = "logistic", radius: float | str = 1.0, **options: Any
) -> FileFit:
    floors, runtime = options.pop("floors", FLOORS), options.pop("runtime", dcgs.Lockstep(threads=1))
    target, subject = options.pop("target", "ill"), options.pop("subject", None)
    held_out = options.pop("held_out", 0.0)
    for i, rows in enumerate(parts):
        with (folder / f"h-{i}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    drop = () if subject else ("patient",)
    config = FitConfig(
        problem_named(problem, {}),
        DataSource(str(folder / "h-{agent}.csv")),
        replace(SamplesLayout(target, drop=drop), subject=subject),
        GraphSpec("complete", 0),
        SetSpec("l1", {"radius": radius}),
        RunSpec({"gap": 1e-2}, method_named("fastdcgs", {})),
        rows=RowsOptions(Preparation(held_out=held_out, **options)),
        floors=floors,
    )
    return fit_files(config, runtime)


def smallest_cells(fit: FileFit) -> tuple[int, int]:
    """Return how many rows, and sites, the rarest value of all columns of two values is about."""
    assert fit.prepared is not None
    A = np.vstack([rows.A for rows in fit.prepared.fitted.values()])
    site = np.concatenate([np.full(len(rows), i) for i, rows in fit.prepared.fitted.items()])
    cells = [
        (int((column == value).sum()), len(set(site[column == value])))
        for column in A.T
        if len(set(column)) == 2
        for value in set(column)
    ]
    return min(count for count, _ in cells), min(sites for _, sites in cells)


SPREAD3, ONE = {0: range(3), 1: range(3), 2: range(3)}, {1: [5]}
TEN = {0: range(4), 1: range(3), 2: range(3)}

MERGED: dict[str, tuple[Callable[[Tables], None], list[str]]] = {
    "nothing is small": (all_of("age", 50), ["ward=a", "ward=b", "ward=c"]),
    "one patient has a level of their own": (put(ONE, "ward", "prison"), ["ward=a", "ward=b", "ward=other"]),
    "nine people have a level": (put(SPREAD3, "ward", "prison"), ["ward=a", "ward=c", "ward=other"]),
    "ten people have a level": (put(TEN, "ward", "prison"), ["ward=a", "ward=b", "ward=c", "ward=prison"]),
    "a level is at one site": (put({1: range(30)}, "ward", "d"), ["ward=a", "ward=c", "ward=other"]),
    "a level is at two sites": (
        put({1: range(9), 2: range(9)}, "ward", "d"),
        ["ward=a", "ward=c", "ward=other"],
    ),
    "rare levels are together above the floor": (
        both(*(put({k: range(4 * n, 4 * n + 4) for k in (n,)}, "ward", f"d{n}") for n in range(3))),
        ["ward=a", "ward=b", "ward=c", "ward=other"],
    ),
    "all levels are rare": (many_levels, ["ward=other"]),
    "one cell is empty": (put(ONE, "ward", ""), ["ward=a", "ward=b", "ward=other"]),
    "twelve cells are empty": (
        put(dict.fromkeys(range(3), range(4)), "ward", ""),
        ["ward=a", "ward=b", "ward=c"],
    ),
    "a level is called other": (
        both(put(dict.fromkeys(range(4), range(0, 40, 3)), "ward", "other"), put(ONE, "ward", "prison")),
        ["ward=b", "ward=c", "ward=other"],
    ),
    "a flag is set for one patient": (both(all_of("flag", 0), put(ONE, "flag", 1)), []),
    "a flag is not set for one patient": (both(all_of("flag", 1), put(ONE, "flag", 0)), []),
    "a flag is written 1 and 2": (both(all_of("flag", 1), put(ONE, "flag", 2)), []),
    "a flag is set for nine people": (both(all_of("flag", 0), put(SPREAD3, "flag", 1)), []),
    "a flag is set for ten people": (both(all_of("flag", 0), put(TEN, "flag", 1)), ["flag"]),
    "a flag is set at one site": (both(all_of("flag", 0), put({1: range(20)}, "flag", 1)), []),
    "a number is not 0 for three people": (
        both(all_of("flag", 0), *(put({k: [k]}, "flag", 0.5 + k) for k in range(3))),
        [],
    ),
    "a number is another one at each site": (
        both(all_of("flag", 0), *(put({k: range(k, 40, 2)}, "flag", k) for k in (1, 2, 3))),
        [],
    ),
    "a number has three values": (
        both(all_of("flag", 0), *(put(dict.fromkeys(range(4), range(k, 40, 3)), "flag", k) for k in (1, 2))),
        ["flag"],
    ),
}


@pytest.mark.parametrize("name", MERGED)
def test_a_column_of_the_design_is_about_ten_people_at_three_sites(name: str, tmp_path: Path) -> None:
    plant, expected = MERGED[name]
    parts = tables()
    plant(parts)
    found = fit(tmp_path, parts)
    assert found.prepared is not None
    assert found.prepared.encoded is not None
    features = found.prepared.encoded.encoding.features
    kind = "ward" if expected and expected[0].startswith("ward") else "flag"
    assert [feature for feature in features if feature.startswith(kind)] == expected
    count, sites = smallest_cells(found)
    assert count >= 10
    assert sites >= 3


REFUSED: dict[str, tuple[Callable[[Tables], None], dict[str, Any], str]] = {
    "a class of one": (
        both(all_of("ill", "no"), put(ONE, "ill", "yes")),
        {},
        "10 people .* 'no' has, .* a class with fewer",
    ),
    "a class of nine": (both(all_of("ill", "no"), put(SPREAD3, "ill", "yes")), {}, "'no' has"),
    "a class at one site": (both(all_of("ill", "no"), put({1: range(20)}, "ill", "yes")), {}, "'no' has"),
    "a third class of one": (put(ONE, "ill", "maybe"), {}, "'no', 'yes' have, and there is a class with"),
    "all classes are small": (many_classes, {}, "none has"),
    "a site with five rows": (short(2, 5), {}, r"at least 10 people .* fewer at agent 2 \("),
    "a site with one row": (short(2, 1), {}, "at least 10 people .* fewer at agent 2"),
    "two sites with few rows": (both(short(0, 3), short(2, 9)), {}, "fewer at agent 0 .*, agent 2"),
    "two sites": (lambda parts: parts.__delitem__(slice(2, None)), {}, "sums of 2 sites cannot be masked"),
    "a site of four people": (lambda parts: None, {"subject": "patient4"}, "fewer at agent 0"),
    "a rare flag that must not be left out": (
        both(all_of("flag", 0), put(ONE, "flag", 1)),
        {"floors": dcgs.Floors(rare_columns="refuse")},
        "every column must be about at least 10 people at 3 sites; 'flag' is about",
    ),
    "an outlier in the target": (
        put(ONE, "age", 10**9),
        {"problem": "lasso", "target": "age"},
        "the target must not be dominated by fewer than 10",
    ),
    "folds with few of a class": (
        both(all_of("ill", "no"), put(TEN, "ill", "yes")),
        {"radius": "auto"},
        "each part of the rows that is held out .* 10 people of each class",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_merged_is_refused_by_a_sentence(name: str, tmp_path: Path) -> None:
    plant, options, sentence = REFUSED[name]
    parts = tables()
    plant(parts)
    for rows in parts:
        for k, row in enumerate(rows):
            row |= {"patient4": f"p{k % 4}"} if "subject" in options else {}
    with pytest.raises(SitesError, match=sentence):
        fit(tmp_path, parts, **options)


def test_an_outlier_leaves_its_column_out(tmp_path: Path) -> None:
    parts = tables()
    put(ONE, "age", 10**7)(parts)
    found = fit(tmp_path, parts)
    assert "left out, since it is about fewer than 10 people, or fewer than 3 sites: 'age'." in found.notes
    assert found.prepared is not None
    assert found.prepared.encoded is not None
    assert found.fit.model.coef[found.prepared.encoded.encoding.features.index("age")] == 0.0  # type: ignore[union-attr]


def test_a_person_with_many_rows_is_one_person(tmp_path: Path) -> None:
    parts = tables()
    put({0: range(12), 1: range(12), 2: range(12)}, "ward", "d")(parts)
    put({0: range(12), 1: range(12), 2: range(12)}, "patient", "again")(parts)
    by_rows, by_people = fit(tmp_path, parts), fit(tmp_path, parts, subject="patient")
    assert by_rows.prepared is not None
    assert by_people.prepared is not None
    assert [column.levels for column in by_rows.prepared.reading.columns or ()][1] == ("a", "b", "c", "d")
    assert "other" in ([column.levels for column in by_people.prepared.reading.columns or ()][1] or ())


def test_few_rows_held_out_have_no_scores_of_all_and_a_note_says_so(tmp_path: Path) -> None:
    few, many = fit(tmp_path, tables(), held_out=0.1), fit(tmp_path, tables(), held_out=0.4)
    assert few.scores is not None
    assert few.scores.everyone.scores == {}
    assert any(note.startswith("no scores of all sites: fewer than 10 people") for note in few.notes)
    assert many.scores is not None
    assert many.scores.everyone.rows == 64
    table = scores_table(summary_of(few, describe(few)).scores or ScoresSummary(), "abcd")
    assert table.rows[0][1:3] == [4, few.scores.sites[0].scores["accuracy"].model]
    assert table.rows[4] == ["all", None, None, None, None]  # suppressed is not zero
    assert warning({}) is None


def folds_of(found: FileFit) -> tuple[int, list[str]]:
    """Return how many parts were held out to find the radius, and the notes on that."""
    return found.paths[""].folds, [note for note in found.notes if note.startswith("one part of the rows")]


def test_a_rare_level_is_in_no_part_of_the_rows_that_is_held_out(tmp_path: Path) -> None:
    parts = tables(rows=120)
    put(TEN, "ward", "prison")(parts)
    found = fit(tmp_path, parts, radius="auto")
    folds, notes = folds_of(found)
    assert folds == 1
    assert ["'ward=prison'" in note for note in notes] == [True]
    assert found.prepared is not None
    prison = found.prepared.encoded.encoding.features.index("ward=prison")  # type: ignore[union-attr]
    rows = found.prepared.fitted
    assert sum(local.A[:, prison].sum() for local in rows.values()) == 10.0  # all are in the fit
    seen = [sent for sent in found.sent if sent.name == "people of each value in each fold"]
    assert len(seen) == 1
    assert "which columns have few people of a value in a fold" in {sent.name for sent in found.sent}


@pytest.mark.parametrize(("ill", "folds"), [(45, 1), (100, 5)])
def test_few_of_a_class_make_one_part_of_five(ill: int, folds: int, tmp_path: Path) -> None:
    places = {site: range(k) for site, k in enumerate(np.diff(np.linspace(0, ill, 5).astype(int)).tolist())}
    parts = tables(rows=120)
    both(all_of_rows(120, "ill", "no"), put(places, "ill", "yes"))(parts)
    found = fit(tmp_path, parts, radius="auto")
    assert folds_of(found)[0] == folds
    assert len(folds_of(found)[1]) == (folds == 1)


def test_people_far_away_are_held_out_together_or_not_at_all(tmp_path: Path) -> None:
    parts = tables(rows=120)
    put(dict.fromkeys(range(4), range(5)), "age", 900)(parts)
    found = fit(tmp_path, parts, "lasso", radius="auto", target="flag", held_out=0.0)
    folds, notes = folds_of(found)
    assert (folds, len(notes)) == (1, 1)
    assert "'age'" in notes[0]


def test_no_cell_of_a_histogram_is_sent(tmp_path: Path) -> None:
    found = fit(tmp_path, tables(), held_out=0.4)
    (sums,) = (sent for sent in found.sent if sent.name == "sums for scores of all sites")
    assert sums.numbers == 7  # rows, pairs in order, pairs, and four sums over rows
    assert not any("each site's scores" in sent.name for sent in found.sent)


def test_an_auc_within_sites_counts_pairs_of_each_site(tmp_path: Path) -> None:
    found = fit(tmp_path, tables(), held_out=0.4)
    assert found.prepared is not None
    assert found.scores is not None
    concordant = pairs = 0.0
    for i, rows in found.prepared.held_out.items():
        z = found.fit.models[i].image(rows.A)  # type: ignore[union-attr]
        up, down = z[rows.targets == 1.0][:, None], z[rows.targets == 0.0]
        concordant += float((up > down).sum() + 0.5 * (up == down).sum())
        pairs += up.size * down.size
    assert found.scores.everyone.scores["AUC"].model == pytest.approx(concordant / pairs, rel=1e-12)


def test_merged_and_unseen_levels_are_other_in_predictions(tmp_path: Path) -> None:
    parts = tables()
    put({0: range(4), 1: range(4)}, "ward", "rare")(parts)
    found = fit(tmp_path, parts)
    assert found.prepared is not None
    column = (found.prepared.reading.columns or ())[1]
    texts = dcgs.learn.files.tables.Column.of_texts(["a", "rare", "new", ""])  # type: ignore[attr-defined]
    assert column.levels == ("a", "c", "other")
    assert column.numbers(texts).tolist() == [[1.0, 0.0, 0.0], *[[0.0, 0.0, 1.0]] * 3]
    assert column.unknown(texts) == []


def test_the_strictest_floors_of_all_sites_hold() -> None:
    own = {i: SiteSchema(f"site {i}", 50, width=1, floors=dcgs.Floors(10 + i, 3 - i % 2)) for i in range(3)}
    assert agree(Reductions(nx.path_graph(3)), own, MergeRules()).floors == dcgs.Floors(12, 3)
    own[1] = replace(own[1], floors=None)
    with pytest.raises(SitesError, match="floors is given at site 0 and site 2, and not given at site 1"):
        agree(Reductions(nx.path_graph(3)), own, MergeRules())


def test_a_schema_with_floors_says_nothing_that_is_counted(tmp_path: Path) -> None:
    parts = tables()
    put(ONE, "ward", "prison")(parts)
    put({2: range(2)}, "age", -999)(parts)
    sent: list[bytes] = []

    def see(round: int, sender: int, receiver: int, message: Any) -> None:
        arrays = message if isinstance(message, tuple) else (message,)
        sent.extend(array.tobytes() for array in arrays if array.dtype == np.uint8)

    fit(tmp_path, parts, runtime=dcgs.Lockstep(threads=1, on_message=see))
    schemas = [content for content in sent if b'"site"' in content]
    assert schemas
    assert not any(word in content for content in schemas for word in (b"prison", b"-999", b"yes", b"line"))


def test_a_site_with_one_row_says_nothing_of_it_before_it_is_refused() -> None:
    columns = (ColumnSchema("smoker"), ColumnSchema("age", number="line 2 has 93"))
    one = SiteSchema(
        "ulm", 1, width=2, columns=columns, facts={"EMPTY": "no value in 'smoker'"}, floors=FLOORS
    )
    many = replace(one, name="graz", rows=10)
    assert one.structure().columns == (ColumnSchema("smoker"), ColumnSchema("age"))
    assert one.structure().facts == {}
    assert many.structure().columns[1].number == "numbers"
    with pytest.raises(SitesError, match=r"at least 10 people .* fewer at ulm\."):
        agree(Reductions(nx.path_graph(3)), {0: one, 1: many, 2: replace(many, name="bern")}, MergeRules())


# Arrays, dense and sparse; every row is a person.


def arrays(rows: int = 200, features: int = 5) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(3)
    A = rng.standard_normal((rows, features))
    return A, A[:, 0] + 0.1 * rng.standard_normal(rows), np.arange(rows) % 4


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("people", [1, 9, 10])
def test_a_dummy_column_of_an_array_is_left_out_below_the_floor(form: Any, people: int) -> None:
    A, y, site = arrays()
    A[:, 3] = np.arange(200) < people
    model = DecentralizedLasso(radius=2.0, floors=FLOORS)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(form(A), y + A[:, 3], sites=site)
    assert (abs(model.coef_[3]) < 1e-12) == (people < 10)  # else it is near 1
    assert ["left out" in str(entry.message) for entry in caught] == [True] * (people < 10)


def test_fewer_rows_than_unknowns_are_refused() -> None:
    A, y, site = arrays(40, 45)
    with pytest.raises(SitesError, match="at least as many as the unknowns of a Hessian, 46; there are 40"):
        DecentralizedLasso(radius=1.0, floors=FLOORS).fit(A, y, sites=site)


@pytest.mark.parametrize(("rows", "forms"), [(80, {"gradients"}), (1200, {"Hessians"})])
def test_hessians_of_fewer_rows_than_unknowns_are_not_sent(rows: int, forms: set[str]) -> None:
    A, y, site = arrays(rows, 100)
    sizes: set[Any] = set()
    see = dcgs.Lockstep(on_message=lambda k, i, j, sent: sizes.update(array.shape[-1:] for array in sent))
    DecentralizedLasso(radius=1.0, floors=FLOORS, runtime=see).fit(A, y, sites=site)
    assert ({"Hessians"} if (101 * 100 // 2,) in sizes else {"gradients"}) == forms


def test_floors_change_nothing_where_no_cell_is_small() -> None:
    A, y, site = arrays()
    labels = (y > 0.0).astype(int)
    open_fit = DecentralizedLogisticRegression(radius=2.0).fit(A, labels, sites=site)
    fit = DecentralizedLogisticRegression(radius=2.0, floors=FLOORS).fit(A, labels, sites=site)
    assert np.array_equal(fit.coef_, open_fit.coef_)
    assert np.array_equal(fit.intercept_, open_fit.intercept_)


def test_an_estimator_refuses_floors_of_another_kind() -> None:
    A, y, _ = arrays()
    with pytest.raises(TypeError, match=r"floors must be dcgs.Floors\(\), or None"):
        DecentralizedLasso(floors=10).fit(A, y)


# Ratings; the users are the people.


def ratings() -> tuple[Any, Any, Any, Any]:
    rng = np.random.default_rng(5)
    users, items = np.repeat(np.arange(60), 8), np.tile(np.arange(8), 60)
    stars = np.clip(np.round(3.0 + (users % 3 - 1) - (items % 2) + rng.normal(0, 0.5, 480)), 1.0, 5.0)
    return users, items, stars, users % 4


def completed(users: Any, items: Any, stars: Any, site: Any, radius: Any = 2.0) -> DecentralizedCompletion:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return DecentralizedCompletion(radius=radius, floors=FLOORS).fit(users, items, stars, sites=site)


@pytest.mark.parametrize("raters", [1, 9, 10])
@pytest.mark.parametrize("radius", [2.0, "auto"])
def test_an_item_with_few_raters_is_left_out(raters: int, radius: Any) -> None:
    users, items, stars, site = ratings()
    chosen = np.flatnonzero(items == 0)[raters:]
    keep = np.setdiff1d(np.arange(480), chosen)
    model = completed(users[keep], items[keep], stars[keep], site[keep], radius)
    ids = model.ratings_.agents[0].naming.items.tolist()  # type: ignore[union-attr]
    assert ("0" in ids) == (raters >= 10)
    assert len(model.ratings_.agents[0].model.offsets.col_offsets) == len(ids)


def test_held_out_ratings_cannot_be_found_from_two_sums_over_an_item() -> None:
    sent = [entry.name for entry in completed(*ratings(), "auto").sent_]
    assert "offsets of the path" in sent
    assert "offsets of ratings" not in sent


@pytest.mark.parametrize("users_there", [1, 9])
def test_a_small_shop_is_refused(users_there: int) -> None:
    users, items, stars, site = ratings()
    keep = (site != 2) | (users < 4 * users_there)
    with pytest.raises(SitesError, match="at least 10 people to fit to; there are fewer at site 2"):
        completed(users[keep], items[keep], stars[keep], site[keep])


def test_a_rating_far_outside_is_taken_as_the_nearest_that_enough_people_give() -> None:
    users, items, stars, site = ratings()
    stars[17] = 500.0
    placed = completed(users, items, stars, site).ratings_.placed
    assert (placed.facts.low, placed.facts.high) == (1.0, 4.0)  # a few have given 5
    assert max(part.values.max() for part in placed.parts.values()) == 4.0


def test_ratings_of_rare_items_alone_are_refused() -> None:
    users, _, stars, site = ratings()
    with pytest.raises(SitesError, match=r"of at least 10 people, .* written alike at all sites; none has"):
        completed(users, np.arange(480) // 5, stars, site)
