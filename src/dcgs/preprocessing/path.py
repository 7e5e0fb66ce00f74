"""The path of radii: models of increasing radius, each judged on rows that its sites held out."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import networkx as nx
import numpy as np

from dcgs.low_rank import LowRank
from dcgs.points import Point
from dcgs.preprocessing.folds import Fold
from dcgs.preprocessing.path_models import Fitted, MinimizePath, NewtonPath, PathModels, SetOf, judged
from dcgs.preprocessing.path_result import SAME, Path, PathPoint, from_sums
from dcgs.preprocessing.path_search import NOT_BETTER, RAN_OUT, first_as_good, searched
from dcgs.preprocessing.path_sums import SumsPath
from dcgs.preprocessing.reductions import ReductionRequest, Reductions, Steps
from dcgs.runtime import Lockstep, Runtime
from dcgs.sets.base import ConvexSet, ProjectableSet
from dcgs.sets.product_set import Product
from dcgs.validation import finite, instance, reals, shown, takes, vector

# With at most this number of unknowns, Hessians are sent.
_FEW = 64
# The first radius, as a share of the one at which a single atom would end; the ratio of radii; their number.
_FIRST, _RATIO, _MOST = 0.25, 1.5, 30
# The held-out error has clearly turned if it is above the best by this number of standard errors, or was so
# many times in a row above it by one. The set bounds nothing more if the loss on training rows fell as often
# by less than this share.
_TIMES, _STILL = 2, 1e-3
# Errors of matrices in factors differ smoothly from radius to radius: two that rise in a row are enough.
_RISES = 2
# A coefficient counts as zero below this share of the largest.
_ZERO = 1e-6
# A model of classes that leaves less than this share of the loss explains nearly all of it.
_LEFT = 0.01


def path(
    folds: Fold | Sequence[Fold],
    set_of: SetOf,
    graph: nx.Graph,
    *,
    radii: Sequence[float] | None = None,
    start: Point | None = None,
    runtime: Runtime | None = None,
) -> Path:
    """Return what models of increasing radius are worth on rows that the agents held out.

    ``set_of`` gives the set of a radius, such as ``lambda r: dcgs.L1Ball(10, r)``. A :class:`Fold` has the
    objectives that agents train on, and those of rows that they held out. Without ``radii`` the path starts
    below the radius where a single atom would end, and goes on by a factor of 1.5 (with more than 64 unknowns
    by a factor of 3, and then in smaller steps around the best), until the set bounds the model no more, or
    until the error on held-out rows has turned. Models are found to a gap of 3 %, but for those that are
    clearly too large. Matrices in factors are found to a gap of 10 %, and an error that rises twice in a row
    has turned. A model that runs out of steps is left out of the path; ``ran_out`` has its radius, and a
    ``RuntimeWarning`` says so. ``start`` is the point of no model, by default that of the set.

    >>> import dcgs
    >>> rng = np.random.default_rng(0)
    >>> A = rng.standard_normal((3, 60, 8))
    >>> b = A @ [3.0, -2.0, 0, 0, 0, 0, 0, 0] + rng.standard_normal((3, 60))
    >>> train = {i: dcgs.LeastSquares(A[i, :40], b[i, :40]) for i in range(3)}
    >>> held_out = {i: dcgs.LeastSquares(A[i, 40:], b[i, 40:]) for i in range(3)}
    >>> found = dcgs.path(dcgs.Fold(train, held_out), lambda r: dcgs.L1Ball(8, r), nx.path_graph(3))
    >>> 4.0 < found.best.radius < 6.0, found.one_standard_error.radius <= found.best.radius
    (True, True)
    """
    network = Reductions(graph, Lockstep() if runtime is None else runtime)
    given = [folds] if isinstance(folds, Fold) else folds
    instance(given, Sequence, "folds", "be dcgs.Fold(train, held_out), or several of them")
    (found,) = network.run(path_steps(network, list(given), set_of, radii, start))
    if found.ran_out:
        warnings.warn(str(found), RuntimeWarning, stacklevel=2)
    return found


def path_steps(
    network: Reductions,
    folds: Sequence[Fold],
    set_of: SetOf,
    radii: Sequence[float] | None = None,
    start: Any = None,
) -> Steps[Path]:
    """Return the path, as :func:`path`; run it with ``network.run``, which records what was sent for it.

    Several paths that are run together share sums. The rounds and bytes of a path are then those of all sums
    until it ended.
    """
    if len(folds) == 0:
        raise ValueError("folds must be dcgs.Fold(train, held_out), or several of them; got none.")
    for fold in folds:
        instance(fold, Fold, "folds", "be dcgs.Fold(train, held_out), or several of them")
        lacks = [i for i in network.hosts if i not in fold.train or i not in fold.held_out]
        if lacks:
            raise ValueError(
                f"every fold must have train and held_out of the agents {list(network.hosts)}, the nodes of "
                f"the graph that this process runs; one has none for {lacks}."
            )
    if radii is not None and not all(radius > 0.0 for radius in finite(vector(radii, "radii"), "radii")):
        raise ValueError(f"radii must be positive; got {shown(radii)}.")
    if radii is not None and len(radii) == 0:
        raise ValueError("radii must be at least one; got none.")
    before = network.rounds, network.bytes
    set_of = _checked(set_of, folds[0].train[network.hosts[0]].shape)
    x0 = set_of(1.0 if radii is None else float(radii[0])).start() if start is None else _start(start, set_of)
    few = not isinstance(x0, LowRank) and x0.size <= _FEW
    enough = _LEFT if folds[0].is_of_classes else 0.0
    models: PathModels | SumsPath
    if not few and _sums(set_of, x0):
        models = SumsPath(folds, set_of, network, x0)
        fitted, stopped = yield from searched(models, radii, enough)
    else:
        models = (NewtonPath if few else MinimizePath)(folds, set_of, network, x0)
        fitted, stopped = yield from _fitted(models, folds, network, radii, enough)
    ran_out = tuple(one.radius for one in fitted if one.ran_out)
    if ran_out:
        others = [one for one in fitted if not one.ran_out]
        which = ", ".join(f"{radius:.4g}" for radius in ran_out)
        left_out = "all of them: their errors are a guess" if len(others) == 1 else "which are left out"
        stopped += f"; the steps were not enough for the models of radius {which}, {left_out}"
        fitted = others if len(others) > 1 else fitted
    count = _feature_count(set_of(1.0))
    null, *points = [_point(one, models.weight or 1.0, count) for one in fitted]
    rounds, sent = network.rounds - before[0], network.bytes - before[1]
    found = tuple(one.models for one in fitted[1:])
    size = "rank" if isinstance(x0, LowRank) else "features"
    return Path(tuple(points), null, rounds, sent, len(folds), stopped, found, size, enough, ran_out)


def _checked(set_of: SetOf, shape: tuple[int, ...]) -> SetOf:
    """Return the function with a check of what it returns: a set of points that the objectives take."""
    if isinstance(set_of, type) or not takes(set_of, 1.0):
        raise TypeError(
            f"set_of must be a function of the radius, such as lambda r: dcgs.L1Ball(10, r); "
            f"got {shown(set_of)}."
        )

    def checked(radius: float) -> ConvexSet:
        X = set_of(radius)
        if not isinstance(X, ConvexSet) or X.shape != shape:
            raise ValueError(
                f"set_of must return a set of points of shape {shape}, which the objectives take; for radius "
                f"{radius:.4g} it returned {shown(X)}."
            )
        return X

    return checked


def _start(start: Any, set_of: SetOf) -> Any:
    """Return the point of no model; raise unless it has the shape of the sets."""
    if isinstance(start, LowRank):
        return start
    x0, shape = reals(start, "start"), set_of(1.0).shape
    if x0.shape != shape:
        raise ValueError(f"start must be of shape {shape}, as the sets; got shape {x0.shape}.")
    return x0


def _sums(set_of: SetOf, x0: Any) -> bool:
    """Return True if the models of the path are found by sums."""
    X = set_of(1.0)
    cheap = isinstance(X, ProjectableSet) and X.cheap_projection
    return cheap and not isinstance(x0, LowRank)


def _fitted(
    models: PathModels,
    folds: Sequence[Fold],
    network: Reductions,
    given: Sequence[float] | None,
    enough: float,
) -> Steps[tuple[list[Fitted], str]]:
    """Return the null model and those of the path, all judged, and why there is no larger radius."""
    yield from models.begin()
    patient, fitted = given is not None, [models.null]
    if given is not None:
        radii, stopped = sorted(map(float, given)), "all radii that were given"
    else:
        first = _FIRST * (yield from models.first_radius())
        radii, stopped = [first * _RATIO**k for k in range(_MOST)], f"the largest of {_MOST} radii"
    for radius in radii:
        fitted.append((yield from models.fit(radius)))
        if not models.exact:
            fitted = yield from _all_judged(fitted, folds, network)
        if patient or fitted[-1].ran_out:
            if isinstance(models, MinimizePath) and not patient:  # a larger radius takes longer still
                stopped = RAN_OUT
                break
            continue
        known = [one for one in fitted if not one.ran_out]
        as_good = first_as_good(known, enough)
        if as_good and as_good.radius < radius:
            stopped = NOT_BETTER
            break
        if _is_still(known):
            stopped = "a larger radius does not change the model"
            break
        if not models.exact and (_has_turned(known) or _has_risen(known)):
            stopped = "the error on held-out rows rises with a larger radius"
            break
    return (yield from _all_judged(fitted, folds, network)), stopped


def _all_judged(fitted: list[Fitted], folds: Sequence[Fold], network: Reductions) -> Steps[list[Fitted]]:
    """Return the models with their judgment, those that have none by one sum over the network."""
    waiting = [n for n, one in enumerate(fitted) if one.judged is None]
    if not waiting:
        return fitted
    own = {i: [[judged(folds, i, fitted[n].models) for n in waiting]] for i in network.hosts}
    (sums,) = yield ReductionRequest("held-out losses", own)
    answers = dict(zip(waiting, sums, strict=True))
    return [replace(one, judged=answers[n]) if n in answers else one for n, one in enumerate(fitted)]


def _is_still(fitted: Sequence[Fitted]) -> bool:
    """Return True if the last radii decreased the loss on training rows hardly at all."""
    if len(fitted) <= _TIMES:
        return False
    losses = [sum(one.losses) for one in fitted]
    whole = losses[0] - losses[-1]
    return all(
        a - b <= _STILL * whole for a, b in zip(losses[-_TIMES - 1 : -1], losses[-_TIMES:], strict=True)
    )


def _has_turned(fitted: Sequence[Fitted]) -> bool:
    """Return True if the error rose by two standard errors, or was two times above the best by one."""
    points = [_point(one, 1.0, lambda x: 0) for one in fitted]
    best = min(points, key=lambda point: point.error)
    above = [(point.error - best.error) / (best.standard_error or 1.0) for point in points[-_TIMES:]]
    return (
        len(points) > _TIMES and best.radius < points[-1].radius and (above[-1] > _TIMES or min(above) > 1.0)
    )


def _has_risen(fitted: Sequence[Fitted]) -> bool:
    """Return True if the models are matrices in factors, and the error rose with each of the last radii."""
    if len(fitted) <= _RISES or not isinstance(fitted[-1].models[0], LowRank):
        return False
    points = [_point(one, 1.0, lambda x: 0) for one in fitted[-_RISES - 1 :]]
    return all(a.error + SAME * a.standard_error < b.error for a, b in pairwise(points))


def _point(one: Fitted, weight: float, count: Callable[[Any], int]) -> PathPoint:
    assert one.judged is not None
    features = float(np.mean([count(x) for x in one.models])) if one.radius > 0.0 else 0.0
    return from_sums(one.radius, one.judged.tolist(), sum(one.losses) / weight, features)


def _feature_count(X: Any) -> Callable[[Any], int]:
    """Return the function that counts the nonzero coefficients of a model, or its rank."""
    part = X.slices[0] if isinstance(X, Product) else slice(None)

    def count(x: Any) -> int:
        if isinstance(x, LowRank):
            return x.rank
        flat = np.abs(x.reshape(-1)[part])
        return int(np.count_nonzero(flat > _ZERO * float(flat.max(initial=0.0))))

    return count
