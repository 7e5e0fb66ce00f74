"""Masked sums: every agent learns an answer computed from a total, and nobody reads another agent's value.

Values become integers mod 2⁶⁴ (``fixed_point``). Two agents share a secret that they derive from each
other's public key (``keys``); with many agents each has some partners only (``partners``). Every agent adds
to its value the pads that it shares with its partners (``masks``). The pads cancel in the total. What was
masked is recorded before it is sent, if there is a folder (``journal``). ``sum`` has the reductions: totals,
logical or, magnitudes. ``union`` agrees on texts without telling whose they are.

``cryptography`` is imported in ``keys`` and in what needs it, which open runs do not import: it takes time.
"""
