"""The site builds without a warning, and every example and tutorial runs."""

from __future__ import annotations

import inspect
import os
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

import dcgs

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.py"))
ALIASES = {"Accuracy", "Inbox", "Message", "Outbox", "Path", "Point", "Program"}


@pytest.fixture
def no_window(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Draw into memory, and show nothing."""
    plt.close("all")
    plt.switch_backend("agg")
    monkeypatch.setattr(plt, "show", lambda: None)
    yield
    plt.close("all")


@pytest.mark.parametrize("script", [*EXAMPLES, *TUTORIALS], ids=lambda path: path.stem)
def test_every_example_and_tutorial_runs_and_draws_data_in_every_panel(
    script: Path, no_window: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [str(script)])
    runpy.run_path(str(script), run_name="__main__")
    figures = [plt.figure(number) for number in plt.get_fignums()]
    assert figures
    assert [axes for figure in figures for axes in figure.axes if not axes.has_data() and axes.axison] == []


@pytest.mark.parametrize("name", ["lasso", "completion"])
def test_these_examples_save_their_figure_in_a_folder(
    name: str, no_window: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs are cut to ten iterations, because this test does not judge the numbers."""
    minimize = dcgs.minimize
    monkeypatch.setattr(dcgs, "minimize", lambda *a, **rules: minimize(*a, **rules | {"iterations": 10}))
    monkeypatch.setattr(sys, "argv", [name, str(tmp_path)])
    runpy.run_path(str(ROOT / "examples" / f"{name}.py"), run_name="__main__")
    assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_there_are_at_least_ten_examples_and_three_tutorials() -> None:
    assert len(EXAMPLES) >= 10
    assert len(TUTORIALS) == 3


def test_the_site_builds_without_a_warning_and_every_link_inside_it_leads_somewhere(tmp_path: Path) -> None:
    """The gallery is not run here: the test above runs its scripts."""
    source, site = tmp_path / "repository", tmp_path / "site"
    # Sphinx writes into its source folder, and so gets a copy.
    generated = shutil.ignore_patterns("auto_*", "generated", "sg_*")
    shutil.copytree(ROOT / "docs", source / "docs", ignore=generated)
    for path in [*ROOT.glob("*.md"), ROOT / "src", ROOT / "examples"]:
        (source / path.name).symlink_to(path)
    environment = os.environ | {"DCGS_GALLERY": "skip", "MPLBACKEND": "agg"}
    sphinx = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html"]
    built = subprocess.run(
        [*sphinx, source / "docs", site], env=environment, capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stdout + built.stderr
    checked = subprocess.run(
        [sys.executable, ROOT / "tools" / "site_links.py", site], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout
    pages = {path.relative_to(site).as_posix() for path in site.rglob("*.html")}
    assert {f"{path.stem}.html" for path in (ROOT / "docs").glob("*.md")} <= pages
    assert {f"auto_tutorials/{path.stem}.html" for path in TUTORIALS} <= pages
    assert {f"auto_examples/{path.stem}.html" for path in EXAMPLES} <= pages
    assert {f"generated/dcgs.{name}.html" for name in set(dcgs.__all__) - ALIASES} <= pages


def test_every_public_name_has_a_docstring_with_an_example() -> None:
    """Names of types have their example on the page of the reference."""
    named = {name: inspect.getdoc(getattr(dcgs, name)) or "" for name in set(dcgs.__all__) - ALIASES}
    assert sorted(name for name, text in named.items() if ">>>" not in text) == []
    page = (ROOT / "docs" / "api.md").read_text()
    examples = page.partition("## Types")[2]
    assert sorted(name for name in ALIASES if f"dcgs.{name}" not in examples) == []
    listed = {name for pair in re.findall(r"^   (\w+)$|^\| `(\w+)` \|", page, re.MULTILINE) for name in pair}
    for package in re.findall(r"^   @(dcgs\.\w+)$", page, re.MULTILINE):  # all its names
        listed |= set(import_module(package).__all__)
    assert sorted(set(dcgs.__all__) - listed) == []
