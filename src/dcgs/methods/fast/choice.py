"""Which form FastDCGS takes: the one that is expected to take the fewest rounds to a gap of 1e-3.

The expectations are formulas of facts that all agents know, so all choose the same form; no clock is read.
Their numbers were fitted to measured rounds: docs/methods.md has the formulas, ``dcgs bench forms`` compares
the forms.
"""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

from dcgs.link import Link
from dcgs.methods.base import Agent
from dcgs.methods.fast.link_rule import prefers_sums, waiting_rounds
from dcgs.methods.fast.second_order import longest_sum
from dcgs.methods.reduction import is_flooded
from dcgs.sets.base import projects_cheaply

Form: TypeAlias = Literal["edges", "sums", "root", "newton"]

# Hessians of more unknowns are never sent: what the root computes with them takes longer than rounds.
_MOST_UNKNOWNS = 500
# Losses with a smaller share of their curvature at the start are as flat as these, in the formulas.
_FLATTEST = 1e-4
# For sparse columns an iteration by sums is worth 10 to 20 over edges, on the Lassos of `dcgs bench growth`.
_SPARSE = 20.0
# Edges and gradients take many more rounds if the curvatures of agents differ by orders of magnitude.
_APART = 6.0
# Where solves call an oracle, all forms but Newton steps have many solves, and these are less accurate.
_ORACLE = 5.0
# The agents agree on a preconditioner in the first rounds over edges.
_PRECONDITIONED = 8.0
# Edges take longer on graphs with a smaller connectivity.
_CONNECTED = 0.1


def chosen_form(agent: Agent, link: Link | None, may_send_hessians: bool) -> Form:
    """Return the form for an agent whose links are reliable; ``link`` is that which the user has told."""
    rounds = expected_rounds(agent, may_send_hessians)
    if agent.secure is not None:
        del rounds["edges"]
    form = min(rounds, key=rounds.__getitem__)
    sums = max(1, 2 * agent.tree.height)
    if form == "edges" and link is not None and prefers_sums(link, agent.facts.sizes, sums, agent.x0.size):
        return "sums"
    return form


def expected_rounds(agent: Agent, may_send_hessians: bool) -> dict[Form, float]:
    """Return the rounds that each form is expected to take; long messages count as further rounds."""
    facts, sizes, unknowns, height = agent.facts, agent.facts.sizes, agent.x0.size, agent.tree.height
    spread = 1.0 if sizes.has_uneven_columns else max(1.0, sizes.spread)
    flat = math.log(1.0 / max(sizes.curved, _FLATTEST))
    few_rows = math.log(1.0 + unknowns / max(1, sizes.fewest_rows))

    apart = 1.0 if sizes.alike else _APART
    gradients = (5.0 * spread**1.5 + 2.2 * flat + 2.0 * few_rows) * apart
    own_data = 3.5 + (3.0 * (spread - 1.0) + 2.2) * few_rows + 0.8 * flat * spread
    without = 3.0 + 1.25 * gradients  # the root gives its data up and takes steps along gradients
    knows_little = not sizes.alike or (facts.sparse_columns and facts.hub is None)
    hessians = 2.0 if sizes.all_quadratic else 2.5 + 3.3 * flat / spread
    edges = (3.7 + 6.0 * few_rows) * spread**2 + 1.9 * flat**2 * (1.0 + 1.7 * few_rows)
    edges *= max(1.0, _CONNECTED / facts.connectivity) ** 0.25
    edges *= apart
    edges += _PRECONDITIONED * sizes.has_uneven_columns
    rounds: dict[Form, float] = {
        "edges": _SPARSE * gradients if facts.sparse_columns else edges,
        "root": max(1, 2 * height) * (without if knows_little else min(own_data, without)),
        "sums": rounds_of_sum(agent, 8 * unknowns) * gradients,
    }
    if may_send_hessians and unknowns <= _MOST_UNKNOWNS:
        nbytes = longest_sum(agent)
        one, times = rounds_of_sum(agent, nbytes), 1.0 if sizes.all_quadratic else hessians
        levels = one if is_flooded(agent, nbytes) else height
        newton = hessians * one + times * levels * waiting_rounds(agent.link, nbytes)
        rounds["newton"] = newton if projects_cheaply(agent.X) else newton / _ORACLE
    return rounds


def rounds_of_sum(agent: Agent, nbytes: int) -> int:
    """Return the rounds of a sum of so many bytes over the network."""
    if agent.facts.is_complete:
        return 1
    return agent.tree.diameter if is_flooded(agent, nbytes) else max(1, 2 * agent.tree.height)
