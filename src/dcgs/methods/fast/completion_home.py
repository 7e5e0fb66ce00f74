"""Matrix completion where every row is with one agent: the agents solve their rows at home.

With μ ‖x‖_* = min μ/2 (‖U‖² + ‖V‖²) over x = U Vᵀ, each row of U is a ridge regression of one agent, given V
and μ (variable projection). One sum has the gradient for V, and products of GᵀG with a block E of further
vectors, of which those with singular values above μ become columns of V; G is the gradient of f. The root
takes L-BFGS steps for V, and Newton steps for log μ, by which ‖x‖_* becomes the radius.

This is how a run begins whose start is zero. When the gap seems small enough the agents compute it. The model
is s x, which is in the ball, but the lower bound of f* is the tangent plane at x, whose nuclear norm is not
quite the radius: so an error of ‖x‖_* counts by its square only. If the gap falls no more, the steps of
``completion_own.py`` go on from the model. The line numbers are those of the box "Rows solved at home" in
docs/completion.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple, final

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dposv

from dcgs.low_rank import LowRank, Matrix
from dcgs.methods.base import Agent
from dcgs.methods.certificate import UNKNOWN, Bounds
from dcgs.methods.fast.completion import Form, LocalRatings
from dcgs.methods.fast.completion_gap import (
    Command,
    GapEstimate,
    GapSearch,
    ModelValue,
    as_sent,
    block_type,
    gap_answer,
    gram_products,
    with_errors,
)
from dcgs.methods.fast.completion_own import CompletionState, OwnRows, RootState, first_state
from dcgs.methods.reduction import Value, network_answer
from dcgs.points import EPS, Point, symmetric, upper_triangle
from dcgs.protocol import Program
from dcgs.sets.nuclear_norm_ball import NuclearNormBall, extended

# The first block has about twice as many entries as all agents together, but at most 1/_PART of the smaller
# side as vectors, and _FEWEST to _MOST; the smallest side of a matrix for which all this is worth it.
_PART, _FEWEST, _MOST = 8, 8, 256
SMALLEST = 128
# Pairs of L-BFGS, and the most entries that they may have.
_MEMORY, _MOST_ENTRIES = 20, 1 << 26
# A block E has rank // _SHARE vectors and at least _LEAST; as many as the rank if a share _GROWTH was needed.
_SHARE, _LEAST, _GROWTH = 3, 6, 0.75
# The curvature of a direction that V and E do not have, as a share of μ. That of all others grows by a share
# of μ, _DAMPING times the root mean square of σ²/μ² − 1 in the span of V, which is zero at an optimum.
_REST, _DAMPING = 0.7, 12.0
# After a certificate that failed, estimates of the gap count as too small by this factor.
_DOUBT = 1.2
# Targets below _SMALL, as shares of the decrease, are left to the steps. The gap must fall by a tenth in
# _PATIENCE sums.
_SMALL, _PATIENCE = 1e-4, 8
# A model whose nuclear norm is more than 1/_FAR of the radius is left to the steps, as for large radii.
_FAR = 0.3
# Singular values of V below this share of the largest are left out of estimates: their vectors are rounded.
_SHORT = 1e-3
# Rows of equal length are solved together, as many as have so many entries.
_TOGETHER = 1 << 21


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
    by how much estimates count as too small, and ``bounds`` has the best lower bound of f*.
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

    def forget(self, kept: int) -> None:
        """Keep the last pairs only."""
        self.steps, self.changes = self.steps[len(self.steps) - kept :], self.changes[-kept:] * (kept > 0)


@final
@dataclass(eq=False)
class RowsState:
    """The model U Vᵀ after the last sum; ``trial``, the V of the next products, their block E, and μ.

    ``root`` is that of the root only.
    """

    U: Matrix
    V: Matrix
    trial: Matrix
    block: Matrix
    mu: float = 1.0
    root: HomeRoot | None = None


@final
@dataclass(eq=False)
class HomeState:
    """The state while rows are solved at home, or that of the steps that follow; the other is None."""

    rows: RowsState | None
    steps: CompletionState | None = None


def begins_at_home(agent: Agent) -> bool:
    """Return True if a run begins so: from zero, with quadratic losses and a matrix that is large."""
    start = agent.low_rank_start
    is_large = min(agent.X.shape) >= SMALLEST and agent.facts.quadratic_entries > 0
    return is_large and start is not None and start.rank == 0


@final
class RowsAtHome(Form):
    """The form for agents that share no rows and begin at zero."""

    def __init__(self, agent: Agent) -> None:
        self.agent, self.ratings = agent, LocalRatings(agent, all_rows=False)
        self.solver = RowSolver(agent, self.ratings)
        saved = agent.restore(HomeState) or HomeState(self._first_state())
        self.at, self.steps = saved.rows, saved.steps and OwnRows(agent, saved.steps)
        self.root = Root(agent, self.at.root if self.at else None)
        self._U: Matrix = np.empty((0, 0))
        self._image, self._scale = np.empty(0), 1.0

    def _first_state(self) -> RowsState:
        rows, columns = len(self.ratings.entries.rows), self.ratings.shape[1]
        facts, side = self.agent.facts, min(self.ratings.shape)
        vectors = max(_FEWEST, min(_MOST, 2 * facts.quadratic_entries // columns, side // _PART))
        block = extended(np.empty((columns, 0)), min(vectors, side))
        none = np.zeros((columns, 0))
        return RowsState(np.zeros((rows, 0)), none, none, block)

    @property
    def state(self) -> HomeState:
        if self.steps is not None:
            return HomeState(None, self.steps.state)
        assert self.at is not None
        self.at.root = self.root.state
        return HomeState(self.at)

    @property
    def model(self) -> LowRank:
        if self.steps is not None:
            return self.steps.model
        assert self.at is not None
        return LowRank(self.at.U, self.at.V, self.ratings.shape, self.ratings.entries.rows)

    def products(self) -> Program[Value]:
        if self.at is not None:
            answer = yield from self._sum(self.at)
            command, self._scale = Command(int(answer[0][0])), float(answer[0][2])
            if command is Command.CERTIFY:
                self.at.U, self.at.V = self._scale * self._U, self.at.trial
            if command is not Command.SWITCH:
                return answer
            self._switch(self.at, self._scale)
        assert self.steps is not None
        return (yield from self.steps.products())

    def _sum(self, at: RowsState) -> Program[Value]:
        """Return the answer of the root to the products at U Vᵀ, with the best U for V and μ."""
        kind, V, E = block_type(self.agent), at.trial, at.block
        self._U, self._image = self.solver.solved(V, at.mu)
        G, _ = self.ratings.gradient(self._image)
        products = as_sent(np.hstack([G.T @ self._U, G.T @ (G @ E)]), kind)
        numbers = self.solver.numbers(self._image)
        own: Value = products, upper_triangle(self._U.T @ self._U), numbers
        if V.shape[1] == 0:
            own = *own, self.solver.of_columns
        decide = partial(self.root.answer, V, E, at.mu)
        return (yield from network_answer(own, self.agent, decide, name="rows"))

    def gram_product(self, B: Matrix) -> Program[Value]:
        if self.steps is not None:
            return (yield from self.steps.gram_product(B))
        # The model is s x; the gradient G is that at x, and f(s x) − f(x) is added to ⟨G, x⟩.
        assert self.at is not None
        scale, f = self._scale, self.agent.f
        x = LowRank(self._U, self.at.trial, self.ratings.shape, self.ratings.entries.rows)
        G, slope = self.ratings.gradient(self._image)
        fall, error = f.loss.decrease(self._image, scale * self._image)
        numbers = self.ratings.numbers(self.model, scale * self._image)
        numbers[3] = max(1.0, 1.0 / scale) * f.grad_error(x, self._image)
        own = gram_products(G, B), np.array([slope - fall + error]), numbers
        return (yield from gap_answer(own, self.agent, self.root.certify))

    def step(self, answer: Value, is_back: bool) -> None:
        if self.steps is not None:
            return self.steps.step(answer, is_back)
        assert self.at is not None
        (_, mu, scale), V, E = answer
        at = self.at
        at.U, at.V = scale * self._U, at.trial
        at.trial, at.block, at.mu = V.astype(np.float64), E.astype(np.float64), float(mu)
        return None

    def _switch(self, at: RowsState, scale: float) -> None:
        """Go on with steps from the model of this sum."""
        V, R = np.linalg.qr(np.hstack([at.trial, at.block]))
        rank = at.trial.shape[1] if scale else 0
        V = V if scale else V[:, :_FEWEST]
        U = (scale * self._U[:, :rank]) @ R[:rank, :rank].T
        root = RootState(V[:, :rank], V[:, :rank]) if rank and self.agent.tree.parent is None else None
        self.steps, self.at = OwnRows(self.agent, first_state(self.agent, self.ratings, U, V, root)), None


@final
class RowSolver:
    """The ridge regressions of an agent's rows, for losses ½ Σ h z² + Σ g z of the entries z."""

    def __init__(self, agent: Agent, ratings: LocalRatings) -> None:
        entries, zero = ratings.entries, np.zeros(ratings.entries.map.size)
        self.entries, self.columns = entries, ratings.shape[1]
        order = np.argsort(entries.places, kind="stable")
        self.cols = entries.map.cols[order]
        self.h, self.g = agent.f.loss.hess(zero)[order], agent.f.loss.grad(zero)[order]
        self._order = order
        self.counts = np.bincount(entries.places, minlength=len(entries.rows))
        self.starts = np.cumsum(self.counts) - self.counts

    @property
    def of_columns(self) -> Point:
        """Half the sums of the second derivatives of the entries of each column."""
        return np.asarray(
            np.bincount(self.cols, weights=0.5 * self.h, minlength=self.columns), dtype=np.float64
        )

    def numbers(self, image: Point) -> Point:
        """Return f as a polynomial of the scale of x, without f(0), Σ n² and Σ n for rows with n entries."""
        z = image[self._order]
        n = self.counts.astype(np.float64)
        return np.array([self.g @ z, 0.5 * float(self.h @ z**2), n @ n, n.sum()])

    def solved(self, V: Matrix, mu: float) -> tuple[Matrix, Point]:
        """Return U, each row of which minimizes f + μ/2 ‖u‖², and the observed entries of U Vᵀ."""
        rank = V.shape[1]
        U = np.zeros((len(self.counts), rank))
        if rank:
            for n in np.unique(self.counts):
                rows = np.flatnonzero(self.counts == n)
                solve, size = (self._short, n * (n + rank)) if n < rank else (self._long, n * rank)
                together = max(1, _TOGETHER // max(1, int(size)))
                for part in np.split(rows, range(together, len(rows), together)):
                    places = self.starts[part][:, None] + np.arange(n)
                    U[part] = solve(V[self.cols[places]], self.h[places], self.g[places], mu)
        return U, self.entries.image(U, V)

    @staticmethod
    def _short(A: NDArray[np.float64], h: Matrix, g: Matrix, mu: float) -> Matrix:
        """Solve rows with fewer entries than V has columns, by systems of as many equations as entries."""
        K = A @ A.transpose(0, 2, 1)
        n = K.shape[1]
        K[:, np.arange(n), np.arange(n)] += mu / h
        y = _solved(K, -g / h)
        return np.asarray(np.einsum("gnr,gn->gr", A, y))

    @staticmethod
    def _long(A: NDArray[np.float64], h: Matrix, g: Matrix, mu: float) -> Matrix:
        H = A.transpose(0, 2, 1) @ (h[:, :, None] * A)
        r = H.shape[1]
        H[:, np.arange(r), np.arange(r)] += mu
        return _solved(H, -np.einsum("gnr,gn->gr", A, g))


def _solved(H: NDArray[np.float64], b: Matrix) -> Matrix:
    """Return the solutions of systems with positive definite matrices."""
    return np.array([dposv(one, right)[1] for one, right in zip(H, b, strict=True)])


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
        if is_far or self._is_over(state, here.gap, is_worse):
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
        E = self._beside(here.images[:, count:], V, self._spare(V, is_short))
        return self._answer(new, here.scale, V, E)

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
        if abs(ratio) < 0.3 * min(0.03, max(here.gap, 2e-4)):
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
