"""What can go wrong with data that others made; every message is a sentence to be shown as it is."""

from __future__ import annotations

from typing import final


@final
class DataNotFoundError(FileNotFoundError):
    """A data set, or a file of it, is not there or cannot be read."""


@final
class BrokenDataError(ValueError):
    """A file is there and is not what it must be."""


@final
class DownloadError(OSError):
    """A file could not be fetched; nothing of it was kept."""
