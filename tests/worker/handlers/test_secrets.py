import pytest

from hawker.api.contract.app import AppParams
from hawker.api.contract.secret import (
    DELETE_SECRET,
    GET_SECRET,
    LIST_SECRETS,
    SET_SECRET,
    UPDATE_SECRETS,
    SecretParams,
    SecretsQuery,
    SetSecretRequest,
    UpdateSecretsRequest,
)
from hawker.api.grant import Everything
from hawker.api.route import Call
from hawker.errors import Forbidden, NotFound, WrongState
from hawker.permission import Action, Attempt
from hawker.sim.node.sim_worker import APP, SimWorker
from hawker.worker.handlers.secrets import SecretHandlers

pytestmark = pytest.mark.anyio
HERE = AppParams(app_name=APP)


def secret(name: str) -> SecretParams:
    return SecretParams(app_name=APP, secret_name=name)


class Reader(Everything):
    """The grant of a token that reads and does nothing else."""

    def check(self, attempt: Attempt) -> None:
        if attempt.action is not Action.READ:
            raise Forbidden("not for you")


async def test_a_changed_secret_is_answered_and_the_stored_ones_are_listed(worker: SimWorker) -> None:
    body = UpdateSecretsRequest(values={"A": "1", "B": "2"})
    answer = await worker.api.call(UPDATE_SECRETS, params=HERE, body=body)
    assert [each.name for each in answer.secrets] == ["A", "B"] and answer.version == answer.Version == 1
    body = UpdateSecretsRequest(values={"A": None, "C": "3"})
    answer = await worker.api.call(UPDATE_SECRETS, params=HERE, body=body)
    assert [each.name for each in answer.secrets] == ["C"]
    listed = await worker.api.call(LIST_SECRETS, params=HERE)
    assert [(each.name, each.value) for each in listed.secrets] == [("B", None), ("C", None)]


async def test_one_is_set_shown_and_removed(worker: SimWorker) -> None:
    made = await worker.api.call(SET_SECRET, params=secret("A"), body=SetSecretRequest(value="1"))
    shown = await worker.api.call(GET_SECRET, params=secret("A"), query=SecretsQuery(show_secrets=True))
    assert (shown.value, shown.digest) == ("1", made.digest)
    assert (await worker.api.call(DELETE_SECRET, params=secret("A"))).version == made.version + 1
    with pytest.raises(NotFound, match="secret A not found"):
        await worker.api.call(GET_SECRET, params=secret("A"))


async def test_values_are_shown_to_who_controls_the_app(worker: SimWorker) -> None:
    await worker.api.call(SET_SECRET, params=secret("A"), body=SetSecretRequest(value="1"))
    handlers = SecretHandlers(worker.store, worker.parts.deps.secrets, worker.parts.apps)
    for shown in (False, True):
        query = SecretsQuery(show_secrets=shown)
        call = Call(params=HERE, query=query, body=None, grant=Reader("ann"), request_id="01H")
        if not shown:
            assert [each.value for each in (await handlers.list(call)).secrets] == [None]
            continue
        with pytest.raises(Forbidden):
            await handlers.list(call)


@pytest.mark.parametrize("query", [SecretsQuery(min_version=2), SecretsQuery(version=2)])
async def test_a_version_that_is_not_here_yet_is_said(worker: SimWorker, query: SecretsQuery) -> None:
    await worker.api.call(SET_SECRET, params=secret("A"), body=SetSecretRequest(value="1"))
    with pytest.raises(WrongState, match="the newest is 1"):
        await worker.api.call(LIST_SECRETS, params=HERE, query=query)


async def test_an_app_that_is_not_there_has_none(worker: SimWorker) -> None:
    with pytest.raises(NotFound, match="app not found"):
        await worker.api.call(LIST_SECRETS, params=AppParams(app_name="other"))
