"""Attacks on a fleet: with an app's token at another node, by strangers at the ports between nodes, by a node that was
taken, and by one that hangs. The tenants' machines are on the first node unless a scene says otherwise.
"""

import base64
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from functools import partial
from ipaddress import IPv6Address
from threading import Event

import anyio
from anyio.to_thread import run_sync

from hawker.api.contract.move_peer import DROP_INCOMING, MOVE_PEER_ROUTES
from hawker.api.routes import PEER_ROUTES, ROUTES, asked_by_nodes
from hawker.auth.caveat import Actions
from hawker.auth.macaroon import NONCE_BYTES, key_of, mint, narrow, to_text
from hawker.auth.node_certificate import NodePapers
from hawker.auth.peer_key import peer_token
from hawker.chaos.hostile.lab import PORT
from hawker.chaos.hostile.stage import Attack, Findings, From, Ground, Scene, Stage
from hawker.chaos.hostile.tenant_scenes import foreign_calls, storm
from hawker.chaos.hostile.tenants import SMALL, Reply, told
from hawker.http.message import OriginTls
from hawker.http.mutual_tls import MutualTls, name_of
from hawker.up.node_files import ClusterFile

GOSSIP_PORT, PEER_PORT, MESH_PORT = PORT + 1, PORT + 2, PORT + 3
_DOWN_WITHIN_S = 60.0
_PACKET_BYTES = 1400
_CONNECTIONS = 400
_ORDERS_END_S = 4.0
_MACHINES = "/v1/apps/{app}/machines"


async def foreign_ids_elsewhere(stage: Stage) -> Findings:
    """Every call with the bystander's app and machine, at the brokers of nodes that do not have them."""
    return [each for url in _others(stage) for each in await foreign_calls(stage, url)]


def _others(stage: Stage) -> list[str]:
    return [daemon.url for daemon in stage.ground.daemons[1:]]


async def token_at_the_peers_port(stage: Stage) -> Findings:
    """An app's token, the fleet's routes without any, and calls as another's node, where only nodes are answered: by
    somebody with a node's certificate. Without one nobody is heard."""
    found, url, tls = [], _peer_url(stage), _as_a_node(stage)
    for how in (None, OriginTls(_without_certificate, tls.name)):
        reply = await stage.attacker.call("GET", "/hawker/v1/health", url=url, tls=how)
        if reply.status:
            found.append(f"who shows no certificate is answered {reply.status}")
    for route in (*ROUTES, *PEER_ROUTES):
        path = route.path.replace("{app_name}", stage.bystander.app).replace("{machine_id}", stage.bystander.web)
        path = path.replace("{", "").replace("}", "")
        for headers in ({"Authorization": ""}, {}, {"Hawker-Caller": "root", "Hawker-Node": "00000000"}):
            reply = await stage.attacker.call(route.method, path, url=url, headers=headers, tls=tls)
            if reply.ok or reply.status >= 500:
                found.append(f"{route.method} {path}: {reply.status} {reply.text[:80]}")
    return found


def _peer_url(stage: Stage) -> str:
    return f"https://{stage.ground.itself}:{PEER_PORT}"


def _as_a_node(stage: Stage) -> OriginTls:
    """How to speak to the first node; whoever has taken the last one can."""
    first, taken = stage.ground.daemons[0], stage.ground.daemons[-1]
    node, keys = taken.place.remembered(), ClusterFile(taken.place.cluster, stage.clock).keys
    there = first.place.remembered()
    assert node is not None and there is not None, "both have begun"
    return OriginTls(MutualTls(NodePapers(node, keys)).client, name_of(there))


def _without_certificate() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


async def keys_for_a_nodes_token(stage: Stage) -> Findings:
    """The token between nodes, sniffed, used for what a node may not ask: keys, invitations, the store, the catalog."""
    found, url, token, tls = [], _peer_url(stage), _node_token(stage), _as_a_node(stage)
    for route in ROUTES:
        if asked_by_nodes(route) or "{" in route.path:
            continue
        reply = await stage.attacker.call(route.method, route.path, {}, url=url, token=token, tls=tls)
        if reply.ok:
            found.append(f"{route.method} {route.path} was answered to a node's token")
    return found


def _node_token(stage: Stage) -> str:
    """What a node shows another; whoever has taken the last node has it."""
    taken = stage.ground.daemons[-1]
    return peer_token(ClusterFile(taken.place.cluster, stage.clock).keys()[0])


