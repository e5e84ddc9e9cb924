"""What tests ask of a node: the typed client with an app filled in. Bodies are written as people write JSON."""

from contextlib import suppress
from dataclasses import dataclass
from secrets import token_hex
from typing import Any

import msgspec

from hawker.api.client import Client
from hawker.api.contract.app import CREATE_APP, DELETE_APP, AppParams, CreateAppRequest, DeleteAppQuery
from hawker.api.contract.exec import (
    EXEC_MACHINE,
    LIST_PROCESSES,
    MACHINE_LOGS,
    ExecAnswer,
    ExecRequest,
    LogsQuery,
    ProcessStat,
)
from hawker.api.contract.machine import (
    CREATE_MACHINE,
    DELETE_MACHINE,
    GET_MACHINE,
    LIST_EVENTS,
    LIST_MACHINES,
    UPDATE_MACHINE,
    CreateMachineRequest,
    DeleteMachineQuery,
    ExitEvent,
    ListEventsQuery,
    Machine,
    MachineEvent,
    MachineParams,
    StopRequest,
    UpdateMachineRequest,
    WaitState,
)
from hawker.api.contract.machine_operation import RESTART_MACHINE, START_MACHINE, STOP_MACHINE, WAIT_MACHINE, WaitQuery
from hawker.api.contract.run import GET_RUN, LIST_RUNS, ListRunsQuery, Run, RunParams
from hawker.errors import DeadlineExceeded, HawkerError, NoRoom, Unavailable
from tests.waiting import eventually

HELLO = "hawker/hello"
WAIT_S = 55.0
HEARD_WITHIN_S = 150.0


