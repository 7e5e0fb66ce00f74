"""Numbers as people read them."""

from __future__ import annotations

import math

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def number(value: float) -> str:
    """Return a number to two or three digits.

    >>> number(1234567.0), number(0.25), number(3321.4), number(0.0)
    ('1.2·10⁶', '0.25', '3,321', '0')
    """
    if not math.isfinite(value):
        return str(value)
    if value == 0.0:
        return "0"
    if 1e-2 <= abs(value) < 1e4:
        return f"{value:,.0f}" if abs(value) >= 100.0 else f"{value:.3g}"
    return scientific(value, 1)


def scientific(value: float, digits: int) -> str:
    """Return a number as a power of ten, with so many digits behind the point.

    >>> scientific(0.00123, 1)
    '1.2·10⁻³'
    """
    mantissa, _, exponent = f"{value:.{digits}e}".partition("e")
    return f"{mantissa}·10{str(int(exponent)).translate(_SUPERSCRIPTS)}"


def count(value: float) -> str:
    """Return a whole number with its thousands apart.

    >>> count(12345.0)
    '12,345'
    """
    return f"{int(value):,}"


def sentence(message: str) -> str:
    """Return an error's message as a sentence that stands after others.

    >>> sentence("x must be there.")
    'X must be there.'
    """
    return message[:1].upper() + message[1:]


def times(ratio: float) -> str:
    """Return how many times as much.

    >>> times(2.46), times(12345.6)
    ('2.5 times', '12,346 times')
    """
    return f"{ratio:.1f} times" if ratio < 10.0 else f"{ratio:,.0f} times"


def seconds(value: float) -> str:
    """Return a time.

    >>> seconds(0.0123), seconds(105.0), seconds(5400.0)
    ('0.012 s', '105 s', '1.5 h')
    """
    if value < 120.0:
        return f"{value:.2g} s" if value < 10.0 else f"{value:.0f} s"
    return f"{value / 60.0:.0f} min" if value < 3600.0 else f"{value / 3600.0:.1f} h"


def share(value: float) -> str:
    """Return a share in percent to three digits; only all is 100% and only nothing is 0%.

    >>> share(0.9753), share(0.99999), share(0.5), share(1e-5)
    ('97.5%', '>99.9%', '50%', '<0.1%')
    """
    if not math.isfinite(value):
        return str(value)
    if 0.999 < value < 1.0:
        return ">99.9%"
    if 0.0 < value < 0.001:
        return "<0.1%"
    return f"{100.0 * value:.3g}%"
