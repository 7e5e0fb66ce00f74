"""The page of a fit: what is on it, and how it behaves in a real browser."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from dcgs.cli import main
from dcgs.datasets.synthetic import write_patients
from dcgs.learn.files.model import Model
from dcgs.report.numbers import number

if TYPE_CHECKING:
    from playwright.sync_api import Page

HOSTILE = "<img src=x onerror=alert(1)></script>"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a fit whose data have a hostile name of a column and of a level."""
    place = tmp_path_factory.mktemp("page")
    for file in write_patients(place, sites=3, rows=80):
        lines = file.read_text().replace(",bmi,", f",{HOSTILE},").replace("medicine", "<b>medicine")
        file.write_text(lines)
    data = f"--data {place}/hospital-{{agent}}.csv --open --target ill"
    command = f"fit logistic {data} --radius auto --out {place}/m"
    assert main(shlex.split(command)) == 0
    return place / "m"


@pytest.fixture(scope="module")
def page(folder: Path) -> Iterator[Page]:
    """The page in a browser; any message on its console and any request fails the test that asks."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        pytest.skip("no Chromium was found: the page was NOT tested in a browser")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        opened = browser.new_page(viewport={"width": 1100, "height": 900})
        complaints: list[str] = []
        opened.on("console", lambda message: complaints.append(message.text))
        opened.on("pageerror", lambda error: complaints.append(str(error)))
        opened.on("dialog", lambda dialog: complaints.append(dialog.message))
        opened.goto((folder / "report.html").as_uri())
        yield opened
        browser.close()
        assert complaints == []


def text_of(folder: Path) -> str:
    return unescape((folder / "report.html").read_text())


def charts(folder: Path) -> dict[str, Any]:
    found = re.search(r'id="study-data">(.*?)</script>', (folder / "report.html").read_text(), re.DOTALL)
    assert found is not None
    return {chart["name"]: chart for chart in json.loads(found[1])}


def test_the_page_tells_coefficients_scores_and_all_that_was_sent(folder: Path) -> None:
    text, summary = text_of(folder), json.loads((folder / "summary.json").read_text())
    model = Model.load(folder / "agent-000.npz")
    used = [name for name, value in zip(model.features, model.x, strict=True) if value != 0.0]
    told = [*used, *(each["name"] for each in summary["sent"]), *summary["data_notes"], summary["command"]]
    assert [each for each in told if each not in text] == []
    assert summary["status"][1:] in text
    for site in (*summary["scores"]["agents"], summary["scores"]["everyone"]):
        assert number(site["scores"]["log loss"]["model"]) in text


def test_the_curves_are_those_of_the_run_and_of_the_path(folder: Path) -> None:
    found, summary = charts(folder), json.loads((folder / "summary.json").read_text())
    gap = found["gap"]["curves"][0]["columns"]
    assert gap["gap"][-1] == pytest.approx(summary["gap"]["gap"], rel=1e-6)  # seven digits are kept
    assert sorted(gap["rounds"]) == gap["rounds"]
    assert 0 < gap["all_bytes"][-1] <= summary["bytes"]
    held_out, upper, _ = (curve["columns"] for curve in found["path"]["curves"])
    points = summary["path"]["points"]
    assert held_out["radius"] == pytest.approx([point["radius"] for point in points], rel=1e-6)
    errors = np.array([[point["error"], point["standard_error"]] for point in points])
    assert upper["error"] == pytest.approx(errors.sum(axis=1).tolist(), rel=1e-6)
    table = text_of(folder).partition('aria-label="Radii and their errors"')[2]
    counts = re.findall(r"<td>([^<]*)</td><td>[^<]*</td></tr>", table.partition("</table>")[0])
    assert counts == [f"{point['features']:g}" for point in points]  # 2, and not 2.000


def test_names_of_columns_and_levels_are_text_and_nothing_else(folder: Path) -> None:
    page = (folder / "report.html").read_text()
    assert "<img" not in page
    assert "<b>medicine" not in page
    assert HOSTILE in unescape(page)


def test_a_fit_without_a_certificate_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("r.npz", rows=[0, 1, 1], cols=[0, 1, 0], values=[1.0, 2.0, 3.0])
    run = "fit completion --data r.npz --radius 2 --agents 2 --method dfw --rounds 2 --out"
    assert main(shlex.split(f"{run} m")) == 0
    assert "No gap was certified" in text_of(Path("m"))
    assert main(shlex.split(f"{run} n --measure")) == 0
    assert len(charts(Path("n"))["gap"]["curves"][0]["columns"]["gap"]) == 2
    assert main(shlex.split(f"{run} n --force --no-report")) == 0
    assert not Path("n/report.html").exists()


def test_curves_are_drawn_and_follow_the_axis(page: Page, folder: Path) -> None:
    gap = page.locator("#gap path.curve")
    by_rounds = gap.get_attribute("d") or ""
    assert by_rounds.count("L") == len(charts(folder)["gap"]["curves"][0]["columns"]["gap"]) - 1
    page.select_option("#gap [data-role='x-axis']", "all_bytes")
    assert gap.get_attribute("d") != by_rounds
    assert "bytes sent by all agents" in (page.locator("#gap .axis-label").text_content() or "")
    assert page.locator("#path path.curve").count() == 6


def test_a_logarithmic_axis_of_radii_has_no_zero(page: Page, folder: Path) -> None:
    ticks = "#path figure:first-of-type .tick:not(.y-tick)"
    assert "0" not in page.locator(ticks).all_text_contents()
    assert page.locator(ticks).count() >= 3
    button = page.locator("#path [data-role='x-scale']")
    button.click()
    assert page.locator(ticks).all_text_contents()[0] == "0"
    button.click()


def test_hovering_reads_the_gap(page: Page, folder: Path) -> None:
    page.select_option("#gap [data-role='x-axis']", "rounds")
    page.focus("#gap svg.chart")
    page.keyboard.press("End")
    columns = charts(folder)["gap"]["curves"][0]["columns"]
    tip = page.locator("#gap [data-role='tooltip']")
    assert float(tip.get_attribute("data-x") or "nan") == columns["rounds"][-1]
    page.keyboard.press("Escape")
    assert tip.is_hidden()


def test_a_legend_button_hides_a_curve_of_the_path(page: Page) -> None:
    button = page.locator("#path .legend [data-curve='trained']")
    button.click()
    assert page.locator("#path path.curve").count() == 4
    button.click()
    assert page.locator("#path path.curve").count() == 6


@pytest.mark.parametrize("width", [360, 1100])
def test_a_narrow_screen_needs_no_sideways_scrolling(page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_theme_button_changes_the_colors(page: Page) -> None:
    color = "getComputedStyle(document.body).backgroundColor"
    before = page.evaluate(color)
    page.click("[data-role='theme']")
    assert page.evaluate(color) != before