@dataclass(frozen=True, slots=True)
class Shop:
    """One app of a node."""

    client: Client
    app: str

    async def close(self) -> None:
        """The app and all its machines are gone. A gateway sees that a node is back up to 0.3 s later than gossip:
        until then it deletes nothing. A call waits for a minute for machines to go."""
        await eventually(self._closed, HEARD_WITHIN_S)

    async def _closed(self) -> bool:
        query = DeleteAppQuery(force=True)
        try:
            await self.client.call(DELETE_APP, params=AppParams(app_name=self.app), query=query)
        except (Unavailable, DeadlineExceeded):
            return False
        return True

    def params(self, machine_id: str) -> MachineParams:
        return MachineParams(app_name=self.app, machine_id=machine_id)

    async def open(self, network: str | None = None) -> "Shop":
        """Once a majority of the nodes that keep names is heard of. An answer that is lost is asked for again."""
        body, key = CreateAppRequest(name=self.app, org_slug="tests", network=network), token_hex(8)

        async def made() -> bool:
            try:
                await self.client.call(CREATE_APP, body=body, idempotency_key=key)
            except Unavailable:
                return False
            return True

        await eventually(made, HEARD_WITHIN_S)
        return self

    async def order(self, config: dict[str, Any], *, key: str | None = None, **fields: Any) -> Machine:
        """As soon as the order is filled."""
        body = msgspec.convert({"config": config, **fields}, CreateMachineRequest)
        params = AppParams(app_name=self.app)
        return await self.client.call(CREATE_MACHINE, params=params, body=body, idempotency_key=key)

    async def run(self, config: dict[str, Any], **fields: Any) -> Machine:
        """Once it has started."""
        made = await self.order(config, **fields)
        return await self.wait(made.id, "started")

    async def run_somewhere(self, config: dict[str, Any], *later: type[HawkerError], **fields: Any) -> Machine:
        """Once it has started, on a host that the broker may not have heard all of: that a node lives is known before
        its labels and what it has; or of what may raise `later`."""

        passing: tuple[type[HawkerError], ...] = (NoRoom, Unavailable, *later)

        async def filled() -> Machine | None:
            try:
                return await self.order(config, **fields)
            except passing:
                return None

        made = await eventually(filled, HEARD_WITHIN_S)
        assert made is not None
        return await self.wait(made.id, "started")

    async def wait(self, machine_id: str, *states: str) -> Machine:
        """The machine once it is in one of the states."""
        try:
            await self._comes_to(machine_id, *states)
        except TimeoutError as error:
            error.add_note(f"its events, the newest first: {(await self.get(machine_id)).events}")
            raise
        return await self.get(machine_id)

    async def _comes_to(self, machine_id: str, *states: str) -> None:
        """One call waits for a minute at most: on a busy host the way there may be longer."""
        query = WaitQuery(state=tuple(WaitState(state) for state in states), timeout=WAIT_S)

        async def there() -> bool:
            with suppress(DeadlineExceeded):
                await self.client.call(WAIT_MACHINE, params=self.params(machine_id), query=query)
                return True
            return False

        await eventually(there, HEARD_WITHIN_S)

    async def get(self, machine_id: str) -> Machine:
        return await self.client.call(GET_MACHINE, params=self.params(machine_id))

    async def machines(self) -> list[Machine]:
        """Those whose hosts answer."""
        listed = (await self.client.call(LIST_MACHINES, params=AppParams(app_name=self.app))).items
        return [machine for machine in listed if machine.host_status == "ok"]

    async def away(self) -> set[str]:
        """The ids of those whose hosts do not."""
        listed = (await self.client.call(LIST_MACHINES, params=AppParams(app_name=self.app))).items
        return {machine.id for machine in listed if machine.host_status != "ok"}

    async def update(self, machine_id: str, config: dict[str, Any], **fields: Any) -> Machine:
        body = msgspec.convert({"config": config, **fields}, UpdateMachineRequest)
        return await self.client.call(UPDATE_MACHINE, params=self.params(machine_id), body=body)

    async def start(self, machine_id: str) -> None:
        await self.client.call(START_MACHINE, params=self.params(machine_id))

    async def stop(self, machine_id: str, **fields: Any) -> None:
        await self.client.call(STOP_MACHINE, params=self.params(machine_id), body=StopRequest(**fields))

    async def restart(self, machine_id: str) -> None:
        await self.client.call(RESTART_MACHINE, params=self.params(machine_id))

    async def destroy(self, machine_id: str) -> None:
        """As soon as it is to be."""
        query = DeleteMachineQuery(force=True)
        await self.client.call(DELETE_MACHINE, params=self.params(machine_id), query=query)

    async def gone(self, machine_id: str) -> None:
        """Once it is destroyed."""
        await self._comes_to(machine_id, WaitState.DESTROYED)

    async def processes(self, machine_id: str) -> tuple[ProcessStat, ...]:
        return await self.client.call(LIST_PROCESSES, params=self.params(machine_id))

    async def exec(self, machine_id: str, *command: str, stdin: str | None = None) -> ExecAnswer:
        body = ExecRequest(command=command, stdin=stdin, timeout=60)
        return await self.client.call(EXEC_MACHINE, params=self.params(machine_id), body=body)

    async def said(self, machine_id: str, *command: str) -> str:
        """What a command that succeeds writes to stdout."""
        answer = await self.exec(machine_id, *command)
        assert answer.exit_code == 0, answer
        return answer.stdout

    async def shell(self, machine_id: str, script: str) -> ExecAnswer:
        return await self.exec(machine_id, "sh", "-c", script)

    async def events(self, machine_id: str) -> list[MachineEvent]:
        """Oldest first."""
        query = ListEventsQuery(limit=50)
        newest_first = await self.client.call(LIST_EVENTS, params=self.params(machine_id), query=query)
        return list(newest_first[::-1])

    async def exits(self, machine_id: str) -> list[ExitEvent]:
        requests = [event.request for event in await self.events(machine_id) if event.type == "exit"]
        return [request.exit_event for request in requests if request and request.exit_event]

    async def pid(self, machine_id: str) -> int:
        """Process 1 of the machine's last launch that has ended, by the host's numbers."""
        launches = [step for run in await self.runs(machine_id) for step in run.steps if step.name == "launch"]
        return int([launch.result for launch in launches if launch.result is not None][-1])

    async def logs(self, machine_id: str) -> str:
        """All that it wrote to stdout and stderr so far."""
        async with self.client.stream(MACHINE_LOGS, params=self.params(machine_id), query=LogsQuery()) as chunks:
            return b"".join([chunk.data async for chunk in chunks]).decode()

    async def logged(self, machine_id: str, text: str) -> None:
        """Once it has written so."""

        async def written() -> bool:
            return text in await self.logs(machine_id)

        await eventually(written)

    async def runs(self, machine_id: str) -> list[Run]:
        """Oldest first."""
        found = await self.client.call(LIST_RUNS, query=ListRunsQuery(resource_id=machine_id))
        return [await self.client.call(GET_RUN, params=RunParams(run_id=run.id)) for run in found.runs[::-1]]
