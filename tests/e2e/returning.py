"""Three nodes of one cluster, each with a wall clock that a test can set; the third is the one that comes back. What
each knows of the others is read from its files.
"""

import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from hawker.api.client import Client
from hawker.api.contract.cluster import ADD_KEY, LIST_KEYS, REMOVE_KEY, USE_KEY, KeyParams
from hawker.api.contract.machine import Machine
from hawker.clock import OFFSET_VARIABLE
from hawker.errors import Conflict, NoRoom, OrderUncertain, Unavailable
from tests.e2e.command_line import CommandLine
from tests.e2e.shop import Shop
from tests.e2e.test_fleet_join import WITHIN_S, Host, states, three_hosts
from tests.e2e.test_process_driver import shell
from tests.waiting import eventually

HOUR_S, DAY_S = 3600.0, 86_400.0
AWAY: frozenset[str | None] = frozenset({"down", "left"})
STAYS = "exec sleep 600"


@dataclass(frozen=True, slots=True)
class Trio:
    first: Host
    second: Host
    third: Host

    @property
    def hosts(self) -> tuple[Host, Host, Host]:
        return self.first, self.second, self.third

    @property
    def ids(self) -> set[str]:
        return {each.node.node_id for each in self.hosts}

    @asynccontextmanager
    async def clients(self) -> AsyncIterator[tuple[Client, Client, Client]]:
        """Of all three, as they live now."""
        first, second, third = (each.node.client() for each in self.hosts)
        async with first as one, second as two, third as three:
            yield one, two, three

    async def together(self) -> None:
        """Once each of the three sees all of them alive, and has all that the others say."""

        async def seen() -> bool:
            async with self.clients() as clients:
                fates = [await states(client) for client in clients]
            return all({node for node, fate in each.items() if fate == "alive"} == self.ids for each in fates)

        await eventually(seen, WITHIN_S)
        await eventually(lambda: len({rows(each) for each in self.hosts}) == 1, WITHIN_S)

    async def without_third(self) -> None:
        """Once both others have given it up."""

        async def given_up() -> bool:
            async with self.first.node.client() as one, self.second.node.client() as two:
                fates = [(await states(each)).get(self.third.node.node_id) for each in (one, two)]
            return AWAY.issuperset(fates)

        await eventually(given_up, WITHIN_S)

    def hawker(self, host: Host) -> CommandLine:
        return CommandLine({**host.node.environment, "HAWKER_DATA_DIR": str(host.node.data_dir)})


@contextmanager
def trio(place: Path) -> Iterator[Trio]:
    """All up and in one cluster. At the end they are gone, and all that they had."""
    with three_hosts(place, prepare=_with_a_clock) as (first, second, third):
        for each in (second, third):
            said = each.join(first.node)
            assert said.returncode == 0, said.stderr
            each.node.launch()
        for each in (second, third):
            each.node.wait_ready()
        yield Trio(first, second, third)


def _with_a_clock(host: Host) -> None:
    host.node.environment[OFFSET_VARIABLE] = str(_offset(host))


def _offset(host: Host) -> Path:
    return host.node.directory / "clock-offset"


def set_clock(host: Host, ahead_s: float) -> None:
    """Of its daemon, whether it runs or not: from now on it is so many seconds ahead of the others."""
    draft = _offset(host).with_suffix(".new")
    draft.write_text(str(ahead_s))
    draft.rename(_offset(host))


def rows(host: Host) -> tuple[tuple[object, ...], ...]:
    """What its catalog says of all machines and apps, whoever owns them."""
    with closing(sqlite3.connect(f"file:{host.node.place.catalog}?mode=ro", uri=True)) as file:
        machines = file.execute("SELECT node, id, state, app FROM machines ORDER BY node, id").fetchall()
        apps = file.execute("SELECT node, name, home, '' FROM apps ORDER BY node, name").fetchall()
    return tuple(machines + apps)


def epochs(host: Host, of: str) -> dict[str, tuple[int, int]]:
    """Epoch and version, by scope, up to which it has the streams of a node."""
    with closing(sqlite3.connect(f"file:{host.node.place.catalog}?mode=ro", uri=True)) as file:
        found = file.execute("SELECT scope, epoch, applied FROM __c_origin WHERE origin = ?", (of,)).fetchall()
    return {str(scope): (epoch, applied) for scope, epoch, applied in found}


def logged(host: Host, message: str, **fields: str) -> bool:
    """Whether its log has such a line, in this life."""
    wanted = {"message": message, **fields}.items()
    return any(wanted <= line.items() for line in host.node.logged())


async def other_keys(client: Client) -> None:
    """A new key, in use, and without those before: each once the one before is everywhere."""
    old = (await client.call(LIST_KEYS)).keys
    new = str((await client.call(ADD_KEY)).keys[-1].number)
    for route, number in ((USE_KEY, new), *((REMOVE_KEY, str(key.number)) for key in old)):

        async def done() -> bool:
            try:
                await client.call(route, params=KeyParams(number=number))  # noqa: B023
            except Conflict:
                return False
            return True

        await eventually(done, WITHIN_S)


async def order_at(shop: Shop, number: int, script: str = STAYS, **fields: Any) -> Machine:
    """Filled at the host of that label, once the broker has heard of it; started unless it is to be a spare."""
    labels = {"hawker_labels": f"host={number}"}
    standbys = {"standbys": fields.pop("standbys")} if "standbys" in fields else {}

    key = fields.pop("key", uuid4().hex)

    async def filled() -> Machine | None:
        try:
            return await shop.order(shell(script, metadata=labels, **standbys), key=key, **fields)
        except (NoRoom, Unavailable, OrderUncertain):
            return None

    made = await eventually(filled, WITHIN_S)
    assert made is not None
    return made if standbys else await shop.wait(made.id, "started")


async def everybody_lists(trio: Trio, app: str, expected: dict[str, str]) -> None:
    """Machines of the app and their states, whichever node is asked."""

    async def same() -> bool:
        async with trio.clients() as clients:
            lists = [await Shop(client, app).machines() for client in clients]
        return all({each.id: each.state for each in found} == expected for found in lists)

    await eventually(same, WITHIN_S)
