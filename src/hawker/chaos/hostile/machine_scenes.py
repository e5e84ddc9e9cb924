"""Attacks from inside a machine: on the kernel that machines share, on the host's networks, and on the daemon that
asks machines how they are.
"""

import ctypes
import os
from functools import partial
from typing import Any

from hawker.chaos.hostile import payloads
from hawker.chaos.hostile.lab import OUTSIDE, PORT
from hawker.chaos.hostile.outside import PEER_PORTS, REGISTRY_PORT
from hawker.chaos.hostile.stage import Attack, Findings, From, Scene, Stage
from hawker.chaos.hostile.tenants import SMALL
from hawker.config.service_rules import MAX_CHECKS

_CHECKED_S = 8.0
_LIBC = ctypes.CDLL(None, use_errno=True)


async def _payload(stage: Stage, name: str, *arguments: str) -> dict[str, Any]:
    """The result of a payload in a machine of its own."""
    async with stage.attacker.machine() as machine_id:
        return await stage.attacker.run(machine_id, name, stage.seconds, *arguments)


def _won(payload: str, key: str, words: str) -> Attack:
    """A scene that finds each thing which the payload lists under `key`."""

    async def attack(stage: Stage) -> Findings:
        result = await _payload(stage, payload)
        return [f"{words}: {', '.join(map(str, result[key]))}"] if result[key] else []

    return _told(attack, payload)


def _only(payload: str) -> Attack:
    """A scene that is judged by the bystander alone."""

    async def attack(stage: Stage) -> Findings:
        await _payload(stage, payload)
        return []

    return _told(attack, payload)


def _told(attack: Attack, payload: str) -> Attack:
    """What the payload says of itself."""
    attack.__doc__ = getattr(payloads, payload).__doc__
    return attack


async def peers(stage: Stage) -> Findings:
    """The ports of other nodes, of the host's network and of the node itself."""
    node = str(PORT)
    pairs = [word for port in (*PEER_PORTS, REGISTRY_PORT) for word in (stage.ground.near, str(port))]
    pairs += [stage.ground.itself, node, "fe80::1", node]
    reached = (await _payload(stage, "reach", *pairs)).get("reached", [])
    return [f"the host's network answers: {', '.join(reached)}"] if reached else []


async def tracked_flows(stage: Stage) -> Findings:
    """As many UDP flows as the host tracks."""
    await _payload(stage, "datagrams", OUTSIDE)
    return []


async def packets_to_the_other(stage: Stage) -> Findings:
    """Packets at the bystander's machine."""
    address = stage.bystander.addresses[stage.bystander.web]
    await _payload(stage, "datagrams", address)
    return []


async def inotify_instances(stage: Stage) -> Findings:
    """Every inotify instance of the user; root of the host and other machines have theirs."""
    async with stage.attacker.machine() as one, stage.attacker.machine() as other:
        await stage.attacker.run(one, "inotify", stage.seconds + 30)
        result = await stage.attacker.run(other, "inotify", 0)
        found = [] if result["held"] else ["another machine got no inotify instance"]
        return found + ([] if _has_inotify() else ["root of the host got no inotify instance"])


def _has_inotify() -> bool:
    made = int(_LIBC.inotify_init())
    if made >= 0:
        os.close(made)
    return made >= 0


async def slow_checks(stage: Stage) -> Findings:
    """As many checks as a machine may have, at a port that accepts and never answers."""
    checks = {
        f"c{number}": {"type": "http", "port": 9000, "path": "/", "interval": "1s", "timeout": "60s"}
        for number in range(MAX_CHECKS)
    }
    return await _checked(stage, "silent_server", checks)


