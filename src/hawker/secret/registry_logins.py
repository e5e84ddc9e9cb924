"""Logins of organizations at registries: sealed on this node's disk, and given to pulls of that organization alone.

In a fleet the newest login counts, wherever it was made; a node asks for one when it first needs it (`Elsewhere`), so
it is only where a machine of the organization was ordered.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

import msgspec

from hawker.clock import Clock
from hawker.errors import NotFound, Unavailable, Unprocessable
from hawker.ids import NodeId
from hawker.image.failure import BadImage
from hawker.image.reference import RegistryReference, parse
from hawker.image.registry import Credentials
from hawker.log import Secret
from hawker.record.org import REGISTRY_LOGINS, LoginRecord
from hawker.store.contract import Store, Tx
from hawker.vault import Vault

MOST_LOGINS = 200
_MOST_NAME, _MOST_PASSWORD = 255, 16 * 1024


class CarriedLogin(msgspec.Struct, frozen=True, kw_only=True):
    """A login as it travels between nodes, itself sealed; `password` is empty for one that was given up."""

    username: str
    """The name of the user, as the registry knows it."""
    password: str
    realm: str
    """A host that may be told the password too, as token server; empty for none."""
    at: float
    """Unix seconds of the change: of two logins for one registry the later one counts."""
    by: str
    """The one that gave the login or gave it up, as the token names them."""


class Elsewhere(Protocol):
    """The logins of the other nodes of a fleet."""

    async def newer(self, org: str, registry: str, than: float) -> CarriedLogin | None:
        """The newest that is newer. Raises `Unavailable` when no node that has it can be asked."""

    async def told(self, org: str) -> Sequence[tuple[LoginRecord, tuple[NodeId, ...]]]:
        """The newest login of every registry, without its password, and the nodes that have it."""


class RegistryLogins:
    def __init__(self, store: Store, vault: Vault, clock: Clock) -> None:
        self._store = store
        self._vault = vault
        self._clock = clock
        self._elsewhere: Elsewhere | None = None

    def meet(self, elsewhere: Elsewhere) -> None:
        """Has the fleet asked, too, from now on."""
        self._elsewhere = elsewhere

    async def all(self, org: str) -> list[tuple[LoginRecord, tuple[NodeId, ...]]]:
        """The logins of the fleet, by registry, each with the nodes that have it; no node is named where only this one
        has it. A login that is not here has no password in it."""
        here = [(record, ()) for _, record in self._store.scan(REGISTRY_LOGINS, f"{org}/")]
        told = [] if self._elsewhere is None else await self._elsewhere.told(org)
        found: dict[str, tuple[LoginRecord, tuple[NodeId, ...]]] = {}
        for record, nodes in (*here, *told):
            known = found.get(record.registry)
            if known is None or known[0].at <= record.at:
                found[record.registry] = (record, nodes)
        return [found[name] for name in sorted(found) if not found[name][0].gone]

    def check(self, credentials: Credentials) -> None:
        """Checks that a login can be kept. Raises `Unprocessable` when it cannot be kept."""
        password = credentials.password.reveal()
        if not 0 < len(credentials.username) <= _MOST_NAME or ":" in credentials.username:
            raise Unprocessable(f"username: use 1 to {_MOST_NAME} characters and no colon")
        if not 0 < len(password) <= _MOST_PASSWORD:
            raise Unprocessable(f"password: use 1 to {_MOST_PASSWORD} characters")
        if not (credentials.username + password).isprintable():
            raise Unprocessable("user name and password must be printable characters")

    async def put(self, org: str, registry: str, credentials: Credentials, by: str) -> LoginRecord:
        """Puts a login, durable when this returns. Raises `Unprocessable`."""
        self.check(credentials)
        password = credentials.password.reveal()
        made = CarriedLogin(username=credentials.username, password=password, realm=credentials.realm, at=0.0, by=by)
        return await self._keep(org, registry, made)

    async def give_up(self, org: str, registry: str, by: str) -> None:
        """Gives a login up. Raises `NotFound` when there is none in the fleet."""
        if await self.find(org, registry) is None:
            raise NotFound(f"org '{org}' has no login at {registry}: see `hawker registry list`")
        await self._keep(org, registry, CarriedLogin(username="", password="", realm="", at=0.0, by=by))

    async def find(self, org: str, registry: str) -> Credentials | None:
        """The newest of the fleet. One that cannot be asked for does not count while an older one is here. Raises
        `Unavailable` when there is none here, `Fault` when it cannot be unsealed."""
        known = self._known(org, registry)
        if self._elsewhere is not None:
            try:
                newer = await self._elsewhere.newer(org, registry, 0.0 if known is None else known.at)
            except Unavailable:
                if known is None:
                    raise
                newer = None
            if newer is not None:
                known = await self._keep(org, registry, newer)
        return None if known is None or known.gone else self._credentials(known)

    async def for_image(self, org: str, reference: str) -> Credentials | None:
        """The login for a pull of this image; None for what is from no registry, or from one that the organization has
        no login at. Raises `BadImage` for what is no reference."""
        wanted = parse(reference)
        return await self.find(org, wanted.registry) if isinstance(wanted, RegistryReference) else None

    def opened(self, org: str, registry: str) -> CarriedLogin | None:
        """The login that is here, opened for another node of the fleet; None when there is none."""
        known = self._known(org, registry)
        if known is None:
            return None
        password = "" if known.gone else self._credentials(known).password.reveal()
        return CarriedLogin(username=known.username, password=password, realm=known.realm, at=known.at, by=known.by)

    def _known(self, org: str, registry: str) -> LoginRecord | None:
        return self._store.get(REGISTRY_LOGINS, f"{org}/{registry}")

    def _credentials(self, record: LoginRecord) -> Credentials:
        password = self._vault.open(_owner(record.org, record.registry), record.sealed)
        return Credentials(record.username, Secret(password.decode()), record.realm)

    async def _keep(self, org: str, registry: str, login: CarriedLogin) -> LoginRecord:
        """With `at` 0 it was made here and now, and is newer than what is here; else it may have been overtaken."""
        key = f"{org}/{registry}"
        sealed = self._vault.seal(_owner(org, registry), login.password.encode()) if login.password else b""

        def apply(tx: Tx) -> LoginRecord:
            known = tx.get(REGISTRY_LOGINS, key)
            before = 0.0 if known is None else known.at
            if login.at and login.at <= before and known is not None:
                return known
            if known is None and tx.count(REGISTRY_LOGINS, f"{org}/") >= MOST_LOGINS:
                raise Unprocessable(f"an organization has at most {MOST_LOGINS} logins at registries")
            made = LoginRecord(
                org=org,
                registry=registry,
                username=login.username,
                sealed=sealed,
                realm=login.realm,
                at=login.at or max(self._clock.now(), before + 1e-3),
                by=login.by,
                gone=not login.password,
            )
            tx.put(REGISTRY_LOGINS, key, made)
            return made

        return await self._store.write(apply)


def registry_name(text: str) -> str:
    """A registry as references have it: HOST or HOST:PORT. Raises `Unprocessable`."""
    host = text.removeprefix("https://").removeprefix("http://").rstrip("/")
    with suppress(BadImage):
        wanted = parse(f"{host}/x/y")
        if isinstance(wanted, RegistryReference) and wanted.repository == "x/y":
            return wanted.registry
    raise Unprocessable(f"registry: {text[:200]!r} is not a registry: give HOST or HOST:PORT")


def _owner(org: str, registry: str) -> str:
    return f"registry login {org}/{registry}"
