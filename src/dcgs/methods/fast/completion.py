"""FastDCGS for matrix completion: accelerated steps on a matrix that all agents hold in factors.

The gradient of f is sparse, and every agent has its own part of it. A step needs singular vectors of the
matrix Z = y − ∇f(y)/L, which the root of the spanning tree finds from sums of products with blocks of
vectors. The forms differ in what is multiplied and summed: ``completion_own.py`` is for agents with rows of
their own, ``completion_shared.py`` for agents that share rows. The line numbers are those of both
boxes in docs/completion.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import final

import numpy as np
import scipy.sparse as sp

from dcgs.low_rank import LowRank, Matrix
from dcgs.methods.base import Agent
from dcgs.methods.certificate import CertifiedGap, excess
from dcgs.methods.fast.completion_gap import Command
from dcgs.methods.reduction import Value
from dcgs.objectives.sampling import SampledEntries, Sampling
from dcgs.points import Point
from dcgs.protocol import Program


class Form(ABC):
    """One agent's part of the method: what it sums, and how it moves x."""

    @property
    @abstractmethod
    def state(self) -> object:
        """The state that a checkpoint saves."""

    @property
    @abstractmethod
    def model(self) -> LowRank:
        """The model x in factors."""

    @abstractmethod
    def products(self) -> Program[Value]:
        """Return the answer of the root to the products for a step from y; lines 3 to 6."""

    @abstractmethod
    def gram_product(self, B: Matrix) -> Program[Value]:
        """Return the answer of the root to Gᵀ(G B) and ⟨G, x⟩, for the gradient G at x."""

    @abstractmethod
    def step(self, answer: Value, is_back: bool) -> None:
        """Move x to the point that the root has found, or back if the last step was too long."""


@final
class LocalRatings:
    """The observed entries of an agent; with ``all_rows`` factors have all rows, else those of the agent."""

    def __init__(self, agent: Agent, all_rows: bool) -> None:
        assert isinstance(agent.f.map, Sampling)
        self.agent = agent
        self.shape = agent.X.shape[0], agent.X.shape[1]
        self.entries = SampledEntries(agent.f.map, all_rows)

    def gradient(self, image: Point) -> tuple[sp.csr_array, float]:
        """Return ∇f as a sparse matrix and ⟨∇f, x⟩, at a matrix x with these observed entries."""
        grad = self.agent.f.loss.grad(image)
        return self.entries.adjoint(grad), float(grad @ image)

    def numbers(self, model: LowRank, image: Point) -> Point:
        """Return this agent's part of what the root must know of a model with these observed entries.

        That is f(x) − f(x⁰), its rounding error, what f(x) is above the least value of the loss, and the
        error of ∇f(x).
        """
        f = self.agent.f
        fall, error = self.agent.baseline.decrease(model, image)
        above = excess(f, f.loss.value(image)) + error
        return np.array([-fall, error, above, f.grad_error(model, image)])


def complete(agent: Agent, kind: Callable[[Agent], Form]) -> Program[LowRank]:
    """Run FastDCGS for matrix completion in one of its forms, for one agent."""
    form = kind(agent)  # line 1
    for k in agent.iterations_left:  # line 2
        answer = yield from form.products()  # lines 3 to 6
        while Command(int(answer[0][0])) is Command.CERTIFY:
            answer = yield from form.gram_product(answer[1])
        command = Command(int(answer[0][0]))
        if command is Command.STOP:  # line 7
            agent.observe(k, form.model)
            agent.agree(CertifiedGap.of(answer[0][1:].tolist()))
            return form.model
        form.step(answer, is_back=command is Command.BACK)  # lines 8 and 9
        agent.observe(k, form.model)
        agent.save(k, form.state)
    return form.model
