"""An app and what flyctl asks of it, in JSON as it is sent."""

from typing import Any

from tests.clients.wire import Wire

LAUNCHED_BY_FLYCTL = {"fly_platform_version": "v2", "fly_process_group": "app"}
ANSWERS_MACHINES = ("list", "list with leases", "get", "get with its lease")


class App:
    """An app of the test's own and what flyctl asks of it, in JSON as it is sent."""

    def __init__(self, wire: Wire, name: str, sleeper: dict[str, Any]) -> None:
        self.wire, self.sleeper = wire, sleeper
        self.path = f"/v1/apps/{name}"
        wire.ask("POST", "/v1/apps", {"app_name": name, "org_slug": "traps"}, status=201)

    def close(self) -> None:
        self.wire.ask("DELETE", f"{self.path}?force=true", status=202)

    def at(self, machine_id: str, rest: str = "") -> str:
        return f"{self.path}/machines/{machine_id}{rest}"

    def order(self, *, fields: dict[str, Any] | None = None, **config: Any) -> Any:
        body = {"config": self.sleeper | {"metadata": LAUNCHED_BY_FLYCTL} | config, **(fields or {})}
        return self.wire.ask("POST", f"{self.path}/machines", body)

    def run(self, **config: Any) -> Any:
        """As it is once it has started."""
        made = self.order(**config)
        self.wait(made["id"], "started")
        return self.get(made["id"])

    def get(self, machine_id: str, query: str = "") -> Any:
        return self.wire.ask("GET", self.at(machine_id, query))

    def list(self, query: str = "") -> Any:
        return self.wire.ask("GET", f"{self.path}/machines{query}")

    def wait(self, machine_id: str, state: str) -> None:
        self.wire.waits(self.at(machine_id), state)

    def do(self, machine_id: str, action: str, body: object = None) -> Any:
        return self.wire.ask("POST", self.at(machine_id, f"/{action}"), body)

    def shown(self, machine_id: str) -> dict[str, Any]:
        """The machine in every answer that has machines, destroyed ones too."""
        (listed,) = [each for each in self.list("?include_deleted=true") if each["id"] == machine_id]
        (leased,) = [
            each for each in self.list("?include_deleted=true&include_leases=true") if each["id"] == machine_id
        ]
        return dict(
            zip(
                ANSWERS_MACHINES,
                (listed, leased, self.get(machine_id), self.get(machine_id, "?include_leases=true")),
                strict=True,
            )
        )
