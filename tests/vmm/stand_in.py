"""A program that stands in for an API-driven VMM: started with the same options, it listens, validates, keeps state,
and its guest is a real pilot.

    python -m tests.vmm.stand_in firecracker|cloud-hypervisor OPTIONS
"""

import os
import sys
from pathlib import Path

from tests.vmm.guests import Guest
from tests.vmm.pilot_guest import PilotGuest
from tests.vmm.played_cloud_hypervisor import PlayedCloudHypervisor
from tests.vmm.played_firecracker import PlayedFirecracker
from tests.vmm.vmm_server import PlayedVmm, VmmServer


def main(name: str, options: list[str]) -> None:
    if options == ["--version"]:
        print({"firecracker": "Firecracker v1.16.1", "cloud-hypervisor": "cloud-hypervisor v53.0"}[name])
        return
    given = dict(zip(options[::2], options[1::2], strict=True))
    path = Path(given["--api-sock"] if name == "firecracker" else given["--api-socket"].removeprefix("path="))
    os.chdir(path.parent)
    guest = PilotGuest(path.parent)
    with VmmServer(Path(path.name), _played(name, guest), on_seen=_tell) as server:
        server.serve_forever(poll_interval=0.5)


def _played(name: str, guest: Guest) -> PlayedVmm:
    return PlayedFirecracker(guest) if name == "firecracker" else PlayedCloudHypervisor(guest)


def _tell(operation: str, body: object, status: int) -> None:
    """On its console, where a VMM logs."""
    if status >= 400:
        print(f"{operation} {body} -> {status}", flush=True)


def wrapper(name: str, place: Path) -> Path:
    """A program of that name in a directory."""
    place.mkdir(parents=True, exist_ok=True)
    made = place / name
    root = Path(__file__).parents[2]
    made.write_text(f'#!/bin/sh\nPYTHONPATH={root} exec {sys.executable} -m tests.vmm.stand_in {name} "$@"\n')
    made.chmod(0o755)
    return made


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
