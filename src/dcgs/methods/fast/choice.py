"""Which form of FastDCGS runs, from facts that all agents know: one table.

The numbers in it are measured: `dcgs bench rounds` compares the forms on its instances, and docs/methods.md
has the table with the reasons. No clock is read, so that all agents choose the same form, in every run.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from dcgs.link import Link
from dcgs.methods.base import Agent
from dcgs.methods.fast.link_rule import prefers_sums

Form: TypeAlias = Literal["edges", "sums", "root", "newton"]

# Hessians are sent for at most so many unknowns: once if all losses are quadratic, or in every sum; and for
# so many always where losses are quadratic, as two sums are enough.
_ONCE, _OFTEN, _FEW = 300, 128, 64
# Data with a larger spread are ill-conditioned: edges then need many rounds.
_SPREAD = 3.0
# Losses with less of their curvature at the start are nearly linear there: the root's data know where they
# are not, Hessians and gradients do not.
_CURVED = 0.03
# Sums take few rounds along a tree of at most this height; for sparse columns an iteration by sums is worth
# 10 to 20 over edges, on the Lassos of `dcgs bench growth`.
_LOW, _MOST_HEIGHT = 5, 10


def chosen_form(agent: Agent, link: Link | None, may_send_hessians: bool) -> Form:
    """Return the form for an agent whose links are reliable: that of the first row that applies."""
    facts, sizes, height = agent.facts, agent.facts.sizes, agent.tree.height
    unknowns = agent.x0.size if may_send_hessians else 10**9
    hub, even = facts.hub is not None or height == 0, sizes.spread <= _SPREAD
    flat = sizes.curved < _CURVED
    has_hessians = unknowns <= (_ONCE if sizes.all_quadratic else _OFTEN)
    is_sure = sizes.all_quadratic or not sizes.alike
    sums = max(1, 2 * height)
    table: tuple[tuple[bool, Form], ...] = (
        (hub and has_hessians and (is_sure or (facts.is_complete and not flat)), "newton"),
        (facts.is_complete and height > 0 and even and not flat, "sums"),
        (hub or (flat and sizes.alike and height <= _LOW), "root"),
        (has_hessians and height <= _LOW and not even, "newton"),
        (is_sure and unknowns <= _FEW, "newton"),
        (facts.sparse_columns and height <= _MOST_HEIGHT, "sums"),
        (link is not None and prefers_sums(link, sizes, sums, agent.x0.size), "sums"),
        (agent.secure is not None, "root"),
    )
    return next((form for applies, form in table if applies), "edges")
