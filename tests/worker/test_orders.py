import pytest

from hawker.api.bodies import CreateMachineRequest
from hawker.errors import NoRoom, Unprocessable
from hawker.ids import OrderId
from hawker.machine import State
from hawker.node import Resources
from hawker.sim.node.sim_worker import APP, SimWorker, config_of
from hawker.worker.images import Images
from hawker.worker.orders import new_record, serves_region
from hawker.worker.records import MachineRecord
from tests.worker.machines import IMAGE

pytestmark = pytest.mark.anyio


def _record(worker: SimWorker, **order: object) -> MachineRecord:
    app = worker.parts.apps.get(worker.store, APP)
    request = CreateMachineRequest(config=config_of(), **order)  # type: ignore[arg-type]
    return new_record(worker.parts, app, request, Images(IMAGE), caller="ann", key=OrderId("key"))


async def test_an_order_becomes_a_record(worker: SimWorker) -> None:
    record = _record(worker, name="web", lease_ttl=30, skip_service_registration=True)
    assert (record.name, record.state, record.order, record.cordoned) == ("web", State.CREATED, "key", True)
    assert record.holds == Resources(shared_cpus=1, memory_mib=256, disk_mib=256)
    assert record.lease is not None and record.lease.owner == "ann"
    assert record.lease.expires_at == record.created_at + 30
    assert record.network.private_ip.startswith("fdaa:")


async def test_what_is_not_launched_holds_nothing(worker: SimWorker) -> None:
    record = _record(worker, skip_launch=True)
    assert record.holds == Resources() and record.lease is None and not record.cordoned


async def test_a_machine_without_a_name_is_given_one(worker: SimWorker) -> None:
    assert _record(worker).name != _record(worker).name
    with pytest.raises(Unprocessable):
        _record(worker, name="../up")


@pytest.mark.parametrize("wanted", [None, "", "local", "ams,local", "any", "ams, any"])
def test_a_region_list_that_names_this_one_is_served(wanted: str | None) -> None:
    serves_region("local", wanted)


def test_another_region_is_refused_with_the_nearest() -> None:
    with pytest.raises(NoRoom) as refusal:
        serves_region("local", "ams,fra")
    assert (refusal.value.nearest, refusal.value.shortfall) == ("local", {"hosts": 1})
