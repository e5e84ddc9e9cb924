"""What holds of private networks and host names over all nodes, whatever was late, lost or restored. Pure: what hosts
answer, and what their records say, go in.
"""

import base64
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from hawker.feed import SealedCertificate
from hawker.names import network_of_address
from hawker.proof.violation import Invariant, Violation
from hawker.record.app import AppRecord, CertificateRecord
from hawker.secret.certificate_chain import covers
from hawker.secret.certificates import PLATFORM


def shared_numbers(apps: Iterable[AppRecord]) -> Iterator[Violation]:
    """Of two organizations, or of two networks of one."""
    owners: dict[int, set[str]] = {}
    for app in apps:
        owners.setdefault(app.network_id, set()).add(f"{app.org}/{app.network}")
    for number, pairs in owners.items():
        if len(pairs) > 1:
            yield Violation(Invariant.OWN_NUMBER, f"{number:08x}", f"is the number of {' and '.join(sorted(pairs))}")


def foreign_answers(asker: int, name: str, addresses: Iterable[str]) -> Iterator[Violation]:
    """`asker` is the number of the network that asked for this name."""
    for address in addresses:
        if network_of_address(address) != asker:
            yield Violation(Invariant.NAMED, name, f"led network {asker:08x} to {address}")


def lost_answers(name: str, addresses: Iterable[str], lost: Collection[str]) -> Iterator[Violation]:
    """`lost` are those of machines on hosts that are known to be lost."""
    for address in addresses:
        if address in lost:
            yield Violation(Invariant.NAMED, name, f"leads to {address}, whose host is lost")


def wrong_answers(name: str, addresses: Collection[str], started: Collection[str]) -> Iterator[Violation]:
    """Once everybody knows everything."""
    for address in sorted(set(addresses) - set(started)):
        yield Violation(Invariant.NAMED, name, f"leads to {address}, where no started machine is")
    for address in sorted(set(started) - set(addresses)):
        yield Violation(Invariant.NAMED, name, f"does not lead to the started machine at {address}")


def doubled_ways(host: str, allowed: Mapping[str, Iterable[str]]) -> Iterator[Violation]:
    """`allowed` are the addresses behind each peer."""
    seen: dict[str, str] = {}
    for peer, addresses in allowed.items():
        for address in addresses:
            if seen.setdefault(address, peer) != peer:
                yield Violation(Invariant.WAYS, host, f"sends packets for {address} to two hosts")


def wrong_ways(host: str, found: Mapping[str, str], wanted: Mapping[str, str]) -> Iterator[Violation]:
    """The peer of each address, once everybody knows everything."""
    for address in sorted(found.keys() | wanted.keys()):
        if found.get(address) != wanted.get(address):
            there, should = found.get(address, "nobody"), wanted.get(address, "nobody")
            yield Violation(Invariant.WAYS, host, f"sends packets for {address} to {there}, not to {should}")


def wrongly_shown(
    host: str,
    asked: str,
    shown: SealedCertificate,
    good_for: Sequence[str],
    there: Iterable[SealedCertificate],
    now: float,
) -> Iterator[Violation]:
    """`good_for` are the names in the certificate itself; `there` are all that this host could show."""
    if not any(covers(name, asked) for name in good_for):
        yield Violation(Invariant.SHOWN, host, f"shows a certificate of {', '.join(good_for)} to who asks for {asked}")
    better = (each for each in there if each.app in (shown.app, PLATFORM) and covers(each.hostname, asked))
    if shown.not_after <= now and any(each.not_after > now for each in better):
        yield Violation(Invariant.SHOWN, host, f"shows an expired certificate for {asked} while a good one is there")


def left_shown(
    host: str, asked: str, shown: SealedCertificate | None, records: Iterable[CertificateRecord], now: float
) -> Iterator[Violation]:
    """Once everybody knows everything. `records` are those of all homes."""
    there = [each for each in records if covers(each.hostname, asked)]
    exact = [each for each in there if each.hostname == asked] or there
    if shown is None:
        if there:
            yield Violation(Invariant.SHOWN, host, f"shows nothing for {asked}")
        return
    if not any((each.hostname, each.app) == (shown.hostname, shown.app) for each in there):
        yield Violation(Invariant.SHOWN, host, f"shows a certificate of {shown.app} for {asked} that was removed")
        return
    owner = min(exact, key=lambda each: (each.created_at, each.app)).app
    good = [each for each in there if each.app in (owner, PLATFORM) and each.not_after > now]
    if good and shown.not_after <= now:
        yield Violation(
            Invariant.SHOWN, host, f"shows an expired certificate for {asked}, and {good[0].app} has another"
        )


def forms_of(secret: bytes) -> frozenset[bytes]:
    """How a secret of 12 bytes or more looks where it is in clear: as it is, in hexadecimal, within Base64."""
    shifted = (base64.b64encode(bytes(shift) + secret) for shift in range(3))
    return frozenset({secret, secret.hex().encode(), *(each[4:-4] for each in shifted)})


def shown_secrets(host: str, places: Iterable[tuple[str, bytes]], forms: Collection[bytes]) -> Iterator[Violation]:
    """`places` are what can be read there, each with a word for where it is; `forms` are those of all secrets."""
    for place, data in places:
        if any(form in data for form in forms):
            yield Violation(Invariant.SEALED, host, f"a private key is in clear in {place}")
