"""Numbers as people read them; ``numbers.js`` says the same numbers in the same words."""

from __future__ import annotations

import math

from dcgs.experiments import words

_SIZES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
_TIMES = ((172_800.0, 86_400.0, "d"), (7200.0, 3600.0, "h"), (120.0, 60.0, "min"), (1.0, 1.0, "s"))
_SHORT_TIMES = ((1e-3, "ms"), (1e-6, "µs"))


def number(value: float) -> str:
    """Return four digits, with a power of ten where that reads better.

    >>> number(21_340_000.0), number(0.93126), number(1234.6), number(float("nan"))
    ('2.134·10⁷', '0.9313', '1,235', '–')
    """
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value == 0:
        return "0"
    sign, size = ("−" if value < 0 else ""), abs(value)
    exponent = int(f"{size:.3e}".partition("e")[2])
    if -3 <= exponent < 4:
        return f"{sign}{size:,.{3 - exponent}f}"
    return sign + words.scientific(size, 3)


def count(value: float) -> str:
    """Return a count in full.

    >>> count(1_234_567.0)
    '1,234,567'
    """
    return f"{value:,.0f}" if math.isfinite(value) else number(value)


def size(value: float) -> str:
    """Return bytes in decimal units.

    >>> size(8e8), size(12.0)
    ('800 MB', '12 B')
    """
    if not math.isfinite(value):
        return number(value)
    for unit, name in _SIZES:
        if value >= unit:
            return f"{_three(value / unit)} {name}"
    return f"{value:.0f} B"


def duration(value: float) -> str:
    """Return seconds in the unit that suits them.

    >>> duration(0.0123), duration(80.0), duration(9000.0), duration(0.0)
    ('12.3 ms', '80.0 s', '2.50 h', '0 s')
    """
    if not math.isfinite(value):
        return number(value)
    if value == 0:
        return "0 s"
    for least, unit, name in _TIMES:
        if value >= least:
            return f"{_three(value / unit)} {name}"
    for unit, name in _SHORT_TIMES:
        if value >= unit:
            return f"{_three(value / unit)} {name}"
    return "<1 µs"


def share(value: float) -> str:
    """Return a share in percent, as the texts have it.

    >>> share(0.9753), share(float("nan"))
    ('97.5%', '–')
    """
    return words.share(value) if math.isfinite(value) else number(value)


def _three(value: float) -> str:
    """Return three digits, without an exponent."""
    exponent = int(f"{value:.2e}".split("e")[1])
    return f"{value:,.{max(0, 2 - exponent)}f}"
