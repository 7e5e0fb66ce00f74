"""Objects that live outside the package, named ``package.module:name``."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path


def load_outside(spec: str) -> object:
    """Import the object that ``package.module:name`` names; modules in the current folder are found.

    >>> load_outside("math:pi")
    3.141592653589793
    """
    module, _, name = spec.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(
            f"a name outside the package must be package.module:name and importable; got {spec!r} ({error}). "
            "Check the spelling, and run the command where the module is found."
        ) from error
