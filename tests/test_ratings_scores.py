"""Ratings held out, what they are predicted beside, rows of new users without a fit, and catalogues."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

from dcgs.cli import main
from dcgs.learn.files.model import RatingsFile, load_model
from dcgs.learn.ratings.fit import RatedIds, RatingsFit, RatingsSpec, fit_placed, fit_ratings, place_ids
from dcgs.learn.ratings.ids import Ids
from dcgs.learn.ratings.offsets import Part
from dcgs.learn.sites import RunSpec, Sites

USERS, ITEMS = 40, 25
ALONE, OFFSETS = "RMSE of the site alone", "RMSE of offsets alone"


def shops(seed: int = 0) -> list[tuple[list[str], list[str], np.ndarray[Any, Any]]]:
    """Return the ratings of three shops: of rank 2, with offsets and noise."""
    rng = np.random.default_rng(seed)
    V = rng.standard_normal((ITEMS, 2))
    parts = []
    for shop in range(3):
        values = 3.0 + rng.standard_normal((USERS, 2)) @ V.T + rng.standard_normal(ITEMS)
        there = rng.random((USERS, ITEMS)) < 0.5
        users, items = np.nonzero(there)
        noisy = values[there] + 0.3 * rng.standard_normal(len(users))
        parts.append(([f"s{shop}-u{u}" for u in users], [f"film {j:02d}" for j in items], noisy))
    return parts


def write_shops() -> None:
    for i, (users, items, values) in enumerate(shops()):
        lines = [f"{u},{j},{v!r}" for u, j, v in zip(users, items, values.tolist(), strict=True)]
        Path(f"shop-{i}.csv").write_text("\n".join(["user,item,rating", *lines]) + "\n")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_shops()
    return tmp_path


def run(command: str) -> None:
    assert main(shlex.split(command)) == 0


def refused(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        main(shlex.split(command))
    assert ended.value.code == 2
    return " ".join(capsys.readouterr().err.split())


def held_out_fit(share: float) -> RatingsFit:
    """Return a fit to the shops, a share of whose ratings is held out."""
    users, items, parts = {}, {}, {}
    sites: Sites[Any] = Sites.of(shops(), nx.path_graph(3))
    for i, (user, item, values) in sites.data.items():
        users[i], items[i] = Ids.of(user), Ids.of(item)
        parts[i] = Part(users[i].places(user), items[i].places(item), values)
    placed = place_ids(sites, RatedIds(users, items, parts, True, share, 4), {})
    return fit_placed(placed, sites.network, RatingsSpec(120.0, run=RunSpec({"gap": 1e-5})))


def rms(errors: Sequence[np.ndarray[Any, Any]]) -> float:
    return float(np.sqrt(np.mean(np.concatenate(errors) ** 2)))


def test_the_scores_are_the_errors_of_each_shops_model_on_the_ratings_that_it_held_out() -> None:
    fit = held_out_fit(0.2)
    assert fit.scores is not None
    errors, of_offsets, of_mean = [], [], []
    mean = np.mean(np.concatenate([part.values for part in fit.placed.parts.values()]))
    for i, left in fit.placed.held_out.items():
        kept, model = fit.placed.parts[i], fit.agents[i].model
        pairs = set(zip(kept.rows.tolist(), kept.cols.tolist(), strict=True))
        assert not pairs & set(zip(left.rows.tolist(), left.cols.tolist(), strict=True))
        assert 0.1 < len(left.values) / (len(left.values) + len(kept.values)) < 0.3
        errors.append(model.predict(left.rows, left.cols) - left.values)
        low, high = model.offsets.low, model.offsets.high
        of_offsets.append(np.clip(model.offsets.of(left.rows, left.cols), low, high) - left.values)
        of_mean.append(mean - left.values)
        assert fit.scores.sites[i].scores["RMSE"].model == pytest.approx(rms(errors[-1:]))
        assert fit.scores.sites[i].rows == len(left.values)
    everyone = fit.scores.everyone.scores
    assert everyone["RMSE"].model == pytest.approx(rms(errors))
    assert everyone["RMSE"].constant == pytest.approx(rms(of_mean))
    assert everyone[OFFSETS].model == pytest.approx(rms(of_offsets))
    assert everyone["RMSE"].model < everyone[ALONE].model < everyone[OFFSETS].model


def test_a_shop_alone_is_a_fit_to_its_own_ratings_with_its_share_of_the_radius() -> None:
    fit = held_out_fit(0.2)
    assert fit.scores is not None
    users, items, values = shops()[1]
    left = fit.placed.held_out[1]
    names = fit.agents[1].naming
    out = set(zip(names.row_names(left.rows), names.col_names(left.cols), strict=True))
    kept = [k for k, pair in enumerate(zip(users, items, strict=True)) if pair not in out]
    own = ([users[k] for k in kept], [items[k] for k in kept], values[kept])
    spec = RatingsSpec(120.0 * float(np.sqrt(1 / 3)), run=RunSpec({"gap": 1e-2}))
    alone = fit_ratings(Sites.of([own]), spec)
    pairs = names.row_names(left.rows), names.col_names(left.cols)
    error = rms([alone.predict(*pairs) - left.values])
    assert fit.scores.sites[1].scores[ALONE].model == pytest.approx(error, rel=1e-9)


def test_the_scores_are_on_the_screen_in_the_summary_in_the_model_and_on_the_page(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("fit completion --data shop-{agent}.csv --open --radius 100 --name ulm,graz,bern --out m")
    printed = " ".join(capsys.readouterr().out.split())
    assert "scores on ratings held out" in printed
    scores = json.loads(Path("m/summary.json").read_text())["scores"]
    assert scores["held_out"]
    assert set(scores["everyone"]["scores"]) == {"RMSE", "mean absolute error", OFFSETS, ALONE}
    assert sum(site["rows"] for site in scores["agents"]) == scores["everyone"]["rows"] > 50
    page = Path("m/report.html").read_text()
    assert "on ratings of its own that it held out of the fit" in page
    assert f'<th scope="col">{ALONE}</th>' in page
    assert "all, by the mean alone" in page
    assert '<th scope="row">graz</th>' in page
    run("show m")
    assert "scores on ratings held out" in capsys.readouterr().out
    run("fit completion --data shop-{agent}.csv --open --radius 100 --held-out 0 --no-report --out all")
    assert "scores" not in json.loads(Path("all/summary.json").read_text())


def test_the_row_of_a_new_user_is_the_one_that_a_fit_to_the_same_ratings_finds() -> None:
    fit = held_out_fit(0.0)
    users, items, values = shops()[2]
    for user in ("s2-u3", "s2-u11"):
        own = [k for k, name in enumerate(users) if name == user]
        some = [items[k] for k in own]
        agent = fit.agents[0].folded_in(["new"] * len(own), some, values[own])
        films = [f"film {j:02d}" for j in range(ITEMS)]
        expected = fit.agents[2].predict([user] * ITEMS, films)
        found = agent.predict(["new"] * ITEMS, films)
        assert np.ptp(expected) > 1.0
        # The factors of a fit at a gap of 1e-5 are as far from their optimum.
        np.testing.assert_allclose(found, expected, atol=0.02)
        bare = fit.agents[0].predict(["new"] * ITEMS, films)
        assert np.abs(bare - expected).max() > 0.5
    assert fit.agents[0].folded_in(["s0-u1"], ["film 03"], np.array([1.0])) is fit.agents[0]


def test_predictions_for_new_users_need_no_fit(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("fit completion --data shop-{agent}.csv --open --radius 100 --held-out 0 --no-report --out m")
    lines = Path("shop-1.csv").read_text().splitlines()
    own = [line.replace("s1-u5,", "eve,") for line in lines if line.startswith(("user,", "s1-u5,"))]
    Path("new.csv").write_text("\n".join([*own, "eve,no film,3", "s0-u1,film 01,3"]) + "\n")
    capsys.readouterr()
    run("predict m --row eve --top 3 --fold-in new.csv --out new-best.csv")
    printed = " ".join(capsys.readouterr().out.split())
    assert "rows were found for 1 new user of new.csv, from their ratings." in printed
    assert "1 user of new.csv in the model: their rows are as before." in printed
    assert "1 rating of new.csv left out: the model does not have the items." in printed
    run("predict m --row s1-u5 --top 3 --out known-best.csv")
    names = [
        [line.split(",")[0] for line in Path(f"{which}-best.csv").read_text().splitlines()]
        for which in ("new", "known")
    ]
    assert names[0] == names[1]
    file = load_model(Path("m/agent-001.npz"))
    assert isinstance(file, RatingsFile)
    assert file.agent.model.fold_in is not None


def test_an_older_model_says_that_it_cannot_fold_in(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("fit completion --data shop-{agent}.csv --open --radius 100 --no-report --out m")
    for file in Path("m").glob("agent-*.npz"):
        with np.load(file) as arrays:
            np.savez(file, **{name: arrays[name] for name in arrays.files if name != "row_penalty"})
    Path("new.csv").write_text("user,item,rating\neve,film 01,3\n")
    error = refused("predict m --row eve --fold-in new.csv", capsys)
    assert "the model must say how rows of new users are found" in error
    run("predict m --row s1-u5")


def test_a_catalogue_filters_the_best_items(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("fit completion --data shop-{agent}.csv --open --radius 100 --no-report --out m")
    sold = [f"film {j:02d}" for j in (3, 7, 20)]
    Path("shop.txt").write_text("\n".join([*sold, "no film", ""]))
    run("predict m --row s1-u5 --top 25 --out every.csv")
    run("predict m --row s1-u5 --top 25 --catalogue shop.txt --out some.csv")
    every, some = (
        [line.split(",")[0] for line in Path(file).read_text().splitlines()[1:]]
        for file in ("every.csv", "some.csv")
    )
    assert some == [item for item in every if item in sold]
    note = "items of shop.txt that the model does not have: 'no film'."
    assert note in " ".join(capsys.readouterr().out.split())
    run("predict m --top 2 --catalogue shop.txt --out best.csv")
    assert note in " ".join(capsys.readouterr().out.split())
    items = [line.split(",")[1] for line in Path("best.csv").read_text().splitlines()[1:]]
    assert len(items) == 2 * 3 * USERS
    assert set(items) == set(sold)
    Path("none.txt").write_text("no film\n")
    assert "must have an item of the model on each line" in refused(
        "predict m --row s1-u5 --catalogue none.txt", capsys
    )
    assert "--catalogue is for the best columns" in refused(
        "predict m --data shop-0.csv --catalogue shop.txt", capsys
    )
