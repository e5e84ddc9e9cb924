"""A conversation gives back the place of the connection that it began as."""

import pytest
from uvicorn.protocols.websockets.auto import AutoWebSocketsProtocol

from hawker.http.upgraded import UpgradedConnection


class Begun:
    ended = 0

    def end(self) -> None:
        self.ended += 1


def test_conversation_that_is_lost_ends_the_connection_that_it_began_as(monkeypatch: pytest.MonkeyPatch) -> None:
    lost: list[Exception | None] = []
    monkeypatch.setattr(AutoWebSocketsProtocol, "connection_lost", lambda _, error: lost.append(error))
    talk, begun = UpgradedConnection.__new__(UpgradedConnection), Begun()
    talk.connection_lost(None)
    talk.begun_as = begun
    talk.connection_lost(None)
    assert lost == [None, None] and begun.ended == 1
