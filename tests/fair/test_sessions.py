import pytest
from aiohttp import ClientSession, TCPConnector

from hawker.fair.sessions import SessionAtNeed, fleeting_session, kept_session

pytestmark = pytest.mark.anyio


async def test_session_has_no_bound_but_the_one_that_it_was_given() -> None:
    async with fleeting_session() as fleeting, kept_session() as kept, kept_session(3) as small:
        limits = [session.connector.limit for session in (fleeting, kept, small) if session.connector]
        assert limits == [0, 0, 3]
        assert isinstance(fleeting.connector, TCPConnector) and fleeting.connector.force_close


async def test_session_at_need_is_made_once_for_the_first_who_asks_and_closed_if_it_was_made() -> None:
    made = []

    def make() -> ClientSession:
        made.append(fleeting_session())
        return made[-1]

    await SessionAtNeed(make).aclose()
    assert not made
    session = SessionAtNeed(make)
    assert session() is session() and len(made) == 1
    await session.aclose()
    assert made[0].closed
