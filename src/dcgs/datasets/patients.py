"""Made-up patients of several hospitals, as CSV files with categories and holes, to try ``dcgs fit`` on."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dcgs.files import atomic_write
from dcgs.validation import PATH, SEED, whole

_MOST = 10**6
_SMOKER = ("never", "former", "daily")
_WARDS = ("medicine", "surgery", "emergency", "geriatrics")


def write_patients(folder: Path, sites: int = 4, rows: int = 500, seed: int = 0) -> list[Path]:
    """Write ``hospital-0.csv``, ``hospital-1.csv``, … with about ``rows`` rows each, and return their paths.

    The column ``ill`` is yes for about one patient in eight. Hospitals differ: in age, in the wards that they
    have, and in what they forgot to measure. Every file comes from the seed alone.

    >>> import tempfile
    >>> files = write_patients(Path(tempfile.mkdtemp()), rows=20)
    >>> files[0].read_text().splitlines()[0]
    'age,sex,smoker,ward,pressure,bmi,creatinine,visits,ill'
    """
    whole(1, _MOST)(sites, "sites")
    whole(1, _MOST)(rows, "rows")
    SEED(seed, "seed")
    where = PATH(folder, "folder")
    return [_write(where / f"hospital-{i}.csv", _columns(i, rows, seed)) for i in range(sites)]


def _columns(site: int, rows: int, seed: int) -> dict[str, list[str]]:
    rng = np.random.default_rng((seed, site))
    count = rows + 37 * site
    age = np.clip(rng.normal(48.0 + 6.0 * site, 14.0, count), 18.0, 99.0)
    female = rng.random(count) < 0.52
    smoker = rng.choice(3, count, p=[0.5, 0.3, 0.2])
    ward = rng.choice(_WARDS[: 3 + (site == 2)], count)
    pressure = rng.normal(118.0 + 0.35 * age, 13.0)
    bmi = rng.normal(26.0, 4.0, count)
    creatinine = np.exp(rng.normal(-0.2 + 0.15 * (pressure > 140.0), 0.25))
    visits = rng.poisson(1.5 + 0.02 * age)
    score = -3.1 + 0.055 * (age - 55.0) + 0.9 * (smoker == 2) + 0.4 * (smoker == 1) - 0.3 * female
    score += 0.03 * (pressure - 135.0) + 1.4 * np.log(creatinine) + 0.8 * (ward == "emergency") + 0.1 * visits
    ill = rng.random(count) < 1.0 / (1.0 + np.exp(-score))
    bmi_text = _with_holes(rng, bmi.round(1), 0.08 + 0.06 * site)
    creatinine_text = _with_holes(rng, creatinine.round(2), 0.05 if site else 0.2)
    smoker_text = np.where(rng.random(count) < 0.07, "", np.array(_SMOKER)[smoker])
    return {
        "age": [f"{years:.0f}" for years in age],
        "sex": np.where(female, "female", "male").tolist(),
        "smoker": smoker_text.tolist(),
        "ward": ward.tolist(),
        "pressure": [f"{value:.0f}" for value in pressure],
        "bmi": bmi_text,
        "creatinine": creatinine_text,
        "visits": [str(number) for number in visits],
        "ill": np.where(ill, "yes", "no").tolist(),
    }


def _with_holes(rng: np.random.Generator, values: NDArray[np.float64], share: float) -> list[str]:
    holes = rng.random(len(values)) < share
    return ["NA" if hole else f"{value:g}" for value, hole in zip(values.tolist(), holes, strict=True)]


def _write(path: Path, columns: dict[str, list[str]]) -> Path:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([columns, *zip(*columns.values(), strict=True)])
    return atomic_write(path, text.getvalue().encode())
