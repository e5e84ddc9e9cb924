"""A history as the command line is told it."""

from datetime import timedelta
from typing import Any

import msgspec

from hawker.api.contract.run import HistoryVersion, Kept, MachineHistory, RunStep
from hawker.config import MachineConfig, with_guest
from tests.cli.fake_node import AT, LAUNCHED, RUN, exit_event


def history(machine_id: str = "3d8f0000000001", **fields: Any) -> MachineHistory:
    """Ordered at `AT`, created by a run of two tries, ended a minute later."""
    milliseconds = int(AT.timestamp() * 1000)
    failed = RunStep(name="rootfs", state="retry", attempts=1, started_at=AT, ended_at=AT, error="no space left")
    done = msgspec.structs.replace(RUN.steps[0], attempts=2)
    whole: dict[str, Any] = {
        "id": machine_id,
        "app": "shop",
        "name": "web",
        "node": "00c0ffee",
        "region": "local",
        "state": "destroyed",
        "image": "registry.local/web:3",
        "image_digest": "sha256:00",
        "version": "01V1",
        "private_ip": "fdaa::3",
        "created_at": AT,
        "updated_at": AT,
        "kept": Kept.ARCHIVE,
        "versions": (
            HistoryVersion(
                version="01V1",
                created_at=AT - timedelta(milliseconds=1),
                image="registry.local/web:3",
                image_digest="sha256:00",
                user_config=with_guest(MachineConfig(image="registry.local/web:3")),
            ),
        ),
        "events": (
            msgspec.structs.replace(LAUNCHED, timestamp=milliseconds),
            msgspec.structs.replace(exit_event(7), timestamp=milliseconds + 60_000),
        ),
        "runs": (msgspec.structs.replace(RUN, steps=(failed, done)),),
    }
    return MachineHistory(**{**whole, **fields})
