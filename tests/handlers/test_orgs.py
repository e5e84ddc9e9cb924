from collections.abc import Callable

import pytest

from hawker.api.contract.app import CREATE_APP, CreateAppRequest
from hawker.api.contract.body import instant
from hawker.api.contract.org import (
    CLEAR_QUOTA,
    LIST_ORG_MACHINES,
    LIST_QUOTAS,
    PUT_QUOTA,
    OrgMachine,
    OrgMachines,
    OrgMachinesQuery,
    OrgParams,
    QuotaLimits,
    QuotaParams,
)
from hawker.api.grant import Everything
from hawker.api.route import Call
from hawker.app import DEFAULT_ORG
from hawker.errors import BadRequest, NotFound
from hawker.handlers.orgs import OrgHandlers
from hawker.machine import State
from hawker.permission import Attempt
from hawker.sim.node.sim_worker import APP, SimWorker
from hawker.sim.node.world import MemoryWorld

pytestmark = pytest.mark.anyio
HOME = OrgParams(org_slug=DEFAULT_ORG)


class OnlyApp(Everything):
    """The grant of a token for one app."""

    def __init__(self, app: str) -> None:
        super().__init__("ann")
        self._app = app

    def permits(self, attempt: Attempt) -> bool:
        return attempt.app == self._app


@pytest.fixture
async def front(worker: SimWorker) -> str:
    """One in the app that calls are made for; there are two in `back`, and one of another organization."""
    for app, org in (("back", DEFAULT_ORG), ("theirs", "other")):
        await worker.api.call(CREATE_APP, body=CreateAppRequest(name=app, org_slug=org))
    await worker.create(app="theirs")
    for _ in range(2):
        await worker.create(app="back")
    made = await worker.create(metadata={"key": "value"})
    await worker.reaches(made.id, State.STARTED)
    return made.id


async def listed(worker: SimWorker, **query: object) -> OrgMachines:
    return await worker.api.call(LIST_ORG_MACHINES, params=HOME, query=OrgMachinesQuery(**query))  # type: ignore[arg-type]


async def test_an_organization_s_machines_are_listed_over_all_its_apps(worker: SimWorker, front: str) -> None:
    answer = await listed(worker)
    assert sorted(machine.app_name for machine in answer.machines) == ["back", "back", APP]
    assert [machine.id for machine in answer.machines] == sorted(machine.id for machine in answer.machines)
    (shown,) = [machine for machine in answer.machines if machine.id == front]
    assert (shown.state, shown.version) == (State.STARTED, shown.instance_id)
    assert shown.config is not None and shown.config.metadata == {"key": "value"}
    assert shown.config.guest is not None and shown.config.guest.cpus
    assert (answer.error_regions, answer.next_cursor) == ((), "")


async def test_pages_follow_each_other_and_end(worker: SimWorker, front: str) -> None:
    seen: list[OrgMachine] = []
    answer = await listed(worker, limit=2, summary=True)
    while answer.next_cursor:
        seen += answer.machines
        assert answer.last_machine_id == answer.machines[-1].id
        assert answer.last_updated_at == answer.machines[-1].updated_at
        answer = await listed(worker, limit=2, summary=True, cursor=answer.next_cursor)
    seen += answer.machines
    assert len({machine.id for machine in seen}) == 3 and all(machine.config is None for machine in seen)


@pytest.mark.parametrize(
    ("query", "matches"),
    [
        ({"region": "local"}, lambda machine: True),
        ({"region": "elsewhere"}, lambda machine: False),
        ({"state": (State.STOPPED, State.SUSPENDED)}, lambda machine: False),
        ({"state": (State.STARTED,)}, lambda machine: machine.state is State.STARTED),
    ],
)
async def test_the_list_can_be_narrowed(
    worker: SimWorker, front: str, query: dict[str, object], matches: Callable[[OrgMachine], bool]
) -> None:
    await worker.at_rest()
    assert (await listed(worker, **query)).machines == tuple(filter(matches, (await listed(worker)).machines))


async def test_only_what_changed_since_is_listed(worker: SimWorker, stall: MemoryWorld, front: str) -> None:
    await worker.at_rest()
    await stall.clock.sleep(10)
    since = instant(stall.clock.now())
    assert (await listed(worker, updated_after=since)).machines == ()
    await stall.clock.sleep(1)
    await worker.stop(front)
    assert [machine.id for machine in (await listed(worker, updated_after=since)).machines] == [front]


async def test_destroyed_ones_are_listed_when_asked_for(worker: SimWorker, front: str) -> None:
    await worker.destroy(front, force=True)
    await worker.at_rest()
    assert front not in [machine.id for machine in (await listed(worker)).machines]
    answer = await listed(worker, include_deleted=True)
    assert len(answer.machines) == 3
    assert [machine.state for machine in answer.machines if machine.id == front] == [State.DESTROYED]


async def test_a_token_for_one_app_sees_its_machines(worker: SimWorker, front: str) -> None:
    call = Call(params=HOME, query=OrgMachinesQuery(), body=None, grant=OnlyApp(APP), request_id="01H")
    answer = await OrgHandlers(worker.store, worker.parts.apps).machines(call)
    assert [machine.id for machine in answer.machines] == [front]


@pytest.mark.parametrize("limit", [0, -1, 1001])
async def test_a_page_has_bounds(worker: SimWorker, front: str, limit: int) -> None:
    with pytest.raises(BadRequest, match="limit must be between 1 and"):
        await listed(worker, limit=limit)


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
