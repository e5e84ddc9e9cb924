import msgspec
import pytest

from hawker.errors import BadRequest
from hawker.handlers.inside import names_of, place_of
from hawker.machine import State
from hawker.node import Resources
from hawker.record.machine import MachineRecord, Previous
from hawker.sim.node.sim_worker import config_of
from tests.worker.machines import machine

CONTAINERS = config_of(containers=[{"name": "web"}, {"name": "db"}])


def record() -> MachineRecord:
    return machine(config=CONTAINERS)


@pytest.mark.parametrize(("named", "place"), [(None, 0), ("", 0), ("web", 0), ("db", 1)])
def test_a_container_is_found_by_its_name(named: str | None, place: int) -> None:
    assert place_of(record(), named, in_machine=False) == place


def test_a_machine_without_containers_has_one_place() -> None:
    assert place_of(machine(), None, in_machine=True) == 0
    assert names_of(machine()) == names_of(None) == ()


@pytest.mark.parametrize(
    ("named", "in_machine", "text"),
    [
        ("nope", False, "there is no container 'nope' in this machine: it has web, db"),
        ("web", True, "exclude each other"),
        (None, True, "name a container: web, db"),
    ],
)
def test_a_text_that_means_no_place_is_refused(named: str | None, in_machine: bool, text: str) -> None:
    with pytest.raises(BadRequest, match=text):
        place_of(record(), named, in_machine=in_machine)


def test_a_container_of_a_machine_without_any_is_refused() -> None:
    with pytest.raises(BadRequest, match="it has none"):
        place_of(machine(), "web", in_machine=False)


def test_during_an_update_it_is_the_previous_version_that_runs() -> None:
    old = Previous(
        version=machine().version, config=CONTAINERS, image=machine().image, state=State.STARTED, holds=Resources()
    )
    assert names_of(msgspec.structs.replace(machine(), previous=old)) == ("web", "db")
