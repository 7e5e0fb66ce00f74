"""The report page: what is in it, and how it behaves in a real browser."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from html import escape, unescape
from html.parser import HTMLParser
from itertools import pairwise, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dcgs.link import Link
from dcgs.report import numbers
from dcgs.report.page.charts import MOST_POINTS, thinned
from dcgs_bench.paper.folder import render_study
from dcgs_bench.paper.page import view
from dcgs_bench.paper.results import Curve, Findings, PaperStudy, costs_to_accuracy, modeled_seconds
from study_sample import SHAPES, columns, curves, lasso, lookalike, manifest, sample, with_columns

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

HOSTILE = "</script x<script>alert(1)</script ><!--<script><img src=x onerror=alert(2)>'\"&amp;"
SCRIPT = Path(__file__).parents[2] / "tools" / "browser.sh"
PATIENCE = 240_000.0  # milliseconds that no machine needs


class Seen(HTMLParser):
    """The tags and attributes of a page, as a browser would see them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def all(self, name: str) -> list[str]:
        return [value for attribute, value in self.attributes if attribute == name]


@cache
def sample_page() -> str:
    return render_study(sample())


def data_of(page: str) -> Any:
    found = re.search(r'<script type="application/json" id="study-data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return json.loads(found[1], parse_constant=lambda name: pytest.fail(f"{name} in the page's data"))


def changed_first(findings: Findings, changed: Mapping[str, list[float]]) -> Findings:
    first, *others = findings.curves
    return replace(findings, curves=[with_columns(first, {**first.columns, **changed}), *others])


def claims(study: PaperStudy) -> Iterator[str]:
    for findings in study.findings:
        yield from (text for claim in findings.claims for text in (claim.paper, claim.measured))


# Without a browser: what the page says.


@pytest.mark.parametrize("findings", sample().findings, ids=lambda findings: findings.name)
def test_an_experiment_is_on_the_page_in_full(findings: Findings) -> None:
    page = unescape(sample_page())
    texts = [findings.title, findings.problem, findings.summary, findings.source.name]
    texts += [
        text
        for curve in findings.curves
        for text in (curve.label, curve.about, curve.run.status, *curve.run.notes)
    ]
    texts += [text for measure in findings.measures for text in (measure.key, measure.label, measure.symbol)]
    assert [text for text in texts if text not in page] == []


def test_every_claim_verdict_banner_and_skipped_experiment_is_on_the_page() -> None:
    study = sample()
    assert study.cost is not None
    page = unescape(render_study(study))
    verdicts = ["holds", "holds only for the paper's loss", "does not hold", "not settled here"]
    others = [study.cost.claim.paper, *view.skipped(study)[0].values(), str(lookalike().banner)]
    texts = [*claims(study), *(f"</span> {verdict}</span>" for verdict in verdicts), *others]
    assert [text for text in texts if text not in page] == []


def test_the_cost_section_has_the_papers_figures_and_the_measured_rows() -> None:
    page = unescape(sample_page())
    shown = [
        "10⁴ × 10⁴",
        "800 MB",
        "80 s a round at 10 MB/s",
        "dense, loose",
        "210 ms",
        ">99.9%",
        "96.7%",
        "sending one message",
    ]
    assert [text for text in shown if text not in page] == []


def test_the_page_says_how_it_was_made() -> None:
    page = unescape(sample_page())
    told = [
        "dcgs reproduce --quick",
        "2026-01-02 03:04:05 UTC",
        "97.4 s",
        "numpy 2.4.6",
        "x86_64, 2 cores, Linux",
    ]
    assert [text for text in told if text not in page] == []


@pytest.mark.parametrize(("quick", "words"), [(True, "small-scale quick run"), (False, "full run")])
def test_the_page_says_plainly_at_what_scale_it_was_made(quick: bool, words: str) -> None:
    page = render_study(replace(sample(), manifest=manifest(quick)))
    assert f"<dd>{words}</dd>" in page
    assert ("Small-scale quick run." in page) is quick


def test_the_page_refers_to_nothing_outside_its_folder() -> None:
    page = sample_page()
    seen = Seen(page)
    inside = re.compile(r"#|figures/|data/|timing/|manifest\.json$|data:,$")
    assert [href for href in seen.all("href") if not inside.match(href)] == []
    assert (
        seen.all("src") + seen.all("srcset") + seen.all("action") + re.findall(r"@import|url\(", page) == []
    )
    assert set(re.findall(r"https?://[^\s\"']*", page)) == {"http://www.w3.org/2000/svg"}


def test_the_page_leads_to_figures_data_and_manifest() -> None:
    links = set(Seen(sample_page()).all("href"))
    name = "lasso-e2006"
    figures = {f"figures/{name}-{kind}.{form}" for kind in ("paper", "all-data") for form in ("png", "pdf")}
    assert (
        figures
        | {f"{kind}/{name}/{shape.key}.csv" for kind in ("data", "timing") for shape in SHAPES}
        | {"manifest.json"}
        <= links
    )


def test_every_link_inside_the_page_has_its_target() -> None:
    seen = Seen(sample_page())
    assert {href[1:] for href in seen.all("href") if href.startswith("#")} <= set(seen.all("id"))
    assert len(seen.all("id")) == len(set(seen.all("id")))


def test_without_its_data_the_page_is_small() -> None:
    page = sample_page()
    assert len(page.encode()) - len(json.dumps(data_of(page))) < 150_000


def hostile_study(text: str) -> PaperStudy:
    """Return a study with that text wherever a text can be."""
    findings = lasso()
    return replace(
        sample(
            [
                replace(
                    findings,
                    name=text,
                    title=text,
                    problem=text,
                    summary=text,
                    source=replace(findings.source, name=text, files={text: text}),
                    measures=[replace(measure, label=text, symbol=text) for measure in findings.measures],
                    claims=[replace(claim, paper=text, measured=text) for claim in findings.claims],
                    curves=[
                        replace(
                            curve,
                            key=f"{text}{place}",
                            label=text,
                            about=text,
                            run=replace(curve.run, status=text, notes=(text,)),
                        )
                        for place, curve in enumerate(findings.curves)
                    ],
                )
            ]
        ),
        manifest={**manifest(), "command": text, "started": text},
    )


def test_hostile_text_changes_no_tag() -> None:
    page = render_study(hostile_study(HOSTILE))
    assert Seen(page).tags == Seen(render_study(hostile_study("harmless"))).tags
    assert escape(HOSTILE).replace("&#x27;", "&#39;").replace("&quot;", "&#34;") in page
    assert data_of(page)[0]["curves"][0]["label"] == HOSTILE


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_are_not_finite_are_null_in_the_data(odd: float) -> None:
    findings = lasso()
    rows = len(findings.curves[0].columns["rounds"])
    bad = changed_first(findings, {"worst_loss": [odd] * rows, "computing": [odd] * rows})
    columns = data_of(render_study(sample([bad])))[0]["curves"][0]["columns"]
    assert columns["worst_loss"] == columns["computing"] == [None] * rows


def test_few_points_are_all_shown_exactly() -> None:
    shown = data_of(sample_page())[0]["curves"][0]["columns"]
    given = lasso().curves[0].columns
    assert all(shown[name] == list(given[name]) for name in ("rounds", "bytes", "lmo_calls"))
    assert shown["worst_loss"] == pytest.approx(list(given["worst_loss"]), rel=1e-6)  # seven digits are kept


@pytest.mark.parametrize("length", [401, 5_000, 100_000])
def test_thinning_keeps_ends_extremes_and_early_points(length: int) -> None:
    spike = [1.0] * length
    spike[length // 3], spike[length // 7] = 9.0, 0.0
    places = thinned([spike, [float("nan")] * length], length)
    assert {0, 1, 2, 3, length // 7, length // 3, length - 1} <= set(places)
    assert places == sorted(set(places))
    assert MOST_POINTS // 2 < len(places) <= MOST_POINTS
    # Half of the room is spaced evenly; rounding to whole places may add one.
    assert max(after - before for before, after in pairwise(places)) <= length / 190 + 1


def test_long_runs_are_thinned_on_the_page() -> None:
    long = replace(SHAPES[2], points=20_000)
    curve = with_columns(lasso().curves[0], columns(long, 2.1e7, 8e4, False))
    shown = data_of(render_study(sample([replace(lasso(), curves=[curve])])))[0]["curves"][0]["columns"]
    assert len(shown["rounds"]) <= MOST_POINTS
    assert (shown["rounds"][0], shown["rounds"][-1]) == (0, 19_999)


@pytest.mark.parametrize("order", [slice(None), slice(None, None, -1)], ids=["as given", "worst_loss last"])
def test_the_worst_loss_is_next_to_the_papers_loss(order: slice) -> None:
    paper, *all_data = lasso().measures
    page = render_study(sample([replace(lasso(), measures=[paper, *all_data[order]])]))
    shown = Seen(page).all("data-column")
    rows = [shown[start : start + 4] for start in range(0, len(shown), 4)]
    assert len(rows) == 1 + len(SHAPES)
    assert all(row[:2] == ["local_loss", "worst_loss"] for row in rows)
    assert re.findall(r'<option value="(\w+_loss)" selected>', page) == ["worst_loss"]


def test_an_experiment_that_has_only_the_papers_loss_is_refused() -> None:
    alone = replace(lasso(), measures=lasso().measures[:1])
    with pytest.raises(
        ValueError, match=r"measure on all data beside the paper's loss; \['lasso-synthetic'\] have none"
    ):
        render_study(sample([alone]))


def test_a_link_speed_of_ones_own_is_in_the_list_and_chosen() -> None:
    page = render_study(sample(link=Link.parse("3MB/s")))
    options = re.findall(r'<option value="([\d.]+)"( selected)?>([^<]+/s)</option>', page)
    assert [text for _, _, text in options] == [
        "1 Mbit/s",
        "1 MB/s",
        "3 MB/s",
        "10 MB/s",
        "100 MB/s",
        "1 GB/s",
    ]
    assert [float(speed) for speed, chosen, _ in options if chosen] == [3e6]


# With a browser: what the page does.


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        pytest.skip("no Chromium was found: the page was NOT tested in a browser")
    from playwright.sync_api import sync_playwright

    quiet = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
    quiet += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=found, args=quiet, timeout=PATIENCE)
        yield started
        started.close()


Opener = Callable[..., "Page"]


@dataclass
class Visitor:
    """A browser window that is used again by the next test, and all that went wrong in it."""

    page: Page
    complaints: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.set_default_timeout(PATIENCE)
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append(dialog.message))
        self.page.on("request", lambda request: self._check(request.url))

    def _check(self, url: str) -> None:
        if not url.startswith(("file:", "data:")):
            self.complaints.append(f"asked for {url}")


@pytest.fixture(scope="module")
def window(browser: Browser) -> Visitor:
    return Visitor(browser.new_context().new_page())


@pytest.fixture
def opened(browser: Browser, window: Visitor, tmp_path: Path) -> Iterator[Opener]:
    """Open a study's page; any message on the console and any request fails the test.

    Settings of the browser, if there are any, need a window of their own.
    """
    visitors = [window]

    def open_page(study: PaperStudy, width: int = 1280, **settings: Any) -> Page:
        path = tmp_path / "index.html"
        path.write_text(render_study(study), encoding="utf-8")
        if settings:
            visitors.append(Visitor(browser.new_context(**settings).new_page()))
        page = visitors[-1].page
        page.mouse.move(0, 0)
        page.set_viewport_size({"width": width, "height": 800})
        page.goto(path.as_uri())
        return page

    yield open_page
    complaints = [visitor.complaints.copy() for visitor in visitors]
    window.complaints.clear()
    for visitor in visitors[1:]:
        visitor.page.context.close()
    assert complaints == [[] for _ in visitors]


def one_experiment() -> PaperStudy:
    return sample([lasso()])


SECTION = "section[data-experiment='lasso-synthetic'] "
PANELS = ["paper", "all-data"]


def drawn(page: Page, section: str = SECTION) -> dict[tuple[str, str], str]:
    """Return the path of every curve, by panel and method."""
    found = page.eval_on_selector_all(
        section + "path.curve",
        "paths => paths.map(p => [p.dataset.panel, p.dataset.curve, p.getAttribute('d')])",
    )
    return {(panel, curve): path for panel, curve, path in found}


def tooltip(page: Page) -> dict[str, list[str]]:
    """Return the values of the tooltip, by method."""
    rows = page.locator(SECTION + "[data-role='tooltip'] tr[data-curve]").evaluate_all(
        "rows => rows.map(r => [r.dataset.curve, ...[...r.cells].slice(2).map(c => c.textContent)])"
    )
    return {curve: values for curve, *values in rows}


def expected(axis: str, x: float, measure: str) -> dict[str, list[str]]:
    """Return what a tooltip must say there: each method's last recorded values up to x."""
    found = {}
    for curve in lasso().curves:
        at = max(place for place, value in enumerate(curve.columns[axis]) if value <= x)
        found[curve.key] = [numbers.number(curve.columns[key][at]) for key in ("local_loss", measure)]
    return found


def test_the_page_opens_offline_and_draws_every_curve_in_both_panels(opened: Opener) -> None:
    page = opened(sample())
    for findings in sample().findings:
        paths = drawn(page, f"section[data-experiment='{findings.name}'] ")
        both = {(panel, curve.key) for panel in PANELS for curve in findings.curves}
        assert set(paths) == both
        assert all(re.fullmatch(r"(?:[ML]-?[\d.]+,-?[\d.]+)+", path) for path in paths.values())


@pytest.mark.parametrize(
    ("panels", "act"),
    [
        (PANELS, lambda page: page.select_option(SECTION + "[data-role='x-axis']", "bytes")),
        (
            ["paper", "all-data"],
            lambda page: page.select_option(SECTION + "[data-role='x-axis']", "computing"),
        ),
        (["all-data"], lambda page: page.select_option(SECTION + "[data-role='measure']", "gap")),
        (PANELS, lambda page: page.click(SECTION + "[data-role='x-scale']")),
        (PANELS, lambda page: page.click(SECTION + "[data-role='y-scale']")),
    ],
    ids=["bytes", "computing", "measure", "linear x", "linear y"],
)
def test_a_control_redraws_its_panels(opened: Opener, panels: list[str], act: Callable[[Page], None]) -> None:
    page = opened(one_experiment())
    before = drawn(page)
    act(page)
    after = drawn(page)
    assert before.keys() == after.keys()
    assert all(before[panel, "dfw"] != after[panel, "dfw"] for panel in panels)


def test_every_x_axis_places_points_where_the_data_have_them(opened: Opener) -> None:
    page = opened(one_experiment())
    page.click(SECTION + "[data-role='x-scale']")
    ends = {}
    for axis in ("lmo_calls", "rounds", "bytes", "time", "computing"):
        page.select_option(SECTION + "[data-role='x-axis']", axis)
        paths = {key: path for (panel, key), path in drawn(page).items() if panel == "paper"}
        at = {key: [float(value) for value in re.split("[ML,]", path)[1::2]] for key, path in paths.items()}
        left, right = at["dfw"][0], max(places[-1] for places in at.values())
        ends[axis] = {key: (places[-1] - left) / (right - left) for key, places in at.items()}
    last = {
        curve.key: {name: column[-1] for name, column in curve.columns.items()} for curve in lasso().curves
    }
    for values in last.values():
        values["time"] = values["computing"] + Link().waiting(values["peak_bytes"] / 2)
    for axis, shares in ends.items():
        longest = max(values[axis] for values in last.values())
        # A tenth of a pixel of some 500 is what a path's numbers are rounded to.
        assert shares == pytest.approx(
            {key: values[axis] / longest for key, values in last.items()}, abs=5e-4
        )


def test_the_link_speed_redraws_the_modeled_time_of_all_experiments(opened: Opener) -> None:
    page = opened(sample())
    for picker in page.locator("[data-role='x-axis']").all():
        picker.select_option("time")
    before = drawn(page, "")
    page.select_option("[data-role='link']", label="1 Mbit/s")
    assert drawn(page, "")["paper", "dfw"] != before["paper", "dfw"]
    assert page.locator("text.axis-label", has_text="1 Mbit/s").count() == 6


def test_the_costs_to_a_good_model_follow_the_link_speed(opened: Opener) -> None:
    findings = lasso()
    page = opened(sample([findings], link=Link.parse("100MB/s")))
    page.select_option("[data-role='link']", str(Link.parse("1Mbit/s").speed))
    spent = [cost.spent for cost in costs_to_accuracy(findings) if cost.spent is not None]
    seconds = [modeled_seconds(each, findings, Link.parse("1Mbit/s")) for each in spent]
    shown = page.locator("#answer [data-role='modeled']").all_text_contents()
    assert shown == [numbers.duration(each) for each in seconds]
    assert page.locator("#answer [data-role='speed']").all_text_contents() == ["1 Mbit/s"]


def test_the_table_of_ends_follows_the_link_speed(opened: Opener) -> None:
    page = opened(sample([lasso()], link=Link.parse("100MB/s")))
    for speed, curve in product(("1Mbit/s", "10MB/s", "1GB/s"), lasso().curves):
        page.select_option("[data-role='link']", str(Link.parse(speed).speed))
        row = page.locator(f"{SECTION}.ends tr[data-curve='{curve.key}']")
        computing = curve.columns["computing"][-1]
        waiting = Link.parse(speed).waiting(curve.peak_bytes[-1] / 2)
        assert row.locator("[data-role='modeled']").inner_text() == numbers.duration(computing + waiting)
        assert row.locator("[data-role='waiting']").inner_text() == numbers.share(
            waiting / (computing + waiting)
        )


def test_python_and_the_browser_write_the_same_table(opened: Opener) -> None:
    page = opened(sample())
    written = page.locator(".ends").all_inner_texts()
    page.select_option("[data-role='link']", label="1 GB/s")
    assert page.locator(".ends").all_inner_texts() != written
    page.select_option("[data-role='link']", label="10 MB/s")
    assert page.locator(".ends").all_inner_texts() == written


def test_a_legend_button_hides_and_shows_its_method_in_both_panels(opened: Opener) -> None:
    page = opened(one_experiment())
    before = drawn(page)
    button = page.locator(SECTION + ".legend [data-curve='fast-dcgs']")
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    assert set(before) - set(drawn(page)) == {("paper", "fast-dcgs"), ("all-data", "fast-dcgs")}
    button.click()
    assert button.get_attribute("aria-pressed") == "true"
    assert drawn(page) == before


def test_hiding_every_method_leaves_an_empty_chart_that_still_works(opened: Opener) -> None:
    page = opened(one_experiment())
    for button in page.locator(SECTION + ".legend button").all():
        button.click()
    page.hover(SECTION + "figure[data-panel='paper'] svg")
    assert drawn(page) == {}
    assert page.locator(SECTION + "[data-role='tooltip']").is_hidden()


@pytest.mark.parametrize("panel", PANELS)
def test_hovering_reads_both_measures_as_the_data_have_them(opened: Opener, panel: str) -> None:
    page = opened(one_experiment())
    page.select_option(SECTION + "[data-role='measure']", "disagreement")
    chart = page.locator(f"{SECTION}figure[data-panel='{panel}'] svg")
    tip = page.locator(SECTION + "[data-role='tooltip']")
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    assert box is not None
    for axis, share in product(("lmo_calls", "rounds", "bytes"), (0.3, 0.5, 0.8)):
        page.select_option(SECTION + "[data-role='x-axis']", axis)
        page.mouse.move(box["x"] + share * box["width"], box["y"] + 90)
        assert tooltip(page) == expected(axis, float(tip.get_attribute("data-x") or "nan"), "disagreement")
        line = page.locator(f"{SECTION}figure[data-panel='{panel}'] .crosshair")
        # The cursor stands on the nearest recorded x; from these places none is farther than this.
        assert float(line.get_attribute("x1") or "nan") == pytest.approx(share * box["width"], abs=30)
        page.mouse.move(2, 2)
        assert tip.is_hidden()


def test_arrow_keys_read_one_recorded_point_after_another(opened: Opener) -> None:
    page = opened(one_experiment())
    page.select_option(SECTION + "[data-role='x-axis']", "rounds")
    page.focus(SECTION + "figure[data-panel='all-data'] svg")
    seen = []
    for key in ("ArrowRight", "ArrowRight", "ArrowRight", "ArrowLeft", "End", "ArrowRight", "Home"):
        page.keyboard.press(key)
        x = float(page.locator(SECTION + "[data-role='tooltip']").get_attribute("data-x") or "nan")
        assert tooltip(page) == expected("rounds", x, "worst_loss")
        seen.append(x)
    assert seen == [0, 1, 2, 1, 379, 379, 0]
    page.keyboard.press("Escape")
    assert page.locator(SECTION + "[data-role='tooltip']").is_hidden()


def test_a_finger_reads_values_on_a_phone(opened: Opener) -> None:
    page = opened(one_experiment(), width=360, has_touch=True)
    chart = page.locator(SECTION + "figure[data-panel='all-data'] svg")
    chart.scroll_into_view_if_needed()
    chart.tap()
    tip = page.locator(SECTION + "[data-role='tooltip']")
    assert tip.is_visible()
    box = tip.bounding_box()
    assert box is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 360


def labels(page: Page, panel: str) -> list[str]:
    return page.locator(f"{SECTION}figure[data-panel='{panel}'] .y-tick").all_text_contents()


def test_two_losses_share_one_y_axis_and_other_measures_have_their_own(opened: Opener) -> None:
    page = opened(one_experiment())
    for measure in ("worst_loss", "mean_loss"):
        page.select_option(SECTION + "[data-role='measure']", measure)
        assert len(labels(page, "paper")) >= 3
        assert labels(page, "paper") == labels(page, "all-data")
    page.select_option(SECTION + "[data-role='measure']", "disagreement")
    assert labels(page, "paper") != labels(page, "all-data")


def test_zeros_and_missing_values_break_no_log_axis_and_are_marked(opened: Opener) -> None:
    rows = len(lasso().curves[0].columns["rounds"])
    fall = [10.0 - place for place in range(10)] + [0.0] * (rows - 10)
    holes = [float("nan") if place % 7 == 3 else 5.0 for place in range(rows)]
    page = opened(sample([changed_first(lasso(), {"local_loss": fall, "worst_loss": holes})]))
    paths = drawn(page)
    assert all(re.fullmatch(r"(?:[ML]-?[\d.]+,-?[\d.]+)+", path) for path in paths.values())
    assert paths["all-data", "dcgs-cg"].count("M") == sum(value == 5.0 for value in holes[:1]) + rows // 7
    assert page.locator(SECTION + "figure[data-panel='paper'] .clip").count() == 2
    assert "below the axis" in page.locator(SECTION + "[data-role='chart-note']").inner_text()


MISPLACED = """svgs => svgs.flatMap(svg => {
  const box = svg.getBoundingClientRect();
  const texts = [...svg.querySelectorAll("text:not(.watermark)")];
  const boxes = texts.map(text => text.getBoundingClientRect());
  const cut = texts.filter((_, i) => boxes[i].left < box.left - 0.5 || boxes[i].right > box.right + 0.5
    || boxes[i].top < box.top - 0.5 || boxes[i].bottom > box.bottom + 0.5);
  const touching = texts.filter((_, i) => boxes.some((other, j) => j > i && other.left < boxes[i].right
    && boxes[i].left < other.right && other.top < boxes[i].bottom && boxes[i].top < other.bottom));
  const few = [".x-tick", ".y-tick"].filter(kind => svg.querySelectorAll(kind).length < 3);
  return [...[...cut, ...touching].map(text => text.textContent), ...few];
})"""


@pytest.mark.parametrize("width", [360, 800, 1280])
def test_axes_have_enough_labels_that_neither_touch_nor_are_cut_off(opened: Opener, width: int) -> None:
    page = opened(sample(), width=width)
    axes = [*product(("lmo_calls", "rounds", "bytes", "computing"), ("10 MB/s",))]
    axes += [*product(("time",), ("1 Mbit/s", "10 MB/s", "1 GB/s"))]
    for axis, speed in axes:
        page.select_option("[data-role='link']", label=speed)
        for picker in page.locator("[data-role='x-axis']").all():
            picker.select_option(axis)
        for role in ("x-scale", "y-scale", "x-scale", "y-scale"):
            page.eval_on_selector_all(f"[data-role='{role}']", "buttons => buttons.forEach(b => b.click())")
            assert (axis, speed, page.eval_on_selector_all("svg.chart", MISPLACED)) == (axis, speed, [])


@pytest.mark.parametrize("width", [320, 360, 768])
def test_a_narrow_screen_needs_no_sideways_scrolling(opened: Opener, width: int) -> None:
    page = opened(sample(), width=width)
    for details in page.locator("details").all():
        details.locator("summary").click()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("document.body.scrollWidth") <= width


def test_a_lookalike_cannot_be_taken_for_the_real_data(opened: Opener) -> None:
    page = opened(sample())
    section = page.locator("section[data-experiment='lasso-e2006']")
    assert section.locator(".banner").is_visible()
    assert str(lookalike().banner) in section.locator(".banner").inner_text()
    assert "repeating-linear-gradient" in section.evaluate("s => getComputedStyle(s).borderImageSource")
    for panel in PANELS:
        figure = section.locator(f"figure[data-panel='{panel}']")
        assert "look-alike of E2006-tfidf, not the real data" in figure.locator("figcaption").inner_text()
        assert figure.locator("svg .watermark").text_content() == "look-alike data"
    assert page.locator(".banner").count() == 1
    assert page.locator("svg .watermark").count() == 2


def background(page: Page) -> str:
    return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))


