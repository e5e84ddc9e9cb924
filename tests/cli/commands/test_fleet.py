import json

import pytest

from hawker.cli.exits import ExitStatus
from tests.cli.conftest import Hawker
from tests.cli.fake_node import FakeNode


def test_an_invitation_is_all_that_stands_on_stdout(hawker: Hawker, node: FakeNode) -> None:
    said = hawker("fleet", "invite", "--expires", "2h", "--uses", "3")
    assert said.out == "hwj_secret\n" and "hawker join ADDRESS --token-file FILE" in said.err
    body = node.call("create_invite").body
    assert (body.expires_s, body.uses) == (7200, 3)
    assert json.loads(hawker("fleet", "invite", "-o", "json").out)["token"] == "hwj_secret"


@pytest.mark.parametrize("expires", ["", "soon"])
def test_a_time_that_is_none_is_told(hawker: Hawker, expires: str) -> None:
    assert hawker("fleet", "invite", "--expires", expires).status == ExitStatus.USAGE


def test_invitations_are_listed_with_who_joined_and_without_their_tokens(hawker: Hawker) -> None:
    heading, row = hawker("fleet", "invites").out.splitlines()
    assert heading.split() == ["INVITATION", "STATE", "EXPIRES", "USED", "HOSTS", "BY"]
    assert row.split()[:2] == ["0badcafe01", "open"] and row.split()[-3:] == ["1/2", "10.0.0.2", "root"]


def test_an_invitation_is_revoked_by_its_id(hawker: Hawker, node: FakeNode) -> None:
    assert hawker("fleet", "uninvite", "0badcafe01").out == "0badcafe01\n"
    assert node.call("revoke_invite").params.invite_id == "0badcafe01"
