"""Logins at registries in a fleet: each node tells which it has, and hands them, sealed, to a node that pulls for that
organization. No password is in the catalog.
"""

from collections.abc import Callable, Iterable, Sequence

import msgspec

from hawker.api.caller import Caller
from hawker.api.contract.image import HAND_LOGIN, RegistryParams, SealedLogin
from hawker.api.handlers import answers
from hawker.api.route import Call, NoQuery
from hawker.catalog.change import Value
from hawker.catalog.contract import Statement
from hawker.errors import Fault, HawkerError, NotFound, Unavailable
from hawker.fleet.publish import Source
from hawker.fleet.quotas import CatalogRows
from hawker.fleet.rows import Row, login_row
from hawker.ids import NodeId
from hawker.record.org import REGISTRY_LOGINS, LoginRecord
from hawker.secret.registry_logins import CarriedLogin, RegistryLogins
from hawker.store.contract import Reader, keys_of
from hawker.vault import Vault

_QUERY_S, _ASK_S, _MOST_ASKED = 5.0, 3.0, 3
_NEWEST = """SELECT node, at, gone FROM registry_logins WHERE org = ? AND registry = ? AND at > ? AND node <> ?
    ORDER BY at DESC, node LIMIT 16"""
_OF_ORG = "SELECT node, registry, username, at, by, gone FROM registry_logins WHERE org = ? ORDER BY at, node"


def login_source(node: NodeId, store: Reader) -> Source:
    """The source of this node's logins to registries for the catalog."""

    def rows(key: str) -> Iterable[Row]:
        record = store.get(REGISTRY_LOGINS, key)
        return () if record is None else (login_row(node, record),)

    return Source(name=REGISTRY_LOGINS.name, every=lambda: keys_of(store, REGISTRY_LOGINS), rows=rows)


class FleetLogins:
    """Keeps `Elsewhere`, and answers other nodes. `vaults` are of the cluster's keys, the one to seal with first."""

    def __init__(
        self,
        node: NodeId,
        logins: RegistryLogins,
        catalog: CatalogRows,
        caller: Callable[[NodeId, str], Caller],
        vaults: Callable[[], Sequence[Vault]],
    ) -> None:
        self._node = node
        self._logins = logins
        self._catalog = catalog
        self._caller = caller
        self._vaults = vaults

    async def newer(self, org: str, registry: str, than: float) -> CarriedLogin | None:
        rows = await self._rows(_NEWEST, org, registry, than, self._node)
        if not rows:
            return None
        newest = rows[0][1]
        if rows[0][2]:
            return CarriedLogin(username="", password="", realm="", at=_float(newest), by="")
        nodes = [NodeId(str(node)) for node, at, gone in rows if at == newest and not gone]
        reasons = []
        for node in nodes[:_MOST_ASKED]:
            try:
                return await self._ask(node, org, registry)
            except HawkerError as error:
                reasons.append(f"{node}: {error}")
        raise Unavailable(
            f"org '{org}' is logged in at {registry} on a node that cannot be asked ({'; '.join(reasons)}): try again,"
            f" or log in here with `hawker registry login {registry}`"
        )

    async def told(self, org: str) -> Sequence[tuple[LoginRecord, tuple[NodeId, ...]]]:
        found: dict[str, tuple[LoginRecord, tuple[NodeId, ...]]] = {}
        for node, name, username, at, by, gone in await self._rows(_OF_ORG, org):
            registry, nodes = str(name), (NodeId(str(node)),)
            record = LoginRecord(
                org=org,
                registry=registry,
                username=str(username),
                sealed=b"",
                at=_float(at),
                by=str(by),
                gone=bool(gone),
            )
            known = found.get(registry)
            same = known is not None and known[0].at == record.at
            found[registry] = (record, (*known[1], *nodes) if known is not None and same else nodes)
        return tuple(found.values())

    @answers(HAND_LOGIN)
    async def hand(self, call: Call[RegistryParams, NoQuery, None]) -> SealedLogin:
        org, registry = call.params.org_slug, call.params.registry
        login = self._logins.opened(org, registry)
        if login is None:
            raise NotFound(f"org '{org}' has no login at {registry} here")
        return SealedLogin(sealed=self._vaults()[0].seal(_owner(org, registry), msgspec.msgpack.encode(login)))

    async def _ask(self, node: NodeId, org: str, registry: str) -> CarriedLogin:
        params = RegistryParams(org_slug=org, registry=registry)
        answer = await self._caller(node, self._node).call(HAND_LOGIN, params=params, timeout_s=_ASK_S)
        for vault in self._vaults():
            try:
                return msgspec.msgpack.decode(vault.open(_owner(org, registry), answer.sealed), type=CarriedLogin)
            except Fault:
                continue
            except msgspec.DecodeError as error:
                raise Unavailable("its answer is not understood by this version") from error
        raise Unavailable("its answer was sealed with a key that this node does not know yet")

    async def _rows(self, query: str, *params: Value) -> tuple[tuple[Value, ...], ...]:
        return (await self._catalog.query(Statement(query=query, params=params), timeout_s=_QUERY_S)).rows


def _owner(org: str, registry: str) -> str:
    return f"registry login {org}/{registry}"


def _float(value: Value) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
