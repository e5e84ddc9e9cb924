"""Attacks through the API by whoever holds an app's token, and by a registry that such a token may name."""

import os
from collections.abc import Awaitable, Callable
from contextlib import suppress

import anyio

from hawker.api.routes import ROUTES
from hawker.auth.caveat import Sources
from hawker.chaos.hostile.lab import OUTSIDE
from hawker.chaos.hostile.outside import REGISTRY_PORT
from hawker.chaos.hostile.stage import Findings, From, Scene, Stage
from hawker.chaos.hostile.tenants import SMALL, Reply, file_of, quietly, token_for

_MACHINES = "/v1/apps/{app}/machines"
_STORE_MOST_MIB = 64
_QUOTA = 8
_PULLED_S = 15
_TURNS_S = 10.0  # for a dozen orders at the rate of an app


async def storm(stage: Stage, workers: int, ask: Callable[[int], Awaitable[object]]) -> None:
    """`ask` again and again by so many at once, for as long as the scene lasts."""
    deadline = stage.clock.monotonic() + stage.seconds

    async def work(number: int) -> None:
        while stage.clock.monotonic() < deadline:
            await quietly(ask(number))

    async with anyio.create_task_group() as tasks:
        for number in range(workers):
            tasks.start_soon(work, number)
        await stage.clock.sleep(stage.seconds)
        tasks.cancel_scope.cancel()


# Names of images.


async def fifo_as_image(stage: Stage) -> Findings:
    """A FIFO of the host as an image, such as a machine could make in its own root: whoever opens it waits for ever."""
    fifo = stage.daemon.directory / "fifo"
    with suppress(FileExistsError):
        os.mkfifo(fifo)
    names = [f"docker-archive:{fifo.parent}/{'./' * number}fifo" for number in range(12)]
    async with anyio.create_task_group() as tasks:
        for name in names:
            tasks.start_soon(stage.attacker.order, {"image": name})
        await stage.clock.sleep(max(stage.seconds, _TURNS_S))
        tasks.cancel_scope.cancel()
    return []


async def host_path_as_image(stage: Stage) -> Findings:
    """Paths of the host as images: the answers may not tell what is there."""
    paths = ("/etc/shadow", "/root/.bashrc", "/root", "/nonexistent", str(stage.daemon.place.token))
    replies = {path: await stage.attacker.order({"image": f"docker-archive:{path}"}) for path in paths}
    if any(reply.ok for reply in replies.values()):
        return ["a path of the host was taken as an image"]
    said = {reply.text.replace(path, "PATH") for path, reply in replies.items()}
    return [f"the answers tell paths apart: {sorted(said)}"] if len(said) > 1 else []


async def loopback_as_registry(stage: Stage) -> Findings:
    """The node's loopback as a registry: neither a visit nor an answer that tells open ports from closed ones."""
    images = (f"127.0.0.1:{stage.trap.port}/x:1", f"localhost:{stage.trap.port}/x:1", f"[::1]:{stage.trap.port}/x:1")
    return await _trapped(stage, images)


async def realm_on_loopback(stage: Stage) -> Findings:
    """A registry that sends the node to its own loopback for a token."""
    return await _trapped(stage, (f"{OUTSIDE}:{REGISTRY_PORT}/realm/{stage.trap.port}:1",))


async def redirect_to_loopback(stage: Stage) -> Findings:
    """A registry that redirects the node to its own loopback."""
    return await _trapped(stage, (f"{OUTSIDE}:{REGISTRY_PORT}/redirect/{stage.trap.port}:1",))


async def _trapped(stage: Stage, images: tuple[str, ...]) -> Findings:
    stage.trap.visitors.clear()
    replies = [await stage.attacker.order({"image": image}) for image in images]
    found = [f"a service on loopback was asked: {visitor}" for visitor in dict.fromkeys(stage.trap.visitors)]
    return found + [f"its answer was shown: {reply.text[:200]}" for reply in replies if "INTERNAL-4711" in reply.text]


async def registry_words(stage: Stage) -> Findings:
    """A registry whose error texts are long."""
    reply = await stage.attacker.order({"image": f"{OUTSIDE}:{REGISTRY_PORT}/words/x:1"})
    return [f"an error of {len(reply.text)} characters"] if len(reply.text) > 2000 else []


