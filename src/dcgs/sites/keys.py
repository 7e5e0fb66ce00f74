"""The keys of a site, its request for a certificate, and the certificate authority of a study.

A site has an Ed25519 key, which is the key of its TLS certificate, and an X25519 key, from which the keys of
envelopes follow. A certificate binds both to the name of the site: the name is the host
``NAME.dcgs.internal``, and the X25519 key is a URI. Both public keys are pinned in the study, so that a
renewed certificate must have the same.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAYS = 730
"""How long a certificate is valid by default."""
_DOMAIN = ".dcgs.internal"
_X25519 = "dcgs:x25519:"
_END = b"-----END PRIVATE KEY-----\n"
_CLOCK = timedelta(hours=1)  # a certificate begins before it is made, for clocks that are late


def host_of(name: str) -> str:
    """Return the host name in the certificate of a site; it needs no name server."""
    return name + _DOMAIN


@final
@dataclass(frozen=True)
class SiteKeys:
    """The private keys of a site."""

    signing: Ed25519PrivateKey = field(repr=False)
    agreement: X25519PrivateKey = field(repr=False)

    @classmethod
    def generate(cls) -> SiteKeys:
        """Return new keys."""
        return cls(Ed25519PrivateKey.generate(), X25519PrivateKey.generate())

    @classmethod
    def load(cls, file: Path) -> SiteKeys:
        """Return the keys in a file; raise if others may read it."""
        if os.name == "posix" and file.stat().st_mode & 0o077:
            raise ValueError(
                f"only its owner may read a private key; others may read {file}. Use: chmod 600 {file}"
            )
        first, _, second = file.read_bytes().partition(_END)
        try:
            signing, agreement = load_pem_private_key(first + _END, None), load_pem_private_key(second, None)
        except (ValueError, TypeError) as error:
            raise ValueError(
                f"{file} must have the two private keys that dcgs site key has written; it has not. Put the "
                "file back: keys that are made anew need a new study."
            ) from error
        if not (isinstance(signing, Ed25519PrivateKey) and isinstance(agreement, X25519PrivateKey)):
            raise ValueError(f"{file} must have an Ed25519 and an X25519 key, as dcgs site key writes them.")
        return cls(signing, agreement)

    def save(self, file: Path) -> None:
        """Write the keys to a new file that only its owner may read."""
        form = (Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        content = self.signing.private_bytes(*form) + self.agreement.private_bytes(*form)
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
            stream.write(content)

    @property
    def publics(self) -> tuple[str, str]:
        """The public keys as hexadecimal digits."""
        signing, agreement = self.signing.public_key(), self.agreement.public_key()
        return signing.public_bytes_raw().hex(), agreement.public_bytes_raw().hex()

    def request(self, name: str) -> bytes:
        """Return the request for a certificate, signed with the Ed25519 key."""
        builder = x509.CertificateSigningRequestBuilder().subject_name(_subject(name))
        names = _names(name, self.publics[1])
        return (
            builder.add_extension(names, critical=False).sign(self.signing, None).public_bytes(Encoding.PEM)
        )


@final
@dataclass(frozen=True)
class Identity:
    """What a certificate or a request says: the name of a site and its public keys; ``until`` of a
    certificate."""

    name: str
    ed25519: str
    x25519: str
    until: datetime | None = None

    @classmethod
    def of_request(cls, pem: bytes) -> Identity:
        """Return who asks for a certificate; raise unless the request is signed with its key."""
        try:
            request = x509.load_pem_x509_csr(pem)
        except ValueError as error:
            raise ValueError("a request must be a file SITE.csr that dcgs site key has written.") from error
        if not request.is_signature_valid:
            raise ValueError(
                "a request must be signed with its own key; this one is not. Ask the site for a new one."
            )
        return _identity(request, None)

    @classmethod
    def of_certificate(cls, content: bytes) -> Identity:
        """Return whose certificate it is, of PEM or DER."""
        is_der = content.startswith(b"0")  # that of a sequence
        try:
            certificate = (x509.load_der_x509_certificate if is_der else x509.load_pem_x509_certificate)(
                content
            )
        except ValueError as error:
            raise ValueError("a certificate must be one that dcgs study sign has written.") from error
        return _identity(certificate, certificate.not_valid_after_utc)


@final
@dataclass(frozen=True)
class Authority:
    """The certificate authority of a study: it signs the certificates of its sites."""

    key: Ed25519PrivateKey = field(repr=False)
    certificate: x509.Certificate

    @classmethod
    def create(cls, study: str, days: int = 10 * 365) -> Authority:
        """Return a new authority."""
        key, name = Ed25519PrivateKey.generate(), _subject(f"dcgs study {study}")
        builder = _builder(name, name, key.public_key(), days)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        usage = _usage(sign_certificates=True)
        builder = builder.add_extension(usage, critical=True)
        return cls(key, builder.sign(key, None))

    @classmethod
    def load(cls, key: Path, pem: str) -> Authority:
        """Return the authority of a private key and a certificate."""
        try:
            private = load_pem_private_key(key.read_bytes(), None)
        except FileNotFoundError as error:
            raise ValueError(
                f"the key of the study's CA must be a file; there is no {key}. dcgs study new made it."
            ) from error
        assert isinstance(private, Ed25519PrivateKey)
        return cls(private, x509.load_pem_x509_certificate(pem.encode()))

    @property
    def pem(self) -> str:
        """The certificate."""
        return self.certificate.public_bytes(Encoding.PEM).decode()

    def save_key(self, file: Path) -> None:
        """Write the private key to a new file that only its owner may read."""
        content = self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
            stream.write(content)

    def sign(self, who: Identity, days: int = DAYS, start: datetime | None = None) -> bytes:
        """Return a certificate of the keys of a site, as PEM."""
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(who.ed25519))
        builder = _builder(_subject(who.name), self.certificate.subject, key, days, start)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_usage(sign_certificates=False), critical=True)
        both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = builder.add_extension(x509.ExtendedKeyUsage(both), critical=False)
        own = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        builder = builder.add_extension(own, critical=False)
        builder = builder.add_extension(_names(who.name, who.x25519), critical=False)
        return builder.sign(self.key, None).public_bytes(Encoding.PEM)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: Ed25519PublicKey, days: int, start: datetime | None = None
) -> x509.CertificateBuilder:
    start = start or datetime.now(UTC) - _CLOCK
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(start).not_valid_after(start + timedelta(days=days))
    return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)


def _usage(sign_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=sign_certificates,
        crl_sign=sign_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _names(name: str, x25519: str) -> x509.SubjectAlternativeName:
    return x509.SubjectAlternativeName(
        [x509.DNSName(host_of(name)), x509.UniformResourceIdentifier(_X25519 + x25519)]
    )


def _identity(signed: x509.Certificate | x509.CertificateSigningRequest, until: datetime | None) -> Identity:
    key = signed.public_key()
    try:
        names = signed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        (host,) = names.get_values_for_type(x509.DNSName)
        (uri,) = names.get_values_for_type(x509.UniformResourceIdentifier)
    except (x509.ExtensionNotFound, ValueError) as error:
        raise ValueError("a certificate must have a host and a URI of its site; this one has not.") from error
    if not (isinstance(key, Ed25519PublicKey) and host.endswith(_DOMAIN) and uri.startswith(_X25519)):
        raise ValueError("a certificate must be of keys that dcgs site key has made; this one is not.")
    return Identity(
        host.removesuffix(_DOMAIN), key.public_bytes_raw().hex(), uri.removeprefix(_X25519), until
    )
