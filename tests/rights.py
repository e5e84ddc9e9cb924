"""What the kernel lets a process do."""

from pathlib import Path

from hawker.host.own_user import Capability
from hawker.host_ids import service_users
from hawker.settings import Settings

EDGE, RESOLVER = service_users(Settings(data_dir=Path()).userns_ids)


def rights_of(pid: int) -> tuple[set[int], set[int]]:
    """The numbers of its users and groups, and those of its capabilities."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    users = {int(each) for name in ("Uid", "Gid", "Groups") for each in status[name].split()}
    permitted = int(status["CapPrm"], 16)
    return users, {number for number in range(64) if permitted >> number & 1}


def nobody(user: int, *kept: Capability) -> tuple[set[int], set[int]]:
    """As `rights_of` tells a process that is `user` and has nothing else."""
    return {user}, {int(each) for each in kept}