async def slow_registry(stage: Stage) -> Findings:
    """Orders from a registry that sends a byte now and then: the bystander's pulls go on."""
    async with anyio.create_task_group() as tasks:
        for number in range(12):
            image = f"{OUTSIDE}:{REGISTRY_PORT}/slow/x{number}:1"
            tasks.start_soon(quietly, stage.attacker.order({"image": image}))
        await stage.clock.sleep(1.0)
        found = await _pull_by_the_other(stage)
        await stage.clock.sleep(stage.seconds)
        tasks.cancel_scope.cancel()
    return found


async def _pull_by_the_other(stage: Stage) -> Findings:
    """That the bystander's own order from a registry has its image in time."""
    other, name = stage.bystander, f"{stage.clock.monotonic():.0f}"
    order = await other.order({"image": f"{OUTSIDE}:{REGISTRY_PORT}/quick/{name}:1"}, skip_launch=True)
    if not order.ok:
        return [f"the other tenant's order was {order.problem}"]
    machine_id = order.value["id"]
    reply = await other.call("GET", f"{_MACHINES}/{machine_id}/wait?state=stopped&timeout={_PULLED_S}", within_s=30.0)
    await other.destroy(machine_id)
    return [] if reply.ok else [f"the other tenant's image is not there after {_PULLED_S} s: {reply.problem}"]


async def layer_bomb(stage: Stage) -> Findings:
    """A layer of 25 MiB that unpacks to 25 GiB."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(quietly, stage.attacker.order({"image": f"{OUTSIDE}:{REGISTRY_PORT}/bomb/x:1"}))
        await stage.clock.sleep(max(stage.seconds, 5.0))
        tasks.cancel_scope.cancel()
    return []


async def list_of_images(stage: Stage) -> Findings:
    """The list of all images of the node."""
    reply = await stage.attacker.call("GET", "/hawker/v1/images")
    return ["the list of all images was answered"] if reply.ok else []


# Calls.


async def foreign_ids(stage: Stage) -> Findings:
    """Every call of the route table with the other tenant's app, machine and volume."""
    return await foreign_calls(stage, stage.attacker.url)


async def foreign_calls(stage: Stage, url: str) -> list[str]:
    """Those that were answered at a node."""
    other, victim = stage.bystander.app, stage.bystander.web
    found = []
    for route in ROUTES:
        if "{app_name}" not in route.path and "{machine_id}" not in route.path:
            continue
        for app in {other, stage.attacker.app} if "{machine_id}" in route.path else {other}:
            path = route.path.replace("{app_name}", app).replace("{machine_id}", victim)
            path = path.replace("{", "").replace("}", "")
            body: dict[str, object] | None = None if route.method in ("GET", "DELETE") else {}
            reply = await stage.attacker.call(route.method, path, body, url=url)
            if reply.ok or reply.status >= 500:
                found.append(f"{route.method} {path}: {reply.status} {reply.text[:80]}")
    return found


async def standby_for_another(stage: Stage) -> Findings:
    """A spare for the other tenant's machine, by an update: a new one would not be taken by the watched one's node."""
    attacker = stage.attacker
    own = await attacker.order({"image": "hawker/hello"}, skip_launch=True)
    if not own.ok:
        raise RuntimeError(f"the attacker gets no machine: {own.problem}")
    path = f"{_MACHINES}/{own.value['id']}"
    await attacker.call("GET", f"{path}/wait?state=stopped&timeout=30", within_s=35.0)
    config = {"image": "hawker/hello", "guest": SMALL, "standbys": [stage.bystander.web]}
    reply = await attacker.patiently("POST", path, {"config": config, "skip_launch": True})
    await attacker.destroy(own.value["id"])
    if reply.ok:
        return ["a spare for another app's machine was taken"]
    if "is not one of app" not in reply.text:
        raise RuntimeError(f"the spare was refused for another reason: {reply.problem}")
    return []


async def forwarded_source(stage: Stage) -> Findings:
    """A token for another network, with a header that claims to come from there."""
    token = token_for(stage.operator.token, stage.attacker.app, stage.clock, Sources(("10.20.0.0/16",)))
    found = []
    for header in ("X-Forwarded-For", "Forwarded", "X-Real-IP", "Fly-Client-IP"):
        value = "for=10.20.1.1" if header == "Forwarded" else "10.20.1.1"
        reply = await stage.attacker.call("GET", _MACHINES, token=token, headers={header: value})
        found += [f"{header} was believed"] if reply.ok else []
    return found


