import pytest

from hawker.api.contract.image import PULL_IMAGE, PullRequest
from hawker.api.contract.org import OrgParams
from hawker.api.contract.registry import DELETE_LOGIN, LIST_LOGINS, PUT_LOGIN, LoginRequest, RegistryParams
from hawker.errors import BadRequest, NotFound, Unprocessable
from hawker.sim.node.sim_worker import SimWorker

pytestmark = pytest.mark.anyio

AT = RegistryParams(org_slug="acme", registry="https://registry.example:5000/")


async def test_a_login_is_kept_listed_without_its_password_and_given_up(worker: SimWorker) -> None:
    body = LoginRequest(username="ada", password="pass word", unchecked=True)
    made = await worker.api.call(PUT_LOGIN, params=AT, body=body)
    assert (made.registry, made.username, made.by) == ("registry.example:5000", "ada", "ann")
    listed = await worker.api.call(LIST_LOGINS, params=OrgParams(org_slug="acme"))
    assert [each.registry for each in listed.logins] == ["registry.example:5000"] and "pass word" not in repr(listed)
    assert listed.logins[0].nodes == (worker.parts.node.id,)
    await worker.api.call(DELETE_LOGIN, params=AT)
    assert (await worker.api.call(LIST_LOGINS, params=OrgParams(org_slug="acme"))).logins == ()
    with pytest.raises(NotFound):
        await worker.api.call(DELETE_LOGIN, params=AT)


@pytest.mark.parametrize("registry", ["no registry", "word", "host.example/path"])
async def test_a_text_that_is_no_registry_is_refused(worker: SimWorker, registry: str) -> None:
    body = LoginRequest(username="ada", password="x", unchecked=True)
    with pytest.raises((BadRequest, Unprocessable)):
        await worker.api.call(PUT_LOGIN, params=RegistryParams(org_slug="acme", registry=registry), body=body)


async def test_a_pull_of_what_is_from_no_registry_keeps_no_login(worker: SimWorker) -> None:
    body = PullRequest(reference="hawker/hello", username="ada", password="x", org="acme")
    async with worker.api.stream(PULL_IMAGE, body=body) as events:
        assert [event async for event in events][-1].stage == "done"
    assert (await worker.api.call(LIST_LOGINS, params=OrgParams(org_slug="acme"))).logins == ()
