"""Settings of the site: ``make docs`` builds it with Sphinx.

The Markdown pages are those that people also read in the repository. Where a page links to a file that is
not a page of the site, :func:`local_links` changes the link.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "src"))

import dcgs  # noqa: E402  # after the path

project = "dcgs"
author = "the authors of dcgs"
version = release = dcgs.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "numpydoc",
    "myst_parser",
    "sphinx_gallery.gen_gallery",
]
templates_path = ["_templates"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["_build", "generated/listed.rst", "auto_*/*.ipynb", "tutorials/GALLERY_HEADER.rst"]
suppress_warnings = ["config.cache"]  # functions in the settings of the gallery cannot be cached

html_theme = "pydata_sphinx_theme"
html_title = "dcgs"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = html_show_sourcelink = False
html_theme_options: dict[str, Any] = {
    "navbar_align": "left",
    "navbar_end": ["theme-switcher"],
    "header_links_before_dropdown": 7,
    "show_toc_level": 2,
    "footer_start": ["copyright"],
    "footer_end": [],
    "logo": {"text": "dcgs"},
}
_ALONE = ("index", "install", "methods", "glossary", "contributing", "changes")  # pages without others below
html_sidebars: dict[str, list[str]] = {page: [] for page in _ALONE}
copyright = f"dcgs {version}, BSD-3-Clause"

myst_heading_anchors = 4
myst_enable_extensions = ["dollarmath", "colon_fence"]

# Pages are generated for the names of the page Reference. Its lines @dcgs.sets and @dcgs.methods stand for
# all names of these packages, which a file of their own lists for the generator.
_LISTED = Path(__file__).parent / "generated" / "listed.rst"
autosummary_generate = ["api.md", str(_LISTED)]
autodoc_typehints = "none"
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False


sphinx_gallery_conf: dict[str, Any] = {
    "examples_dirs": ["tutorials", "../examples"],
    "gallery_dirs": ["auto_tutorials", "auto_examples"],
    "filename_pattern": r"\.py",
    "ignore_pattern": r"__init__\.py",
    "within_subsection_order": "FileNameSortKey",
    "plot_gallery": os.environ.get("DCGS_GALLERY", "run") == "run",
    "abort_on_example_error": True,
    "capture_repr": (),  # what a script prints, and nothing else
    "show_memory": False,
    "show_signature": False,
    "download_all_examples": False,
    "remove_config_comments": True,
    "image_scrapers": ("matplotlib",),
    "reset_modules": ("matplotlib",),
    "min_reported_time": 5.0,
}


def local_links(text: str) -> str:
    """Return a page in which links out of docs/ lead to pages of the site, or are names of files."""
    for link, page in _PAGES.items():
        text = text.replace(f"]({link}", f"]({page}")
    text = re.sub(r"\]\((tutorials|\.\./examples)/(\w+)\.py\)", _of_gallery, text)
    return re.sub(r"\[([^\]]+)\]\(\.\./([^)]*)\)", r"`\2`", text)


def _of_gallery(link: re.Match[str]) -> str:
    return f"](auto_{Path(link[1]).name}/{link[2]}.rst)"


_PAGES = {
    "../CONTRIBUTING.md": "contributing.md",
    "../CHANGELOG.md": "changes.md",
    "../README.md": "index.md",
    "tutorials/)": "auto_tutorials/index.rst)",
    "../examples/)": "auto_examples/index.rst)",
}


def included_links(text: str) -> str:
    """Return CONTRIBUTING.md or CHANGELOG.md with links as seen from docs/."""
    return text.replace("](docs/", "](").replace("](CONTRIBUTING.md", "](contributing.md")


def with_other_pages(text: str) -> str:
    """Return the page How to with a list of pages that no table of contents has, so that none is lost."""
    pages = {path.stem: path.read_text() for path in sorted(Path(__file__).parent.glob("*.md"))}
    listed = re.findall(
        r"^(?:.*<)?(\w+)>?$", "\n".join(_TOCTREE.findall("\n".join(pages.values()))), re.MULTILINE
    )
    others = [name for name in pages if name not in {*listed, "index"}]
    return "\n".join([text, "```{toctree}", *others, "```", ""]) if others else text


def with_names(text: str) -> str:
    """Return the page Reference with all names of a package in place of a line such as @dcgs.sets."""
    return re.sub(r"^   @dcgs\.(\w+)$", lambda found: _names(found[1]), text, flags=re.MULTILINE)


def _names(package: str) -> str:
    """Return the public names of a package, classes that are not abstract first."""
    module = import_module(f"dcgs.{package}")
    things = {name: getattr(dcgs, name) for name in module.__all__}
    return "\n".join(f"   {name}" for name in sorted(things, key=lambda name: not _is_final(things[name])))


def _is_final(thing: object) -> bool:
    return inspect.isclass(thing) and bool(getattr(thing, "__final__", False))


def list_names() -> None:
    """Write the names for the generator, which reads files and not what they stand for."""
    listed = "\n".join(map(_names, ("sets", "methods")))
    _LISTED.parent.mkdir(exist_ok=True)
    _LISTED.write_text(f".. currentmodule:: dcgs\n\n.. autosummary::\n   :toctree: .\n\n{listed}\n")


_TOCTREE = re.compile(r"```\{toctree\}\n(.*?)```", re.DOTALL)


def plain(lines: list[str]) -> list[str]:
    """Return a docstring in which |x| and *shape mean what they mean in mathematics and Python."""
    changed, in_example = [], False
    for line in lines:
        in_example = bool(line.strip()) and (in_example or line.lstrip().startswith(">>>"))
        parts = line.split("``")
        if not in_example:
            parts[::2] = [_STAR.sub(r"\*", part.replace("|", r"\|")) for part in parts[::2]]
        changed.append("``".join(parts))
    return changed


_STAR = re.compile(r"(?<![\w*])\*(?=\w)(?!.*\w\*)")  # a star that opens an emphasis which nothing closes


def setup(app: Any) -> None:
    """Change links of pages, and of files that pages include; read docstrings as plain text."""

    def docstring(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
        lines[:] = plain(lines)

    def read(app: Any, name: str, source: list[str]) -> None:
        changed = {"howto": with_other_pages, "api": with_names}.get(name, str)(source[0])
        source[0] = local_links(changed)

    def include(app: Any, relative: Path, parent: str, source: list[str]) -> None:
        source[0] = included_links(source[0])

    list_names()
    app.connect("autodoc-process-docstring", docstring, priority=100)  # before numpydoc
    app.connect("source-read", read)
    app.connect("include-read", include)
