"""Runs five-step workflows on DBOS with SQLite for a while and prints how long each took, as JSON, for
`bench/engine.py`. It runs in a virtual environment of its own, where Hawker is not.

    python bench/peers/dbos_sqlite.py DIRECTORY AT_ONCE SECONDS

What it guarantees, as it comes: a workflow's start, each step's output and the workflow's end are each a SQLite
transaction of its own, with a rollback journal and `synchronous = FULL`. A step that had no recorded output is called
again after a crash. Workflows are called from one thread per caller, which does more here than its asyncio interface.
"""

import json
import sys
import time
from threading import Thread

from dbos import DBOS

WARM_UP_S = 0.3


@DBOS.step()
def image(instance_id: str) -> dict[str, object]:
    return {"instance_id": instance_id, "pid": 4242}


@DBOS.step()
def rootfs(instance_id: str) -> dict[str, object]:
    return {"instance_id": instance_id, "pid": 4242}


@DBOS.step()
def network(instance_id: str) -> dict[str, object]:
    return {"instance_id": instance_id, "pid": 4242}


@DBOS.step()
def launch(instance_id: str) -> dict[str, object]:
    return {"instance_id": instance_id, "pid": 4242}


@DBOS.step()
def check(instance_id: str) -> dict[str, object]:
    return {"instance_id": instance_id, "pid": 4242}


@DBOS.workflow()
def five(instance_id: str, start: bool) -> None:
    for step in (image, rootfs, network, launch, check):
        step(instance_id)


def callers(at_once: int, seconds: float) -> dict[str, object]:
    latency_ms: list[float] = []
    began = time.perf_counter()

    def call() -> None:
        while (called := time.perf_counter()) < began + seconds:
            five("01ARZ3NDEKTSV4RRFFQ69G5FAV", True)
            latency_ms.append((time.perf_counter() - called) * 1000)

    threads = [Thread(target=call) for _ in range(at_once)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"seconds": time.perf_counter() - began, "latency_ms": latency_ms}


def main(directory: str, at_once: str, seconds: str) -> None:
    database = f"sqlite:///{directory}/dbos.sqlite"
    config = {"name": "bench", "system_database_url": database, "log_level": "ERROR", "run_admin_server": False}
    DBOS(config=config)
    DBOS.launch()
    callers(int(at_once), WARM_UP_S)
    found = callers(int(at_once), float(seconds))
    json.dump(found, sys.stdout)
    sys.stdout.flush()
    DBOS.destroy()


if __name__ == "__main__":
    main(*sys.argv[1:])
