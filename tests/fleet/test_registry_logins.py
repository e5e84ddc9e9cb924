from collections.abc import Sequence
from typing import Any, cast

import pytest

from hawker.api.caller import Caller
from hawker.api.grant import Everything
from hawker.api.route import Call, NoQuery
from hawker.clock import SystemClock
from hawker.errors import NotFound, Unavailable
from hawker.fleet.registry_logins import FleetLogins, login_source
from hawker.fleet.rows import upsert
from hawker.ids import NodeId
from hawker.image.registry import Credentials
from hawker.log import Secret
from hawker.secret.registry_logins import RegistryLogins
from hawker.store.memory_store import MemoryStore
from hawker.vault import KEY_BYTES, Vault
from tests.fleet.desk import Desk

pytestmark = pytest.mark.anyio

HERE, THERE, ELSEWHERE = NodeId("0000000a"), NodeId("0000000b"), NodeId("0000000c")
HOST = "registry.example:5000"
ADA = Credentials("ada", Secret("pass word"))


def shown(found: Credentials | None) -> tuple[str, str] | None:
    return None if found is None else (found.username, found.password.reveal())


class Town:
    """Nodes with one catalog, which ask each other in process. `away` are those that cannot be asked."""

    def __init__(self) -> None:
        self.desk = Desk()
        self.away: set[NodeId] = set()
        self.handed: list[bytes] = []
        self.keys = {node: [b"k" * KEY_BYTES] for node in (HERE, THERE, ELSEWHERE)}
        self.stores = {node: MemoryStore() for node in self.keys}
        self.logins = {node: self._logins(node) for node in self.keys}
        self.fleets = {node: self._fleet(node) for node in self.keys}
        for node, logins in self.logins.items():
            logins.meet(self.fleets[node])

    def _logins(self, node: NodeId) -> RegistryLogins:
        return RegistryLogins(self.stores[node], Vault(node.encode() * 4, SystemClock()), SystemClock())

    def _fleet(self, node: NodeId) -> FleetLogins:
        def vaults() -> Sequence[Vault]:
            return [Vault(key, SystemClock()) for key in self.keys[node]]

        return FleetLogins(node, self.logins[node], self.desk, lambda to, behalf: self.caller(to), vaults)

    def caller(self, node: NodeId) -> Caller:
        return cast(Caller, _Asked(self, node))

    async def publish(self) -> None:
        for node, store in self.stores.items():
            source = login_source(node, store)
            await self.desk.transact([upsert(row) for key in source.every() for row in source.rows(key)])


class _Asked:
    def __init__(self, town: Town, node: NodeId) -> None:
        self._town, self._node = town, node

    async def call(self, route: Any, *, params: Any, timeout_s: float) -> Any:
        if self._node in self._town.away:
            raise Unavailable("no route to host")
        call: Call[Any, NoQuery, None] = Call(
            params=params, query=NoQuery(), body=None, grant=Everything("node", root=False), request_id="r"
        )
        answer = await self._town.fleets[self._node].hand(call)
        self._town.handed.append(answer.sealed)
        return answer


async def test_a_login_is_handed_to_the_node_that_needs_it_and_the_catalog_never_has_it() -> None:
    town = Town()
    await town.logins[THERE].put("acme", HOST, ADA, "ann")
    await town.publish()
    found = await town.logins[HERE].find("acme", HOST)
    assert shown(found) == ("ada", "pass word")
    assert len(town.handed) == 1 and b"pass word" not in town.handed[0]
    assert "pass word" not in repr(town.desk.rows("SELECT * FROM registry_logins"))
    await town.publish()
    assert shown(await town.logins[HERE].find("acme", HOST)) == shown(ADA)
    assert len(town.handed) == 1  # it is kept
    assert town.logins[ELSEWHERE].opened("acme", HOST) is None  # nobody else has heard it


async def test_another_organization_gets_none() -> None:
    town = Town()
    await town.logins[THERE].put("acme", HOST, ADA, "ann")
    await town.publish()
    assert await town.logins[HERE].find("other", HOST) is None and town.handed == []


async def test_the_next_node_that_has_it_is_asked() -> None:
    town = Town()
    await town.logins[THERE].put("acme", HOST, ADA, "ann")
    await town.publish()
    await town.logins[ELSEWHERE].find("acme", HOST)
    await town.publish()
    town.away.add(THERE)
    assert shown(await town.logins[HERE].find("acme", HOST)) == shown(ADA)


async def test_a_login_that_nobody_can_hand_over_says_what_to_do() -> None:
    town = Town()
    await town.logins[THERE].put("acme", HOST, ADA, "ann")
    await town.publish()
    town.away.add(THERE)
    with pytest.raises(Unavailable, match=r"0000000b: .*no route to host.*hawker registry login registry.example:5000"):
        await town.logins[HERE].find("acme", HOST)


async def test_a_key_that_is_not_known_here_yet_is_told() -> None:
    town = Town()
    await town.logins[THERE].put("acme", HOST, ADA, "ann")
    await town.publish()
    town.keys[HERE] = [b"z" * KEY_BYTES]
    with pytest.raises(Unavailable, match="sealed with a key"):
        await town.logins[HERE].find("acme", HOST)


async def test_a_logout_and_a_later_login_are_learned() -> None:
    town = Town()
    await town.logins[THERE].put("acme", HOST, ADA, "ann")
    await town.publish()
    await town.logins[HERE].find("acme", HOST)
    await town.publish()
    await town.logins[HERE].give_up("acme", HOST, "bob")
    await town.publish()
    assert await town.logins[THERE].find("acme", HOST) is None
    assert await town.logins[THERE].all("acme") == []
    bob = Credentials("bob", Secret("other"))
    await town.logins[THERE].put("acme", HOST, bob, "bob")
    await town.publish()
    assert shown(await town.logins[HERE].find("acme", HOST)) == shown(bob)


async def test_a_node_without_the_login_says_so() -> None:
    town = Town()
    town.desk.run("INSERT INTO registry_logins VALUES (?, 'acme', ?, 'ada', 5.0, 'ann', 0)", THERE, HOST)
    with pytest.raises(Unavailable, match="no login at"):
        await town.logins[HERE].find("acme", HOST)
    with pytest.raises(NotFound):
        await town.logins[HERE].give_up("other", HOST, "ann")
