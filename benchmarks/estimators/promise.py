"""Whether a private fit keeps its promise, by others: accountants, an attack, and diffprivlib beside it.

``pip install dp-accounting diffprivlib 'scikit-learn<1.6'``, in an environment of its own, then
``python benchmarks/estimators/promise.py``. It prints

* ε of the noise that dcgs takes for an ε, by the accountants of dp-accounting: PLD, the exact one of Gaussian
  noise, and Rényi; and how much more noise that is than the exact one needs;
* how well a likelihood ratio tells whether one row, the worst there may be, was in the data, from all noisy
  totals of a fit and the noise of one site, beside the most that ε allows;
* the losses of private logistic models of dcgs and of diffprivlib, which pools the data.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from typing import Any

import dp_accounting
import networkx as nx
import numpy as np
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from private import BOUND, RADIUS, best, data
from scipy.optimize import brentq
from scipy.stats import beta, norm

from dcgs.learn import Rows, Sites
from dcgs.learn.private import Bounds, PrivateSpec, _cut_gradient, _private_steps, _scaled, fit_private
from dcgs.learn.sums import Reductions
from dcgs.secure.noise import epsilon_of, rho_for

DELTA, STEPS, FITS = 1e-6, 60, 2000


def accountants() -> None:
    """Print ε of the same noise by others."""
    print("| ε | δ | ε by dcgs (zCDP) | by PLD | by Rényi | noise more than needed |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: |")
    for epsilon in (0.1, 1.0, 5.0):
        for delta in (1e-8, 1e-6):
            rho = rho_for(epsilon, delta)
            multiplier = math.sqrt(STEPS / (2.0 * rho))  # of each of STEPS sums
            by = []
            for accountant in (PLDAccountant(), RdpAccountant()):
                accountant.compose(dp_accounting.GaussianDpEvent(multiplier), STEPS)
                by.append(accountant.get_epsilon(delta))

            def excess(sigma: float, epsilon: float = epsilon, delta: float = delta) -> float:
                told = norm.cdf(0.5 / sigma - epsilon * sigma)  # Balle and Wang 2018, theorem 8
                told -= math.exp(epsilon) * norm.cdf(-0.5 / sigma - epsilon * sigma)
                return math.log(max(told, 1e-300)) - math.log(delta)

            more = 1.0 / math.sqrt(2.0 * rho) / brentq(excess, 0.05, 500.0) - 1.0
            print(
                f"| {epsilon:g} | {delta:g} | {epsilon_of(rho, delta):.4f} | {by[0]:.4f} | {by[1]:.4f} | "
                f"{100.0 * more:.1f} % |"
            )


def attacked(spec: PrivateSpec, rows: dict[int, Rows], others: dict[int, Rows], last: Rows) -> float:
    """Return the log likelihood ratio for ``last`` in the data of agent 2, by one who has all else.

    The attacker is agent 0: the total without its own part, and what the others would have sent without the
    row, leave the noise of agents 1 and 2, and the row.
    """
    honest = len(rows) - spec.colluders
    base = {i: _scaled(part, spec) for i, part in others.items()}
    Z, b = _scaled(last, spec)
    steps, ratio = _private_steps(rows, spec, honest), 0.0
    limit, x, squares = spec.radius + 3.0, np.zeros(len(spec.bounds.low) + 1), 0.0
    request: Any = next(steps)
    count = sum(np.asarray(arrays[0]) for arrays in request.values.values())
    most = spec.limit(float(spec.count_scale(honest).read(count)[0]), honest)
    scale = spec.scale(honest, most)
    request = steps.send((count,))
    while True:
        parts = {i: np.asarray(arrays[0]) for i, arrays in request.values.items()}
        total = sum(parts.values())
        sums = {i: _cut_gradient(spec.loss, A, t, x, most) for i, (A, t) in base.items()}
        known = sum(np.rint(scale.factor * own) for own in sums.values())
        row = scale.factor * _cut_gradient(spec.loss, Z, b, x, most)
        rest = total - known - (parts[0] - np.rint(scale.factor * sums[0]))
        variance = (scale.deviation * scale.factor) ** 2
        ratio += float(row @ rest - 0.5 * row @ row) / variance
        g = scale.read(total)
        squares += float(g @ g)
        x = _projected(x - 0.25 * spec.radius / math.sqrt(squares) * g, spec.radius, limit)
        try:
            request = steps.send((total,))
        except StopIteration:
            return ratio


def _projected(x: Any, radius: float, limit: float) -> Any:
    from dcgs.sets import Box, L1Ball, ProductSet

    X: Any = ProductSet(L1Ball(len(x) - 1, radius=radius), Box([-limit], [limit]))
    return X.project(x)


def attack() -> None:
    """Print how well the attack does."""
    rng = np.random.default_rng(0)
    bounds = Bounds(np.full(4, -1.0), np.full(4, 1.0), (-1.0, 1.0))
    spec = PrivateSpec("squared", 0.1, bounds, 1.0, DELTA, steps=10)
    parts = {i: Rows(rng.uniform(-0.1, 0.1, (20, 4)), rng.uniform(-0.1, 0.1, 20)) for i in range(3)}
    last = Rows(np.ones((1, 4)), np.array([1.0]))  # of the largest norm, with the largest slope
    within = {**parts, 2: Rows(np.vstack([parts[2].A, last.A]), np.append(parts[2].targets, 1.0))}
    print("\n| ε | AUC of the attack | the most it may be | ε shown at 95 % | at a tenth of the noise |")
    print("| ---: | ---: | ---: | ---: | ---: |")
    for epsilon in (1.0, 4.0):
        promised = replace(spec, epsilon=epsilon)
        out, inside = (
            np.array([attacked(promised, some, parts, last) for _ in range(FITS)]) for some in (parts, within)
        )
        mu = math.sqrt(2.0 * promised.rho)
        louder = shown_epsilon(out, inside + 10.0 * (inside.mean() - out.mean()))
        auc = float((inside[:, None] > out).mean())
        print(
            f"| {epsilon:g} | {auc:.3f} | {norm.cdf(mu / math.sqrt(2.0)):.3f} | "
            f"{shown_epsilon(out, inside):.2f} | {louder:.2f} |"
        )


def shown_epsilon(out: Any, inside: Any) -> float:
    """Return the largest ε that the rates at any threshold show, with Clopper and Pearson's bounds."""
    found = 0.0
    for threshold in np.quantile(np.concatenate([out, inside]), np.linspace(0.02, 0.98, 49)):
        for hits, alarms in ((inside > threshold, out > threshold), (out <= threshold, inside <= threshold)):
            k, m, n = int(hits.sum()), int(alarms.sum()), len(hits)
            least = beta.ppf(0.025 / 49, k, n - k + 1) if k else 0.0
            most = beta.ppf(1.0 - 0.025 / 49, m + 1, n - m) if m < n else 1.0
            found = max(found, math.log(max(least - DELTA, 1e-12) / most))
    return found


