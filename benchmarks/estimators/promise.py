"""Whether a private fit keeps its promise, by others: accountants, an attack, and diffprivlib beside it.

``pip install dp-accounting diffprivlib 'scikit-learn<1.6'``, in an environment of its own, then
``python benchmarks/estimators/promise.py [--json F]``, ten minutes. It prints

* ε of the noise that a fit takes for an ε, by the accountants of dp-accounting: PLD, the exact one of
  Gaussian noise, and Rényi; and how much more noise that is than the exact one needs;
* how well a likelihood ratio tells whether one row was in the data, from all that a fit releases and the
  noise of one site, beside the most that ε allows; and the same of fits with a tenth of the noise;
* the losses of private logistic models of dcgs and of diffprivlib, which pools the data.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import product
from typing import Any
from unittest.mock import patch

import networkx as nx
import numpy as np
from numpy.typing import NDArray
from private import BOUND, RADIUS, data, lost, record
from scipy.optimize import brentq
from scipy.special import log_softmax
from scipy.stats import beta, norm

from dcgs.learn import Rows, Sites, private
from dcgs.learn.private import Bounds, PrivateSpec, fit_private
from dcgs.learn.sums import Reductions
from dcgs.secure.noise import SIGMA, discrete_gaussian, epsilon_of, exponential_choice

DELTA, FITS, REPEATS = 1e-6, 12_000, 5
Numbers = NDArray[np.float64]


def accountants() -> list[dict[str, float]]:
    """Return ε of the same noise by others: that of the number of rows, and of 60 sums of 101 gradients."""
    import dp_accounting
    from dp_accounting.pld import PLDAccountant
    from dp_accounting.rdp import RdpAccountant

    rows, honest = [], 9
    for epsilon in (0.1, 1.0, 5.0):
        for delta in (1e-8, 1e-6):
            spec = PrivateSpec("logistic", 1.0, Bounds(np.zeros(100), np.ones(100)), epsilon, delta)
            scales = [(spec.count_scale(honest), 1.0, 1, 1)]
            scales.append((spec.scale(honest), spec.largest, 101, spec.count))
            by, mu = [PLDAccountant(), RdpAccountant()], 0.0
            for scale, largest, size, times in scales:
                change = scale.factor * largest + math.sqrt(size)  # of integers, with their rounding
                multiplier = scale.deviation * scale.factor / change
                mu = math.hypot(mu, math.sqrt(times) / multiplier)
                for accountant in by:
                    accountant.compose(dp_accounting.GaussianDpEvent(multiplier), times)

            def excess(sigma: float, epsilon: float = epsilon, delta: float = delta) -> float:
                told = norm.cdf(0.5 / sigma - epsilon * sigma)  # Balle and Wang 2018, theorem 8
                told -= math.exp(epsilon) * norm.cdf(-0.5 / sigma - epsilon * sigma)
                return math.log(max(told, 1e-300)) - math.log(delta)

            row = {"epsilon": epsilon, "delta": delta, "dcgs": epsilon_of(spec.rho, delta)}
            row |= {"PLD": by[0].get_epsilon(delta), "Rényi": float(by[1].get_epsilon(delta))}
            rows.append(row | {"more": 1.0 / mu / brentq(excess, 0.05, 500.0) - 1.0})
            print(rows[-1], flush=True)
    return rows


def log_ratio(
    spec: PrivateSpec, rows: Mapping[int, Rows], cases: tuple[Mapping[int, Rows], Mapping[int, Rows]]
) -> float:
    """Return the log likelihood ratio of the second case over the first, by all that a fit releases.

    The attacker is site 0. It knows the rows of all in both cases: the same fit without noise tells what the
    others would add up. It sees totals, and takes its own part, with its own noise, out of them; where the
    root is trusted, it sees the vertices that were chosen.
    """
    honest = len(rows) - spec.colluders
    program = private._private_steps if spec.trusted == "nobody" else private._vertex_steps
    fit, *known = (program(data, spec, honest) for data in (rows, *cases))
    total, ratio = None, 0.0
    while True:
        try:
            request: Any = fit.send(total)
        except StopIteration:
            return ratio
        with patch.object(private, "discrete_gaussian", np.zeros):
            values = [request.values, *(case.send(total).values for case in known)]
        others, without, within = (sum(part[i][0] for i in part if i) for part in values)
        total = [values[0][0][0] + others]
        if spec.trusted == "nobody" or len(others) == 1:
            distances = ((others - without) ** 2 - (others - within) ** 2).sum()
            ratio += float(distances) / (2.0 * honest * SIGMA**2)
        else:
            total = request.answer(total)
            scale = 2.0 * (private._UNIT + 1.0) / spec.epsilon_of_vertex
            scores = (part[0][0] + case for part, case in zip(values[1:], (without, within), strict=True))
            first, second = (log_softmax(np.concatenate([-g, g]) / scale) for g in scores)
            ratio += float((second - first)[int(total[0][0])])


def attack(fits: int = FITS) -> list[dict[str, Any]]:
    """Return how well the attack does on a row of the largest norm, with the largest slope."""
    rng = np.random.default_rng(0)
    bounds = Bounds(np.full(4, -1.0), np.full(4, 1.0), (-1.0, 1.0))
    spec = PrivateSpec("squared", 0.1, bounds, 1.0, DELTA, steps=10)
    parts = {i: Rows(rng.uniform(-0.1, 0.1, (20, 4)), rng.uniform(-0.1, 0.1, 20)) for i in range(3)}
    within = {**parts, 2: Rows(np.vstack([parts[2].A, np.ones(4)]), np.append(parts[2].targets, 1.0))}
    rows = []
    for epsilon, trusted, noise in product((1.0, 4.0), ("nobody", "root"), (1.0, 0.1)):
        promised: Any = replace(spec, epsilon=epsilon, trusted=trusted)
        times = fits if noise == 1.0 else fits // 5
        with patch.multiple(private, **with_noise(noise)):
            out, inside = (
                np.array([log_ratio(promised, case, (parts, within)) for _ in range(times)])
                for case in (parts, within)
            )
        auc = float((inside[:, None] > out).mean())
        row = {"epsilon": epsilon, "trusted": trusted, "noise": noise, "fits": times, "AUC": auc}
        rows.append(row | {"most": most_told(promised), "shown": shown_epsilon(out, inside)})
        print(rows[-1], flush=True)
    return rows


def most_told(spec: PrivateSpec) -> float:
    """Return the most that the AUC of any test may be: by Gaussian noise of this size, or for any ε."""
    if spec.trusted == "nobody":
        return float(norm.cdf(math.sqrt(spec.rho)))
    return 1.0 / (1.0 + math.exp(-spec.epsilon))


def with_noise(share: float) -> dict[str, Callable[..., Any]]:
    """Return the two mechanisms of a fit with a share of their noise, by name."""
    return {
        "discrete_gaussian": lambda size: np.rint(share * discrete_gaussian(size)),
        "exponential_choice": lambda scores, scale: exponential_choice(scores, math.ceil(share * scale)),
    }


def shown_epsilon(out: Numbers, inside: Numbers) -> float:
    """Return an ε that the fits show at 95 %: the first half chooses a threshold, the other half is counted.

    So the threshold does not depend on the fits that are counted, whose two rates are bounded at 97.5 % each
    (Clopper and Pearson).
    """
    half = len(out) // 2
    pairs = [(inside, out), (-out, -inside)]
    levels = np.quantile(np.concatenate([out[:half], inside[:half]]), np.linspace(0.01, 0.99, 99))
    cases = [(*pair, sign * level) for pair, sign in zip(pairs, (1.0, -1.0), strict=True) for level in levels]
    hits, alarms, level = max(cases, key=lambda case: bounded(case[0][:half], case[1][:half], case[2]))
    return max(0.0, bounded(hits[half:], alarms[half:], level))


def bounded(hits: Numbers, alarms: Numbers, level: float) -> float:
    """Return a lower bound of ε by how many of both are above a level."""
    k, m, n = int((hits > level).sum()), int((alarms > level).sum()), len(hits)
    least = beta.ppf(0.025, k, n - k + 1) if k else 0.0
    most = beta.ppf(0.975, m + 1, n - m) if m < n else 1.0
    return math.log(max(least - DELTA, 1e-12) / most)


def beside() -> list[dict[str, Any]]:
    """Return what models lose, beside those of diffprivlib, in the mean of REPEATS fits."""
    from diffprivlib.models import LogisticRegression

    rows = []
    for n, d in ((20_000, 20), (20_000, 100)):
        for correlated in (False, True):
            A, b = data(n, d, correlated)
            sites = {i: Rows(A[i::10], b[i::10]) for i in range(10)}
            network = Reductions(nx.complete_graph(10), secure=True)
            limits = np.full(d, BOUND)
            spec = PrivateSpec("logistic", RADIUS, Bounds(-limits, limits), epsilon=1.0, delta=DELTA)
            Z = np.clip(A / BOUND, -1.0, 1.0)
            fits = []
            for kind in (spec, replace(spec, trusted="root")):
                fits += [fit_private(Sites(network, sites, {}), kind).model.image(A) for _ in range(REPEATS)]
            for C in (0.01, 0.1, 1.0, 10.0, 100.0):  # the best of its penalties, with hindsight
                for seed in range(REPEATS):
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        theirs = LogisticRegression(
                            epsilon=1.0, data_norm=spec.norm, C=C, random_state=seed
                        ).fit(Z, b)
                    fits.append(theirs.decision_function(Z))
            nobody, root, *others = np.reshape(lost(A, b, fits), (-1, REPEATS)).mean(axis=1).tolist()
            row = {"rows": n, "features": d, "correlated": correlated}
            rows.append(row | {"nobody": nobody, "root": root, "diffprivlib": min(others)})
            print(rows[-1], flush=True)
    return rows


if __name__ == "__main__":
    rows = [{"accountants": accountants(), "attack": attack(), "beside": beside()}]
    record(rows, "dp-accounting", "diffprivlib", "scikit-learn")
