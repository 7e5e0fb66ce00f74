"""The path of radii: models of increasing radius, with their errors on rows that the agents held out."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import networkx as nx
import numpy as np

from dcgs.learn.radius.finders import CLEAR, Finder, Fitted, NewtonFinder, RunFinder, SetOf, Stops
from dcgs.learn.radius.folds import Fold
from dcgs.learn.radius.result import SAME, PathPoint, RadiusPath
from dcgs.learn.radius.sums_finder import SumsFinder
from dcgs.learn.sums import Reductions, Steps
from dcgs.low_rank import LowRank
from dcgs.parallel import blas_threads
from dcgs.points import Point
from dcgs.runtime import Lockstep, Runtime
from dcgs.sets.base import ConvexSet, projects_cheaply
from dcgs.sets.product_set import Product
from dcgs.validation import finite, instance, reals, shown, takes, vector

# With at most this number of unknowns, Hessians are sent.
_FEW = 64
# The first radius, as a share of the one at which a single atom would end; the ratio of radii; their number.
_FIRST, _RATIO, _MOST = 0.25, 1.5, 30
# The ratio of radii by sums, which are far apart at first; then there is one on either side of the best.
_COARSE_RATIO = 2.0
# The held-out error has clearly turned if it is above the best by this number of standard errors, or was so
# many times in a row above it by one. The set bounds nothing more if the loss on training rows fell as often
# by less than this share; if radii are far apart, once by less than the second one.
_TIMES, _STILL, _COARSE_STILL = 2, 1e-3, 2e-3
# Errors of matrices in factors differ smoothly from radius to radius: two that are not clearly better are
# enough.
_RISES = 2
# A coefficient counts as zero below this share of the largest.
_ZERO = 1e-6
# A model of classes that leaves less than this share of the loss explains nearly all of it.
_LEFT = 0.01

_GIVEN = "all radii that were given"
_NOT_BETTER = "nearly all of the loss is explained, and a larger radius is not clearly better"
_RAN_OUT = "the steps ran out, so that no larger radius was tried"
_RISES_AGAIN = "the error on held-out rows rises with a larger radius"
_IS_FLAT = "the error on held-out ratings does not fall clearly with a larger radius"
_IS_STILL = "a larger radius does not change the model"


@blas_threads(1)
def path(
    folds: Fold | Sequence[Fold],
    set_of: SetOf,
    graph: nx.Graph,
    *,
    radii: Sequence[float] | None = None,
    start: Point | None = None,
    runtime: Runtime | None = None,
    secure: bool = False,
) -> RadiusPath:
    """Return the errors of models of increasing radius on rows that the agents held out.

    ``set_of`` gives the set of a radius, such as ``lambda r: dcgs.L1Ball(10, r)``. A :class:`Fold` has the
    objectives that agents train on, and those of rows that they held out. Without ``radii`` the path starts
    below the radius where a single atom would end, and goes on by a factor of 1.5 (with more than 64 unknowns
    by a factor of 2, and then in smaller steps beside the best), until the set bounds the model no more, or
    until the error on held-out rows has turned. Models are found to a gap of 3 %. Matrices in factors are
    found to a gap of 10 %, and end where two radii in a row are not clearly better. A model that runs out of
    steps is left out of the path, and no larger radius is tried; ``ran_out`` has its radius, and a
    ``RuntimeWarning`` says so. ``start`` is the point of no model, by default that of the set. With
    ``secure`` all sums over the network are masked.

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
    network = Reductions(graph, Lockstep() if runtime is None else runtime, secure=secure)
    given = [folds] if isinstance(folds, Fold) else folds
    instance(given, Sequence, "folds", "be dcgs.Fold(train, held_out), or several of them")
    (radius_path,) = network.run(path_steps(network, list(given), set_of, radii, start))
    if radius_path.ran_out:
        warnings.warn(str(radius_path), RuntimeWarning, stacklevel=2)
    return radius_path


