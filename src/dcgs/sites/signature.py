"""Signed requests to a relay, for sites whose proxy opens TLS: such a proxy cannot show their certificate.

A request has the name of a site, the time, the SHA-256 of its body, and an Ed25519 signature of these, of the
study, of the method and of the path. Whoever carries it can repeat it for some minutes, which changes
nothing: an envelope is taken once, and what was acknowledged stays so. No I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from dcgs.sites.study import Study

CALLER, TIME, BODY, SIGNATURE = "Dcgs-Caller", "Dcgs-Time", "Dcgs-Body", "Dcgs-Signature"
_WINDOW = 900.0
"""Seconds by which the clocks of a site and the relay may differ."""


class SignatureError(ValueError):
    """Raised for a request that is not signed as it must be; says why."""


def sign_request(
    study: Study, name: str, key: Ed25519PrivateKey, now: float, request: tuple[str, str, bytes]
) -> dict[str, str]:
    """Return the headers that sign a request: its method, its path with the query, its body."""
    method, target, body = request
    when, digest = str(int(now)), sha256(body).hexdigest()
    signature = key.sign(_statement(study, name, method, target, when, digest))
    return {CALLER: name, TIME: when, BODY: digest, SIGNATURE: signature.hex()}


def signed_by(study: Study, headers: Mapping[str, str], method: str, target: str, now: float) -> str:
    """Return which site has signed a request; raise if none has. The body must have the hash it says."""
    name, when, digest = (headers.get(header, "") for header in (CALLER, TIME, BODY))
    if name not in study.names or not (when.isdecimal() and len(when) < 13):
        raise SignatureError("a request without a certificate must be signed by a site; this one is not.")
    if abs(now - int(when)) > _WINDOW:
        raise SignatureError(
            f"a request must be signed within {_WINDOW:.0f} s; by the clock of {name} this one was "
            f"{now - int(when):.0f} s ago. Set the clock that is wrong."
        )
    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(study.member(name).ed25519))
        signature = bytes.fromhex(headers.get(SIGNATURE, ""))
        key.verify(signature, _statement(study, name, method, target, when, digest))
    except (InvalidSignature, ValueError) as error:
        raise SignatureError(f"a request must be signed with the key of {name}; this one is not.") from error
    return name


def _statement(study: Study, *parts: str) -> bytes:
    return b"\n".join([b"dcgs request", study.hash.hex().encode(), *(part.encode() for part in parts)])
