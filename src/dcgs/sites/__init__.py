"""Runs between organizations: each site is a process of its own, and messages travel over HTTPS.

A *study* (``study``) is one TOML file that all sites hold: the sites with their addresses and public keys,
the edges and who dials whom on each, what is fitted, and limits. The SHA-256 of the file is its identity.
``keys`` makes the keys and certificates of sites; the public keys are pinned in the study. A *site file*
(``config``) has what only its site knows: its data, its private key, its folder.

An *envelope* (``envelope``) is a message, sealed between its sender and its receiver: sites on its way
forward it and cannot read it. A *mailbox* (``mailbox``) has on disk what came in and what is to be sent. A
message is acknowledged when it is on the receiver's disk. ``server`` and ``client`` carry envelopes over
HTTPS with mutual certificates, by aiohttp. On each edge one end dials: it puts its envelopes to the other
end, and gets those for itself by requests that wait. Two ends that can only dial out use a relay, which is
the same server with a mailbox that it cannot read. Requests to a relay may be signed in place of a
certificate (``signature``), for proxies that open TLS.
``certificate`` takes a renewed certificate while a site runs.

``transport`` implements ``Transport`` of ``dcgs.runtime``, so that programs, bits and counters are those of
Lockstep and MPI. A site that starts again executes its program from the beginning: what it had received is
in its mailbox, what it had sent is not sent again. So it arrives where it was, to the bit, and no other site
goes back.
"""

try:
    import aiohttp  # noqa: F401
except ImportError as error:
    raise ImportError(
        "runs between organizations need the package aiohttp; install it with: pip install 'dcgs[sites]'."
    ) from error