async def endless_checks(stage: Stage) -> Findings:
    """Checks that are answered by a head, or a body, without an end."""
    checks = {
        f"c{number}": {"type": "http", "port": 9001, "path": path, "interval": "1s", "timeout": "30s"}
        for number, path in enumerate(("/head", "/body") * (MAX_CHECKS // 2))
    }
    return await _checked(stage, "endless_server", checks)


async def _checked(stage: Stage, server: str, checks: dict[str, dict[str, object]]) -> Findings:
    """Two machines with them, for longer than the bystander's checks may take."""
    async with stage.attacker.machine(server, checks=checks), stage.attacker.machine(server, checks=checks):
        grown = await stage.growth_mib(partial(stage.clock.sleep, max(stage.seconds, _CHECKED_S)))
        wrong = await stage.bystander.wrong()
    return [*wrong, *([f"the daemon grew by {grown:.0f} MiB"] if grown > 96 else [])]


async def metrics_of_the_node(stage: Stage) -> Findings:
    """Series of a machine that look like the node's own, too many, and without an end."""
    found = []
    async with stage.attacker.machine("forged_metrics", metrics={"port": 9002, "path": "/metrics"}):
        await stage.clock.sleep(2.0)
        reply = await stage.operator.call("GET", "/metrics/machines")
        lines = reply.text.splitlines()
        forged = [line for line in lines if line.startswith(("hawker_runs_open", "up{", "up "))]
        found += [f"a series was taken for the node's own: {forged[0]}"] if forged else []
        found += [f"{len(lines)} series of one machine were taken"] if len(lines) > 150_000 else []
        found += ["labels of the scraper were taken"] if 'cluster="z"' in reply.text else []
    async with stage.attacker.machine("endless_server", metrics={"port": 9001, "path": "/metrics"}):
        await stage.clock.sleep(1.0)
        grown = await stage.growth_mib(partial(stage.operator.call, "GET", "/metrics/machines"))
        found += [f"the daemon grew by {grown:.0f} MiB"] if grown > 96 else []
    return found


async def disk_filled(stage: Stage) -> Findings:
    """The root file system to its last byte; then the culprit is destroyed, and the order of it is kept."""
    async with stage.attacker.machine() as machine_id:
        result = await stage.attacker.run(machine_id, "fill_disk", max(stage.seconds, 8.0))
        found = await _destroyed(stage, machine_id)
    full = result.get("error") in ("ENOSPC", "EDQUOT")
    return found if full else [*found, f"{result.get('written_mib')} MiB were written"]


async def _destroyed(stage: Stage, machine_id: str) -> list[str]:
    reply = await stage.operator.call("DELETE", f"/v1/apps/{stage.attacker.app}/machines/{machine_id}?force=true")
    return [] if reply.ok else [f"a destroy was answered with {reply.status} {reply.text[:120]}"]


async def crash_loop(stage: Stage) -> Findings:
    """Machines that end at once and are always restarted."""
    ends = {"exec": ["/bin/hello", "exit"]}
    made = [
        await stage.attacker.order(
            {"image": "hawker/hello", "init": ends, "restart": {"policy": "always"}, "guest": SMALL}
        )
        for _ in range(4)
    ]
    await stage.clock.sleep(stage.seconds)
    for reply in made:
        if reply.ok:
            await stage.attacker.destroy(reply.value["id"])
    return []


_EGRESS = "the table of withheld networks"
_OWN_USER = "a user namespace for each machine"
_CALLS = "a list of allowed system calls and families"
_MASKED = "masked and read-only paths"
_LIMITS = "limits of the machine's control group"

SCENES = (
    Scene("metadata of clouds", From.MACHINE, "the host's network", _won("metadata", "reached", "answered"), _EGRESS,
          short=True),
    Scene("ports of other nodes", From.MACHINE, "the host's network", peers, _EGRESS),
    Scene("many UDP flows", From.MACHINE, "conntrack", tracked_flows, "a count and a rate for each link"),
    Scene("packets at another tenant", From.MACHINE, "the bridge", packets_to_the_other, "a network for each machine"),
    Scene("questions without pause", From.MACHINE, "the resolver", _only("questions"),
          "1,000 a second of a machine, 64 asked on"),
    Scene("forged frames", From.MACHINE, "the bridge", _only("spoof"), "no raw sockets, sources by link"),
    Scene("every inotify instance", From.MACHINE, "kernel accounts", inotify_instances, "its own memory"),
    Scene("every pipe page", From.MACHINE, "kernel accounts", _only("pipes"), _OWN_USER),
    Scene("families of sockets", From.MACHINE, "the kernel", _won("sockets", "opened", "opened"), _CALLS),
    Scene("calls that change the host", From.MACHINE, "the kernel", _won("escape_calls", "passed", "not refused"),
          _CALLS),
    Scene("switches of the host", From.MACHINE, "the kernel", _won("privileged_writes", "done", "written"), _MASKED),
    Scene("tables of the kernel", From.MACHINE, "the kernel", _won("host_paths", "seen", "readable"), _MASKED),
    Scene("every cpu", From.MACHINE, "cpu", _only("burn"), _LIMITS),
    Scene("a fork bomb", From.MACHINE, "process ids", _only("fork_bomb"), _LIMITS),
    Scene("memory without an end", From.MACHINE, "memory", _only("eat_memory"), _LIMITS),
    Scene("a full disk", From.MACHINE, "disk", disk_filled, "a file system for each machine"),
    Scene("many small files", From.MACHINE, "inodes", _only("many_files"), "a file system for each machine"),
    Scene("syncs without pause", From.MACHINE, "disk time", _only("sync_storm"), "none: what the disk gives"),
    Scene("output without pause", From.MACHINE, "logs", _only("flood_output"), "a ring for each machine"),
    Scene("checks that get no answer", From.MACHINE, "checks", slow_checks, "4 of a machine, deadlines from the turn",
          short=True),
    Scene("checks that do not end", From.MACHINE, "checks", endless_checks, "2 KiB of an answer, heads are bounded"),
    Scene("metrics of the node", From.MACHINE, "metrics", metrics_of_the_node, "names of the node's are dropped"),
    Scene("a crash loop", From.MACHINE, "the engine", crash_loop, "restarts wait longer and longer"),
)  # fmt: skip
