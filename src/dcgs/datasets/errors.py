"""Errors about data files; every message is a sentence for the user."""

from __future__ import annotations

from typing import final


@final
class DataNotFoundError(FileNotFoundError):
    """A data set, or a file of it, does not exist or cannot be read."""


@final
class BrokenDataError(ValueError):
    """The content of a file is not what it must be."""


@final
class DownloadError(OSError):
    """A file could not be downloaded; nothing of it was saved."""
