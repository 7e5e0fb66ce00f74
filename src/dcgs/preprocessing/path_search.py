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


def searched(models: SumsPath, radii: Sequence[float] | None) -> Steps[tuple[list[Fitted], str]]:
    """Return the null model and those of the path, in the order of radii, and why there is no larger one."""
    yield from models.begin()
    if radii is not None:
        fitted = [models.null]
        ordered = sorted(map(float, radii))
        for k in range(0, len(ordered), _AT_ONCE):
            fitted += yield from models.fit(ordered[k : k + _AT_ONCE], fitted, patient=True)
        return fitted, "all radii that were given"
    fitted, stopped = yield from _coarse(models)
    best, largest = _best(_finished(fitted)[1:], models.null), fitted[-1].radius
    near = [
        best.radius * _RATIO ** (sign * part / _PARTS)
        for sign in (-1, 1)
        for part in range(1, _PARTS)
        if sign < 0 or best.radius < largest
    ]
    fitted += yield from models.fit(sorted(near), fitted)
    left = [one.radius for one in fitted if not one.finished]
    if left:
        stopped += f"; models from radius {min(left):.4g} on were clearly worse, and not finished"
    most = _error(best) + _standard_error(best)
    shown = [one for one in fitted if one in _finished(fitted) or _error(one) > most]
    return sorted(shown, key=lambda one: one.radius), stopped


def _finished(fitted: Sequence[Fitted]) -> list[Fitted]:
    """Return the models that reached the gap of the path; all, if none did but no model."""
    finished = [one for one in fitted if one.finished]
    return finished if len(finished) > 1 else list(fitted)


def _coarse(models: SumsPath) -> Steps[tuple[list[Fitted], str]]:
    """Return models whose radii are far apart, until the error turns or the set bounds nothing more."""
    first = (yield from models.first_radius()) / _RATIO
    fitted, last = [models.null], 0
    while last < _MOST:
        count = _AT_ONCE + (last == 0)  # the first is below the radius where one atom would end
        fitted += yield from models.fit([first * _RATIO**k for k in range(last, last + count)], fitted)
        last += count
        largest = fitted[-1].radius
        if min(_finished(fitted), key=_error).radius < largest:
            return fitted, "the error on held-out rows rises with a larger radius"
        if _best(_finished(fitted), models.null).radius < largest:
            return fitted, "the error on held-out rows is small, and not clearly less with a larger radius"
        losses = [sum(one.losses) for one in fitted]
        if losses[-2] - losses[-1] <= _STILL * (losses[0] - losses[-1]):
            return fitted, "a larger radius does not change the model"
    return fitted, f"the largest of {_MOST} radii"


def _best(fitted: Sequence[Fitted], null: Fitted) -> Fitted:
    """Return the model of the smallest error, or one of smaller radius that is as good."""
    least = min(fitted, key=_error)
    return next((one for one in fitted if _point(one).is_as_good_as(_point(least), _point(null))), least)


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
