"""Matrix completion where every row is with one agent: the agents solve their rows at home.

With μ ‖x‖_* = min μ/2 (‖U‖² + ‖V‖²) over x = U Vᵀ, each row of U is a ridge regression of one agent, given V
and μ (variable projection). One sum has the gradient for V, and products of GᵀG with a block E of further
vectors, of which those with singular values above μ become columns of V; G is the gradient of f. The root
takes L-BFGS steps for V, and Newton steps for log μ, by which ‖x‖_* becomes the radius.

This is how a run begins whose start is zero. When the gap seems small enough the agents compute it. The model
is s x, which is in the ball, but the lower bound of f* is the tangent plane at x, whose nuclear norm is not
quite the radius: so an error of ‖x‖_* counts by its square only. If the gap falls no more, the steps of
``completion_own.py`` go on from the model. The line numbers are those of the box "Rows solved at home" in
docs/completion.md. ``completion_home_root.py`` has what the root does.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dposv

from dcgs.low_rank import LowRank, Matrix
from dcgs.methods.base import Agent
from dcgs.methods.fast.completion import Form, LocalRatings
from dcgs.methods.fast.completion_gap import (
    Command,
    as_sent,
    block_type,
    gap_answer,
    gram_products,
)
from dcgs.methods.fast.completion_home_root import HomeRoot, Root
from dcgs.methods.fast.completion_own import CompletionState, OwnRows, RootState, first_state
from dcgs.methods.reduction import Value, network_answer
from dcgs.points import Point, upper_triangle
from dcgs.protocol import Program
from dcgs.sets.nuclear_norm_ball import extended

# The first block has about _ENTRIES times as many entries as all agents together, but at most 1/_PART of the
# smaller side as vectors, and _FEWEST to _MOST: it is sent once, and a good V saves many sums. SMALLEST is
# the smallest side of a matrix for which all this is worth it.
_ENTRIES, _PART, _FEWEST, _MOST = 5, 4, 8, 512
SMALLEST = 128
# Rows of equal length are solved together, as many as have so many entries.
_TOGETHER = 1 << 21


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
        vectors = max(_FEWEST, min(_MOST, _ENTRIES * facts.quadratic_entries // columns, side // _PART))
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
