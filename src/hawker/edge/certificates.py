"""Which certificate a client is shown: found by the name that it asks for, opened when it is first needed, and kept.

The feed brings certificates sealed; the key that opens them is a file in the edge's folder. What is open is in the
memory of this process only.
"""

import ssl
from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path

from hawker.clock import Clock
from hawker.errors import Fault
from hawker.feed import API_APP, CERTIFICATE_KEY, HTTP_01, TLS_ALPN_01, SealedCertificate, ShownChallenge
from hawker.ids import AppName
from hawker.secret import certificate_chain
from hawker.secret.certificate_chain import KeyPair
from hawker.secret.certificates import PLATFORM, open_pair, wildcard_of
from hawker.vault import Vault

KEPT_CONTEXTS = 2000
ACME_ALPN = "acme-tls/1"
"""The protocol that certificate authorities ask for: a client that offers this alone is one."""
SELF_SIGNED = "hawker.invalid"
"""The only name of the certificate for hosts without one: no name that a client asks for is signed."""

_Key = tuple[str, bytes, tuple[str, ...], tuple[str, ...]]


class CertificateBook:
    """The certificates of host names. `folder` is the edge's."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._folder = folder
        self._clock = clock
        self._of: dict[str, SealedCertificate] = {}
        self._contexts: OrderedDict[_Key, ssl.SSLContext] = OrderedDict()
        self._own: KeyPair | None = None
        self._challenges: dict[tuple[str, str], ShownChallenge] = {}

    def replace(self, certificates: Iterable[SealedCertificate]) -> None:
        """Take these as all the certificates that there are. The opened context of a certificate that is gone is
        forgotten."""
        self._of = {each.hostname: each for each in certificates}
        there = {(each.hostname, each.sealed) for each in self._of.values()} | {("", b"")}
        for key in [key for key in self._contexts if key[:2] not in there and key[0]]:
            del self._contexts[key]

    def show(self, challenges: Iterable[ShownChallenge]) -> None:
        """Take these as all the challenges that certificate authorities may ask for now."""
        self._challenges = {(each.hostname, each.token): each for each in challenges}
        there = {each.answer.encode() for each in self._challenges.values()}
        for key in [key for key in self._contexts if key[3] == (ACME_ALPN,) and not key[0] and key[1] not in there]:
            del self._contexts[key]

    def challenge(self, hostname: str, token: str) -> ShownChallenge | None:
        """The challenge for a certificate authority that asks for this token at this host by HTTP; None where nothing
        was ordered."""
        found = self._challenges.get((hostname, token))
        return found if found is not None and found.kind == HTTP_01 else None

    def tls_challenge(self, hostname: str) -> ShownChallenge | None:
        """The challenge that is shown in a certificate to an authority that asks for this host's; None where nothing
        was ordered."""
        if not self._challenges:
            return None
        asked = (each for each in self._challenges.values() if each.kind == TLS_ALPN_01 and each.hostname == hostname)
        return next(asked, None)

    def proof(self, shown: ShownChallenge) -> ssl.SSLContext:
        """A TLS context with the certificate that an authority looks for (RFC 8737, 3): it is nobody's, and proves the
        challenge."""
        key = ("", shown.answer.encode(), (), (ACME_ALPN,))
        if key not in self._contexts:
            pair = certificate_chain.proof_of(shown.hostname, shown.answer, self._clock.now())
            self._contexts[key] = certificate_chain.server_context(pair, alpn=(ACME_ALPN,))
        return self._contexts[key]

    def find(self, name: str) -> SealedCertificate | None:
        """The certificate for this name, else the one for a wildcard of one label; the wildcard's also where the first
        has expired and the second, which is the same app's or the platform's, has not."""
        exact, wide = self._of.get(name), self._of.get(wildcard_of(name))
        if exact is None or wide is None or not self._has_expired(exact) or self._has_expired(wide):
            return exact or wide
        return wide if wide.app in (exact.app, PLATFORM) else exact

    def _has_expired(self, certificate: SealedCertificate) -> bool:
        return 0.0 < certificate.not_after <= self._clock.now()

    def app_of(self, name: str) -> AppName | None:
        """The app that the host name is of, by its certificate; None below the platform's own domain, and without a
        certificate."""
        found = self._of.get(name) or self._of.get(wildcard_of(name))
        return found.app or None if found is not None else None

    def context(
        self, certificate: SealedCertificate | None, versions: tuple[str, ...], alpn: tuple[str, ...]
    ) -> ssl.SSLContext:
        """The TLS context of this certificate; with None, of one that is signed by itself. Raises `Fault` when it
        cannot be opened."""
        kept = (certificate.hostname, certificate.sealed) if certificate else ("", b"")
        key = (*kept, versions, alpn)
        context = self._contexts.get(key)
        if context is None:
            context = self._contexts[key] = self._made(certificate, versions, alpn)
            if len(self._contexts) > KEPT_CONTEXTS:
                self._contexts.popitem(last=False)
        self._contexts.move_to_end(key)
        return context

    def _made(
        self, certificate: SealedCertificate | None, versions: tuple[str, ...], alpn: tuple[str, ...]
    ) -> ssl.SSLContext:
        try:
            return certificate_chain.server_context(self._pair(certificate), versions, alpn)
        except (OSError, ValueError) as error:  # of OpenSSL, too
            raise Fault(f"the certificate cannot be used: {error}") from error

    def _pair(self, certificate: SealedCertificate | None) -> KeyPair:
        if certificate is not None:
            vault = Vault((self._folder / CERTIFICATE_KEY).read_bytes(), self._clock)
            return open_pair(vault, certificate.hostname, certificate.sealed)
        if self._own is None:
            self._own = certificate_chain.self_signed(SELF_SIGNED, self._clock.now())
        return self._own


def may_show(certificate: SealedCertificate, app: AppName | None, name: str) -> bool:
    """Whether the app is the certificate's, or the certificate is the platform's own and the name this app's."""
    if certificate.app == PLATFORM:
        return app in (API_APP, name.partition(".")[0])
    return app in (API_APP, certificate.app)