async def log_followers(stage: Stage) -> Findings:
    """Many followers of a loud machine."""
    async with stage.attacker.machine() as machine_id, anyio.create_task_group() as tasks:
        tasks.start_soon(quietly, stage.attacker.run(machine_id, "flood_output", stage.seconds))
        path = f"/hawker/v1/apps/{{app}}/machines/{machine_id}/logs?follow=true"
        await storm(stage, 60, lambda _: stage.attacker.call("GET", path))
        tasks.cancel_scope.cancel()
    return []


async def exec_flood(stage: Stage) -> Findings:
    """As many commands at once as the API takes."""
    async with stage.attacker.machine() as machine_id:
        await storm(stage, 60, lambda _: stage.attacker.run(machine_id, "burn", 0.1))
    return []


async def wait_flood(stage: Stage) -> Findings:
    """Long waits for what does not come."""
    async with stage.attacker.machine() as machine_id:
        path = f"{_MACHINES}/{machine_id}/wait?state=suspended&timeout=60"
        await storm(stage, 300, lambda _: stage.attacker.call("GET", path, within_s=70))
    return []


async def read_flood(stage: Stage) -> Findings:
    """Cheap calls as fast as they can be made, also those that no rate limit counts."""
    await storm(stage, 64, lambda number: stage.attacker.call("GET", _MACHINES if number % 2 else "/v1/tokens/current"))
    return []


async def order_flood(stage: Stage) -> Findings:
    """Orders that cannot be filled, and orders that can."""
    huge = {"cpu_kind": "performance", "cpus": 16, "memory_mb": 131072}

    async def ask(number: int) -> None:
        guest = huge if number % 2 else SMALL
        await stage.attacker.call("POST", _MACHINES, {"config": {"image": "hawker/hello", "guest": guest}})

    await storm(stage, 16, ask)
    await stage.attacker.clear()
    return []


async def stopped_machines(stage: Stage) -> Findings:
    """Machines that are never launched, each with large files: they take no capacity, but count in a quota."""
    quota = f"/hawker/v1/quotas/org/{stage.attacker.app}"
    await stage.operator.call("PUT", quota, {"machines": _QUOTA})
    try:
        return await _stopped_machines(stage)
    finally:
        await stage.operator.call("DELETE", quota)


async def _stopped_machines(stage: Stage) -> Findings:
    files = [file_of(f"/big{number}", b"\xa5" * 350_000) for number in range(2)]
    before = _store_mib(stage)
    body = {"config": {"image": "hawker/hello", "guest": SMALL, "files": files}, "skip_launch": True}
    for _ in range(2 * _QUOTA):
        await stage.attacker.patiently("POST", _MACHINES, body)
    grown, count = _store_mib(stage) - before, len(await stage.attacker.machines())
    found = [f"{count} machines were taken, of {_QUOTA}"] if count > _QUOTA else []
    return [*found, f"the store grew by {grown} MiB"] if grown > _STORE_MOST_MIB else found


def _store_mib(stage: Stage) -> int:
    store = stage.daemon.place.store
    return sum(file.stat().st_size for file in store.parent.glob(f"{store.name}*")) >> 20


async def large_bodies(stage: Stage) -> Findings:
    """Bodies at the limit, valid JSON that is deep, wide or long."""
    bodies: tuple[object, ...] = (
        {"config": {"image": "hawker/hello", "env": {f"K{number}": "v" for number in range(50_000)}}},
        {"config": {"image": "hawker/hello", "metadata": {"k": "v" * 900_000}}},
        {"config": {"image": "hawker/hello", "init": {"exec": ["x"] * 200_000}}},
        {"config": {"image": "x" * 900_000}},
        {"config": {"image": "hawker/hello", "checks": {f"c{number}": {"type": "tcp"} for number in range(10_000)}}},
    )
    broken: list[Reply] = []

    async def ask(number: int) -> None:
        reply = await stage.attacker.call("POST", _MACHINES, bodies[number % len(bodies)])
        broken.extend([reply] if reply.status >= 500 else [])

    await storm(stage, 10, ask)
    await stage.attacker.clear()
    return [f"a body was answered with {broken[0].status} {broken[0].text[:100]}"] if broken else []


async def order_keys(stage: Stage) -> Findings:
    """Idempotency keys without end: what is remembered of them is bounded."""
    before = stage.memory_mib

    async def ask(number: int) -> None:
        headers = {"Idempotency-Key": f"{number}-{stage.clock.monotonic()}" + "k" * 200}
        body = {"config": {"image": "nowhere/nothing", "guest": SMALL}}
        await stage.attacker.call("POST", _MACHINES, body, headers=headers)

    await storm(stage, 16, ask)
    grown = stage.memory_mib - before
    return [f"the daemon grew by {grown:.0f} MiB"] if grown > 96 else []


