"""Which files of the package a call passes through: those in which a function is executed."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import dcgs

PACKAGE = str(Path(dcgs.__file__).parent)


def passed_files(call: Callable[[], object]) -> set[str]:
    """Return the files of dcgs, relative to the package, in which a function is executed during the call.

    Modules that are imported during the call do not count for being imported.
    """
    files: set[str] = set()

    def profile(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            files.add(frame.f_code.co_filename)

    before = sys.getprofile()
    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(before)
        threading.setprofile(before)
    return {str(Path(file).relative_to(PACKAGE)) for file in files if file.startswith(PACKAGE)}