async def calls_by_a_node(stage: Stage) -> Findings:
    """Orders, lists and reads from a node that was taken, as fast as they can be made."""
    url, token, tls = _peer_url(stage), _node_token(stage), _as_a_node(stage)
    paths = [
        route.path for route in ROUTES if route.method == "GET" and asked_by_nodes(route) and "{" not in route.path
    ]
    assert paths, "nodes ask each other for lists"
    await storm(
        stage,
        64,
        lambda number: stage.attacker.call("GET", paths[number % len(paths)], url=url, token=token, tls=tls),
    )
    return []


async def bad_joins(stage: Stage) -> Findings:
    """Hosts that ask to join with invitations that nobody made, at all nodes."""
    urls = [daemon.url for daemon in stage.ground.daemons]
    taken = 0

    async def ask(number: int) -> None:
        nonlocal taken
        invite = ("root", "0" * 20, "x" * 64)[number % 3]
        body = {"invite": invite, "key": _noise(stage), "proof": _noise(stage)}
        reply = await stage.attacker.call(
            "POST", "/hawker/v1/cluster/admit", body, url=urls[number % len(urls)], headers={"Authorization": ""}
        )
        taken += reply.ok

    await storm(stage, 24, ask)
    nodes = await stage.operator.call("GET", "/hawker/v1/nodes")
    count = len(nodes.value["nodes"]) if nodes.ok else 0
    found = [f"{taken} hosts were let in"] if taken else []
    return found + ([f"the fleet has {count} nodes"] if count != len(urls) else [])


def _noise(stage: Stage) -> str:
    return base64.b64encode(stage.clock.token_bytes(32)).decode()


async def gossip_flood(stage: Stage) -> Findings:
    """Packets at the port of gossip: noise, and what looks like gossip of another cluster."""

    def flood() -> None:
        deadline = stage.clock.monotonic() + stage.seconds
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.bind((stage.ground.attackers, 0))
            while stage.clock.monotonic() < deadline:
                noise = stage.clock.token_bytes(_PACKET_BYTES)
                for begin in (b"", b"\x01", b"\x01\x00\x00\x00", b"HWG1"):
                    with suppress(OSError):
                        sender.sendto((begin + noise)[:_PACKET_BYTES], (stage.ground.itself, GOSSIP_PORT))

    grown = await stage.growth_mib(partial(_several, flood, 2))
    found = [f"the daemon grew by {grown:.0f} MiB"] if grown > 64 else []
    return found + await _believed_down(stage)


async def _several(work: Callable[[], None], count: int) -> None:
    async with anyio.create_task_group() as tasks:
        for _ in range(count):
            tasks.start_soon(run_sync, work)


async def _believed_down(stage: Stage) -> list[str]:
    """Which nodes are not alive for the first one, though they are."""
    reply = await stage.operator.call("GET", "/hawker/v1/nodes")
    nodes = reply.value["nodes"] if reply.ok else []
    found = [] if reply.ok else [f"the list of nodes was {reply.problem}"]
    return found + [f"node {node['id']} is believed {node['state']}" for node in nodes if node["state"] != "alive"]


async def silent_peers(stage: Stage) -> Findings:
    """Connections to both ports between nodes that say nothing, or a byte a second."""

    def hold(port: int, begin: bytes) -> None:
        deadline = stage.clock.monotonic() + stage.seconds
        with ExitStack() as open_ones:
            held = []
            for _ in range(_CONNECTIONS):
                with suppress(OSError):
                    held.append(open_ones.enter_context(stage.connect(1.0, port)))
                    held[-1].sendall(begin)
            while stage.clock.monotonic() < deadline:
                for connection in held:
                    with suppress(OSError):
                        connection.send(b"\xff")
                Event().wait(1.0)

    async def all_of_them() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run_sync, hold, GOSSIP_PORT, b"\xff\xff\xff\xff")
            tasks.start_soon(run_sync, hold, GOSSIP_PORT, b"")
            tasks.start_soon(run_sync, hold, PEER_PORT, b"GET / HTTP/1.1\r\n")
            tasks.start_soon(run_sync, hold, PEER_PORT, b"\x16\x03\x01\x02\x00\x01")

    grown = await stage.growth_mib(all_of_them)
    found = [f"the daemon grew by {grown:.0f} MiB"] if grown > 96 else []
    return found + await _believed_down(stage)


