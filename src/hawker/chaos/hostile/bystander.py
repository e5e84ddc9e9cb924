"""The tenant that must notice nothing: its machines, and the eyes with which it looks at them all the time.

The eyes are a process of their own, so that what an attack costs the attacker is not taken for what it costs the
bystander. `python -m hawker.chaos.hostile.bystander` reads an `EyesSpec` and prints each look, as lines of JSON.
"""

import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import aiohttp
import anyio
import msgspec
from anyio.abc import Process

from hawker.chaos.hostile.python_image import REFERENCE
from hawker.chaos.hostile.tenants import Tenant, running
from hawker.clock import Clock, SystemClock

_WELL_WITHIN_S = 90.0
_NICER = -5
_CHECK = {"type": "http", "port": 8080, "path": "/", "interval": "1s", "timeout": "2s", "grace_period": "5s"}

EDGE_PORT = 8088
_SERVICE = {"protocol": "tcp", "internal_port": 8080, "ports": [{"port": EDGE_PORT, "handlers": ["http"]}]}


class Sighting(msgspec.Struct, frozen=True, kw_only=True):
    """One operation of the bystander: when it began (seconds of the host's monotonic clock), how long it took in
    seconds, and what was wrong, if anything."""

    kind: str
    """Which operation it was."""
    began: float
    """By the host's clock, so that looks of several processes can be put in order."""
    seconds: float
    """0 or more."""
    wrong: str = ""
    """For people; empty where nothing was."""

    @property
    def ended(self) -> float:
        return self.began + self.seconds


class EyesSpec(msgspec.Struct, frozen=True, kw_only=True):
    """`pages`: the machines' own addresses can be asked from here, by name of the machine. `edge` is where the first
    one is published, if it is."""

    url: str
    """Of the node's API."""
    token: str
    """The bystander's."""
    app: str
    """The bystander's."""
    address: str
    """The IP address that it calls from."""
    web: str
    """The id of its machine that answers HTTP."""
    pages: dict[str, str]
    edge: str = ""


class Bystander(Tenant):
    """Two machines: one with a check, and one with a check that writes to a volume all the time."""

    web = ""
    keeper = ""

    async def settle(self, region: str, pages: bool, edge: str) -> None:
        """Order the machines, and return once they are well; `pages`: they can be asked at their own addresses, and
        one is published at the address `edge`. Raises `RuntimeError` when they are not to be had."""
        self._pages, self._edge = pages, f"http://{edge}:{EDGE_PORT}/" if pages else ""
        volume = {"name": "data", "size_gb": 1, "region": region, "encrypted": False}
        made = await self.patiently("POST", "/v1/apps/{app}/volumes", volume)
        if not made.ok:
            raise RuntimeError(f"the bystander gets no volume: {made.problem}")
        self.addresses: dict[str, str] = {}
        self.volume = str(made.value["id"])
        checks = {"alive": _CHECK}
        always = {"policy": "always"}
        published = {"services": [_SERVICE], "metadata": {"hawker_publish": "*"}} if self._edge else {}
        self.web = await self._have({"image": "hawker/hello", "checks": checks, "restart": always, **published})
        mounts = [{"volume": self.volume, "path": "/data"}]
        self.keeper = await self._have(
            {"image": REFERENCE, "init": running("serve"), "mounts": mounts, "checks": checks}
        )
        deadline = self.clock.monotonic() + _WELL_WITHIN_S
        while wrong := [*await self.wrong(), *await self._unpublished()]:
            if self.clock.monotonic() > deadline:
                raise RuntimeError(f"the bystander's machines are not well: {'; '.join(wrong)}")
            await self.clock.sleep(0.3)

    async def _have(self, config: dict[str, object]) -> str:
        reply = await self.order(config)
        problem = reply.problem or (await self.started(reply.value["id"])).problem
        if problem:
            raise RuntimeError(f"the bystander gets no machine: {problem}")
        self.addresses[reply.value["id"]] = reply.value["private_ip"]
        return str(reply.value["id"])

    async def _unpublished(self) -> list[str]:
        if not self._edge:
            return []
        try:
            async with self.http.get(self._edge) as answer:
                return [] if answer.ok else [f"the edge answers {answer.status}"]
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            return [f"the edge does not answer: {error}"]

    async def wrong(self) -> list[str]:
        """What is wrong with the two machines, as the API shows them."""
        found = []
        for machine_id in (self.web, self.keeper):
            reply = await self.patiently("GET", f"/v1/apps/{{app}}/machines/{machine_id}")
            machine = reply.value if reply.ok else {}
            if machine.get("state") != "started":
                found.append(f"machine {machine_id} is {machine.get('state')} {reply.problem}".strip())
            found += [
                f"check {check['name']} of {machine_id} is {check['status']}: {check.get('output', '')[:120]}"
                for check in machine.get("checks") or ()
                if check["status"] != "passing"
            ]
            found += [f"machine {machine_id} ended" for event in machine.get("events") or () if event["type"] == "exit"]
        return found

    @property
    def spec(self) -> EyesSpec:
        pages = self.addresses if self._pages else {}
        return EyesSpec(
            url=self.url,
            token=self.token,
            app=self.app,
            address=self.address,
            web=self.web,
            pages=pages,
            edge=self._edge,
        )

    @asynccontextmanager
    async def watching(self, looks: list[Sighting]) -> AsyncIterator[None]:
        """What the eyes see is added to `looks` meanwhile."""
        module = "hawker.chaos.hostile.bystander"
        eyes = await anyio.open_process([sys.executable, "-m", module], stderr=None)
        async with eyes, anyio.create_task_group() as tasks:
            assert eyes.stdin is not None
            await eyes.stdin.send(msgspec.json.encode(self.spec) + b"\n")
            tasks.start_soon(_read, eyes, looks)
            try:
                yield
            finally:
                with suppress(ProcessLookupError):
                    eyes.kill()
                tasks.cancel_scope.cancel()


