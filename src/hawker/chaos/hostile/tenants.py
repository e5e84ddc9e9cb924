"""The two tenants. Each has an app in an organization of its own, a token that is limited to that app, and an address
that its calls come from. A `Tenant` calls as any client would: HTTP and JSON, no help from the product.
"""

import base64
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Self

import aiohttp
import anyio
import msgspec

from hawker.auth.caveat import Actions, Apps, Caveat, Holder
from hawker.auth.macaroon import NONCE_BYTES, key_of, mint, narrow, to_text
from hawker.chaos.hostile.python_image import PAYLOADS, PYTHON, REFERENCE
from hawker.clock import Clock
from hawker.errors import CannotStart
from hawker.http.message import OriginTls
from hawker.value_object import ValueObject

SMALL = {"cpu_kind": "shared", "cpus": 1, "memory_mb": 256}
OVER_LIMIT = 429
_ANSWER_S = 20.0
_STARTED_S = 60.0
_PATIENCE_S = 60.0
_AGAIN_S = 0.3
_KILLED = 137


class Reply(ValueObject, frozen=True):
    """`status` is 0 when there was no answer; then `text` says why."""

    status: int
    text: str = ""

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    @property
    def value(self) -> Any:
        return msgspec.json.decode(self.text) if self.text else None

    @property
    def problem(self) -> str:
        """Empty when it is well."""
        return "" if self.ok else f"answered {self.status} {self.text[:200]}"


class Tenant:
    """Calls with one token. Use it as a context manager, inside the event loop."""

    def __init__(self, url: str, token: str, app: str, clock: Clock, address: str) -> None:
        self.url = url
        self.token = token
        self.app = app
        self.address = address
        self.clock = clock

    async def __aenter__(self) -> Self:
        self.http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, local_addr=(self.address, 0)),
            timeout=aiohttp.ClientTimeout(total=_ANSWER_S),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.http.close()

    async def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        token: str | None = None,
        url: str = "",
        headers: Mapping[str, str] | None = None,
        within_s: float = _ANSWER_S,
        tls: OriginTls | None = None,
    ) -> Reply:
        """One call, at the tenant's own node or at `url`. `path` may hold `{app}`."""
        sent = {"Authorization": f"Bearer {token or self.token}", **(headers or {})}
        data = None if body is None else msgspec.json.encode(body)
        if data is not None:
            sent["Content-Type"] = "application/json"
        try:
            timeout = aiohttp.ClientTimeout(total=within_s)
            where = (url or self.url) + path.replace("{app}", self.app)
            how: dict[str, Any] = {} if tls is None else {"ssl": tls.context(), "server_hostname": tls.name}
            async with self.http.request(method, where, data=data, headers=sent, timeout=timeout, **how) as answer:
                return Reply(answer.status, await answer.text())
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            return Reply(0, f"{type(error).__name__}: {error}")

    async def patiently(self, method: str, path: str, body: object = None, *, within_s: float = _ANSWER_S) -> Reply:
        """One call, again while a rate limit refuses it, for a minute at most."""
        deadline = self.clock.monotonic() + _PATIENCE_S
        while True:
            reply = await self.call(method, path, body, within_s=within_s)
            if reply.status != OVER_LIMIT or self.clock.monotonic() > deadline:
                return reply
            await self.clock.sleep(_AGAIN_S)

    async def order(self, config: Mapping[str, object], **options: object) -> Reply:
        machine = {"guest": SMALL, "restart": {"policy": "no"}, **config}
        return await self.patiently("POST", "/v1/apps/{app}/machines", {"config": machine, **options})

    async def started(self, machine_id: str) -> Reply:
        path = f"/v1/apps/{{app}}/machines/{machine_id}/wait?state=started&timeout={int(_STARTED_S)}"
        return await self.call("GET", path, within_s=_STARTED_S + 5)

    async def destroy(self, machine_id: str) -> Reply:
        return await self.patiently("DELETE", f"/v1/apps/{{app}}/machines/{machine_id}?force=true")

    async def machines(self) -> list[dict[str, Any]]:
        """Those of the app that are there. Raises `RuntimeError` when that is not answered."""
        reply = await self.patiently("GET", "/v1/apps/{app}/machines")
        if not reply.ok:
            raise RuntimeError(f"the machines of {self.app} are not listed: {reply.problem}")
        return list(reply.value)

    async def execute(self, machine_id: str, *command: str, within_s: float = 60.0) -> Reply:
        body = {"command": command, "timeout": int(within_s)}
        path = f"/v1/apps/{{app}}/machines/{machine_id}/exec"
        return await self.patiently("POST", path, body, within_s=within_s + 5)

    async def clear(self) -> None:
        """Destroy all its machines."""
        for machine in await self.machines():
            await self.destroy(machine["id"])