async def row_flood(stage: Stage) -> Findings:
    """Rows of the catalog, as many and as large as a tenant can make: machines, and metadata that changes always."""
    body = {"config": {"image": "hawker/hello", "guest": SMALL}, "skip_launch": True}
    made = [await stage.attacker.order({"image": "hawker/hello"}, skip_launch=True) for _ in range(3)]
    ids = [reply.value["id"] for reply in made if reply.ok]

    async def ask(number: int) -> None:
        if number % 8 == 0 or not ids:
            await stage.attacker.call("POST", _MACHINES, body)
        else:
            path = f"{_MACHINES}/{ids[number % len(ids)]}/metadata/k{number}"
            await stage.attacker.call("POST", path, {"value": f"{stage.clock.monotonic()}" + "v" * 3000})

    await storm(stage, 16, ask)
    await stage.attacker.clear()
    return await _diverged(stage)


async def _diverged(stage: Stage) -> list[str]:
    """Every node soon tells the same of the attacker's machines."""
    query = {"query": f"SELECT count(*) FROM machines WHERE app = '{stage.attacker.app}' AND state != 'destroyed'"}
    counts = list[str]()
    with anyio.move_on_after(_DOWN_WITHIN_S):
        while True:
            replies = [await each.call("POST", "/hawker/v1/catalog/query", query) for each in stage.operators]
            counts = [reply.text for reply in replies]
            if all(reply.ok and '"row":[0' in reply.text.replace(" ", "") for reply in replies):
                return []
            await stage.clock.sleep(0.5)
    return [f"the replicas do not agree that no machine is left: {counts}"[:300]]


async def sql_queries(stage: Stage) -> Findings:
    """Queries of the catalog that do not end, and sorts that do not fit into memory, with a token that may read
    everything, as what collects metrics has one."""
    macaroon = mint(key_of(stage.operator.token), stage.clock.token_bytes(NONCE_BYTES), 0)
    token = to_text(narrow(macaroon, Actions("r")))
    queries = (
        "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c) SELECT max(x) FROM c",
        "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c LIMIT 9000000)"
        " SELECT hex(randomblob(200)) FROM c ORDER BY 1",
    )

    async def ask(query: str) -> Reply:
        return await stage.attacker.call(
            "POST", "/hawker/v1/catalog/query?timeout=600", {"query": query}, token=token, within_s=60.0
        )

    if not (first := await ask("SELECT 1")).ok:
        raise RuntimeError(f"no query is answered: {first.problem}")
    await storm(stage, 60, lambda number: ask(queries[number % 2]))
    return []


async def node_that_hangs(stage: Stage) -> Findings:
    """A node that takes connections and answers nothing: its daemon is stopped, its host is not lost."""
    async with _frozen(stage, host=False):
        await stage.clock.sleep(max(stage.seconds, 8.0))
    return await _all_alive(stage)


@asynccontextmanager
async def _frozen(stage: Stage, *, host: bool) -> AsyncIterator[None]:
    """The last node's daemon answers nothing for a while, or its whole `host`; before, no order goes there any more."""
    operator = stage.operators[-1]
    await told(operator, "cordon", stage.operator)
    await stage.clock.sleep(_ORDERS_END_S)
    try:
        with stage.ground.daemons[-1].frozen(host=host):
            yield
    finally:
        with anyio.CancelScope(shield=True):
            await told(operator, "uncordon", stage.operator)


async def _all_alive(stage: Stage) -> list[str]:
    with anyio.move_on_after(_DOWN_WITHIN_S):
        while await _believed_down(stage):
            await stage.clock.sleep(0.2)
    return await _believed_down(stage)


async def spare_for_a_lost_node(stage: Stage) -> Findings:
    """A spare of the attacker's for a machine of the bystander's on a node that is lost: it stays as it is, and the
    bystander's own spare starts."""
    watched = await _on_the_last_node(stage)
    spare = {"image": "hawker/hello", "standbys": [watched]}
    own = await stage.bystander.order(spare, skip_launch=True)
    try:
        foreign = await stage.attacker.order(spare, skip_launch=True)
        if not own.ok or not (foreign.ok or "is not one of app" in foreign.text):
            raise RuntimeError(f"there are no spares: {own.problem} {foreign.problem}")
        async with _frozen(stage, host=True):
            started = await stage.bystander.started(own.value["id"])
            found = [] if started.ok else [f"the bystander's own spare does not start: {started.problem}"]
            found += await _taken_over(stage, foreign.value["id"]) if foreign.ok else []
        return [*found, *await _all_alive(stage)]
    finally:
        with anyio.CancelScope(shield=True):
            for machine_id in (watched, *([own.value["id"]] if own.ok else ())):
                await stage.bystander.destroy(machine_id)