def test_the_theme_button_changes_the_colors_and_keeps_the_choice(opened: Opener) -> None:
    page = opened(one_experiment(), color_scheme="light")
    light = background(page)
    page.click("[data-role='theme']")
    dark = background(page)
    assert dark != light
    assert page.evaluate("localStorage.getItem('theme')") == "dark"
    page.click("[data-role='theme']")
    assert background(page) == light
    page.click("[data-role='theme']")
    assert page.locator("[data-role='theme']").inner_text() == "Theme: auto"


@pytest.mark.parametrize(("system", "kept"), [("light", "dark"), ("dark", "light")])
def test_the_page_opens_in_the_saved_theme(opened: Opener, system: str, kept: str) -> None:
    page = opened(one_experiment(), color_scheme=system)
    before = background(page)
    # Written again before the page's own scripts: a browser may bring it to the disk only later.
    page.add_init_script(f"localStorage.setItem('theme', '{kept}')")
    page.reload()
    assert background(page) != before
    assert page.locator("[data-role='theme']").inner_text() == f"Theme: {kept}"


def luminance(color: str) -> float:
    """Return the relative luminance of a color as WCAG 2 defines it."""
    channels = [int(part) / 255 for part in re.findall(r"\d+", color)[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_and_curves_stand_out_in_both_themes(opened: Opener, scheme: str) -> None:
    page = opened(sample(), color_scheme=scheme)
    behind = background(page)
    color = "(nodes, name) => nodes.map(node => getComputedStyle(node)[name])"
    text = page.eval_on_selector_all("body, .muted, .symbol, a, dt, .chart-warning", color, "color")
    text += page.eval_on_selector_all("svg.chart text:not(.watermark)", color, "fill")
    lines = page.eval_on_selector_all("path.curve", color, "stroke")
    assert min(contrast(shown, behind) for shown in text) >= 4.5  # WCAG 2, text
    assert min(contrast(shown, behind) for shown in lines) >= 3.0  # WCAG 2, graphics
    pairs = page.eval_on_selector_all(
        "[class*='badge verdict'], .banner, .quick",
        "nodes => nodes.map(n => [getComputedStyle(n).color, getComputedStyle(n).backgroundColor])",
    )
    assert min(contrast(*pair) for pair in pairs) >= 4.5


def test_no_two_methods_have_the_same_line(opened: Opener) -> None:
    page = opened(one_experiment())
    looks = page.eval_on_selector_all(
        SECTION + "figure[data-panel='paper'] path.curve",
        "paths => paths.map(p => getComputedStyle(p).stroke + getComputedStyle(p).strokeDasharray)",
    )
    assert len(set(looks)) == len(SHAPES)


def test_without_javascript_text_and_tables_are_there_and_lead_to_the_figures(opened: Opener) -> None:
    page = opened(sample(), java_script_enabled=False)
    assert page.locator(".experiment .ends tbody tr").count() == 3 * len(SHAPES)
    assert page.locator("#answer tbody tr").count() == 3 * len(SHAPES)
    assert page.locator(".claim").first.is_visible()
    assert page.locator("main > noscript").first.is_visible()
    assert page.locator("noscript a[href='figures/lasso-e2006-all-data.png']").is_visible()
    assert page.locator(".charts").first.is_hidden()
    assert page.locator(".bar").is_hidden()


def test_hostile_text_is_shown_and_runs_nothing(opened: Opener) -> None:
    page = opened(hostile_study(HOSTILE))
    page.hover("figure[data-panel='paper'] svg")
    assert page.locator("[data-role='tooltip'] th[scope='row']").first.inner_text().startswith(HOSTILE)
    assert page.locator("h2", has_text=HOSTILE).count() == 1
    assert page.locator("img").count() == 0


def test_ten_long_runs_are_drawn_and_read_at_once(opened: Opener) -> None:
    many = [replace(curve, key=f"{curve.key}-{turn}") for turn in range(2) for curve in long_curves()]
    page = opened(sample([replace(lasso(), curves=many)]))
    page.hover(SECTION + "figure[data-panel='all-data'] svg")
    assert len(drawn(page)) == 2 * len(many)
    assert len(tooltip(page)) == len(many)


def long_curves() -> list[Curve]:
    shapes = [replace(shape, points=3_000) for shape in SHAPES]
    made = [columns(shape, 2.1e7, 8e4, False) for shape in shapes]
    return [with_columns(curve, new) for curve, new in zip(curves(1.0, 1.0), made, strict=True)]


# The script that sees to a browser, with made-up programs around it.


def ask(folder: Path, programs: Mapping[str, str]) -> tuple[int, str]:
    """Run tools/browser.sh where only these programs are there; return its status and its words."""
    for name, body in programs.items():
        (folder / name).write_text(f"#!/bin/sh\n{body}\n")
        (folder / name).chmod(0o755)
    shell = shutil.which("sh") or "/bin/sh"
    done = subprocess.run(
        [shell, str(SCRIPT)], env={"PATH": str(folder)}, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("programs", "words"),
    [
        ({"chromium": ""}, r""),
        ({"google-chrome": "", "id": "echo 0", "apt-get": "exit 1"}, r""),
        (
            {"id": "echo 0", "apt-get": "echo chatter"},
            r"installing Chromium, in which the report page is tested\n",
        ),
        (
            {"id": "echo 0", "apt-get": "exit 1"},
            r"installing .*\n.*could not be installed: .* not tested in a browser\n",
        ),
        (
            {"id": "echo 1000", "apt-get": ""},
            r"no Chromium here .* not tested .*; use: sudo apt-get install chromium\n",
        ),
        ({"id": "echo 0"}, r"no Chromium here .*\n"),
    ],
    ids=["there", "another name", "installs", "cannot install", "not root", "no apt-get"],
)
def test_the_browser_script_says_what_it_does_and_never_stops_the_setup(
    tmp_path: Path, programs: dict[str, str], words: str
) -> None:
    status, said = ask(tmp_path, programs)
    assert status == 0
    assert re.fullmatch(words, said)
