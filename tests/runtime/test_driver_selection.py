"""What is decided on this host, whatever it has. That a node really starts so is in tests/e2e."""

import os
import shutil
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from hawker.clock import SystemClock
from hawker.errors import CannotStart
from hawker.host.facts import read_facts
from hawker.ids import NodeId
from hawker.place import Place
from hawker.runtime.driver_probe import DriverVerdict
from hawker.runtime.driver_selection import MICROVMS, NAMES, DriverSelection
from hawker.runtime.kernel.kvm_trial import CONTENDERS, KvmTrial, KvmTrials
from hawker.settings import Settings
from tests.kernel import own_kernels

pytestmark = pytest.mark.anyio


def selection(data: Path, driver: str | None = None, *, root: bool | None = None) -> DriverSelection:
    facts = read_facts()
    facts = facts if root is None else replace(facts, root=root)
    return DriverSelection(Settings(data_dir=data, driver=driver), facts, Place(data), SystemClock())


def chosen(verdicts: tuple[DriverVerdict, ...]) -> str:
    [found] = [verdict for verdict in verdicts if verdict.chosen]
    return found.name


def of(verdicts: tuple[DriverVerdict, ...], name: str) -> DriverVerdict:
    return next(verdict for verdict in verdicts if verdict.name == name)


@pytest.fixture
def no_kvm(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never_boots(self: KvmTrials, *_: object) -> KvmTrial:
        return KvmTrial(boots=False, reason="no luck")

    monkeypatch.setattr(KvmTrials, "run", never_boots)


@pytest.fixture
def kvm(monkeypatch: pytest.MonkeyPatch) -> None:
    async def boots(self: KvmTrials, *_: object) -> KvmTrial:
        return KvmTrial(boots=True, reason="boots")

    monkeypatch.setattr(KvmTrials, "run", boots)


async def test_every_driver_gets_a_verdict_with_a_reason_the_best_first(tmp_path: Path) -> None:
    asked = selection(tmp_path, "process")
    assert [verdict.name for verdict in await asked.decide()] == ["process"]
    verdicts = await asked.looked()
    assert tuple(verdict.name for verdict in verdicts) == NAMES and chosen(verdicts) == "process"
    assert all(verdict.reason for verdict in verdicts)


def test_every_microvm_has_a_way_to_be_tried() -> None:
    assert tuple(CONTENDERS) == MICROVMS


async def test_nothing_is_made_where_nothing_can_be_tried(tmp_path: Path) -> None:
    await selection(tmp_path / "data", "auto").decide()
    assert not (tmp_path / "data").exists()


async def test_everybody_but_root_has_processes_unless_told(tmp_path: Path) -> None:
    assert chosen(await selection(tmp_path, root=False).decide()) == "process"


@pytest.mark.root
@pytest.mark.skipif(shutil.which("crun") is None, reason="crun is not installed")
async def test_root_has_containers_unless_told(tmp_path: Path) -> None:
    assert chosen(await selection(tmp_path).decide()) == "container"


async def test_a_driver_that_nobody_knows_is_refused_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match=r"no driver 'vm': use auto, cloud-hypervisor, .* or process"):
        await selection(tmp_path, "vm").decide()


@pytest.mark.parametrize("name", ["qemu", "firecracker", "cloud-hypervisor"])
async def test_a_monitor_that_is_not_installed_is_refused_with_what_to_do(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CannotStart, match=rf"--driver {name}: .*missing: (apt-get )?install"):
        await selection(tmp_path, name).decide()


@pytest.mark.root
@pytest.mark.skipif(shutil.which("qemu-system-x86_64") is None, reason="qemu-system-x86_64 is not installed")
async def test_a_microvm_without_a_kernel_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match="run `hawker kernel import`"):
        await selection(tmp_path, "qemu").decide()


@pytest.mark.root
@pytest.mark.skipif(shutil.which("qemu-system-x86_64") is None, reason="qemu-system-x86_64 is not installed")
async def test_qemu_emulates_when_it_is_named_and_is_never_taken_by_auto(tmp_path: Path, no_kvm: None) -> None:
    own_kernels(tmp_path / "kernels")
    named = await selection(tmp_path, "qemu").decide()
    assert chosen(named) == "qemu" and "emulates" in of(named, "qemu").reason
    driver = selection(tmp_path, "qemu").driver(named, NodeId("0badcafe"))
    assert (driver.name, driver.features.kernel) == ("qemu", True)
    verdicts = await selection(tmp_path, "auto").decide()
    assert chosen(verdicts) != "qemu" and of(verdicts, "qemu").usable


@pytest.mark.root
@pytest.mark.skipif(shutil.which("qemu-system-x86_64") is None, reason="qemu-system-x86_64 is not installed")
async def test_auto_takes_a_microvm_where_kvm_boots_a_kernel(tmp_path: Path, kvm: None) -> None:
    own_kernels(tmp_path / "kernels")
    verdicts = await selection(tmp_path, "auto").decide()
    assert of(verdicts, chosen(verdicts)).reason == "boots" and of(verdicts, "qemu").usable


async def test_auto_keeps_the_driver_whose_machines_are_here(tmp_path: Path, kvm: None) -> None:
    named = await selection(tmp_path, "process").decide()
    selection(tmp_path, "process").remember(named)
    assert (tmp_path / "driver").read_text() == "process\n" and os.listdir(tmp_path) == ["driver"]
    (tmp_path / "machines/3d8f0000000001").mkdir(parents=True)
    assert chosen(await selection(tmp_path, "auto").decide()) == "process"
    (tmp_path / "machines/3d8f0000000001").rmdir()
    assert chosen(await selection(tmp_path, "auto", root=False).decide()) in NAMES


async def test_a_node_from_before_drivers_were_remembered_had_the_usual_one(tmp_path: Path, kvm: None) -> None:
    (tmp_path / "machines/3d8f0000000001").mkdir(parents=True)
    assert chosen(await selection(tmp_path, "auto", root=False).decide()) == "process"


async def test_a_full_disk_only_means_that_the_driver_is_not_remembered(tmp_path: Path) -> None:
    verdicts = await selection(tmp_path, "process").decide()
    selection(tmp_path / "nowhere", "process").remember(verdicts)
    assert not (tmp_path / "nowhere").exists()


async def test_the_one_that_was_chosen_is_made(tmp_path: Path) -> None:
    asked = selection(tmp_path, "process")
    await asked.decide()
    verdicts = await asked.looked()
    assert asked.driver(verdicts, NodeId("0badcafe")).name == "process"
    changed = tuple(msgspec.structs.replace(each, chosen=each.name == "container") for each in verdicts)
    assert selection(tmp_path).driver(changed, NodeId("0badcafe")).name == "container"


async def test_machines_keep_their_driver_whoever_names_another(tmp_path: Path) -> None:
    """A driver that knows nothing of them would take them for gone."""
    selection(tmp_path, "process").remember(await selection(tmp_path, "process").decide())
    (tmp_path / "machines" / "148e123").mkdir(parents=True)
    assert chosen(await selection(tmp_path).decide()) == "process"
    with pytest.raises(CannotStart, match="start with --driver process, and destroy them first"):
        await selection(tmp_path, "container").decide()
