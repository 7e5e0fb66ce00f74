"""The root's part of solving rows at home: steps for V and μ, and when the gap is to be computed.

The root never sees rows: it has the sums at x = U Vᵀ, from which :class:`_Here` finds what the steps and the
certificate need. The line numbers are those of the box "Rows solved at home" in docs/completion.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import NamedTuple, final

import numpy as np

from dcgs.low_rank import Matrix
from dcgs.methods.base import Agent
from dcgs.methods.certificate import UNKNOWN, Bounds
from dcgs.methods.fast.completion_gap import (
    Command,
    GapEstimate,
    GapSearch,
    ModelValue,
    as_sent,
    block_type,
    with_errors,
)
from dcgs.methods.reduction import Value
from dcgs.points import EPS, Point, symmetric
from dcgs.sets.nuclear_norm_ball import NuclearNormBall, extended

# Pairs of L-BFGS, and the most entries that they may have.
_MEMORY, _MOST_ENTRIES = 20, 1 << 26
# A block E has rank // _SHARE vectors and at least _LEAST; as many as the rank if a share _GROWTH was needed.
_SHARE, _LEAST, _GROWTH = 3, 6, 0.75
# The curvature of a direction that V and E do not have, as a share of μ. That of all others grows by a share
# of μ, _DAMPING times the root mean square of σ²/μ² − 1 in the span of V, which is zero at an optimum.
_REST, _DAMPING = 0.7, 9.0
# After a certificate that failed, estimates of the gap count as too small by this factor.
_DOUBT = 1.2
# The next block comes from the last blocks as well, so many: of their directions beside V those are used that
# are not nearly those of others, by this share of their length.
_BLOCKS, _NEW = 3, 0.1
# ‖x‖_* may be off by _CLOSE of the radius, and by _NEAR √gap: the gap has the square of this error.
_CLOSE, _NEAR = 0.01, 0.1
# The preconditioner is scaled by the curvature along the last step, if that differs by this factor.
_SCALED = 2.0
# Targets below _SMALL, as shares of the decrease, are left to the steps. The gap must fall by a tenth in
# _PATIENCE sums.
_SMALL, _PATIENCE = 1e-4, 8
# A model whose nuclear norm is more than 1/_FAR of the radius is left to the steps; and so is one of less
# than _LOOSE of the radius after _MANY sums: the ratings are fitted before the radius is reached.
_FAR = 0.3
_LOOSE, _MANY = 0.55, 10
# Singular values of V below this share of the largest are left out of estimates: their vectors are rounded.
_SHORT = 1e-3


@final
@dataclass(eq=False)
class Last:
    """The point before: V, its gradient, f and ½(‖U‖² + ‖V‖²) there, μ, and the step taken from it."""

    V: Matrix
    grad: Matrix
    value: float
    weight: float
    mu: float
    step: Matrix

    def most(self, mu: float) -> float:
        """Return f + μ/2 (‖U‖² + ‖V‖²) and rounding, or more: U is that for the μ of this point."""
        value = self.value + mu * self.weight
        return value + 1e-9 * abs(value)


@final
@dataclass(eq=False)
class HomeRoot:
    """What the root knows: curvatures of columns, the last point, the pairs of L-BFGS, and how the gap falls.

    ``half`` has half the sums of second derivatives of the entries of each column. ``density`` relates the
    curvature of a column to UᵀU: rows with many entries have a larger share of its entries. ``least`` is the
    smallest gap so far as a share of the decrease, and ``since`` the number of sums after it. ``trust`` is
    by how much estimates count as too small, and ``bounds`` has the best lower bound of f*. ``vectors`` and
    ``images`` are the last blocks and GᵀG times them, for the G of their sums. ``sums`` counts sums.
    """

    half: Point
    density: float
    last: Last | None = None
    steps: list[Matrix] = field(default_factory=list)
    changes: list[Matrix] = field(default_factory=list)
    least: float = math.inf
    since: int = 0
    trust: float = 1.0
    bounds: Bounds = field(default_factory=Bounds)
    vectors: list[Matrix] = field(default_factory=list)
    images: list[Matrix] = field(default_factory=list)
    sums: int = 0

    def keep(self, here: _Here) -> None:
        """Keep the blocks of the last sums."""
        self.vectors = [here.vectors, *self.vectors[: _BLOCKS - 1]]
        self.images = [here.images, *self.images[: _BLOCKS - 1]]

    def next_block(self, known: Matrix, wanted: int) -> Matrix:
        """Return GᵀG times the top singular vectors of G beside those that are known, as far as blocks tell.

        These are Ritz vectors in the span of the last blocks. G was a little different for each of them.
        """
        vectors, images = (a - known @ (known.T @ a) for a in map(np.hstack, (self.vectors, self.images)))
        left, lengths, right = np.linalg.svd(vectors, full_matrices=False)
        new = lengths > _NEW
        images = images @ (right[new].T / lengths[new])
        return np.asarray(images @ _ritz(left[:, new], images)[1][:, :wanted])

    def forget(self, kept: int) -> None:
        """Keep the last pairs only."""
        self.steps, self.changes = self.steps[len(self.steps) - kept :], self.changes[-kept:] * (kept > 0)


class _Sums(NamedTuple):
    """The sums at U Vᵀ: the gradient for V, GᵀG E, UᵀU, and f of the scaled x, slope · s + size · s²."""

    grad: Matrix
    products: Matrix
    gram: Matrix
    slope: float
    size: float


@final
class Root:
    """What the root computes; other agents have one and do not call it.

    Its answer has the command, μ, and the scale of the model; the next V, and the next block E.
    """

    def __init__(self, agent: Agent, state: HomeRoot | None) -> None:
        assert isinstance(agent.X, NuclearNormBall)
        self.agent, self.state = agent, state
        self.radius, self.side = agent.X.radius, min(agent.X.shape)
        self._search = GapSearch(agent, block_type(agent), with_one=True)
        self._here: tuple[_Here, bool] | None = None

    def answer(self, V: Matrix, E: Matrix, mu: float, total: Value) -> Value:
        """Return what follows from the sums over all agents; V, E and μ are those they were made with."""
        blocks, packed, (slope, size, squares, entries), *of_columns = total
        products, rank = blocks.astype(np.float64), V.shape[1]
        if rank == 0:
            return self._first(E, products, of_columns[0], float(squares / max(1.0, entries**2)))
        assert self.state is not None
        gram, grad = symmetric(packed, rank), products[:, :rank] + mu * V
        sums = _Sums(grad, products[:, rank:], gram, float(slope), float(size))
        return self._next(self.state, V, E, mu, sums)

    def _first(self, E: Matrix, products: Matrix, half: Point, density: float) -> Value:
        """Return the first V, E and μ, by Nyström's approximation of GᵀG from its products with random E."""
        state = self.state = HomeRoot(half, density)
        squares, R = np.linalg.eigh(0.5 * (E.T @ products + products.T @ E))
        kept = squares > 1e-6 * squares[-1]
        vectors, sigma, _ = np.linalg.svd(
            products @ (R[:, kept] / np.sqrt(squares[kept])), full_matrices=False
        )
        if not (len(sigma) and sigma[0] > 0.0):
            return (np.array([Command.SWITCH, 1.0, 0.0]),)
        low, mu = 0.0, float(sigma[0])
        for _ in range(60):  # μ for which the model of the block has the radius
            middle = 0.5 * (low + mu)
            is_large = float(np.sum(_lengths(state, vectors, sigma, middle) ** 2)) > self.radius
            low, mu = (middle, mu) if is_large else (low, middle)
        used = sigma > mu
        V = vectors[:, used] * _lengths(state, vectors, np.maximum(sigma, 1.05 * mu), mu)[used]
        is_short = bool(np.count_nonzero(used) >= _GROWTH * len(sigma))
        return self._answer(mu, 0.0, V, self._beside(vectors[:, ~used], V, self._spare(V, is_short)))

    def _next(self, state: HomeRoot, V: Matrix, E: Matrix, mu: float, sums: _Sums) -> Value:
        """Return the next V, μ and E, or the end of this part of the run; lines 6 to 9."""
        here = _Here.of(V, E, mu, sums, self.radius)
        if here is None:
            return (np.array([Command.SWITCH, mu, 0.0]),)
        last = state.last
        is_worse = last is not None and here.value + mu * here.weight > last.most(mu)
        is_far = here.scale < _FAR
        state.sums += 1
        is_loose = here.norm < _LOOSE * self.radius and state.sums >= _MANY
        if is_far or is_loose or self._is_over(state, here.gap, is_worse):
            return (np.array([Command.SWITCH, mu, 0.0 if is_far else here.scale]),)
        self._here = here, is_worse
        at = ModelValue(-here.fall, 0.0, UNKNOWN, at_start=False)
        near = np.hstack([here.basis, here.vectors])
        begun = self._search.begin(at, GapEstimate(here.gap * here.fall, 0.0, state.trust), near)
        if begun is None:
            return self._step(state)
        return np.array([Command.CERTIFY, mu, here.scale]), begun[1]

    def certify(self, total: Value) -> Value:
        """Return the next block of the certificate, or what follows from the gap at the scaled x."""
        state, (image, slope, numbers) = self.state, total
        assert state is not None
        value, error, above, noise = with_errors(numbers, self.agent.sum_error(2))
        self._search.judge(ModelValue(value, error, above, at_start=False), noise)
        answer, _ = self._search.proceed((image, slope), state.bounds)
        if answer is not None:
            return answer
        state.trust *= _DOUBT
        assert self._here is not None
        here, is_worse = self._here
        self._here = here.beside(*self._search.found(here.basis.shape[1])), is_worse
        return self._step(state)

    def _step(self, state: HomeRoot) -> Value:
        """Return the next V, μ and E."""
        assert self._here is not None
        (here, is_worse), last = self._here, state.last
        V, mu, sums, sigma = here.V, here.mu, here.sums, here.sigma
        if is_worse:  # half of the step
            assert last is not None
            last.step = 0.5 * last.step
            state.forget(5)
            V = last.V - last.step
            return self._answer(mu, here.scale, V, self._beside(here.vectors, V, len(sigma)))
        if last is not None:
            old = last.V.any(axis=0)  # new columns have no gradient at the last point
            moved, change = (V - last.V) * old, (sums.grad - last.grad - (mu - last.mu) * last.V) * old
            if np.sum(moved * change) > 0.0:
                most = min(_MEMORY, 1 + _MOST_ENTRIES // (2 * V.size)) - 1
                state.forget(min(most, len(state.steps)))
                state.steps, state.changes = [*state.steps, moved], [*state.changes, change]
        new = self._weight(here)
        if abs(math.log(new / mu)) >= 0.1:
            state.forget(0)
        count = min(int(np.count_nonzero(sigma > new)), self.side - V.shape[1])
        lengths = _lengths(state, here.vectors[:, :count], np.maximum(sigma[:count], 1.02 * new), new)
        added = here.vectors[:, :count] * lengths
        step = _direction(sums.grad + (new - mu) * V, state, _Metric.of(state, here, new))
        zeros = np.zeros_like(added)
        state.last = Last(
            np.hstack([V, zeros]),
            np.hstack([sums.grad, zeros]),
            here.value,
            here.weight,
            mu,
            np.hstack([step, -added]),
        )
        state.steps = [np.hstack([s, zeros]) for s in state.steps]
        state.changes = [np.hstack([y, zeros]) for y in state.changes]
        V = state.last.V - state.last.step
        is_short = bool(count >= _GROWTH * len(sigma))
        state.since = 0 if count else state.since
        state.keep(here)
        block = state.next_block(_basis(np.hstack([here.V, added])), here.vectors.shape[1])
        return self._answer(new, here.scale, V, self._beside(block, V, self._spare(V, is_short)))

    def _is_over(self, state: HomeRoot, gap: float, is_worse: bool) -> bool:
        """Return True if the gap is left to the steps, or falls no more."""
        relative = (self.agent.target and self.agent.target.relative) or 0.0
        state.since += 1
        if gap < 0.9 * state.least and not is_worse:
            state.least, state.since = gap, 0
        is_small = relative < _SMALL and gap <= _SMALL
        return is_small or state.since > (2 * _PATIENCE if is_worse else _PATIENCE)

    def _weight(self, here: _Here) -> float:
        """Return the μ for which ‖x‖_* is about the radius: a Newton step for log μ, if that is far off."""
        V, mu, gram = here.V, here.mu, here.sums.gram
        squared, rank = float(np.sum(gram * (V.T @ V))), len(gram)
        # −d log ‖x‖_* / d log μ
        response = max(1.0, 0.75 * mu * rank * squared / (here.sums.size * here.norm))
        ratio = math.log(here.norm / self.radius)
        if abs(ratio) < min(_CLOSE, _NEAR * math.sqrt(max(0.0, here.gap))):  # an estimate may be negative
            return mu
        return mu * math.exp(min(0.7, max(-0.7, ratio / response)))

    @staticmethod
    def _spare(V: Matrix, is_short: bool) -> int:
        """Return the size of the next block; ``is_short`` if most vectors of the last one were needed."""
        rank = int(V.shape[1])
        return rank if is_short else max(_LEAST, rank // _SHARE)

    def _beside(self, block: Matrix, V: Matrix, wanted: int) -> Matrix:
        """Return so many orthonormal vectors, orthogonal to V: those of the block, and random ones."""
        rank = V.shape[1]
        lengths = np.linalg.norm(block, axis=0)
        block = block[:, lengths > 0.0] / lengths[lengths > 0.0]
        known = _basis(V)
        for _ in range(2):
            block = _basis(block - known @ (known.T @ block)) if block.shape[1] else block
        return extended(np.hstack([known, block]), min(rank + wanted, self.side))[:, rank:]

    def _answer(self, mu: float, scale: float, V: Matrix, E: Matrix) -> Value:
        kind = block_type(self.agent)
        return np.array([Command.STEP, mu, scale]), as_sent(V, kind), as_sent(E, kind)


@final
@dataclass(frozen=True, eq=False)
class _Here:
    """What follows from the sums at x = U Vᵀ: the scale s, f(0) − f(s x), the gap, and singular values of G.

    ``vectors`` span E, with the singular values ``sigma`` of G, largest first, and ``images`` GᵀG times them.
    ``svd`` is that of V, and ``basis`` has its left singular vectors but those of nearly zero; ``spread`` is
    the root mean square of σ²/μ² − 1 there. The gap is a share of the decrease.
    """

    V: Matrix
    mu: float
    sums: _Sums
    svd: tuple[Matrix, Point, Matrix]
    norm: float
    weight: float
    scale: float
    fall: float
    gap: float
    basis: Matrix
    spread: float
    sigma: Point
    vectors: Matrix
    images: Matrix

    @property
    def value(self) -> float:
        """f(x) − f(0)."""
        return self.sums.slope + self.sums.size

    def beside(self, E: Matrix, products: Matrix) -> _Here:
        """Return the same with the top singular vectors in the span of another E, as many as there were."""
        sigma, rotation = _ritz(E, products)
        kept = rotation[:, : max(len(self.sigma), int(np.count_nonzero(sigma > self.mu)))]
        return replace(self, sigma=sigma[: kept.shape[1]], vectors=E @ kept, images=products @ kept)

    @classmethod
    def of(cls, V: Matrix, E: Matrix, mu: float, sums: _Sums, radius: float) -> _Here | None:
        """Return what follows from the sums, or None if x is zero.

        The gap is that of s x by the tangent plane of f at x: f(s x) − f(x) + ⟨G, x⟩ + radius · σ₁. Rows that
        are solved give G V = −μ U, so GᵀG is known in the span of V and E. Its eigenvectors y there with
        values θ of μ² or more have residuals R; σ₁² is taken as that of [[θ, Rᵀ], [R, ρ 1]], where ρ is the
        least value in E.
        """
        left, lengths, right = np.linalg.svd(V, full_matrices=False)
        across = lengths[:, None] * right
        sizes = np.sqrt(np.maximum(np.linalg.eigvalsh(across @ sums.gram @ across.T), 0.0))
        norm = float(sizes.sum())
        if not (norm > 0.0 and sums.size > 0.0):
            return None
        scale = min(
            radius / (norm + len(sizes) * math.sqrt(EPS) * float(sizes.max())),
            -sums.slope / (2.0 * sums.size),
        )
        sigma, rotation = _ritz(E, sums.products)
        vectors, images = E @ rotation, sums.products @ rotation
        kept = lengths > _SHORT * lengths[0]
        inverse = right[kept].T / lengths[kept]
        inner = mu**2 * (inverse.T @ sums.gram @ inverse)
        Q = np.hstack([left[:, kept], vectors])
        GtGQ = np.hstack([mu * ((mu * V - sums.grad) @ inverse), images])
        T = Q.T @ GtGQ
        T[: len(inner), : len(inner)] = inner
        T = 0.5 * (T + T.T)
        squares, Y = np.linalg.eigh(T)
        Y = Y[:, squares >= min(mu**2, float(squares[-1]))]
        theta = squares[len(squares) - Y.shape[1] :]
        R = np.linalg.qr(GtGQ @ Y - Q @ (Y * theta))[1]
        whole = np.block([[np.diag(theta), R.T], [R, min(float(sigma[-1]), mu) ** 2 * np.eye(len(R))]])
        top = math.sqrt(max(0.0, float(np.linalg.eigvalsh(whole)[-1])))
        fall = -scale * (sums.slope + scale * sums.size)
        gap = (sums.size - fall + radius * top) / fall if fall > 0.0 else math.inf
        spread = math.sqrt(float(np.mean((np.linalg.eigvalsh(inner) / mu**2 - 1.0) ** 2)))
        weight = 0.5 * float(np.trace(sums.gram) + np.sum(V**2))
        svd = left, lengths, right
        return cls(
            V, mu, sums, svd, norm, weight, scale, fall, gap, left[:, kept], spread, sigma, vectors, images
        )


@final
@dataclass(frozen=True, eq=False)
class _Metric:
    """The preconditioner of L-BFGS: about the second derivatives for V, in the basis of its singular vectors.

    They are those at an optimum where all entries have a curvature c (docs/completion.md): of directions v_j
    of V for the column √σ_k v_k, c μ (σ_j + σ_k) (1/(c σ_j + μ) + 1/(c σ_k + μ)); of a direction w beside V,
    c σ_k + μ − s²/(c σ_k + μ), with s = ‖G w‖, which is known for w in E only. Here c is the mean curvature
    of the entries of v_j and v_k, or of w.
    """

    left: Matrix
    right: Matrix
    vectors: Matrix
    within: Matrix
    of_vectors: Matrix
    beyond: Matrix

    @classmethod
    def of(cls, state: HomeRoot, here: _Here, mu: float) -> _Metric:
        left, lengths, right = here.svd
        squares, curved = lengths**2, 2.0 * state.density
        of_left, of_vectors = curved * (state.half @ left**2), curved * (state.half @ here.vectors**2)
        damping = min(1.0, _DAMPING * here.spread) * mu
        c = 0.5 * (of_left[:, None] + of_left)
        inverse = 1.0 / (c * squares[:, None] + mu) + 1.0 / (c * squares + mu)
        stiff = of_vectors[:, None] * squares + mu
        return cls(
            left,
            right.T,
            here.vectors,
            c * mu * (squares[:, None] + squares) * inverse + damping,
            stiff - np.minimum(here.sigma, mu)[:, None] ** 2 / stiff + damping,
            curved * state.half[:, None] * squares + _REST * mu,
        )

    def solve(self, q: Matrix) -> Matrix:
        """Return the preconditioned q."""
        q = q @ self.right
        a, e = self.left.T @ q, self.vectors.T @ q
        rest = (q - self.left @ a - self.vectors @ e) / self.beyond
        a, e = a / self.within - self.left.T @ rest, e / self.of_vectors - self.vectors.T @ rest
        return np.asarray((rest + self.left @ a + self.vectors @ e) @ self.right.T)


def _direction(grad: Matrix, state: HomeRoot, metric: _Metric) -> Matrix:
    """Return the step of L-BFGS for V, to be subtracted."""
    pairs = [(s, y, float(np.sum(s * y))) for s, y in zip(state.steps, state.changes, strict=True)]
    q, weights, scale = grad, list[float](), 1.0
    for s, y, product in reversed(pairs):
        weights.append(float(np.sum(s * q)) / product)
        q = q - weights[-1] * y
    if pairs:
        _, y, product = pairs[-1]
        scale = product / float(np.sum(y * metric.solve(y)))
        scale = 1.0 if 1.0 / _SCALED < scale < _SCALED else scale
    q = scale * metric.solve(q)
    for (s, y, product), weight in zip(pairs, reversed(weights), strict=True):
        q = q + (weight - float(np.sum(y * q)) / product) * s
    return q


def _lengths(state: HomeRoot, vectors: Matrix, sigma: Point, mu: float) -> Point:
    """Return about √σ of the optimum along each vector, from its singular value in the gradient."""
    curvature = 2.0 * state.density * (state.half @ vectors**2)
    return np.asarray(np.sqrt(np.maximum(sigma - mu, 0.0) / np.maximum(curvature, EPS)))


def _basis(block: Matrix) -> Matrix:
    return np.asarray(np.linalg.qr(block)[0])


def _ritz(E: Matrix, products: Matrix) -> tuple[Point, Matrix]:
    """Return the singular values of G in the span of E, and the rotation to their vectors, largest first."""
    product = E.T @ products
    values, R = np.linalg.eigh(0.5 * (product + product.T))
    return np.sqrt(np.maximum(values[::-1], 0.0)), R[:, ::-1]
