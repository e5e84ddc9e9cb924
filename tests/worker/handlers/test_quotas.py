import pytest

from hawker.api.contract.quota import CLEAR_QUOTA, LIST_QUOTAS, PUT_QUOTA, QuotaLimits, QuotaParams
from hawker.errors import NotFound
from hawker.sim.node.sim_worker import APP, SimWorker

pytestmark = pytest.mark.anyio

OF_APP = QuotaParams(kind="app", name=APP)


async def test_a_quota_is_set_shown_with_its_use_and_cleared(worker: SimWorker) -> None:
    await worker.create(order={"skip_launch": True})
    made = await worker.api.call(PUT_QUOTA, params=OF_APP, body=QuotaLimits(machines=2))
    assert (made.subject, made.limits.machines, made.used_here.machines, made.set_by) == (f"app/{APP}", 2, 1, "ann")
    assert (await worker.api.call(LIST_QUOTAS)).quotas == (made,)
    await worker.api.call(CLEAR_QUOTA, params=OF_APP)
    assert (await worker.api.call(LIST_QUOTAS)).quotas == ()
    with pytest.raises(NotFound, match="there is no quota"):
        await worker.api.call(CLEAR_QUOTA, params=OF_APP)


@pytest.mark.parametrize(("kind", "name"), [("user", "ann"), ("app", "*")])
async def test_a_quota_is_of_an_org_or_an_app(worker: SimWorker, kind: str, name: str) -> None:
    with pytest.raises(NotFound):
        await worker.api.call(PUT_QUOTA, params=QuotaParams(kind=kind, name=name), body=QuotaLimits(machines=1))
