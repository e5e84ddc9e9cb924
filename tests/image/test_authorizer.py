"""Facts about getting in: what is sent to whom."""

import anyio
import pytest

from hawker.image.authorizer import Authorizer
from hawker.image.credentials import Credentials
from hawker.image.transport import Refused, Transport
from hawker.log import Secret
from tests.image.fake_registry import PASSWORD, USER, FakeRegistry

pytestmark = pytest.mark.anyio

_ALICE = Credentials(USER, Secret(PASSWORD))
_MALLORY = Credentials("mallory", Secret("guess"))


def bearer(fake: FakeRegistry, **more: str) -> list[str]:
    parameters = {"realm": f"http://{fake.host}/token", "service": "fake", **more}
    return ["Bearer " + ",".join(f'{key}="{value}"' for key, value in parameters.items())]


async def test_token_is_fetched_and_sent(transport: Transport, fake: FakeRegistry) -> None:
    authorizer = Authorizer(transport, "a/b", _ALICE)
    assert authorizer.headers() == {}
    await authorizer.answer(bearer(fake), {})
    assert authorizer.headers() == {"Authorization": "Bearer t1"}
    assert fake.asked[0].authorization == _ALICE.basic()


async def test_anybody_gets_a_token_of_a_public_registry(transport: Transport, fake: FakeRegistry) -> None:
    fake.public = True
    authorizer = Authorizer(transport, "a/b", None)
    await authorizer.answer(bearer(fake), {})
    assert authorizer.headers() == {"Authorization": "Bearer t1"}
    assert fake.asked[0].authorization is None


async def test_many_that_are_challenged_at_once_fetch_one_token(transport: Transport, fake: FakeRegistry) -> None:
    authorizer = Authorizer(transport, "a/b", _ALICE)
    async with anyio.create_task_group() as group:
        for _ in range(8):
            group.start_soon(authorizer.answer, bearer(fake), {})
    assert fake.tokens == 1


async def test_token_that_is_refused_is_replaced(transport: Transport, fake: FakeRegistry) -> None:
    authorizer = Authorizer(transport, "a/b", _ALICE)
    await authorizer.answer(bearer(fake), {})
    await authorizer.answer(bearer(fake), authorizer.headers())
    assert authorizer.headers() == {"Authorization": "Bearer t2"}


async def test_basic_needs_credentials(transport: Transport) -> None:
    authorizer = Authorizer(transport, "a/b", _ALICE)
    await authorizer.answer(['Basic realm="x"'], {})
    assert authorizer.headers() == {"Authorization": _ALICE.basic()}
    with pytest.raises(Refused, match="authentication required; the image does not exist, or needs credentials"):
        await Authorizer(transport, "a/b", None).answer(['Basic realm="x"'], {})


async def test_wrong_password_is_told(transport: Transport, fake: FakeRegistry) -> None:
    with pytest.raises(Refused, match=r"^wrong user name or password$"):
        await Authorizer(transport, "a/b", _MALLORY).answer(bearer(fake), {})
    basic = Authorizer(transport, "a/b", _MALLORY)
    await basic.answer(["Basic realm=x"], {})
    with pytest.raises(Refused, match=r"^wrong user name or password$"):
        await basic.answer(["Basic realm=x"], basic.headers())


@pytest.mark.parametrize("realm", ["http://192.0.2.1/token", "ftp://127.0.0.1/token", "token"])
async def test_password_is_not_sent_over_an_unsafe_way(transport: Transport, fake: FakeRegistry, realm: str) -> None:
    with pytest.raises(Refused, match="refusing to speak"):
        await Authorizer(transport, "a/b", _ALICE).answer(bearer(fake, realm=realm), {})


@pytest.mark.parametrize("challenges", [[], [""], ["Negotiate"], ["Bearer service=x"]])
async def test_challenge_that_is_not_understood_is_told(transport: Transport, challenges: list[str]) -> None:
    with pytest.raises(Refused, match="authentication required"):
        await Authorizer(transport, "a/b", _ALICE).answer(challenges, {})
