"""Whether this host can give machines swap: it must have some, and its kernel must account for it by control group."""

from pathlib import Path

from hawker.errors import NotFound
from hawker.host.cgroup import Cgroups

_SWAPS = Path("/proc/swaps")
_V1, _V2 = "memory.memsw.limit_in_bytes", "memory.swap.max"


def lack_of_swap(cgroups: Cgroups, swaps: Path = _SWAPS) -> str:
    """What is missing, and what would help; "" where nothing is."""
    if len(swaps.read_text().splitlines()) < 2:
        return "this host has no swap (swapon gives it some; then start the node again)"
    try:
        tree = cgroups.tree("memory")
    except NotFound:
        return "this host has no memory control groups"
    accounted = (tree / _V1).exists() or any(tree.glob(f"*/{_V2}"))
    return "" if accounted else "this host's kernel does not account for swap (boot it with swapaccount=1)"
