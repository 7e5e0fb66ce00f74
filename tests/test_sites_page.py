"""The page of a site: what it shows, in a browser and without."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import networkx as nx
import pytest

from dcgs.sites.events import EVENTS, EventLog, last_events
from dcgs.sites.page import PAGE, SiteView, status_page
from site_runs import make_sites

VIEW = SiteView(
    "ulm",
    "heart",
    "It waits for graz for 75 s.",
    {"bytes": "sent 10, received 20"},
    {"graz": 1000.0, "bern": 0.0},
    {"graz": 3},
    [("2026-11-18T10:00:00", "first"), ("2026-11-18T10:00:05", "<script>alert(1)</script>")],
    1030.0,
)


def test_the_page_has_what_a_site_knows_and_escapes_what_others_say() -> None:
    page = status_page(VIEW)
    for text in ("It waits for graz for 75 s.", "30 s ago", "not since the start", "sent 10, received 20"):
        assert text in page
    assert "<script>" not in page
    assert page.index("&lt;script&gt;") < page.index("first")  # the last event comes first
    assert "http:" not in page
    assert "https:" not in page


def test_a_running_site_writes_its_page(tmp_path: Path) -> None:
    sites = make_sites(tmp_path, nx.path_graph(2), (0,))
    with ThreadPoolExecutor(1) as pool:
        with sites.running("ulm"):
            other = pool.submit(sites.run, lambda runtime: None, ["graz"])
        other.result(300.0)
    (page,) = (tmp_path / "ulm").glob(f"run/*/{PAGE}")
    text = page.read_text()
    assert "ulm in test" in text
    assert sites.study.hash.hex() in text
    assert "graz" in text


def test_the_page_is_light_or_dark_in_a_browser_and_loads_nothing(tmp_path: Path) -> None:
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        pytest.skip("no Chromium was found: the page was NOT tested in a browser")
    from playwright.sync_api import sync_playwright

    file = tmp_path / PAGE
    file.write_text(status_page(VIEW))
    colors, complaints, requests = {}, list[str](), list[str]()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        for scheme in ("light", "dark"):
            page = browser.new_page(color_scheme="light" if scheme == "light" else "dark")
            page.on("console", lambda message: complaints.append(message.text))
            page.on("request", lambda request: requests.append(request.url))
            page.goto(file.as_uri())
            colors[scheme] = page.evaluate("getComputedStyle(document.body).color")
            assert page.locator("#state").inner_text() == VIEW.state
            assert page.locator("td").filter(has_text="<script>alert(1)</script>").count() == 1
        browser.close()
    assert colors == {"light": "rgb(0, 0, 0)", "dark": "rgb(255, 255, 255)"}
    assert complaints == []
    assert set(requests) == {file.as_uri()}


def test_the_last_events_are_read_back(tmp_path: Path) -> None:
    log = EventLog(tmp_path / EVENTS, show=lambda text: None)
    for text in ("first", "second", "second", "third", "fourth"):
        log.say(text)
    assert [text for _, text in last_events(tmp_path / EVENTS)] == ["second", "third", "fourth"]
    assert last_events(tmp_path / "none") == []
