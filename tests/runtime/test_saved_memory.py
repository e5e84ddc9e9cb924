import pytest

from hawker.runtime.fake_driver import FakeDriver
from hawker.runtime.saved_memory import SavedBy, SavedMemories

HERE = SavedBy(vmm="QEMU emulator version 7.2.1, with KVM", cpu_model="EPYC 1")


@pytest.mark.parametrize(
    ("wrote", "said"),
    [
        (HERE, ""),
        (SavedBy(vmm="QEMU emulator version 7.2.2, with KVM", cpu_model="EPYC 1"), "version 7.2.2"),
        (SavedBy(vmm="QEMU emulator version 7.2.1, emulating", cpu_model="EPYC 1"), "emulating"),
        (SavedBy(vmm=HERE.vmm, cpu_model="EPYC 2"), "EPYC 2"),
    ],
)
def test_a_memory_goes_on_with_what_wrote_it_and_nothing_else(wrote: SavedBy, said: str) -> None:
    lacks = wrote.lacks(HERE)
    assert bool(lacks) is bool(said) and said in lacks


def test_a_node_that_suspends_nothing_to_disk_resumes_nothing() -> None:
    assert "nothing that resumes one" in HERE.lacks(SavedBy(vmm="", cpu_model=""))


def test_the_played_driver_keeps_what_moves_ask_for() -> None:
    assert issubclass(FakeDriver, SavedMemories)
