"""Facts about the fake host itself: one place per machine, faults in order, signals recorded."""

import signal

import pytest

from hawker.clock import ManualClock
from hawker.errors import Unavailable
from hawker.ids import InstanceId, MachineId
from hawker.runtime.driver import FileSpec, InstanceSpec, Limits, Phase, ProcessSpec
from hawker.runtime.fake_host import FakeHost, Fault, Instance, contents

MACHINE = MachineId("0123456789abcd")


def _spec(*argv: str) -> InstanceSpec:
    return InstanceSpec(
        machine_id=MACHINE,
        instance_id=InstanceId("I1"),
        hostname="host",
        processes=(ProcessSpec(argv=argv or ("server",), env={}),),
        files=(FileSpec(path="/a", content=b"words"),),
        limits=Limits(cpus=1, cpu_weight=100, memory_mib=64, pids=10),
    )


@pytest.fixture
def host() -> FakeHost:
    return FakeHost(ManualClock())


def _launched(host: FakeHost, *argv: str) -> Instance:
    instance = host.place(_spec(*argv))
    host.launch(instance)
    return instance


def test_an_instance_without_its_directory_is_found_by_nobody_until_it_is_ended(host: FakeHost) -> None:
    instance = _launched(host)
    host.lose_directory(MACHINE)
    assert host.look(MACHINE) is None and host.loose == {MACHINE} and not instance.ended.is_set()
    host.lose_directory(MACHINE)
    host.remove(MACHINE)
    assert not host.loose


def test_every_launch_has_a_process_id_of_its_own(host: FakeHost) -> None:
    assert _launched(host).pid != _launched(host).pid


def test_an_instance_that_is_due_has_ended_when_somebody_looks(host: FakeHost) -> None:
    _launched(host, "sleep", "0")
    found = host.look(MACHINE)
    assert found is not None and found.phase is Phase.EXITED and found.ended.is_set()


def test_faults_befall_calls_in_the_order_scripted(host: FakeHost) -> None:
    first, second = Fault(Unavailable("one")), Fault(delay_s=2.0)
    host.script("start", first, second)
    assert host.fault("stop") == Fault()
    assert [host.fault("start"), host.fault("start"), host.fault("start")] == [first, second, Fault()]


@pytest.mark.parametrize("number", [signal.SIGWINCH, signal.SIGCHLD, signal.SIGCONT])
def test_signals_that_end_nothing_are_only_recorded(host: FakeHost, number: signal.Signals) -> None:
    instance = _launched(host)
    host.deliver(instance, number)
    assert instance.phase is Phase.RUNNING
    assert host.signals(MACHINE) == [number]


def test_removing_a_running_machine_ends_who_waits_for_it(host: FakeHost) -> None:
    instance = _launched(host)
    host.remove(MACHINE)
    assert instance.exit is not None and instance.exit.signal == signal.SIGKILL
    assert (host.machines(), host.look(MACHINE), host.signals(MACHINE)) == ([], None, [])


def test_ending_what_does_not_run_is_no_change(host: FakeHost) -> None:
    host.end(MACHINE, 1)
    instance = _launched(host, "exit", "3")
    host.end(MACHINE, 9)
    assert instance.exit is not None and instance.exit.exit_code == 3


def test_files_are_known_by_path() -> None:
    assert contents(_spec()) == {"/a": b"words"}
