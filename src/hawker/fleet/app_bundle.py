"""What an app's machines need of it on another node than its home: its secrets and policies, packed where they are and
unpacked where a machine is to be, in the transaction that makes use of them. Sealed between the two, under a key that
only nodes of the cluster have.

Of two that cross on their way the later read counts: what a node has never goes back to what it was.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from hawker.api.contract.market import OrderedApp
from hawker.api.contract.owner import AppCopy
from hawker.app import app_name
from hawker.auth.peer_key import app_bundle_key
from hawker.clock import Clock
from hawker.errors import Conflict, Fault, NotFound, Unavailable
from hawker.ids import AppName, NodeId
from hawker.record.app import (
    APPS,
    CARRIED_APPS,
    POLICIES,
    RELEASES,
    SECRETS,
    SECRETS_VERSIONS,
    AppRecord,
    CarriedApp,
    PolicyRecord,
    ReleaseRecord,
    SecretsVersion,
)
from hawker.record.machine import BY_APP
from hawker.record.volume import VOLUMES_BY_APP
from hawker.secret.secrets import Secrets
from hawker.store.contract import Bucket, Reader, Store, Tx
from hawker.vault import Vault

T = TypeVar("T")

CROSSING_S = 60.0
"""The seconds for which two bundles may be on their way at once; an older read that comes later than that is of a clock
that was wrong."""


CARRIED_RELEASES, CARRIED_RELEASE_BYTES = 5, 128 * 1024
"""The most releases that a bundle carries, and the most bytes of their definitions beyond the newest release's own."""


