"""Sets by name, with the options each takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from dcgs.datasets import BrokenDataError
from dcgs.datasets.streams import whole_lines
from dcgs.fitting.data import Numbers
from dcgs.fitting.readers import Npz, kind_of, read_npy, read_table
from dcgs.fitting.readers.layout import listed
from dcgs.sets import (
    BirkhoffPolytope,
    Box,
    ConvexHull,
    ConvexSet,
    GroupL1Ball,
    KSparseBall,
    L1Ball,
    L2Ball,
    LInfBall,
    NuclearNormBall,
    Polytope,
    Simplex,
    Spectraplex,
)

Shape = tuple[int, ...]


@final
@dataclass(frozen=True)
class SetWish:
    """The user's ``--set`` and its options; None is one that was not given.

    ``lower`` and ``upper`` are a number or an .npy file; ``groups`` a number or a file; ``points`` and
    ``polytope`` files.
    """

    name: str
    radius: float | None = None
    lower: str | None = None
    upper: str | None = None
    k: int | None = None
    groups: str | None = None
    points: str | None = None
    polytope: str | None = None

    def check(self) -> None:
        """Raise if an option is missing, or is one that the set does not take."""
        recipe = SETS[self.name]
        given = [name for name in _OPTIONS if getattr(self, name) is not None]
        foreign = [name for name in given if name not in (*recipe.needs, *recipe.may)]
        missing = [name for name in recipe.needs if name not in given]
        if foreign:
            takes = _flags((*recipe.needs, *recipe.may)) or "no option"
            raise ValueError(f"the set {self.name} takes {takes}; got {_flags(foreign)}. Leave it out.")
        if missing:
            raise ValueError(f"the set {self.name} needs {_flags(missing)}: {_ABOUT[missing[0]]}.")

    def made(self, shape: Shape) -> ConvexSet:
        """Return the set, for models of that shape."""
        X = SETS[self.name].make(shape, self)
        if X.shape != shape:
            raise ValueError(
                f"the set must be of models of shape {_sides(shape)}; {self.name} as given is of shape "
                f"{_sides(X.shape)}."
            )
        return X


@final
@dataclass(frozen=True)
class Recipe:
    """How a set is made, which options it needs, and which it may have."""

    about: str
    make: Callable[[Shape, SetWish], ConvexSet]
    needs: tuple[str, ...] = ()
    may: tuple[str, ...] = ()


def _nuclear(shape: Shape, wish: SetWish) -> ConvexSet:
    if len(shape) != 2:
        raise ValueError(f"the set nuclear must be of matrices; the model has shape {_sides(shape)}.")
    return NuclearNormBall((shape[0], shape[1]), _radius(wish))


def _square(shape: Shape, wish: SetWish) -> int:
    if len(shape) != 2 or shape[0] != shape[1]:
        raise ValueError(
            f"the set {wish.name} must be of square matrices; the model has shape {_sides(shape)}."
        )
    return shape[0]


def _box(shape: Shape, wish: SetWish) -> ConvexSet:
    return Box(_bound(wish.lower, "lower", shape), _bound(wish.upper, "upper", shape))


def _bound(text: str | None, name: str, shape: Shape) -> Numbers:
    try:
        return np.full(shape, float(text or ""))
    except ValueError:
        bound = read_npy(Path(text or "").expanduser())
        if bound.shape != shape:
            raise ValueError(
                f"{name} must be a number or an array of shape {_sides(shape)}; {text} has {bound.shape}."
            ) from None
        return bound


def _grouped(shape: Shape, wish: SetWish) -> ConvexSet:
    entries, text = int(np.prod(shape)), wish.groups or ""
    if text.isdecimal() and int(text) > 0:
        size = int(text)
        groups: list[Sequence[int]] = [
            range(low, min(low + size, entries)) for low in range(0, entries, size)
        ]
        return GroupL1Ball(shape, groups, _radius(wish))
    return GroupL1Ball(shape, _groups_of(Path(text).expanduser(), entries), _radius(wish))


def _groups_of(file: Path, entries: int) -> list[Sequence[int]]:
    """Return the groups of a file that names one on each line: line j is the group of feature j."""
    words: list[str] = []
    for _, content in whole_lines(file, 1 << 20):
        words += content.decode("utf-8", errors="replace").split("\n")
    while words and not words[-1].strip():
        words.pop()
    if len(words) != entries:
        raise BrokenDataError(
            f"{file} must have a line for each of the {entries} features, the name of its group; "
            f"it has {len(words)}."
        )
    members: dict[str, list[int]] = {}
    for feature, word in enumerate(words):
        if not word.strip():
            raise BrokenDataError(f"line {feature + 1} of {file} must name a group; it is empty.")
        members.setdefault(word.strip(), []).append(feature)
    return list(members.values())


def _hull(shape: Shape, wish: SetWish) -> ConvexSet:
    file = Path(wish.points or "").expanduser()
    points = (
        read_npy(file)
        if kind_of(file) == "npy"
        else read_table(file, lambda head: range(head.width), None)[1]
    )
    if len(shape) > 1 and points.ndim == 2:
        points = points.reshape(len(points), *shape) if points.shape[1] == np.prod(shape) else points
    return ConvexHull(points)


def _polytope(shape: Shape, wish: SetWish) -> ConvexSet:
    if len(shape) != 1:
        raise ValueError(f"the set polytope must be of vectors; the model has shape {_sides(shape)}.")
    npz = Npz(Path(wish.polytope or "").expanduser())
    known = {name: npz.matrix(name) for name in ("A_ub", "A_eq") if npz.first_of(name, f"{name}_data")}
    sides: dict[str, Any] = {name: npz.array(name) for name in ("b_ub", "b_eq") if name in npz.names}
    if not known:
        raise BrokenDataError(
            f"{npz.file} must have arrays A_ub and b_ub, or A_eq and b_eq, or all four; "
            f"it has {listed(npz.names)}."
        )
    return Polytope(**known, **sides)


def _radius(wish: SetWish) -> float:
    return 1.0 if wish.radius is None else wish.radius


SETS = {
    "l1": Recipe("Σ |xⱼ| ≤ radius: few entries are not 0", lambda s, w: L1Ball(s, _radius(w)), ("radius",)),
    "l2": Recipe("‖x‖ ≤ radius", lambda s, w: L2Ball(s, _radius(w)), ("radius",)),
    "linf": Recipe("|xⱼ| ≤ radius", lambda s, w: LInfBall(s, _radius(w)), ("radius",)),
    "simplex": Recipe("xⱼ ≥ 0, Σ xⱼ = radius (1)", lambda s, w: Simplex(s, _radius(w)), (), ("radius",)),
    "box": Recipe("lower ≤ xⱼ ≤ upper", _box, ("lower", "upper")),
    "k-sparse": Recipe(
        "the hull of vectors with k entries ±radius",
        lambda s, w: KSparseBall(s, w.k or 0, _radius(w)),
        ("k", "radius"),
    ),
    "group-l1": Recipe("Σ over groups of ‖x in it‖ ≤ radius", _grouped, ("groups", "radius")),
    "nuclear": Recipe("matrices whose singular values sum to at most radius", _nuclear, ("radius",)),
    "spectraplex": Recipe(
        "symmetric positive semidefinite matrices of trace radius (1)",
        lambda s, w: Spectraplex(_square(s, w), _radius(w)),
        (),
        ("radius",),
    ),
    "birkhoff": Recipe("doubly stochastic matrices", lambda s, w: BirkhoffPolytope(_square(s, w))),
    "hull": Recipe("the convex hull of points", _hull, ("points",)),
    "polytope": Recipe("A_ub x ≤ b_ub, A_eq x = b_eq", _polytope, ("polytope",)),
}

_OPTIONS = ("radius", "lower", "upper", "k", "groups", "points", "polytope")
_ABOUT = {
    "radius": "how large a model may be; a larger one fits the data closer and generalizes less",
    "lower": "a number, or an .npy file with one for each entry",
    "upper": "a number, or an .npy file with one for each entry",
    "k": "how many entries of an extreme point are not 0",
    "groups": "how many features in a row are a group, or a file with a group's name for each feature",
    "points": "a file of points, one a row",
    "polytope": "an .npz file with A_ub and b_ub, A_eq and b_eq, or both pairs",
}


def _flags(names: Sequence[str]) -> str:
    return " and ".join(f"--{name}" for name in names)


def _sides(shape: Shape) -> str:
    return ",".join(map(str, shape))
