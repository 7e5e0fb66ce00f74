"""The page of a site: what it shows, in a browser and without."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import networkx as nx

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