def beside() -> None:
    """Print losses beside those of diffprivlib."""
    from diffprivlib.models import LogisticRegression

    print(
        "\n| rows | features | columns | lost, dcgs | lost, dcgs, root trusted | lost, diffprivlib, pooled |"
    )
    print("| ---: | ---: | --- | ---: | ---: | ---: |")
    for n, d in ((20_000, 20), (20_000, 100)):
        for correlated in (False, True):
            A, b = data(n, d, correlated)
            sites = {i: Rows(A[i::10], b[i::10]) for i in range(10)}
            network = Reductions(nx.complete_graph(10), secure=True)
            limits = np.full(d, BOUND)
            spec = PrivateSpec("logistic", RADIUS, Bounds(-limits, limits), epsilon=1.0, delta=DELTA)

            def loss(z: Any, b: Any = b) -> float:
                return float(np.logaddexp(0.0, -b * z).mean())

            least = loss(A / BOUND @ best(A, b, RADIUS))
            fits = [
                loss(fit_private(Sites(network, sites, {}), kind).model.image(A))
                for kind in (spec, replace(spec, trusted="root"))
            ]
            theirs = []
            Z = np.clip(A / BOUND, -1.0, 1.0)
            for C in (0.01, 0.1, 1.0, 10.0, 100.0):  # the best of its penalties, with hindsight
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    model = LogisticRegression(epsilon=1.0, data_norm=math.sqrt(d) / 3.0, C=C).fit(Z, b)
                theirs.append(loss(model.decision_function(Z)))
            explained = math.log(2.0) - least
            shares = " | ".join(
                f"{100.0 * (value - least) / explained:.1f} %" for value in (*fits, min(theirs))
            )
            print(f"| {n:,} | {d} | {'correlated' if correlated else 'independent'} | {shares} |", flush=True)


if __name__ == "__main__":
    accountants()
    attack()
    beside()
