"""What machines of several containers run in the simulator: servers, one of which waits for the health of another and
for the end of a third, beside a job that fails until its tries are used up; or jobs alone, whose end is its own."""

from typing import Any

WORDS = ("containers", "batch")


def containers_for(word: str) -> list[dict[str, Any]] | None:
    """Of an order that says so."""
    return {"containers": containers, "batch": batch}[word]() if word in WORDS else None


def containers() -> list[dict[str, Any]]:
    needs = [{"name": "init", "condition": "exited_successfully"}, {"name": "db", "condition": "healthy"}]
    check = {"name": "db-up", "tcp": {"port": 5432}, "interval": 5, "unhealthy": "stop"}
    return [
        _container("web", "serve", _again(), depends_on=needs),
        _container("db", "serve", _again(), healthchecks=[check]),
        _container("init", "sleep 2", {"policy": "no"}),
        _container("job", "sleep 3; exit 1", _again(), depends_on=[{"name": "db"}]),
    ]


def batch() -> list[dict[str, Any]]:
    after = [{"name": "init", "condition": "exited_successfully"}]
    return [
        _container("init", "sleep 2", {"policy": "no"}),
        _container("job", "sleep 3; exit 1", _again(), depends_on=after),
        _container("late", "sleep 1; exit 2", {"policy": "no"}, depends_on=[{"name": "job"}]),
    ]


def _container(name: str, command: str, restart: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": name, "image": "hawker/hello", "exec": ["sh", "-c", command], "restart": restart, **more}


def _again() -> dict[str, Any]:
    return {"policy": "on-failure", "max_retries": 2}
