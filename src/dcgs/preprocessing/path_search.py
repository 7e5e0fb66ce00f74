"""Which radii of a path are tried, if several cost the rounds of one: far apart first, then near the best."""

from __future__ import annotations

from collections.abc import Sequence

from dcgs.preprocessing.path_models import Fitted
from dcgs.preprocessing.path_result import PathPoint, from_sums
from dcgs.preprocessing.path_sums import SumsPath
from dcgs.preprocessing.reductions import Steps

# The ratio of radii at first; how many are tried at once, and at most; how many parts an interval is then
# divided into on either side of the best radius.
_RATIO, _AT_ONCE, _MOST, _PARTS = 3.0, 3, 16, 3
# The set bounds nothing more if the loss on training rows falls by less than this share.
_STILL = 2e-3
NOT_BETTER = "nearly all of the loss is explained, and a larger radius is not clearly better"

RAN_OUT = "the steps ran out, so that no larger radius was tried"


def searched(
    models: SumsPath, radii: Sequence[float] | None, enough: float
) -> Steps[tuple[list[Fitted], str]]:
    """Return the null model and those of the path, in the order of radii, and why there is no larger one."""
    yield from models.begin()
    if radii is not None:
        fitted = [models.null]
        ordered = sorted(map(float, radii))
        for k in range(0, len(ordered), _AT_ONCE):
            fitted += yield from models.fit(ordered[k : k + _AT_ONCE], fitted, patient=True)
        return fitted, "all radii that were given"
    fitted, stopped = yield from _coarse(models, enough)
    explained = first_as_good(_finished(fitted), enough)
    best = explained or min(_finished(fitted)[1:], key=_error)
    larger = explained is None and best.radius < fitted[-1].radius
    near = [
        best.radius * _RATIO ** (sign * part / _PARTS)
        for sign in (-1, 1)
        for part in range(1, _PARTS)
        if sign < 0 or larger
    ]
    fitted += yield from models.fit(sorted(near), fitted)
    left = [one.radius for one in fitted if one.too_large]
    if left:
        stopped += f"; models from radius {min(left):.4g} on were clearly worse, and not finished"
    most = _error(best) + _standard_error(best)
    shown = [one for one in fitted if one in _finished(fitted) or one.ran_out or _error(one) > most]
    return sorted(shown, key=lambda one: one.radius), stopped


def _finished(fitted: Sequence[Fitted]) -> list[Fitted]:
    """Return the models that reached the gap of the path; all, if none did but no model."""
    finished = [one for one in fitted if one.finished]
    return finished if len(finished) > 1 else list(fitted)


def _coarse(models: SumsPath, enough: float) -> Steps[tuple[list[Fitted], str]]:
    """Return models whose radii are far apart, until the error turns or the set bounds nothing more."""
    first = (yield from models.first_radius()) / _RATIO
    fitted, last = [models.null], 0
    while last < _MOST:
        count = _AT_ONCE + (last == 0)  # the first is below the radius where one atom would end
        fitted += yield from models.fit([first * _RATIO**k for k in range(last, last + count)], fitted)
        last += count
        if any(one.ran_out for one in fitted):
            return fitted, RAN_OUT
        if min(_finished(fitted), key=_error).radius < fitted[-1].radius:
            return fitted, "the error on held-out rows rises with a larger radius"
        as_good = first_as_good(_finished(fitted), enough)
        if as_good and as_good.radius < fitted[-1].radius:
            return fitted, NOT_BETTER
        losses = [sum(one.losses) for one in fitted]
        if losses[-2] - losses[-1] <= _STILL * (losses[0] - losses[-1]):
            return fitted, "a larger radius does not change the model"
    return fitted, f"the largest of {_MOST} radii"


def first_as_good(fitted: Sequence[Fitted], enough: float) -> Fitted | None:
    """Return the model of the smallest radius that is as good as the best by this rule; None if none is."""
    if not enough:
        return None
    null, least = _point(fitted[0]), _point(min(fitted, key=_error))
    smaller = (one for one in fitted if one.radius <= least.radius)
    return next((one for one in smaller if _point(one).is_as_good_as(least, null, enough)), None)


def _error(one: Fitted) -> float:
    """Return the error on held-out rows; the loss on training rows, if none was held out."""
    error = _point(one).error
    return error if error == error else sum(one.losses)


def _standard_error(one: Fitted) -> float:
    found = _point(one).standard_error
    return found if found == found else 0.0


def _point(one: Fitted) -> PathPoint:
    assert one.judged is not None
    return from_sums(one.radius, one.judged.tolist(), sum(one.losses), 0.0)
