"""Values of options, checked as they are read."""

from __future__ import annotations

import argparse

from dcgs.experiments.link import Link


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
