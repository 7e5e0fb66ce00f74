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


def link(text: str) -> Link:
    """Return a link of that speed."""
    try:
        return Link.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
