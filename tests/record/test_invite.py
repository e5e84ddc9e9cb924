from hawker.record.invite import InviteRecord, JoinedHost

INVITE = InviteRecord(id="a", created_at=0.0, expires_at=60.0, uses=1, by="ann")


def test_an_invite_is_open_until_its_time_its_uses_or_its_end() -> None:
    assert INVITE.open_at(59.9) and not INVITE.open_at(60.0)
    used = InviteRecord(id="a", created_at=0, expires_at=60, uses=1, by="ann", joined=(JoinedHost(key="k", at=1.0),))
    ended = InviteRecord(id="a", created_at=0, expires_at=60, uses=1, by="ann", revoked_at=1.0)
    assert not used.open_at(2.0) and not ended.open_at(2.0)