async def _on_the_last_node(stage: Stage) -> str:
    """A machine of the bystander's there. Raises `RuntimeError` when it is elsewhere."""
    for operator in stage.operators[:-1]:
        await told(operator, "cordon", stage.operator)
    try:
        reply = await stage.bystander.order({"image": "hawker/hello"})
    finally:
        for operator in stage.operators[:-1]:
            await told(operator, "uncordon", stage.operator)
    if not reply.ok or await _node_of(stage, reply.value["id"]) != stage.ground.daemons[-1].node_id:
        raise RuntimeError(f"no machine comes to the last node: {reply.problem}")
    return str(reply.value["id"])


async def _node_of(stage: Stage, machine_id: str) -> str:
    """Where the catalog of the first node says that it is."""
    query = {"query": f"SELECT node FROM machines WHERE id = '{machine_id}'"}
    with anyio.move_on_after(5.0):
        while True:
            reply = await stage.operator.call("POST", "/hawker/v1/catalog/query", query)
            for daemon in stage.ground.daemons:
                if reply.ok and daemon.node_id in reply.text:
                    return daemon.node_id
            await stage.clock.sleep(0.1)
    return ""


async def _taken_over(stage: Stage, spare: str) -> list[str]:
    machine = await stage.attacker.call("GET", f"{_MACHINES}/{spare}")
    started = machine.ok and machine.value["state"] != "stopped"
    return [f"the spare of another tenant is {machine.value['state']}"] if started else []


