"""Answers to who wants a connection to a port of a machine: the node dials the machine at its own address."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio
from anyio.abc import ByteStream

from hawker.api.contract.machine import MachineParams
from hawker.api.contract.machine_port import MACHINE_PORT, FromClient, FromPort, PortOpened, PortRequest
from hawker.api.handlers import SocketChannel, answers
from hawker.api.route import Call, NoQuery
from hawker.deferred import deferred
from hawker.errors import HawkerError, Unavailable, WrongState
from hawker.fair.table import PORT_CONNECTIONS, PORT_CONNECTIONS_OF_CALLER
from hawker.fair.turns import Turns
from hawker.machine import State
from hawker.record.machine import MachineRecord
from hawker.runtime.driver import Driver
from hawker.worker.edge_door import hosts_of
from hawker.worker.handlers.target import MachineFinder

if TYPE_CHECKING:
    from hawker.api import relay as relaying
else:
    relaying = deferred("hawker.api.relay")

Dial: TypeAlias = Callable[[str, int], Any]
"""Returns a `ByteStream` when awaited. Raises `OSError`."""
_CONNECT_S = 5.0
_LOOK_S = 2.0


async def dial(host: str, port: int) -> ByteStream:
    return await anyio.connect_tcp(host, port)


class MachinePortHandlers:
    def __init__(self, machines: MachineFinder, driver: Driver, connect: Dial = dial) -> None:
        self._machines = machines
        self._driver = driver
        self._connect = connect
        self._of_app, self._of_caller = Turns(PORT_CONNECTIONS), Turns(PORT_CONNECTIONS_OF_CALLER)

    @answers(MACHINE_PORT)
    async def connect(
        self, call: Call[MachineParams, NoQuery, PortRequest], channel: SocketChannel[FromPort, FromClient]
    ) -> None:
        record = self._machines.find(call.params)
        if record.state is not State.STARTED:
            raise WrongState(f"machine {record.id} is {record.state}: nothing in it takes connections")
        with self._of_caller.hold_now(call.caller), self._of_app.hold_now(record.app):
            async with self._opened(record, call.body.port) as (address, stream):
                await channel.send(PortOpened(address=address))
                await relaying.relay(channel, stream)

    @asynccontextmanager
    async def _opened(self, record: MachineRecord, port: int) -> AsyncIterator[tuple[str, ByteStream]]:
        """Raises `Unavailable` when nothing in the machine takes the connection."""
        hosts = hosts_of(record, own=self._driver.features.network)
        for host in hosts:
            try:
                with anyio.fail_after(_CONNECT_S):
                    stream = await self._connect(host, port)
            except OSError:  # a timeout, too
                continue
            async with stream:
                yield host, stream
            return
        raise Unavailable(await self._why(record, hosts, port))

    async def _why(self, record: MachineRecord, hosts: Sequence[str], port: int) -> str:
        """What in the machine listens at that port tells most."""
        refused = f"machine {record.id} takes no connection on port {port} at {' or '.join(hosts)}"
        found = await self._listening_at(record, port)
        if found:
            return f"{refused}: its program listens on {', '.join(found)} only, let it listen on 0.0.0.0 or ::"
        return f"{refused}: does a program in it listen there, on 0.0.0.0 or ::?"

    async def _listening_at(self, record: MachineRecord, port: int) -> tuple[str, ...]:
        try:
            with anyio.fail_after(_LOOK_S):
                processes = await self._driver.processes(record.id)
        except (HawkerError, TimeoutError):
            return ()
        sockets = (
            socket.address for process in processes for socket in process.sockets if socket.proto.startswith("tcp")
        )
        return tuple(sorted({address for address in sockets if address.rpartition(":")[2] == str(port)}))
