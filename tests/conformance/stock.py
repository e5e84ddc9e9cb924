"""Things that are there while a node is judged: each path's parameters are given the name of something that exists.

What a call destroys is made again before the next one needs it, what calls leave behind is cleared away now and then.
A kind of thing that the node does not serve is not in stock; its calls then go to what does not exist.
"""

import http.client
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec

from tests.certificates import issued
from tests.e2e.running_node import RunningNode

HELLO = "hawker/hello"
APP, SECRET, KEY = "judged", "LIVE", "live"
ORG = "personal"
_MACHINE = {"config": {"image": HELLO, "metadata": {KEY: "yes"}, "restart": {"policy": "no"}}}
_INSIDE = frozenset({"exec", "ps", "signal", "memory", "reclaim", "suspend"})
_AT_MOST = 8


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: Any


@dataclass(slots=True)
class Stock:
    """`served` remembers which collections the node did make something in."""

    node: RunningNode
    calls: int = 0
    found: dict[str, str] = field(default_factory=dict)

    def names(self, path: str) -> Mapping[str, str]:
        """Live values for the parameters of a path of either document; for as many of them as there are."""
        path = path if path.startswith(("/v1", "/hawker", "/internal")) else f"/v1{path}"
        self.calls += 1
        if self.calls % 25 == 0:
            self._clear()
        values = {"org_slug": ORG}
        if "{app_name}" in path:
            values["app_name"] = self._app()
        if "{machine_id}" in path:
            values["machine_id"] = self._machine(path)
            values["key"] = self._key(values["machine_id"])
        if "{secret_name}" in path:
            values["secret_name"] = self._secret(path)
        for parameter, maker in _MAKERS.items():
            if f"{{{parameter}}}" in path:
                values |= self._made(parameter, maker)
        return values

    def nonce(self, machine_id: str) -> str:
        """Of a lease that is held now."""
        answer = self.ask("POST", f"/v1/apps/{APP}/machines/{machine_id}/lease", {"ttl": 60})
        return str(answer.body["nonce"]) if answer.status == 201 else ""

    def ask(self, method: str, path: str, body: object = None, nonce: str = "") -> Answer:
        parts = urlsplit(self.node.url)
        connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=60)
        headers = {"Authorization": f"Bearer {self.node.token}", "fly-machine-lease-nonce": nonce}
        try:
            connection.request(method, path, None if body is None else msgspec.json.encode(body), headers)
            answer = connection.getresponse()
            data = answer.read()
            return Answer(answer.status, msgspec.json.decode(data) if data else None)
        finally:
            connection.close()

    def _app(self) -> str:
        if self.ask("GET", f"/v1/apps/{APP}").status != 200:
            made = self.ask("POST", "/v1/apps", {"name": APP, "org_slug": ORG})
            assert made.status == 201, made
        return APP

    def _machine(self, path: str) -> str:
        """One that is at rest and not leased; started where the call is about what runs."""
        machine_id = self.found.get("machine", "")
        there = self.ask("GET", f"/v1/apps/{APP}/machines/{machine_id}?include_leases=true") if machine_id else None
        if there is None or there.status != 200 or there.body["state"] in ("destroying", "destroyed", "failed"):
            made = self.ask("POST", f"/v1/apps/{APP}/machines", _MACHINE)
            assert made.status == 200, made
            there, machine_id = made, str(made.body["id"])
            ran = self.ask("GET", f"/v1/apps/{APP}/machines/{machine_id}/wait?state=started&timeout=60")
            assert ran.status == 200, f"the node runs no machines: {ran}"
            self.found["machine"] = machine_id
        where = f"/v1/apps/{APP}/machines/{machine_id}"
        if there.body.get("lease"):
            held = self.ask("GET", f"{where}/lease")
            self.ask("DELETE", f"{where}/lease", nonce=held.body["nonce"] if held.status == 200 else "")
        if there.body["state"] not in ("started", "stopped"):
            self.ask("GET", f"{where}/wait?state=settled&timeout=30")
        if path.rsplit("/", 1)[-1] in _INSIDE and there.body["state"] != "started":
            self.ask("POST", f"{where}/start")
            self.ask("GET", f"{where}/wait?state=started&timeout=60")
        return machine_id

    def _key(self, machine_id: str) -> str:
        self.ask("POST", f"/v1/apps/{APP}/machines/{machine_id}/metadata/{KEY}", {"value": "yes"})
        return KEY

    def _secret(self, path: str) -> str:
        """A secret, or a key of the type that the call can use."""
        if "/secretkeys/" in path:
            where = f"/v1/apps/{APP}/secretkeys/{SECRET}"
            kind = "hs256" if path.endswith(("/sign", "/verify")) else "xaes256gcm"
            there = self.ask("GET", where)
            if there.status != 200 or there.body["type"] != kind:
                self.ask("POST", f"{where}/generate", {"type": kind})
        else:
            self.ask("POST", f"/v1/apps/{APP}/secrets/{SECRET}", {"value": "s3cret"})
        return SECRET

    def _made(self, parameter: str, maker: "Maker") -> Mapping[str, str]:
        where, value = f"/v1/apps/{self._app()}/{maker.collection}", self.found.get(parameter)
        if value is None or self.ask("GET", f"{where}/{quote(value)}").status != 200:
            made = self.ask("POST", f"{where}{maker.below}", maker.body)
            if made.status not in (200, 201):
                return {}
            value = self.found[parameter] = str(made.body[maker.name])
        return {parameter: value}

    def _clear(self) -> None:
        """Away with machines and apps that calls have made, but for the one in stock."""
        listed = self.ask("GET", f"/v1/apps/{APP}/machines")
        for machine in listed.body if listed.status == 200 else ():
            if machine["id"] != self.found.get("machine"):
                self._destroy(machine["id"])
        for app in self.ask("GET", f"/v1/apps?org_slug={ORG}").body["apps"]:
            if app["name"] != APP:
                self.ask("DELETE", f"/v1/apps/{quote(app['name'], safe='')}?force=true")

    def _destroy(self, machine_id: str) -> None:
        where = f"/v1/apps/{APP}/machines/{machine_id}"
        held = self.ask("GET", f"{where}/lease")
        self.ask("DELETE", f"{where}?force=true", nonce=held.body["nonce"] if held.status == 200 else "")


@dataclass(frozen=True, slots=True)
class Maker:
    """How one of a collection below an app is made, at a path `below` the collection's, and the field of the answer
    that names it."""

    collection: str
    body: Mapping[str, object]
    name: str = "id"
    below: str = ""


def _certificate() -> Mapping[str, object]:
    chain, key = issued("judged.example.com")
    return {"hostname": "judged.example.com", "fullchain": chain, "private_key": key}


_MAKERS = {
    "volume_id": Maker("volumes", {"name": "data", "size_gb": 1, "encrypted": False}),
    "ip": Maker("ip_assignments", {"type": "private_v6"}, name="ip"),
    "hostname": Maker("certificates", _certificate(), name="hostname", below="/custom"),
    "policy_id": Maker(
        "network_policies",
        {
            "name": "judged",
            "selector": {"all": True},
            "rules": [{"action": "allow", "direction": "ingress", "ports": [{"protocol": "tcp", "port": 80}]}],
        },
    ),
}
