"""Attacks with an app's token on what an app has beside its machines: flyctl's front, releases and deploys, logs,
uploads, certificates.
"""

import hashlib

from hawker.chaos.hostile.stage import Findings, From, Scene, Stage
from hawker.chaos.hostile.tenant_scenes import storm
from hawker.chaos.hostile.tenants import quietly, token_for

_HAWKER = "/hawker/v1/apps/{app}"
_UPLOAD_BYTES = 8 << 20

_PAIRS = "{" + " ".join(['a: app(name: "x") { id }'] * 240) + "}"
_DEEP = "{ apps { nodes { machines { nodes { app { machines { nodes { app { machines { nodes { id } } } } } } } } } } }"
_WIDE = "{" + " ".join(f"a{number}: apps {{ nodes {{ id name }} }}" for number in range(120)) + "}"
_CHAIN = "{ ...f0 } " + " ".join(f"fragment f{n} on Queries {{ ...f{n + 1} }}" for n in range(480))
_SPREAD = "{" + " ".join(f"...f{n}" for n in range(60)) + "}"
_SPREAD += " ".join(f"fragment f{n} on Queries {{ viewer {{ email }} }}" for n in range(60))


async def graphql_bombs(stage: Stage) -> Findings:
    """GraphQL that is short to say and long to answer, with a token that only reads: fields that are compared each with
    each, lists in lists, fragments of fragments."""
    token = token_for(stage.operator.token, stage.attacker.app, stage.clock, actions="r")
    bombs = (_PAIRS, _DEEP, _WIDE, _CHAIN + " fragment f480 on Queries { viewer { email } }", _SPREAD)
    broken: list[str] = []

    async def ask(number: int) -> None:
        query = bombs[number % len(bombs)] + f" # {stage.clock.monotonic()}" + " " * 4096
        reply = await stage.attacker.call("POST", "/graphql", {"query": query}, token=token)
        broken.extend([f"{reply.status} {reply.text[:100]}"] if reply.status >= 500 else [])

    await storm(stage, 10, ask)
    reply = await stage.attacker.call("POST", "/graphql", {"query": _PAIRS}, token=token)
    taken = [] if "more than" in reply.text else [f"240 fields that are one were compared: {reply.text[:80]}"]
    return [*taken, *(f"an operation was answered {each}" for each in broken[:1])]


async def definitions(stage: Stage) -> Findings:
    """Deploys and releases of a fly.toml that is wide, deep, or asks for a thousand machines."""
    nested: object = {}
    for _ in range(60):
        nested = {"a": nested}
    bombs = (
        {"app": stage.attacker.app, "env": {f"K{number}": "v" for number in range(20_000)}},
        {"app": stage.attacker.app, "env": nested},
        {"app": stage.attacker.app, "processes": {f"p{number}": "x" for number in range(8_000)}},
        {"app": stage.attacker.app, "services": [{"internal_port": 1, "ports": [{"port": 1}] * 30}] * 300},
        {"app": stage.attacker.app, "mounts": [{"source": "x", "destination": "/" + "y" * 200}] * 900},
        {"app": "x" * 250_000},
    )
    broken: list[str] = []

    async def ask(number: int) -> None:
        bomb = bombs[number % len(bombs)]
        if number % 2:
            body = {"definition": bomb, "image": "hawker/hello", "lax": True, "counts": {"app": 1000}}
            reply = await stage.attacker.call("POST", f"{_HAWKER}/deploys", body)
        else:
            reply = await stage.attacker.call("POST", f"{_HAWKER}/releases", {"definition": bomb, "image": "x"})
        broken.extend([f"{reply.status} {reply.text[:100]}"] if reply.status >= 500 else [])

    await storm(stage, 10, ask)
    return [f"a definition was answered {broken[0]}"] if broken else []


async def deploys(stage: Stage) -> Findings:
    """Deploys without pause, each of which begins machines and is taken back."""
    definition = {"app": stage.attacker.app, "env": {}}

    async def ask(number: int) -> None:
        body = {
            "definition": {**definition, "env": {"N": f"{stage.clock.monotonic()}"}},
            "image": "hawker/hello",
            "ha": False,
        }
        made = await stage.attacker.call("POST", f"{_HAWKER}/deploys", body)
        if made.ok:
            await stage.attacker.call("POST", f"{_HAWKER}/deploys/{made.value['version']}/abort", {})

    await storm(stage, 8, ask)
    await _until_no_deploy(stage)
    await stage.attacker.clear()
    return []


