"""Values of options, checked as they are read."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from dcgs import registry
from dcgs.experiments.link import Link
from dcgs.fitting import parse_value


def count(text: str) -> int:
    """Return a whole number of at least 1."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1; got {text}")
    return value


def seed(text: str) -> int:
    """Return a whole number of at least 0."""
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"must be at least 0; got {text}")
    return value


def positive(text: str) -> float:
    """Return a positive number."""
    value = float(text)
    if not 0.0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be positive and finite; got {text}")
    return value


def fraction(text: str) -> float:
    """Return a number between 0 and 1."""
    value = float(text)
    if not 0.0 < value < 1.0:
        raise argparse.ArgumentTypeError(f"must be between 0 and 1; got {text}")
    return value


def shape(text: str) -> tuple[int, int]:
    """Return rows and columns of a matrix, from R,C or RxC."""
    parts = text.replace("x", ",").split(",")
    if len(parts) != 2 or not all(part.strip().isdecimal() and int(part) > 0 for part in parts):
        raise argparse.ArgumentTypeError(f"must be rows and columns, such as 943,1682; got {text}")
    return int(parts[0]), int(parts[1])


def link(text: str) -> Link:
    """Return a link of that speed."""
    try:
        return Link.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def name_of(kind: registry.Kind, *others: str) -> Callable[[str], str]:
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
