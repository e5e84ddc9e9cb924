"""What a machine takes of this node while it runs: what its config asks for and, where it has a kernel of its own, what
the monitor around it needs beside the guest's memory.
"""

import msgspec

from hawker.config import MachineConfig
from hawker.node import Resources
from hawker.worker.lifecycle.deps import Deps
from hawker.worker.lifecycle.environment import resources


def room_for(deps: Deps, config: MachineConfig) -> Resources:
    asked = resources(config, deps.settings.machine_disk_mib)
    return msgspec.structs.replace(asked, memory_mib=asked.memory_mib + overhead_mib(deps))


def overhead_mib(deps: Deps) -> int:
    """Of memory, of every machine whatever its size."""
    return deps.driver.features.overhead_mib