async def _until_no_deploy(stage: Stage) -> None:
    deadline = stage.clock.monotonic() + 30.0
    while stage.clock.monotonic() < deadline:
        listed = await stage.attacker.patiently("GET", f"{_HAWKER}/deploys")
        running = [each for each in (listed.value or {}).get("deploys", ()) if each["status"] in _UNDER_WAY]
        if not running:
            return
        await quietly(stage.attacker.patiently("POST", f"{_HAWKER}/deploys/{running[0]['version']}/abort", {}))
        await stage.clock.sleep(0.5)


_UNDER_WAY = ("running", "paused", "rolling_back")


async def log_pages(stage: Stage) -> Findings:
    """Pages and tails of a loud app's log without pause, some that wait for lines that do not come."""
    async with stage.attacker.machine("flood_output") as machine_id:
        paths = (
            f"{_HAWKER}/logs/page?tail=1000",
            f"{_HAWKER}/logs/page?machine=00000000000000&wait_s=10",
            f"{_HAWKER}/logs?tail=1000",
            "/api/v1/apps/{app}/logs",
            f"{_HAWKER}/machines/{machine_id}/logs?tail=1000",
        )
        await storm(stage, 40, lambda number: stage.attacker.call("GET", paths[number % len(paths)]))
    return []


async def uploads(stage: Stage) -> Findings:
    """Files for machines without pause, none of which any machine names."""
    headers = {"Authorization": f"Bearer {stage.attacker.token}", "Content-Type": "application/octet-stream"}

    async def ask(number: int) -> None:
        content = stage.clock.token_bytes(32) * (_UPLOAD_BYTES // 32)
        path = f"{stage.attacker.url}{_HAWKER}/files/sha256:{hashlib.sha256(content).hexdigest()}"
        path = path.replace("{app}", stage.attacker.app) + f"?size={len(content)}"
        async with stage.attacker.http.put(path, data=content, headers=headers) as answer:
            await answer.read()

    await storm(stage, 6, ask)
    return []


async def certificates(stage: Stage) -> Findings:
    """Certificates to import that are none, as large as they may be, names that are long to bring into order, and
    orders of certificates without end."""
    block = "-----BEGIN CERTIFICATE-----\n" + ("A" * 64 + "\n") * 90 + "-----END CERTIFICATE-----\n"
    accents = "".join(chr(0x300 + number % 50) for number in range(100_000))
    wrong: list[str] = []

    async def ask(number: int) -> None:
        if number == 0:
            await stage.attacker.call("POST", "/v1/apps/{app}/certificates/custom", {**_EMPTY, "hostname": accents})
            return
        name = f"n{number}-{int(stage.clock.monotonic() * 1000)}.example.com"
        if number % 2:
            body = {"hostname": name, "fullchain": block * 10, "private_key": block}
            reply = await stage.attacker.call("POST", "/v1/apps/{app}/certificates/custom", body)
        else:
            reply = await stage.attacker.call("POST", "/v1/apps/{app}/certificates/acme", {"hostname": name})
        wrong.extend([f"{reply.status} {reply.text[:100]}"] if reply.ok or reply.status == 500 else [])

    await storm(stage, 8, ask)
    return [f"a certificate was answered {wrong[0]}"] if wrong else []


_EMPTY = {"fullchain": "", "private_key": ""}

SCENES = (
    Scene("GraphQL bombs", From.TENANT, "loop time", graphql_bombs, "16 fields that are one, 30,000 things, threads"),
    Scene("definitions of deploys", From.TENANT, "loop time", definitions, "256 KiB, 5,000 values, threads"),
    Scene("deploys without pause", From.TENANT, "the engine", deploys, "one deploy of an app at a time, rate limits"),
    Scene("pages of logs", From.TENANT, "logs", log_pages, "threads of an app, 64 followers of an app"),
    Scene("uploads without pause", From.TENANT, "disk", uploads, "one of an app at a time, quotas"),
    Scene("certificates without end", From.TENANT, "certificates", certificates, "rate limits, 500 of an app"),
)  # fmt: skip