class CarriedSecret(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    """The name of the secret in the app; it is the name of a variable there."""
    value: bytes
    """The value of the secret in clear text, since the whole bundle is sealed; never logged."""
    created_at: float
    """The time, in Unix seconds, when the secret was first set, at the home."""
    updated_at: float
    """The time, in Unix seconds, when the secret last got another value, at the home."""


class Packed(msgspec.Struct, frozen=True, kw_only=True):
    """`read_at` is the home's clock when it was read, `number` the version of the app's secrets then. `first_hand`: it
    was packed at the home. `releases` are the newest ones, and the newest that came to its end."""

    home: NodeId
    read_at: float
    first_hand: bool = True
    number: int = 0
    secrets: tuple[CarriedSecret, ...] = ()
    policies: tuple[PolicyRecord, ...] = ()
    releases: tuple[ReleaseRecord, ...] = ()


class AppBundler:
    """Keeps `worker.order.AppBundles`. `vaults` are of the cluster's keys, the one to seal with first."""

    def __init__(
        self, store: Store, secrets: Secrets, clock: Clock, node: NodeId, vaults: Callable[[], Sequence[Vault]]
    ) -> None:
        self._store = store
        self._secrets = secrets
        self._clock = clock
        self._node = node
        self._vaults = vaults

    def pack(self, reader: Reader, app: AppRecord) -> bytes:
        """The bundle of `app`, sealed. At a node that is not the app's home the bundle is as old as when it came from
        there. Raises `Fault` when a secret cannot be read."""
        carried = None
        if app.home is not None:
            carried = reader.get(CARRIED_APPS, app.name) or CarriedApp(home=app.home, read_at=0.0)
        packed = Packed(
            home=carried.home if carried else self._node,
            read_at=carried.read_at if carried else self._clock.now(),
            first_hand=carried is None,
            number=self._secrets.version(reader, app.name),
            secrets=self._opened_secrets(reader, app.name),
            policies=tuple(policy for _, policy in reader.scan(POLICIES, f"{app.name}/")),
            releases=_carried_releases(reader, app.name),
        )
        return self._vaults()[0].seal(_owner(app), msgspec.msgpack.encode(packed))

    def unpack(self, tx: Tx, app: AppRecord, packed: bytes) -> None:
        """Writes what the bundle `packed` has of `app`. A bundle that is older than what is here, or that comes back to
        its home, changes nothing. Raises `Unavailable` when it was sealed with a key that is not known here yet."""
        new = self._opened(app, packed)
        if new.home == self._node or _outdated(tx, app.name, new) or self._reigns(tx, app, new.home):
            return
        known = tx.get(APPS, app.name) or app
        tx.put(APPS, app.name, msgspec.structs.replace(known, home=new.home, reign=app.reign))
        tx.put(CARRIED_APPS, app.name, CarriedApp(home=new.home, read_at=new.read_at))
        tx.put(SECRETS_VERSIONS, app.name, SecretsVersion(number=new.number))
        sealed = {
            each.name: self._secrets.sealed(
                app.name, each.name, each.value, created_at=each.created_at, updated_at=each.updated_at
            )
            for each in new.secrets
        }
        _replace(tx, SECRETS, app.name, sealed)
        _replace(tx, POLICIES, app.name, {each.id: each for each in new.policies})
        _replace(tx, RELEASES, app.name, {f"{each.version:010d}": each for each in new.releases})

    async def carry(self, app: OrderedApp) -> AppRecord:
        """Make it known here, or bring what is here up to date. Raises `Conflict` when another app of its name has
        something here, `NotFound` when it comes home and is not there any more."""
        record = carried_record(app)

        def apply(tx: Tx) -> AppRecord:
            there = tx.get(APPS, record.name)
            if there is not None and there.id != record.id:
                self._give_way(tx, there)
            self.unpack(tx, record, app.luggage)
            known = tx.get(APPS, record.name)
            if known is None:
                raise NotFound("app not found")
            return known

        return await self._store.write(apply)

    async def settle(self, name: str, old: str, *, take: bool) -> AppCopy:
        """The copy of the app that is here. With `take` and a home `old`, as far as is known here, this node is its
        home from now on. Raises `Conflict`, `NotFound`."""

        def apply(tx: Tx) -> AppCopy:
            app, carried = tx.get(APPS, name), tx.get(CARRIED_APPS, name)
            if app is None:
                raise NotFound("app not found")
            if take and app.home is not None:
                if app.home != old:
                    raise Conflict(f"the home of app '{name}' is {app.home}, and not {old:.40}")
                app = msgspec.structs.replace(app, home=None, reign=app.reign + 1)
                tx.put(APPS, name, app)
                tx.delete(CARRIED_APPS, name)
            read_at = carried.read_at if carried else self._clock.now()
            number = self._secrets.version(tx, app.name)
            return AppCopy(home=app.home or self._node, reign=app.reign, number=number, read_at=read_at)

        return await self._store.write(apply)

    def _reigns(self, reader: Reader, app: AppRecord, home: NodeId) -> bool:
        """Whether what is here is of a later reign. Of two homes in one the one with the lesser name counts."""
        there = reader.get(APPS, app.name)
        if there is None or there.reign != app.reign:
            return there is not None and there.reign > app.reign
        return there.reign > 0 and there.home is None and self._node < home

    def _give_way(self, tx: Tx, there: AppRecord) -> None:
        """To another app of the same name, if this one is only known here and has nothing."""
        if there.home is None or _has_something(tx, there.name):
            raise Conflict(f"app '{there.name}' is another app at node {self._node}: destroy one of the two first")
        tx.delete(APPS, there.name)

    def _opened_secrets(self, reader: Reader, name: AppName) -> tuple[CarriedSecret, ...]:
        return tuple(
            CarriedSecret(
                name=each.name,
                value=self._secrets.value(name, each).encode(),
                created_at=each.created_at,
                updated_at=each.updated_at,
            )
            for _, each in reader.scan(SECRETS, f"{name}/")
        )

    def _opened(self, app: AppRecord, packed: bytes) -> Packed:
        for vault in self._vaults():
            try:
                return msgspec.msgpack.decode(vault.open(_owner(app), packed), type=Packed)
            except Fault:
                continue
            except msgspec.DecodeError as error:
                raise Unavailable(f"what app '{app.name}' brings is not understood by this version") from error
        raise Unavailable(f"what app '{app.name}' brings was sealed with a key that this node does not know yet")


def carried_record(app: OrderedApp) -> AppRecord:
    """The record of an app as nodes other than its home keep it. Raises `Unprocessable`."""
    fields = msgspec.structs.asdict(app)
    fields.pop("luggage")
    return AppRecord(**{**fields, "name": app_name(app.name)})


def _carried_releases(reader: Reader, name: AppName) -> tuple[ReleaseRecord, ...]:
    """What an app's next home needs to go on counting and to know what runs; of more the orders between nodes would
    grow. Oldest first."""
    newest, room = list[ReleaseRecord](), CARRIED_RELEASE_BYTES
    for _, each in reader.scan(RELEASES, f"{name}/", limit=CARRIED_RELEASES, reverse=True):
        room -= len(each.definition)
        if not newest or room >= 0:
            newest.append(each)
    there = {each.version for each in newest}
    whole = next(
        (each for _, each in reader.scan(RELEASES, f"{name}/", reverse=True) if each.status == "complete"), None
    )
    if whole is not None and whole.version not in there:
        newest.append(whole)
    return tuple(sorted(newest, key=lambda each: each.version))


def _owner(app: AppRecord) -> str:
    return f"luggage {app.id}"


def _has_something(reader: Reader, name: AppName) -> bool:
    return bool(reader.count(BY_APP, f"{name}/") or reader.count(VOLUMES_BY_APP, f"{name}/"))


def _outdated(reader: Reader, name: AppName, new: Packed) -> bool:
    """Whether what is here was read later from the same home."""
    here = reader.get(CARRIED_APPS, name)
    if here is None or here.home != new.home:
        return False
    return new.read_at < here.read_at and (not new.first_hand or here.read_at < new.read_at + CROSSING_S)


def _replace(tx: Tx, bucket: Bucket[T], app: AppName, wanted: dict[str, T]) -> None:
    for key, _ in list(tx.scan(bucket, f"{app}/")):
        if key.removeprefix(f"{app}/") not in wanted:
            tx.delete(bucket, key)
    for key, value in wanted.items():
        tx.put(bucket, f"{app}/{key}", value)


def vaults_of(keys: Callable[[], Sequence[bytes]], clock: Clock) -> Callable[[], Sequence[Vault]]:
    """A function that returns a vault for each of the cluster's keys, the key in use first, as the keys are when it is
    called."""
    known: dict[bytes, Vault] = {}

    def vaults() -> Sequence[Vault]:
        now = keys()
        for key in [key for key in known if key not in now]:
            del known[key]
        return [known.setdefault(key, Vault(app_bundle_key(key), clock)) for key in now]

    return vaults