async def invented_names(stage: Stage) -> Findings:
    """Names of apps and machines that do not exist: nobody's limits are used up by them."""
    await storm(
        stage,
        32,
        lambda number: stage.attacker.call("GET", f"/v1/apps/x{number}-{stage.clock.monotonic():.6f}/machines"),
    )
    return []


async def snapshot_flood(stage: Stage) -> Findings:
    """Snapshots of a volume as often as they are taken."""
    made = await stage.attacker.patiently(
        "POST", "/v1/apps/{app}/volumes", {"name": "full", "size_gb": 1, "region": "local", "encrypted": False}
    )
    if not made.ok:
        return []
    path = f"/v1/apps/{{app}}/volumes/{made.value['id']}"
    await storm(stage, 4, lambda _: stage.attacker.call("POST", f"{path}/snapshots", {}))
    await stage.attacker.patiently("DELETE", path)
    return []


async def addresses(stage: Stage) -> Findings:
    """Every address of the pools, for one app."""
    await storm(stage, 4, lambda _: stage.attacker.call("POST", "/v1/apps/{app}/ip_assignments", {"type": "v6"}))
    listed = await stage.attacker.patiently("GET", "/v1/apps/{app}/ip_assignments")
    for each in (listed.value or {}).get("ips", ()):
        await stage.attacker.patiently("DELETE", f"/v1/apps/{{app}}/ip_assignments/{each['ip']}")
    return []


_FILES = "files of the host are for whoever may write the node"
_REACH = "no inside address, at no hop"
_CAVEATS = "a token's caveats, asked for each route"
_ENTRANCE = "one request of an address in a turn of the loop"

SCENES = (
    Scene("a FIFO of the host as an image", From.TENANT, "threads", fifo_as_image, _FILES),
    Scene("a path of the host as an image", From.TENANT, "the host's files", host_path_as_image, _FILES),
    Scene("loopback as a registry", From.TENANT, "the host's loopback", loopback_as_registry, _REACH),
    Scene("a realm on loopback", From.REGISTRY, "the host's loopback", realm_on_loopback, _REACH, short=True),
    Scene("a redirect to loopback", From.REGISTRY, "the host's loopback", redirect_to_loopback, _REACH),
    Scene("long words of a registry", From.REGISTRY, "memory", registry_words, "a registry's words go to the log"),
    Scene("a registry a byte at a time", From.REGISTRY, "pulls", slow_registry, "turns by organization"),
    Scene("a layer that unpacks to 25 GiB", From.REGISTRY, "disk", layer_bomb, "a bound for each layer and image"),
    Scene("the list of images", From.TENANT, "images", list_of_images, "an operator's call"),
    Scene("calls with foreign ids", From.TENANT, "the API", foreign_ids, _CAVEATS),
    Scene(
        "a spare for a foreign machine", From.TENANT, "spares", standby_for_another, "the app is compared", short=True
    ),
    Scene("a source that is claimed", From.TENANT, "tokens", forwarded_source, "the peer's address counts"),
    Scene("many log followers", From.TENANT, "log followers", log_followers, "16 of a machine, 64 of an app"),
    Scene("many commands", From.TENANT, "exec sessions", exec_flood, "24 of a machine, 64 of an app, rate limits"),
    Scene("many waits", From.TENANT, "connections", wait_flood, _ENTRANCE),
    Scene("many reads", From.TENANT, "loop time", read_flood, _ENTRANCE),
    Scene("many orders", From.TENANT, "admission", order_flood, "rate limits of an app"),
    Scene("machines that are not launched", From.TENANT, "the store", stopped_machines, "a quota counts them"),
    Scene("large bodies", From.TENANT, "loop time", large_bodies, "1 MiB of a body, rate limits before it is read"),
    Scene("many keys of orders", From.TENANT, "memory", order_keys, "keys are kept with what was ordered"),
    Scene("invented names", From.TENANT, "rate limits", invented_names, _ENTRANCE),
    Scene("many snapshots", From.TENANT, "disk", snapshot_flood, "copies take turns, quotas, admission"),
    Scene("many addresses", From.TENANT, "addresses", addresses, "quotas, rate limits"),
)