def path_steps(
    network: Reductions,
    folds: Sequence[Fold],
    set_of: SetOf,
    radii: Sequence[float] | None = None,
    start: Any = None,
) -> Steps[RadiusPath]:
    """Return the path, as :func:`path`; run it with ``network.run``, which records what was sent for it.

    Several paths that are run together share sums. The rounds and bytes of a path are then those of all sums
    until it ended.
    """
    _check(network, folds, radii)
    before = network.rounds, network.bytes
    set_of = _checked(set_of, folds[0].train[network.hosts[0]].shape)
    x0 = set_of(1.0 if radii is None else float(radii[0])).start() if start is None else _start(start, set_of)
    enough = _LEFT if folds[0].is_of_classes else 0.0
    finder = _finder(folds, set_of, network, x0)
    yield from finder.begin()
    if radii is not None:
        fitted, stopped = (yield from _given(finder, sorted(map(float, radii)))), _GIVEN
    else:
        is_coarse = isinstance(finder, SumsFinder)
        ratio, stops = (_COARSE_RATIO, _stopped_coarse) if is_coarse else (_RATIO, _stopped)
        fitted, stopped = yield from _ascending(finder, ratio, partial(stops, enough=enough))
        fitted += yield from _refined(finder, fitted, ratio, enough)
        fitted.sort(key=lambda candidate: candidate.radius)
    ran_out = tuple(candidate.radius for candidate in fitted if not candidate.finished)
    if ran_out:
        others = _finished(fitted)
        which = ", ".join(f"{radius:.4g}" for radius in ran_out)
        left_out = "all of them: their errors are a guess" if len(others) == 1 else "which are left out"
        stopped += f"; the steps were not enough for the models of radius {which}, {left_out}"
        fitted = others if len(others) > 1 else fitted
    count = _feature_count(set_of(1.0))
    null, *points = [_with_features(candidate, finder.weight or 1.0, count) for candidate in fitted]
    gap = math.nan
    if isinstance(finder, RunFinder) and isinstance(x0, LowRank):
        least = min(fitted[1:], key=_error)  # of equal errors, whose last bits differ, the smallest radius
        most = least.error + SAME * least.standard_error
        gap = yield from finder.enough_gap(next(each for each in fitted[1:] if each.error <= most))
    rounds, sent = network.rounds - before[0], network.bytes - before[1]
    models = tuple(candidate.models for candidate in fitted[1:])
    size = "rank" if isinstance(x0, LowRank) else "features"
    return RadiusPath(
        tuple(points), null, rounds, sent, len(folds), stopped, models, size, enough, ran_out, gap
    )


def _check(network: Reductions, folds: Sequence[Fold], radii: Sequence[float] | None) -> None:
    """Raise unless there are folds of all agents of this process, and radii are positive."""
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


def _finder(folds: Sequence[Fold], set_of: SetOf, network: Reductions, x0: Any) -> Finder:
    """Return how the models are found: by Hessians, by sums of gradients, or by runs of ``minimize``."""
    if not isinstance(x0, LowRank) and x0.size <= _FEW:
        return NewtonFinder(folds, set_of, network, x0)
    X = set_of(1.0)
    is_cheap = projects_cheaply(X)
    if is_cheap and not isinstance(x0, LowRank):
        return SumsFinder(folds, set_of, network, x0)
    return RunFinder(folds, set_of, network, x0)


def _given(finder: Finder, radii: Sequence[float]) -> Steps[list[Fitted]]:
    """Return the null model and those of all these radii."""
    fitted = [finder.null]
    for k in range(0, len(radii), finder.at_once):
        fitted += yield from finder.fit(radii[k : k + finder.at_once], _finished(fitted), None)
    return fitted


def _ascending(finder: Finder, ratio: float, stops: Stops) -> Steps[tuple[list[Fitted], str]]:
    """Return the null model and those of radii in a fixed ratio, and why there is no larger radius."""
    first, fitted = _FIRST * (yield from finder.first_radius()), [finder.null]
    radii = [first * ratio**k for k in range(_MOST)]
    while radii:
        batch, radii = radii[: finder.at_once], radii[finder.at_once :]
        fitted += yield from finder.fit(batch, _finished(fitted), stops)
        stopped = stops(_finished(fitted))
        if stopped is not None:
            return fitted, stopped
        if finder.gives_up and not fitted[-1].finished:
            return fitted, _RAN_OUT
    return fitted, f"the largest of {_MOST} radii"


