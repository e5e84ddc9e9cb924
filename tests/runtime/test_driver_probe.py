import pytest

from hawker.errors import CannotStart
from hawker.runtime.driver_probe import Candidate, DriverVerdict, choose, judge, marked
from hawker.runtime.kernel.kvm_trial import KvmTrial

pytestmark = pytest.mark.anyio


async def fine() -> None: ...


async def lacking() -> None:
    raise CannotStart("a tool is missing: apt-get install tool")


async def boots() -> KvmTrial:
    return KvmTrial(boots=True, reason="boots a kernel with KVM in 0.2 s")


async def boots_not() -> KvmTrial:
    return KvmTrial(boots=False, reason="KVM answers, but no kernel came up")


async def never() -> KvmTrial:
    raise AssertionError("nothing is tried of what cannot be run anyway")


async def unreadable() -> KvmTrial:
    raise PermissionError(13, "Permission denied", "/dev/kvm")


def verdict(name: str, *, usable: bool = True, by_itself: bool = True) -> DriverVerdict:
    return DriverVerdict(name=name, usable=usable, reason=f"about {name}", by_itself=by_itself)


@pytest.mark.parametrize(
    ("candidate", "usable", "by_itself", "reason"),
    [
        (Candidate("container", fine, works="all is there"), True, True, "all is there"),
        (Candidate("container", lacking), False, False, "a tool is missing: apt-get install tool"),
        (Candidate("firecracker", fine, trial=boots), True, True, "boots a kernel with KVM in 0.2 s"),
        (Candidate("firecracker", fine, trial=boots_not), False, False, "KVM answers, but no kernel came up"),
        (Candidate("firecracker", lacking, trial=never), False, False, "a tool is missing: apt-get install tool"),
        (Candidate("firecracker", fine, trial=unreadable), False, False, "Permission denied"),
        (Candidate("qemu", fine, trial=boots, emulates=True), True, True, "boots a kernel with KVM in 0.2 s"),
        (Candidate("qemu", fine, trial=boots_not, emulates=True), True, False, "emulates, which is slow"),
        (Candidate("qemu", lacking, trial=never, emulates=True), False, False, "a tool is missing"),
    ],
)
async def test_a_driver_is_judged_by_what_it_lacks_and_what_was_tried(
    candidate: Candidate, usable: bool, by_itself: bool, reason: str
) -> None:
    [found] = await judge([candidate])
    assert (found.name, found.usable, found.by_itself, found.chosen) == (candidate.name, usable, by_itself, False)
    assert reason in found.reason


async def test_an_emulating_driver_says_also_why_kvm_does_not_do() -> None:
    [found] = await judge([Candidate("qemu", fine, trial=boots_not, emulates=True)])
    assert "KVM answers, but no kernel came up" in found.reason


def chosen(verdicts: tuple[DriverVerdict, ...]) -> list[str]:
    return [each.name for each in verdicts if each.chosen]


def test_the_first_that_works_by_itself_is_chosen() -> None:
    verdicts = [
        verdict("cloud-hypervisor", usable=False, by_itself=False),
        verdict("qemu", by_itself=False),
        verdict("container"),
        verdict("process"),
    ]
    assert chosen(choose(verdicts, None)) == ["container"]


def test_a_driver_stays_for_as_long_as_there_are_machines_of_it() -> None:
    verdicts = [verdict("qemu", by_itself=False), verdict("container"), verdict("process")]
    assert chosen(choose(verdicts, "process")) == ["process"]
    assert chosen(choose(verdicts, "qemu")) == ["qemu"]


@pytest.mark.parametrize(("bound", "why"), [("qemu", "about qemu"), ("gone", "not known any more")])
def test_machines_are_never_left_to_another_driver(bound: str, why: str) -> None:
    verdicts = [verdict("qemu", usable=False, by_itself=False), verdict("container")]
    with pytest.raises(CannotStart, match=f"machines here are of the driver {bound}, which cannot run .*: .*{why}"):
        choose(verdicts, bound)


def test_where_nothing_works_it_says_why_of_each() -> None:
    verdicts = [verdict("qemu", by_itself=False), verdict("container", usable=False, by_itself=False)]
    with pytest.raises(CannotStart, match=r"no driver can run machines here: qemu: about qemu; container: about"):
        choose(verdicts, None)


def test_one_is_chosen_at_a_time() -> None:
    again = marked(marked((verdict("qemu"), verdict("container")), "qemu"), "container")
    assert chosen(again) == ["container"]
