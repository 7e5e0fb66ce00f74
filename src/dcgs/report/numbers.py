"""Numbers as text, and tables on the screen.

``number``, ``count``, ``size``, ``duration`` and ``share`` equal those of numbers.js.
"""

from __future__ import annotations

import math
from typing import Any

from rich.table import Table

from dcgs.learn.summary import FitTable

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_SIZES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
# The least value that is written in a unit, the unit in seconds, and its name.
_DURATIONS = (
    (172_800.0, 86_400.0, "d"),
    (7200.0, 3600.0, "h"),
    (120.0, 60.0, "min"),
    (1.0, 1.0, "s"),
    (1e-3, 1e-3, "ms"),
    (1e-6, 1e-6, "µs"),
)


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
    return sign + (f"{size:,.{3 - exponent}f}" if -3 <= exponent < 4 else _scientific(size, 3))


def short_number(value: float) -> str:
    """Return two or three digits.

    >>> short_number(1234567.0), short_number(0.25), short_number(3321.4), short_number(0.0)
    ('1.2·10⁶', '0.25', '3,321', '0')
    """
    if not math.isfinite(value) or value == 0.0:
        return number(value)
    if 1e-2 <= abs(value) < 1e4:
        return f"{value:,.0f}" if abs(value) >= 100.0 else f"{value:.3g}"
    return _scientific(value, 1)


def count(value: float) -> str:
    """Return a whole number in full.

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
    fitting = ((unit, name) for unit, name in _SIZES if value >= unit)
    unit, name = next(fitting, (0.0, "B"))
    return f"{_three_digits(value / unit)} {name}" if unit else f"{value:.0f} B"


def duration(value: float) -> str:
    """Return seconds in the unit that suits them.

    >>> duration(0.0123), duration(80.0), duration(9000.0), duration(0.0)
    ('12.3 ms', '80.0 s', '2.50 h', '0 s')
    """
    if not math.isfinite(value):
        return number(value)
    if value == 0:
        return "0 s"
    fitting = (f"{_three_digits(value / unit)} {name}" for least, unit, name in _DURATIONS if value >= least)
    return next(fitting, "<1 µs")


def short_duration(value: float) -> str:
    """Return seconds, minutes or hours to two or three digits.

    >>> short_duration(0.0123), short_duration(105.0), short_duration(5400.0)
    ('0.012 s', '105 s', '1.5 h')
    """
    if value < 120.0:
        return f"{value:.2g} s" if value < 10.0 else f"{value:.0f} s"
    return f"{value / 60.0:.0f} min" if value < 3600.0 else f"{value / 3600.0:.1f} h"


def share(value: float) -> str:
    """Return a share in percent to three digits; only 1 is 100% and only 0 is 0%.

    >>> share(0.9753), share(0.99999), share(0.5), share(1e-5), share(float("nan"))
    ('97.5%', '>99.9%', '50%', '<0.1%', '–')
    """
    if not math.isfinite(value):
        return number(value)
    if 0.999 < value < 1.0:
        return ">99.9%"
    return "<0.1%" if 0.0 < value < 0.001 else f"{100.0 * value:.3g}%"


def times(ratio: float) -> str:
    """Return a ratio in words.

    >>> times(2.46), times(12345.6)
    ('2.5 times', '12,346 times')
    """
    return f"{ratio:.1f} times" if ratio < 10.0 else f"{ratio:,.0f} times"


def capitalized(sentence: str) -> str:
    """Return a sentence with a capital first letter.

    >>> capitalized("x must be there.")
    'X must be there.'
    """
    return sentence[:1].upper() + sentence[1:]


def _scientific(value: float, digits: int) -> str:
    mantissa, _, exponent = f"{value:.{digits}e}".partition("e")
    return f"{mantissa}·10{str(int(exponent)).translate(_SUPERSCRIPTS)}"


def _three_digits(value: float) -> str:
    exponent = int(f"{value:.2e}".split("e")[1])
    return f"{value:,.{max(0, 2 - exponent)}f}"


_FORMATS: dict[str, Any] = {
    "text": str,
    "number": lambda value: f"{value:.4g}",
    "loss": lambda value: f"{value:.5g}",
    "amount": lambda value: f"{value:.3g}",
    "count": str,
    "size": size,
    "seconds": lambda value: f"{value:.2f}",
    "share": lambda value: f"{value:.4g}",
}


def screen_table(table: FitTable, most: int | None = None) -> Table:
    """Return a table for the screen, with the first rows of a long one and those that are apart."""
    made = Table(title=table.title or None)
    for name, kind in table.columns.items():
        made.add_column(name, justify="left" if kind == "text" else "right")
    first = len(table.rows) - table.last
    for number, row in enumerate(table.rows):
        if most is not None and most <= number < first:
            continue
        if table.last and number == first:
            made.add_section()
        cells = zip(row, table.columns.values(), strict=True)
        made.add_row(*("" if _is_unknown(value) else _FORMATS[kind](value) for value, kind in cells))
    return made


def _is_unknown(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))