async def moves_nobody_ordered(stage: Stage) -> Findings:
    """Moves that a taken node offers and delivers to the first one, and what it asks of the bystander's volume in moves
    that nobody ordered: pieces, blocks, digests."""
    url, token, tls = _peer_url(stage), _node_token(stage), _as_a_node(stage)
    app = {"id": "app_x", "number": 1, "name": stage.bystander.app, "org": stage.bystander.app, "network": "default",
           "network_id": 1, "created_at": 0.0}  # fmt: skip
    ids, routes = (stage.bystander.volume, stage.bystander.keeper, "0" * 26), MOVE_PEER_ROUTES
    found = list[str]()

    async def ask(number: int) -> None:
        route, move_id = routes[number % len(routes)], ids[number // len(routes) % len(ids)]
        body = {"source": stage.ground.daemons[-1].node_id, "generation": 1 << 40, "app": app, "unit": _noise(stage),
                "spans": [[0, 4096]]}  # fmt: skip
        path = route.path.replace("{move_id}", move_id) + "?generation=1099511627776"
        sent = body if route.method == "POST" else None
        reply = await stage.attacker.call(route.method, path, sent, url=url, token=token, tls=tls)
        if (reply.ok and route is not DROP_INCOMING) or reply.status == 500:
            found.append(f"{route.method} {path}: {reply.status} {reply.text[:80]}")

    for number in range(len(routes) * len(ids)):
        await ask(number)
    await storm(stage, 24, ask)
    listed = await stage.operator.call("GET", "/hawker/v1/moves")
    found += [f"a move is kept: {each['id']}" for each in (listed.value["moves"] if listed.ok else ())]
    return found[:5]


async def turns_of_moves(stage: Stage) -> Findings:
    """The turn of the bystander's moves, asked for by a taken node for moves that there are not and in another node's
    name, and left in another move's name."""
    url, token, tls = _peer_url(stage), _node_token(stage), _as_a_node(stage)
    me, app, found = stage.ground.daemons[-1].node_id, stage.bystander.app, list[str]()

    async def ask(method: str, move: str, **said: object) -> Reply:
        path = f"/internal/v1/moves/{move}/turn"
        if method == "DELETE":
            path += f"?app={app}"
        body = None if method == "DELETE" else {"app": app, "node": me, **said}
        reply = await stage.attacker.call(method, path, body, url=url, token=token, tls=tls)
        if reply.status == 500:
            found.append(f"{method} {path}: 500 {reply.text[:80]}")
        return reply

    mine, other = "0" * 26, "1" * 26
    held = await ask("PUT", mine)
    await ask("DELETE", other)
    again = await ask("PUT", other)
    if held.ok and (not again.ok or again.value["move"] != held.value["move"]):
        found.append(f"a move's turn was ended in another's name: {again.text[:80]}")
    await storm(stage, 12, lambda number: ask("PUT", stage.clock.token_bytes(13).hex()))
    others = await ask("PUT", mine, node=stage.ground.daemons[0].node_id)
    if others.status != 403:
        found.append(f"a turn was asked for in another node's name: {others.status} {others.text[:80]}")
    for app_name in ("", "x" * 5000, "no-such-app"):
        if (await ask("PUT", mine, app=app_name)).ok:
            found.append(f"there is a turn of an app that is not there: {app_name[:20]!r}")
    await ask("DELETE", mine)
    free = await ask("PUT", other)
    if not held.ok or not free.ok or free.value["move"] != other:
        found.append(f"the turn was not had and left: {held.text[:60]}, then {free.text[:60]}")
    await ask("DELETE", other)
    return found[:5]


async def foreign_networks(stage: Stage) -> Findings:
    """The number of the bystander's private network, claimed for another organization by a taken node, beside numbers
    without end that nobody has."""
    url, token, tls = _peer_url(stage), _node_token(stage), _as_a_node(stage)
    number = IPv6Address(stage.bystander.addresses[stage.bystander.web]).packed[2:6].hex()
    taken = list[str]()

    async def ask(turn: int) -> None:
        own = turn % 4 == 0
        path = f"/internal/v1/networks/{number if own else stage.clock.token_bytes(4).hex()}"
        body = {"org": stage.attacker.app, "network": "default"}
        reply = await stage.attacker.call("POST", path, body, url=url, token=token, tls=tls)
        if own and reply.ok and reply.value["org"] == stage.attacker.app:
            taken.append(reply.text[:80])

    for _ in range(2):
        await ask(0)
    await storm(stage, 12, ask)
    return [f"the bystander's network is another's: {taken[0]}"] if taken else []


async def noise_in_the_mesh(stage: Stage) -> Findings:
    """Packets at the port of the tunnels between hosts: beginnings of handshakes, answers, cookies, data, and noise."""

    def flood() -> None:
        deadline = stage.clock.monotonic() + stage.seconds
        sizes = {1: 148, 2: 92, 3: 64, 4: 1400}
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.bind((stage.ground.attackers, 0))
            while stage.clock.monotonic() < deadline:
                noise = stage.clock.token_bytes(_PACKET_BYTES)
                for kind, size in sizes.items():
                    with suppress(OSError):
                        packet = kind.to_bytes(4, "little") + noise[: size - 4]
                        sender.sendto(packet, (stage.ground.itself, MESH_PORT))

    grown = await stage.growth_mib(partial(_several, flood, 2))
    found = [f"the daemon grew by {grown:.0f} MiB"] if grown > 64 else []
    return found + await _believed_down(stage)


def _scene(name: str, by: From, shared: str, attack: Attack, held_by: str) -> Scene:
    return Scene(name, by, shared, attack, held_by, ground=Ground.FLEET)


SCENES = (
    _scene("foreign ids at other nodes", From.TENANT, "brokers", foreign_ids_elsewhere, "each broker asks the caveats"),
    _scene(
        "an app's token between nodes", From.TENANT, "the nodes' port", token_at_the_peers_port, "tokens of the key"
    ),
    _scene(
        "a node's token for keys", From.PEER, "the cluster's keys", keys_for_a_nodes_token, "a list of what nodes ask"
    ),
    _scene(
        "calls without pause by a node", From.PEER, "loop time", calls_by_a_node, "one request of an address in a turn"
    ),
    _scene(
        "joins without an invitation", From.STRANGER, "the fleet", bad_joins, "proofs, 50 calls a second and address"
    ),
    _scene("noise as gossip", From.STRANGER, "membership", gossip_flood, "packets are sealed with the cluster's key"),
    _scene("nodes' ports held open", From.STRANGER, "connections", silent_peers, "places and deadlines of connections"),
    _scene("rows without pause", From.TENANT, "the catalog", row_flood, "rate limits, a row for each machine"),
    _scene("queries without an end", From.TENANT, "queries", sql_queries, "2 at once of a caller, 10 s, 512 MiB"),
    _scene("a node that hangs", From.PEER, "the market", node_that_hangs, "deadlines, the failure detector"),
    _scene(
        "moves that nobody ordered", From.PEER, "volumes", moves_nobody_ordered, "the owner's durable record of a move"
    ),
    _scene(
        "turns of moves that nobody ordered",
        From.PEER,
        "moves",
        turns_of_moves,
        "a turn is its move's and its certified node's, over ten minutes after it was last asked for, and for others"
        " after two hours",
    ),
    _scene(
        "another's network",
        From.PEER,
        "private networks",
        foreign_networks,
        "a number is for who asked first, for good",
    ),
    _scene("noise in the mesh", From.STRANGER, "tunnels", noise_in_the_mesh, "WireGuard between hosts"),
    _scene("a foreign spare, a lost node", From.TENANT, "failover", spare_for_a_lost_node, "the app is compared"),
)