def _stopped(fitted: Sequence[Fitted], enough: float) -> str | None:
    """Return why no larger radius than these is needed, or None."""
    if _is_explained(fitted, enough):
        return _NOT_BETTER
    if _is_still(fitted, _STILL, _TIMES):
        return _IS_STILL
    if _has_turned(fitted):
        return _RISES_AGAIN
    return _IS_FLAT if _is_flat(fitted) else None


def _stopped_coarse(fitted: Sequence[Fitted], enough: float) -> str | None:
    """Return the same of radii that are far apart."""
    if _is_explained(fitted, enough):
        return _NOT_BETTER
    if _is_still(fitted, _COARSE_STILL, 1):
        return _IS_STILL
    return _RISES_AGAIN if min(fitted, key=_error).radius < fitted[-1].radius else None


def _refined(finder: Finder, fitted: list[Fitted], ratio: float, enough: float) -> Steps[list[Fitted]]:
    """Return models of further radii, which are beside the best of these."""
    finished, near = _finished(fitted), list[float]()
    if len(finished) > 1:
        best = _first_as_good(finished, enough) or min(finished[1:], key=_error)
        beside = (best.radius * ratio**share for share in finder.beside)
        near = [radius for radius in beside if radius < finished[-1].radius]
    return (yield from finder.fit(near, finished, None)) if near else []


def _finished(fitted: Sequence[Fitted]) -> list[Fitted]:
    """Return the models that have reached the gap of the path."""
    return [candidate for candidate in fitted if candidate.finished]


def _is_explained(fitted: Sequence[Fitted], enough: float) -> bool:
    as_good = _first_as_good(fitted, enough)
    return as_good is not None and as_good.radius < fitted[-1].radius


def _first_as_good(fitted: Sequence[Fitted], enough: float) -> Fitted | None:
    """Return the model of the smallest radius that is as good as the best by this rule; None if none is."""
    if not enough:
        return None
    null, least = fitted[0].point, min(fitted, key=_error).point
    smaller = (candidate for candidate in fitted if candidate.radius <= least.radius)
    return next((one for one in smaller if one.point.is_as_good_as(least, null, enough)), None)


def _is_still(fitted: Sequence[Fitted], least: float, times: int) -> bool:
    """Return True if each of the last radii decreased the loss on training rows by less than this share."""
    losses = [sum(candidate.losses) for candidate in fitted]
    whole = losses[0] - losses[-1]
    return len(fitted) > times and all(a - b <= least * whole for a, b in pairwise(losses[-times - 1 :]))


def _has_turned(fitted: Sequence[Fitted]) -> bool:
    """Return True if the error rose by two standard errors, or was two times above the best by one."""
    points = [candidate.point for candidate in fitted]
    best = min(points, key=lambda point: point.error)
    above = [(point.error - best.error) / (best.standard_error or 1.0) for point in points[-_TIMES:]]
    return (
        len(points) > _TIMES and best.radius < points[-1].radius and (above[-1] > _TIMES or min(above) > 1.0)
    )


def _is_flat(fitted: Sequence[Fitted]) -> bool:
    """Return True if the models are matrices in factors, and the last radii are not clearly better."""
    if len(fitted) <= _RISES or not isinstance(fitted[-1].models[0], LowRank):
        return False
    best = min(fitted[:-_RISES], key=_error)
    return min(map(_error, fitted[-_RISES:])) > best.error - CLEAR * best.standard_error


def _error(candidate: Fitted) -> float:
    return candidate.error


def _with_features(candidate: Fitted, weight: float, count: Callable[[Any], int]) -> PathPoint:
    """Return the point of the path: the mean loss on the rows trained on, and the size of the model."""
    features = float(np.mean([count(x) for x in candidate.models])) if candidate.radius > 0.0 else 0.0
    return replace(candidate.point, loss=sum(candidate.losses) / weight, features=features)


def _feature_count(X: Any) -> Callable[[Any], int]:
    """Return the function that counts the nonzero coefficients of a model, or its rank."""
    part = X.slices[0] if isinstance(X, Product) else slice(None)

    def count(x: Any) -> int:
        if isinstance(x, LowRank):
            return x.rank
        flat = np.abs(x.reshape(-1)[part])
        return int(np.count_nonzero(flat > _ZERO * float(flat.max(initial=0.0))))

    return count
