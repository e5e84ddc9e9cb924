"""How long deploys take on one node: an app of so many machines with one check, by our usual pace, by that of a client
that watches each machine for 10 s, by bluegreen, all at once, and a release that crashes until all is as before; and
the accepts.

    python bench/deploys.py [machines]
"""

import statistics
import sys
import time

from bench_node import APP, BenchNode, bench_node

_DEPLOYS = f"/hawker/v1/apps/{APP}/deploys"
_CHECK = {"type": "http", "port": 8080, "path": "/health", "interval": "2s", "timeout": "1s"}
_RETRY = [{"policy": "always"}]


def _definition(version: int, smoke_rest: str, **more: object) -> dict[str, object]:
    own = {"deploy": {"smoke": "10s", "smoke_rest": smoke_rest}}
    vm = [{"memory": "256mb"}]
    return {"env": {"VERSION": str(version)}, "vm": vm, "checks": {"up": _CHECK}, "hawker": own, **more}


def _deploy(node: BenchNode, definition: object, **body: object) -> tuple[dict[str, object], float, float]:
    """How it ended, seconds until it was accepted, and until it had ended."""
    began = time.perf_counter()
    found = node.call("POST", _DEPLOYS, {"definition": definition, "image": "hawker/hello", **body})
    accepted_s = time.perf_counter() - began
    while "ended_at" not in found:
        found = node.call("GET", f"{_DEPLOYS}/{found['version']}?after={found['serial']}&wait=20")
    return found, accepted_s, time.perf_counter() - began


def main(machines: int) -> None:
    with bench_node() as node:
        _deploy(node, _definition(1, "0s"))
        _deploy(node, _definition(1, "0s"), counts={"app": machines}, strategy="rolling")
        crash = {"experimental": {"cmd": ["exit", "1"]}, "restart": _RETRY, "checks": {}}
        rows = (
            ("rolling, 0.33, usual pace (3 s for each but the first)", _definition(2, "3s"), {}),
            ("rolling, 0.33, each watched for 10 s", _definition(3, "10s"), {}),
            ("bluegreen, usual pace", _definition(4, "3s"), {"strategy": "bluegreen"}),
            ("immediate", _definition(5, "3s"), {"strategy": "immediate"}),
            ("rolling, a release that crashes, until all is as before", _definition(6, "3s", **crash), {}),
        )
        accepts = []
        print(f"| {machines} machines, one check | seconds | ended | machines ever on it |\n|---|---:|---|---:|")
        for name, definition, body in rows:
            found, accepted_s, took_s = _deploy(node, definition, **body)
            slots = found["slots"]
            assert isinstance(slots, list)
            touched = sum(slot["state"] != "waiting" for slot in slots)
            print(f"| {name} | {took_s:.1f} | {found['status']} | {touched} |")
            accepts.append(accepted_s * 1000)
        print(f"\naccept: p50 {statistics.median(accepts):.1f} ms, at most {max(accepts):.1f} ms")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
