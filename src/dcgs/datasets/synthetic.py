"""Synthetic data, made from a seed: the paper's, a look-alike of E2006-tfidf, and patients of hospitals."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dcgs.datasets.base import Ratings, Regression, Source, SourceKind
from dcgs.datasets.published import COLUMNS
from dcgs.files import atomic_write
from dcgs.validation import COUNT, NOT_NEGATIVE, PATH, SEED, SHAPE, whole

# The look-alike of E2006-tfidf, and the patients.
_VOCABULARY: Final = COLUMNS - 1  # all but the volatility of the year before
_ZIPF, _SHIFT = 1.12, 2.0  # the word of rank r has a share of about (r + shift)^−zipf
_LENGTH, _SPREAD = 9000.0, 0.8  # words of a document: the mean, and the deviation of the logarithm
_REPEATS = 3.0  # mean uses of a word in a document that has it
_LABEL = (-3.51405314, 0.63227835)  # mean, deviation
_EXTREMES = (-7.89957807, -0.51940953)
_ENOUGH = 1000  # samples from which on the extreme labels occur
_PAST = (-3.39, 0.617)  # mean, deviation of the volatility of the year before
_CORRELATION = 0.82  # of the label and the volatility of the year before
_PREDICTIVE = 150  # words that are correlated with the label
_STRONGEST, _DECAY = 0.068, 0.22  # the k-th of them has a correlation of strongest · k^−decay
_COMMON = (0.05, 0.6)  # the share of documents that such a word is in
_BATCH = 256  # documents drawn at a time
_MOST = 10**9  # samples of the look-alike
_MOST_PATIENTS = 10**6
_SMOKER = ("never", "former", "daily")
_WARDS = ("medicine", "surgery", "emergency", "geriatrics")


def lasso_synthetic(
    samples: int = 2000, features: int = 10_000, nonzeros: int = 100, *, noise: float = 1.0, seed: int = 0
) -> Regression:
    """Return the paper's synthetic Lasso: rows N(0, I), a sparse truth of norm 100, N(0, noise²) added.

    >>> lasso_synthetic(20, 50, 5).A.shape
    (20, 50)
    """
    samples, features = COUNT(samples, "samples"), COUNT(features, "features")
    SHAPE((samples, features), "the shape (samples, features)")
    nonzeros = whole(1, features, "the features")(nonzeros, "nonzeros")
    NOT_NEGATIVE(noise, "noise")
    rng = np.random.default_rng(SEED(seed, "seed"))
    A = rng.standard_normal((samples, features))
    truth = np.zeros(features)
    truth[rng.choice(features, nonzeros, replace=False)] = rng.standard_normal(nonzeros)
    truth *= 100.0 / np.linalg.norm(truth)
    source = Source("synthetic Lasso", SourceKind.SYNTHETIC, seed=seed)
    return Regression(A, A @ truth + noise * rng.standard_normal(samples), source, truth)


def completion_synthetic(
    side: int = 200, rank: int = 5, entries: int = 5000, *, noise: float = 0.1, seed: int = 0
) -> Ratings:
    """Return the paper's synthetic completion: entries of a side × side matrix of low rank, with noise.

    The paper gives N(0, 0.1) without saying whether that is the variance; here it is the variance.
    The factors are standard normal, which the paper leaves open.

    >>> completion_synthetic(20, 2, 50).values.shape
    (50,)
    """
    side, _ = SHAPE((side, side), "the shape (side, side)")
    rank = whole(1, side, "the side")(rank, "rank")
    entries = whole(1, side * side, "as there are")(entries, "entries")
    NOT_NEGATIVE(noise, "noise")
    rng = np.random.default_rng(SEED(seed, "seed"))
    truth = rng.standard_normal((side, rank)) @ rng.standard_normal((rank, side))
    rows, cols = np.divmod(rng.choice(side * side, entries, replace=False), side)
    values = truth[rows, cols] + np.sqrt(noise) * rng.standard_normal(entries)
    source = Source("synthetic completion", SourceKind.SYNTHETIC, seed=seed)
    return Ratings(rows, cols, values, (side, side), source, truth)


def e2006_lookalike(samples: int = 4000, features: int = COLUMNS, *, seed: int = 0) -> Regression:
    """Return data made from the seed that resemble E2006-tfidf; docs/data.md says how closely.

    Column 0 is the log-volatility of the year before, dense and dominant; the others are words. With fewer
    features the vocabulary is smaller and the share of nonzeros is the same. With fewer than 1000 samples
    the labels stay strictly within the real extremes.

    >>> e2006_lookalike(50, 400).source.kind
    <SourceKind.LOOKALIKE: 'a look-alike made from a seed, not the real data'>
    """
    samples = whole(2, _MOST)(samples, "samples")
    features = whole(2, COLUMNS, "as the real data have")(features, "features")
    rng = np.random.default_rng(SEED(seed, "seed"))
    words = _tf_idf(rng, samples, features - 1)
    past = _standardized(rng.standard_normal(samples))
    signal = _signal(rng, words)
    unexplained = max(1.0 - _CORRELATION**2 - signal.var(), 0.0)
    raw = _CORRELATION * past + signal + np.sqrt(unexplained) * rng.standard_normal(samples)
    b = _labels(raw)
    outer = np.argsort(raw)[[0, -1]]
    past[outer] = _CORRELATION * (b[outer] - _LABEL[0]) / _LABEL[1]  # extreme years follow extreme years
    mean, deviation = _PAST
    dense = mean + deviation * _standardized(past)
    A = sparse.hstack([sparse.csr_array(dense[:, None]), words], format="csr")
    return Regression(A, b, Source("E2006-tfidf", SourceKind.LOOKALIKE, seed=seed))


def _tf_idf(rng: np.random.Generator, samples: int, features: int) -> sparse.csr_array:
    """Return (count / document length) · log(documents / documents with the word), in columns at random."""
    lengths = np.ceil(rng.lognormal(np.log(_LENGTH) - _SPREAD**2 / 2, _SPREAD, samples))
    place = rng.permutation(features)
    parts = [_batch(rng, lengths[first : first + _BATCH], place) for first in range(0, samples, _BATCH)]
    words = sparse.vstack(parts, format="csr")
    with np.errstate(divide="ignore"):  # a word in no document has no entry
        weight = np.log(samples / np.bincount(words.indices, minlength=features))
    words.data *= weight[words.indices]
    words.eliminate_zeros()
    return words


def _batch(
    rng: np.random.Generator, lengths: NDArray[np.float64], place: NDArray[np.int64]
) -> sparse.csr_array:
    """Return count / document length of some documents, one a row.

    A document draws words by their shares and repeats each of them a geometric number of times.
    """
    features = len(place)
    draws = rng.poisson(lengths / _REPEATS * (features / _VOCABULARY))
    document = np.repeat(np.arange(len(lengths)), draws)
    low, high = _SHIFT ** (1.0 - _ZIPF), (_VOCABULARY + _SHIFT) ** (1.0 - _ZIPF)
    rank = (low + rng.random(len(document)) * (high - low)) ** (1.0 / (1.0 - _ZIPF)) - _SHIFT
    word = np.minimum((rank * (features / _VOCABULARY)).astype(np.int64), features - 1)
    cell, uses = np.unique(document * features + place[word], return_counts=True)
    counts = uses + rng.negative_binomial(uses, 1.0 / _REPEATS)
    rows, columns = np.divmod(cell, features)
    starts = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(lengths)))])
    entries = (counts / lengths[rows], columns.astype(np.int32), starts.astype(np.int32))
    return sparse.csr_array(entries, shape=(len(lengths), features))


def _signal(rng: np.random.Generator, words: sparse.csr_array) -> NDArray[np.float64]:
    """Return the contribution of the predictive words to labels of deviation one."""
    samples, features = words.shape
    share = np.bincount(words.indices, minlength=features) / samples
    common = np.flatnonzero((share >= _COMMON[0]) & (share <= _COMMON[1]))
    predictive = rng.choice(common, min(_PREDICTIVE, len(common) // 2), replace=False)
    mean = np.bincount(words.indices, words.data, features)[predictive] / samples
    square = np.bincount(words.indices, words.data**2, features)[predictive] / samples
    effect = _STRONGEST * np.arange(1.0, len(predictive) + 1.0) ** -_DECAY
    weights = np.zeros(features)
    weights[predictive] = rng.choice([-1.0, 1.0], len(predictive)) * effect / np.sqrt(square - mean**2)
    added = words @ weights
    signal: NDArray[np.float64] = added - added.mean()
    return signal


def _labels(raw: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the raw labels with the mean, deviation and extremes of the real ones."""
    mean, deviation = _LABEL
    if len(raw) < _ENOUGH:
        return np.clip(mean + deviation * _standardized(raw), *_EXTREMES)
    order = np.argsort(raw)
    ends = np.array(_EXTREMES)
    others = order[1:-1]
    m = len(others)
    # The others are scaled so that mean and deviation of all labels are those of the real ones.
    center = (len(raw) * mean - ends.sum()) / m
    variance = (len(raw) * (deviation**2 + mean**2) - (ends**2).sum()) / m - center**2
    b = np.empty(len(raw))
    b[order[[0, -1]]] = ends
    b[others] = center + np.sqrt(variance) * _standardized(raw[others])
    return b


def _standardized(values: NDArray[np.float64]) -> NDArray[np.float64]:
    centered = values - values.mean()
    scaled: NDArray[np.float64] = centered / np.sqrt((centered**2).mean())
    return scaled


def write_patients(folder: Path, sites: int = 4, rows: int = 500, seed: int = 0) -> list[Path]:
    """Write ``hospital-0.csv``, ``hospital-1.csv``, … with about ``rows`` rows each, and return their paths.

    The column ``ill`` is yes for about one patient in eight. Hospitals differ: in age, in the wards that they
    have, and in what they forgot to measure. Every file comes from the seed alone.

    >>> import tempfile
    >>> files = write_patients(Path(tempfile.mkdtemp()), rows=20)
    >>> files[0].read_text().splitlines()[0]
    'age,sex,smoker,ward,pressure,bmi,creatinine,visits,ill'
    """
    whole(1, _MOST_PATIENTS)(sites, "sites")
    whole(1, _MOST_PATIENTS)(rows, "rows")
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
