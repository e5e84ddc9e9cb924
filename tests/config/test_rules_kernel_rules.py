import pytest

from hawker.config import Guest, Init, MachineConfig
from hawker.config.rules import MAX_ARGS, MAX_CHARS, kernel_args


def complaints(*args: str, of_init: tuple[str, ...] = ()) -> list[str]:
    return list(kernel_args(MachineConfig(guest=Guest(kernel_args=args), init=Init(kernel_args=of_init))))


@pytest.mark.parametrize(
    "arg", ["quiet", "mitigations=off", "transparent_hugepage=never", "init_on_alloc=1", "a.b='c'"]
)
def test_a_kernel_may_be_told_what_concerns_its_machine_alone(arg: str) -> None:
    assert complaints(arg) == [] == complaints(of_init=(arg,))


@pytest.mark.parametrize("arg", ["a b", "", 'a="b', "ä", "a\nb", "a\0"])
def test_a_word_that_would_be_another_argument_is_refused(arg: str) -> None:
    [said] = complaints("quiet", arg)
    assert said.startswith("guest.kernel_args[1] must be printable ASCII")


@pytest.mark.parametrize(
    "arg", ["hawker.disks=vda", "HAWKER.end=reboot", "rdinit=/bin/sh", "init=/x", "panic=0", "console=ttyS1", "mem=1G"]
)
def test_a_word_of_the_node_itself_is_refused_however_it_is_written(arg: str) -> None:
    assert complaints(of_init=(arg,)) == [f"init.kernel_args[0] is the node's to say: {arg!r}"]


def test_dashes_are_underscores_to_a_kernel() -> None:
    assert complaints("nr-cpus=1") == ["guest.kernel_args[0] is the node's to say: 'nr-cpus=1'"]


def test_nothing_is_passed_on_to_the_first_program() -> None:
    assert complaints("--")[0].startswith("guest.kernel_args[0] ends the kernel's arguments")


def test_guest_and_init_are_counted_together() -> None:
    half = tuple(f"a{number}" for number in range(MAX_ARGS // 2))
    assert complaints(*half, of_init=half) == []
    assert complaints(*half, "b", of_init=half) == [
        f"guest.kernel_args has more than {MAX_ARGS} items, with those of init"
    ]
    long = "x" * (MAX_CHARS // 2)
    assert "characters" in complaints(long, of_init=(long,))[0]
