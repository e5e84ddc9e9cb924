"""The PyPI package fly-python-sdk, driven over its own JSON lines, in an environment of its own.

`{"at": ["my-org", "my-app", "machine-id"], "call": "inspect", "arguments": {...}}` in, `{"answer": ...}` or
`{"error": "..."}` out. `at` is an org, an app of it, a machine of that, as far as the call needs. An answer was read
into the package's own types before it is written. HAWKER_URL and HAWKER_TOKEN say where the node is.
"""

import asyncio
import json
import os
import sys
from typing import Any

from fly_python_sdk.fly import Fly
from fly_python_sdk.fly.api import FlyApi
from fly_python_sdk.models.machine import FlyMachine
from pydantic import BaseModel


def point_at(url: str) -> None:
    """There is no public way: only the innermost class takes a base URL, and nothing passes one on."""
    assert FlyApi.__init__.__defaults__ is not None
    FlyApi.__init__.__defaults__ = (*FlyApi.__init__.__defaults__[:-1], url)


def subject(at: list[str]) -> Any:
    found: Any = Fly(os.environ["HAWKER_TOKEN"])
    for kind, name in zip(("Org", "App", "Machine"), at, strict=False):
        found = getattr(found, kind)(name)
    return found


def typed(arguments: dict[str, Any]) -> dict[str, Any]:
    """Machines to be made are the package's own values."""
    made = {key: FlyMachine(**value) for key, value in arguments.items() if key == "machine"}
    many = {key: [FlyMachine(**each) for each in value] for key, value in arguments.items() if key == "machines"}
    return arguments | made | many


def plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    return [plain(each) for each in value] if isinstance(value, list) else value


def answer(line: dict[str, Any]) -> dict[str, Any]:
    try:
        call = getattr(subject(line["at"]), line["call"])
        return {"answer": plain(asyncio.run(call(**typed(line["arguments"]))))}
    except Exception as error:  # noqa: BLE001  # whatever the package raises is what its caller would see
        return {"error": f"{type(error).__name__}: {error}"}


def surface() -> list[str]:
    """What can be called, by the class that has it."""
    kinds = {type(subject(["org", "app", "machine"][:depth])) for depth in (1, 2, 3)}
    return sorted(
        f"{kind.__name__}.{name}"
        for kind in kinds
        for name, value in vars(kind).items()
        if not name.startswith("_") and asyncio.iscoroutinefunction(value)
    )


def say(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    point_at(os.environ["HAWKER_URL"])
    say({"answer": surface()})
    for line in sys.stdin:
        say(answer(json.loads(line)))
