"""A machine of plain processes, for tests that look at how its pilot and its files are handled."""

import os

from hawker.ids import InstanceId, MachineId
from hawker.runtime import proc
from hawker.runtime.process import MARK
from hawker.runtime.spec import FileSpec, InstanceLimits, InstanceSpec, ProcessSpec

MACHINE = MachineId("0123456789abcd")


def spec(command: str, *, instance: str = "instance-of-test-process", files: tuple[FileSpec, ...] = ()) -> InstanceSpec:
    return InstanceSpec(
        machine_id=MACHINE,
        instance_id=InstanceId(f"{instance}-{os.getpid()}"),
        hostname="unused",
        processes=(ProcessSpec(argv=("/bin/sh", "-c", command), env={}),),
        files=files,
        limits=InstanceLimits(cpus=1, cpu_weight=1, memory_mib=1, pids=1),
    )


def marked(of: InstanceSpec) -> list[int]:
    return proc.marked(f"{MARK}={of.instance_id}".encode())
