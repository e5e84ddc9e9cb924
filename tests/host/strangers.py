"""A process of the host that has a mount namespace of its own: whatever is mounted now stays mounted there."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.waiting import wait_for


@contextmanager
def stranger() -> Iterator[int]:
    """Its process id, until the block ends."""
    own = Path("/proc/self/ns/mnt").readlink()
    command = ["unshare", "-m", "--propagation", "private", "sleep", "600"]
    with subprocess.Popen(command) as process:
        try:
            wait_for(lambda: Path(f"/proc/{process.pid}/ns/mnt").readlink() != own)
            wait_for(lambda: Path(f"/proc/{process.pid}/comm").read_text() == "sleep\n")
            yield process.pid
        finally:
            process.kill()