async def _read(eyes: Process, looks: list[Sighting]) -> None:
    assert eyes.stdout is not None
    left = b""
    async for piece in eyes.stdout:
        *lines, left = (left + piece).split(b"\n")
        looks += [msgspec.json.decode(line, type=Sighting) for line in lines]


class Eyes(Tenant):
    """Every operation of a tenant in its turn, as often as the rate limit lets anybody do it."""

    def __init__(self, spec: EyesSpec, clock: Clock) -> None:
        super().__init__(spec.url, spec.token, spec.app, clock, spec.address)
        self._spec = spec
        self._failed_writes = 0

    async def look(self, tell: Callable[[Sighting], None]) -> None:
        """Until cancelled."""
        async with anyio.create_task_group() as tasks:
            for kind, pause_s, operation in (
                ("get", 0.25, self._get),
                ("exec", 1.1, self._exec),
                ("logs", 0.3, self._logs),
                ("order", 1.2, self._order),
            ):
                tasks.start_soon(self._again, kind, pause_s, operation, tell)
            if self._spec.edge:
                tasks.start_soon(self._again, "edge", 0.1, self._published, tell)
            for machine_id, address in self._spec.pages.items():
                is_web = machine_id == self._spec.web
                kind, asked = ("page", self._page) if is_web else ("volume", self._volume)
                tasks.start_soon(self._again, kind, 0.1, lambda asked=asked, address=address: asked(address), tell)
                if not is_web:
                    tasks.start_soon(self._again, "name", 0.3, lambda address=address: self._name(address), tell)

    async def _again(
        self, kind: str, pause_s: float, operation: Callable[[], Awaitable[str]], tell: Callable[[Sighting], None]
    ) -> None:
        while True:
            began = self.clock.monotonic()
            try:
                wrong = await operation()
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                wrong = f"{type(error).__name__} {error}"
            tell(Sighting(kind=kind, began=began, seconds=self.clock.monotonic() - began, wrong=wrong))
            await self.clock.sleep(pause_s)

    async def _get(self) -> str:
        return (await self.call("GET", f"/v1/apps/{{app}}/machines/{self._spec.web}")).problem

    async def _published(self) -> str:
        """By way of the edge, from an address of its own."""
        async with self.http.get(self._spec.edge) as answer:
            text = await answer.text()
        return "" if self._spec.web in text else f"answered {answer.status} {text[:80]!r}"

    async def _name(self, address: str) -> str:
        """Whether the machine at this address finds the name of its own app."""
        async with self._pages.get(f"http://[{address}]:8080/name") as answer:
            text = await answer.text()
        return "" if text == '"found"' else f"the machine finds no name: {text[:80]}"

    async def _page(self, address: str) -> str:
        text = await self._asked(address)
        return "" if self._spec.web in text else f"answered {text[:80]!r}"

    async def _volume(self, address: str) -> str:
        """Whether every write since the last look reached the disk."""
        written = msgspec.json.decode(await self._asked(address), type=dict[str, float | str])
        failed = int(written["failed"])
        if failed > self._failed_writes:
            self._failed_writes = failed
            return f"a write to the volume failed: {written['error']}"
        return ""

    async def _asked(self, address: str) -> str:
        async with self._pages.get(f"http://[{address}]:8080/") as answer:
            return await answer.text()

    async def __aenter__(self) -> "Eyes":
        await super().__aenter__()
        self._pages = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20.0))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._pages.close()
        await super().__aexit__()

    async def _exec(self) -> str:
        body = {"command": ["/bin/hello", "echo", "here"], "timeout": 30}
        reply = await self.call("POST", f"/v1/apps/{{app}}/machines/{self._spec.web}/exec", body)
        return reply.problem or ("" if "here" in reply.value["stdout"] else reply.text)

    async def _logs(self) -> str:
        return (await self.call("GET", f"/hawker/v1/apps/{{app}}/machines/{self._spec.web}/logs?tail=1")).problem

    async def _order(self) -> str:
        """A machine from its order to its end."""
        config = {"image": "hawker/hello", "guest": {"cpu_kind": "shared", "cpus": 1, "memory_mb": 256}}
        made = await self.call("POST", "/v1/apps/{app}/machines", {"config": config})
        if not made.ok:
            return made.problem
        began = await self.started(made.value["id"])
        ended = await self.destroy(made.value["id"])
        return began.problem or ended.problem


def _say(line: bytes) -> None:
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.flush()


async def _main() -> None:
    os.setpriority(os.PRIO_PROCESS, 0, _NICER)
    async with Eyes(msgspec.json.decode(sys.stdin.readline(), type=EyesSpec), SystemClock()) as eyes:
        await eyes.look(lambda look: _say(msgspec.json.encode(look)))


if __name__ == "__main__":
    anyio.run(_main)
