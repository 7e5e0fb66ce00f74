"""Synthetic data that resemble E2006-tfidf: its size, word frequencies, labels and one dense column."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dcgs.datasets.base import Kind, Regression, Source
from dcgs.datasets.e2006_tfidf import COLUMNS
from dcgs.validation import SEED, whole

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
_MOST = 10**9  # samples


def e2006_lookalike(samples: int = 4000, features: int = COLUMNS, *, seed: int = 0) -> Regression:
    """Return data made from the seed that resemble E2006-tfidf; docs/data.md says how closely.

    Column 0 is the log-volatility of the year before, dense and dominant; the others are words. With fewer
    features the vocabulary is smaller and the share of nonzeros is the same. With fewer than 1000 samples
    the labels stay strictly within the real extremes.

    >>> e2006_lookalike(50, 400).source.kind
    <Kind.LOOKALIKE: 'a look-alike made from a seed, not the real data'>
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
    return Regression(A, b, Source("E2006-tfidf", Kind.LOOKALIKE, seed=seed))


def _tf_idf(rng: np.random.Generator, samples: int, features: int) -> sparse.csr_array:
    """Return (count / document length) · log(documents / documents with the word), in columns at random."""
    lengths = np.ceil(rng.lognormal(np.log(_LENGTH) - _SPREAD**2 / 2, _SPREAD, samples))
    place = rng.permutation(features)
    parts = [_batch(rng, lengths[at : at + _BATCH], place) for at in range(0, samples, _BATCH)]
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
