"""Sets, methods, inner solvers and losses by their names on the command line.

Built-in classes are those that ``dcgs.sets``, ``dcgs.methods``, ``dcgs.inner`` and ``dcgs.objectives``
export. A class of another package is called ``package.module:Name``, one in a Python file
``path/to/file.py:Name``.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, TypeAlias, overload

from dcgs import inner as _inner
from dcgs import methods as _methods
from dcgs import objectives as _objectives
from dcgs import sets as _sets
from dcgs.inner import Inner
from dcgs.methods import Method
from dcgs.objectives import Loss
from dcgs.sets import ConvexSet

ClassKind: TypeAlias = Literal["set", "method", "inner solver", "loss"]


def sets() -> dict[str, type[ConvexSet]]:
    """Return the built-in sets by name: l1, box, nuclear, …"""
    return _exported(_sets, ConvexSet, lambda made: str(made.name))


def methods() -> dict[str, type[Method]]:
    """Return the built-in methods by name: fastdcgs, dcgs, dfw, …"""
    return _exported(_methods, Method, lambda made: str(made.__name__.lower()))


def inner_solvers() -> dict[str, type[Inner]]:
    """Return the built-in inner solvers by name: cg, pcg, …"""
    return _exported(_inner, Inner, lambda made: str(made.__name__.lower()))


def losses() -> dict[str, type[Loss]]:
    """Return the built-in losses by name: squared, logistic, huber."""
    return _exported(_objectives, Loss, lambda made: str(made.__name__.removesuffix("Loss").lower()))


@overload
def resolve(kind: Literal["set"], text: str) -> type[ConvexSet]: ...
@overload
def resolve(kind: Literal["method"], text: str) -> type[Method]: ...
@overload
def resolve(kind: Literal["inner solver"], text: str) -> type[Inner]: ...
@overload
def resolve(kind: Literal["loss"], text: str) -> type[Loss]: ...
def resolve(kind: ClassKind, text: str) -> type[Any]:
    """Return the class that a name stands for: a built-in one, ``package.module:Name`` or ``file.py:Name``.

    Modules are found as by ``python -m``: among installed packages and in the current folder.

    >>> resolve("set", "l1").__name__, resolve("method", "dcgs.methods.dfw:DFW").__name__
    ('L1Ball', 'DFW')
    >>> resolve("method", "adam")
    Traceback (most recent call last):
    ValueError: the method must be one of dcgs, dfw, ..., or package.module:Name; got 'adam'.
    """
    base, built_in = _KINDS[kind][0], _KINDS[kind][1]()
    if text in built_in:
        return built_in[text]
    if ":" not in text:
        raise ValueError(
            f"the {kind} must be one of {', '.join(built_in)}, or package.module:Name; got {text!r}."
        )
    loaded = load(kind, text)
    if not (isinstance(loaded, type) and issubclass(loaded, base)):
        raise ValueError(
            f"the {kind} {text} must be a class derived from dcgs.{base.__name__}; it is {loaded!r}."
        )
    if inspect.isabstract(loaded):
        missing = ", ".join(sorted(getattr(loaded, "__abstractmethods__", ())))
        raise ValueError(f"the {kind} {text} must define all of dcgs.{base.__name__}; {missing} is missing.")
    return loaded


def check_options(kind: ClassKind, text: str, make: Callable[..., Any], options: dict[str, Any]) -> None:
    """Raise unless a class can be called with these options; the error lists those it takes."""
    try:
        inspect.signature(make).bind(**options)
    except TypeError as error:
        takes = ", ".join(inspect.signature(make).parameters) or "none"
        given = ", ".join(f"{name}={value!r}" for name, value in options.items()) or "none"
        raise ValueError(f"the {kind} {text} takes the options {takes}; got {given}: {error}.") from None


def load(kind: str, text: str) -> object:
    """Import what ``package.module:name`` or ``path/to/file.py:name`` names.

    ``kind`` says in errors what it is meant to be.

    >>> load("number", "math:pi")
    3.141592653589793
    """
    module, _, name = text.rpartition(":")
    try:
        if module.endswith(".py"):
            return getattr(_import_file(Path(module)), name)
        _find_in(os.getcwd())
        return getattr(import_module(module), name)
    except AttributeError as error:
        raise ValueError(f"the {kind} {text} must be in {module}; there is no such name.") from error
    except FileNotFoundError as error:
        raise ValueError(f"the {kind} {text} must be in a Python file; there is no {module} here.") from error
    except Exception as error:
        raise ValueError(
            f"the {kind} {text} must be in a module that can be imported; importing {module} raised "
            f"{type(error).__name__}: {error}. Install it, or run the command in the folder that has it."
        ) from error


def _import_file(path: Path) -> ModuleType:
    """Import a Python file, once. It may import other files of its folder.

    The name of the module depends on the content alone, so that it is the same in all processes.
    """
    content = path.read_bytes()
    name = f"{path.stem}_{hashlib.sha256(content).hexdigest()[:12]}"
    if name not in sys.modules:
        _find_in(str(path.resolve().parent))
        spec = spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[name] = module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]


def _find_in(folder: str) -> None:
    """Let imports find the files of a folder; they hide no installed package."""
    if folder not in sys.path and not ("" in sys.path and folder == os.getcwd()):
        sys.path.append(folder)


def _exported(package: ModuleType, base: type[Any], name: Callable[[Any], str]) -> dict[str, Any]:
    exported = (getattr(package, attribute) for attribute in package.__all__)
    made = [
        item
        for item in exported
        if isinstance(item, type) and issubclass(item, base) and not inspect.isabstract(item)
    ]
    return {name(item): item for item in sorted(made, key=name)}


_KINDS: dict[str, tuple[type[Any], Callable[[], dict[str, type[Any]]]]] = {
    "set": (ConvexSet, sets),
    "method": (Method, methods),
    "inner solver": (Inner, inner_solvers),
    "loss": (Loss, losses),
}