class Attacker(Tenant):
    """A tenant with machines in which payloads run."""

    @asynccontextmanager
    async def machine(self, payload: str = "rest", **config: object) -> AsyncIterator[str]:
        """A started machine of the Python image whose workload is `payload`; destroyed afterwards. Raises
        `RuntimeError` with the answer when it is not to be had."""
        reply = await self.order({"image": REFERENCE, "init": running(payload), **config})
        if not reply.ok:
            raise RuntimeError(f"the attacker gets no machine: {reply.problem}")
        machine_id = str(reply.value["id"])
        try:
            began = await self.started(machine_id)
            if not began.ok:
                raise RuntimeError(f"the attacker's machine does not start: {began.problem}")
            yield machine_id
        finally:
            with anyio.CancelScope(shield=True):
                await self.destroy(machine_id)

    async def run(self, machine_id: str, payload: str, seconds: float, *arguments: str) -> dict[str, Any]:
        """Run a payload in the machine beside its workload, and give its result, which is only `killed` when it was.
        Raises `RuntimeError` when there is none: then nothing was attacked."""
        command = (PYTHON, PAYLOADS, payload, f"{seconds:g}", *arguments)
        reply = await self.execute(machine_id, *command, within_s=seconds + 30)
        if reply.ok and reply.value["exit_code"] == _KILLED:
            return {"killed": True}
        if not reply.ok or reply.value["exit_code"] != 0:
            raise RuntimeError(f"payload {payload} did not run: {reply.status} {reply.text[-500:]}")
        return dict(msgspec.json.decode(reply.value["stdout"]))


def running(payload: str) -> dict[str, object]:
    """`init` of a machine whose workload is a payload."""
    return {"exec": [PYTHON, "-u", PAYLOADS, payload]}


def token_for(root_token: str, app: str, clock: Clock, *more: Caveat, actions: str = "rwcdC") -> str:
    """A token that is limited to the app, as its owner would be given it."""
    macaroon = mint(key_of(root_token), clock.token_bytes(NONCE_BYTES), 0)
    return to_text(narrow(macaroon, Apps((app,)), Actions(actions), Holder(app), *more))


async def told(operator: Tenant, what: str, witness: Tenant) -> None:
    """Cordon or uncordon the operator's node, and return once the witness's node knows. Raises `CannotStart`."""
    own = await operator.call("GET", "/hawker/v1/node")
    reply = await operator.call("POST", f"/hawker/v1/nodes/{own.value['id']}/{what}") if own.ok else own
    deadline = operator.clock.monotonic() + _ANSWER_S
    while reply.ok and operator.clock.monotonic() < deadline:
        nodes = await witness.call("GET", "/hawker/v1/nodes")
        known = {node["id"]: node["cordoned"] for node in nodes.value["nodes"]} if nodes.ok else {}
        if known.get(own.value["id"]) is (what == "cordon"):
            return
        await operator.clock.sleep(_AGAIN_S)
    raise CannotStart(f"node {operator.url} cannot be {what}ed: {reply.problem or 'others do not hear of it'}")


def file_of(path: str, content: bytes) -> dict[str, object]:
    """A file of a machine's config."""
    return {"guest_path": path, "raw_value": base64.b64encode(content).decode()}


async def quietly(awaitable: Awaitable[object]) -> None:
    """Awaits what the attacked may refuse without anybody minding."""
    with suppress(RuntimeError):
        await awaitable
