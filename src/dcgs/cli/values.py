"""Options, and the checks of their values."""

from __future__ import annotations

import argparse
import codecs
import math
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from dcgs import registry
from dcgs.learn.files.specs import AUTO, parse_value
from dcgs.link import Link

Number = TypeVar("Number", int, float)


def job(jobs: Any, name: str, text: str, about: str, more: str) -> argparse.ArgumentParser:
    """Add a job whose description and epilog keep their line breaks; return its parser."""
    raw = argparse.RawDescriptionHelpFormatter
    added: argparse.ArgumentParser = jobs.add_parser(
        name, help=text, description=about, epilog=more, formatter_class=raw
    )
    return added


def option(group: Any, flag: str, text: str, kind: Any = str, **more: Any) -> None:
    """Add an option to a parser or a group; ``flag`` is ``--name`` or ``--name METAVAR``.

    A ``kind`` of bool is a switch. One with a default also has the form ``--no-name``.
    """
    name, _, metavar = flag.partition(" ")
    if kind is bool:
        action = argparse.BooleanOptionalAction if "default" in more else "store_true"
        group.add_argument(name, help=text, action=action, **more)
    else:
        group.add_argument(name, metavar=metavar or None, help=text, type=kind, **more)


def count(text: str) -> int:
    """Return a whole number of at least 1."""
    return _checked(int(text), int(text) >= 1, "at least 1")


def seed(text: str) -> int:
    """Return a whole number of at least 0."""
    return _checked(int(text), int(text) >= 0, "at least 0")


def positive(text: str) -> float:
    """Return a positive number."""
    return _checked(float(text), 0.0 < float(text) < math.inf, "positive and finite")


def fraction(text: str) -> float:
    """Return a number between 0 and 1."""
    return _checked(float(text), 0.0 < float(text) < 1.0, "between 0 and 1")


def share(text: str) -> float:
    """Return a number of at least 0 and less than 1."""
    return _checked(float(text), 0.0 <= float(text) < 1.0, "at least 0 and less than 1")


def radius(text: str) -> float | str:
    """Return a positive number, or auto."""
    return text if text == AUTO else positive(text)


def path(text: str) -> Path:
    """Return a path; an empty one would be the current folder."""
    if not text.strip():
        raise argparse.ArgumentTypeError(f"must be a name; got {text!r}")
    return Path(text)


def names(text: str) -> tuple[str, ...]:
    """Return names that commas separate; brackets are for the files after them."""
    given = tuple(name.strip() for name in text.split(","))
    if not all(given) or any("(" in name or len(name) > 60 for name in given):
        must = "names of at most 60 characters without brackets, separated by commas"
        raise argparse.ArgumentTypeError(f"must be {must}; got {text!r}")
    return given


def encoding(text: str) -> str:
    """Return the name of an encoding in which lines end as in ASCII."""
    with suppress(LookupError, UnicodeError):
        if "\n,1".encode(text) == b"\n,1":
            return codecs.lookup(text).name
    raise argparse.ArgumentTypeError(
        f"must be an encoding that extends ASCII, such as utf-8, latin-1 or cp1252; got {text}. "
        "Save other files as UTF-8"
    )


def _checked(value: Number, holds: bool, must: str) -> Number:
    if not holds:
        raise argparse.ArgumentTypeError(f"must be {must}; got {value!r}")
    return value


def shape(text: str) -> tuple[int, int]:
    """Return rows and columns of a matrix, from R,C or RxC."""
    parts = text.replace("x", ",").split(",")
    if len(parts) != 2 or not all(part.strip().isdecimal() and int(part) > 0 for part in parts):
        raise argparse.ArgumentTypeError(f"must be rows and columns, such as 943,1682; got {text}")
    return int(parts[0]), int(parts[1])


def link(text: str) -> Link:
    """Return a link of that speed; the pictures of the paper count no latency."""
    try:
        parsed = Link.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if parsed.latency > 0.0:
        raise argparse.ArgumentTypeError(f"must be a speed without a latency, such as 10MB/s; got {text}")
    return parsed


def name_of(kind: registry.ClassKind, *others: str) -> Callable[[str], str]:
    """Return a check that a text names a class of this kind, built-in or ``package.module:Name``."""

    def name(text: str) -> str:
        if text not in others:
            try:
                registry.resolve(kind, text)
            except ValueError as error:
                raise argparse.ArgumentTypeError(str(error)) from error
        return text

    return name


def assignment(text: str) -> tuple[str, Any]:
    """Return the name and the value of KEY=VALUE."""
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"must be KEY=VALUE; got {text}")
    return name, parse_value(value)
