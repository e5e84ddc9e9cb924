"""Facts about what every driver refuses of containers."""

import msgspec
import pytest

from hawker.errors import BadRequest, NotServed, WrongState
from hawker.ids import InstanceId, MachineId
from hawker.runtime.driver import (
    MAX_PROCESSES,
    Exit,
    Features,
    ProcessPhase,
    ProcessState,
    may_begin,
    process_of,
    refuse_conclusion,
    refuse_containers,
)
from hawker.runtime.spec import FileSpec, InstanceLimits, InstanceSpec, MountSpec, ProcessSpec

ALL = Features(rootfs=True, network=True, limits=True, containers=True)
M = MachineId("0123456789abcd")
PLAIN = ProcessSpec(argv=("true",), env={})
WEB = msgspec.structs.replace(PLAIN, name="web", root="/roots/web")
NEVER, RUNS = ProcessState(name="web"), ProcessState(name="web", state=ProcessPhase.RUNNING, run=2)
ENDED = ProcessState(name="web", state=ProcessPhase.EXITED, run=2, last_exit=Exit(exit_code=1, exited_at=1.0))


def spec(*processes: ProcessSpec) -> InstanceSpec:
    limits = InstanceLimits(cpus=1, cpu_weight=1, memory_mib=1, pids=1)
    return InstanceSpec(machine_id=M, instance_id=InstanceId("I"), hostname="h", processes=processes, limits=limits)


def test_containers_with_names_of_their_own_are_served() -> None:
    refuse_containers(spec(WEB, msgspec.structs.replace(WEB, name="db-1.a_b")), "fake", ALL)
    refuse_containers(spec(PLAIN, PLAIN), "fake", ALL)


def test_a_driver_without_containers_says_so() -> None:
    without = Features(rootfs=True, network=True, limits=True)
    with pytest.raises(NotServed, match="the fake driver cannot serve `containers`"):
        refuse_containers(spec(WEB), "fake", without)
    refuse_containers(spec(PLAIN), "fake", without)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "-a", "a" * 64, "a\n"])
def test_a_text_that_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(BadRequest, match="no name"):
        refuse_containers(spec(msgspec.structs.replace(WEB, name=name)), "fake", ALL)


def test_two_of_one_name_are_refused() -> None:
    with pytest.raises(BadRequest, match="same name"):
        refuse_containers(spec(WEB, WEB), "fake", ALL)


@pytest.mark.parametrize("count", [0, MAX_PROCESSES + 1])
def test_the_number_of_processes_is_bounded(count: int) -> None:
    with pytest.raises(BadRequest, match=f"not {count}"):
        refuse_containers(spec(*[PLAIN] * count), "fake", ALL)


def test_mounts_and_files_need_a_root_of_their_own() -> None:
    with pytest.raises(BadRequest, match="own"):
        refuse_containers(spec(msgspec.structs.replace(PLAIN, files=(FileSpec(path="/a", content=b""),))), "fake", ALL)
    mount = MountSpec(source="/a", target="/b")
    with pytest.raises(BadRequest, match="own"):
        refuse_containers(spec(msgspec.structs.replace(PLAIN, mounts=(mount,))), "fake", ALL)


def test_a_process_is_found_by_its_number() -> None:
    assert process_of(spec(PLAIN, WEB), 1) is WEB
    for index in (-1, 2):
        with pytest.raises(BadRequest, match=f"no process number {index}"):
            process_of(spec(PLAIN, WEB), index)


def test_the_next_run_may_begin_and_an_earlier_one_has_begun() -> None:
    assert may_begin(M, NEVER, 1)
    assert may_begin(M, ENDED, 3)
    assert not may_begin(M, RUNS, 2)
    assert not may_begin(M, ENDED, 1)


def test_a_run_out_of_its_turn_is_refused() -> None:
    with pytest.raises(WrongState, match=r"run 2 of container web .* goes on"):
        may_begin(M, RUNS, 3)
    with pytest.raises(WrongState, match="had 2 runs; 4 is not the next"):
        may_begin(M, ENDED, 4)
    with pytest.raises(BadRequest):
        may_begin(M, NEVER, 0)


def test_only_what_has_ended_concludes() -> None:
    refuse_conclusion(M, ENDED)
    for state in (NEVER, RUNS):
        with pytest.raises(WrongState, match=f"is {state.state.value}, and has not ended"):
            refuse_conclusion(M, state)
