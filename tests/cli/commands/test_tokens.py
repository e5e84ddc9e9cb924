from pathlib import Path

import msgspec
import pytest

from hawker.auth.caveat import Actions, Apps, Expires, Holder, Machines, Sources
from hawker.auth.macaroon import chain, from_text, key_of
from hawker.cli.exits import ExitStatus
from tests.cli.conftest import Hawker
from tests.cli.fake_node import TOKEN, FakeNode


def test_a_token_is_made_from_the_root_token_without_a_node(hawker: Hawker, node: FakeNode) -> None:
    said = hawker("tokens", "create", "--app", "shop", "--actions", "rw", "--source", "10.0.0.0/8", "--for", "ci")
    token = from_text(said.out.strip())
    assert token.caveats == (Apps(("shop",)), Actions("rw"), Sources(("10.0.0.0/8",)), Holder("ci"))
    assert chain(key_of(TOKEN), token) is not None and not node.calls


def test_a_narrow_token_makes_narrower_ones(hawker: Hawker) -> None:
    wide = hawker("tokens", "create", "--app", "shop").out.strip()
    made = hawker("--token", wide, "tokens", "create", "--machine", "3d8fa0011b22c3").out.strip()
    assert from_text(made).caveats == (Apps(("shop",)), Machines(("3d8fa0011b22c3",)))
    assert chain(key_of(TOKEN), from_text(made)) is not None
    assert from_text(hawker("tokens", "attenuate", wide, "--machine", "3d8fa0011b22c3").out.strip()) == from_text(made)


def test_a_token_ends_after_its_time(hawker: Hawker) -> None:
    token = from_text(hawker("tokens", "create", "--expires", "24h").out.strip())
    (expires,) = token.caveats
    assert isinstance(expires, Expires) and expires.at - token.header.issued_at == pytest.approx(86_400, abs=5)


def test_a_token_is_shown_with_its_id_and_whether_it_is_good(hawker: Hawker) -> None:
    text = hawker("tokens", "create", "--app", "shop", "--for", "ci").out.strip()
    shown = dict(line.split(maxsplit=1) for line in hawker("tokens", "inspect", text).out.splitlines())
    assert (shown["id"], shown["app"], shown["for"]) == (from_text(text).id, "shop", "ci")
    assert shown["signature"] == "good here"
    whole = msgspec.json.decode(hawker("tokens", "inspect", "-o", "json", text).out)
    assert (whole["id"], whole["limits"]) == (shown["id"], [{"app": "shop"}, {"for": "ci"}])
    assert "not by the token at hand" in hawker("--token", "hwk_other", "tokens", "inspect", text).out


def test_a_token_is_ended_by_itself_or_by_its_id(hawker: Hawker, node: FakeNode) -> None:
    text = hawker("tokens", "create", "--app", "shop").out.strip()
    token_id = from_text(text).id
    assert hawker("tokens", "revoke", text, "--note", "lost").out
    assert hawker("tokens", "revoke", token_id).out
    bodies = [call.body for call in node.calls["revoke_token"]]
    assert [(body.token, body.token_id, body.note) for body in bodies] == [(text, None, "lost"), (None, token_id, "")]


def test_the_ended_ones_are_listed(hawker: Hawker, node: FakeNode) -> None:
    heading, row = hawker("tokens", "revoked").out.splitlines()
    assert heading.split() == ["TOKEN", "REVOKED", "BY", "NOTE"]
    assert (row.split()[0], row.split()[-2:]) == ("0a", ["root", "lost"])


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["create"], "no limit given"),
        (["create", "--actions", "x"], "action 'x' is none of"),
        (["create", "--expires", "soon"], "not a duration"),
        (["create", "--source", "lan"], "does not appear to be"),
        (["create", "-m", "web"], "'web' is no id of 14 hexadecimal digits: `hawker ps` shows"),
        (["create", "-m", "3d8fa0011b22c3", "-m", "3D8F"], "'3D8F' is no id"),
        (["inspect", "fm2_abc"], "not a token of this kind"),
        (["attenuate", "hwk_"], "not a token of this kind"),
    ],
)
def test_a_senseless_limit_is_refused(hawker: Hawker, words: list[str], text: str) -> None:
    said = hawker("tokens", *words)
    assert said.status == ExitStatus.USAGE and text in said.err


def test_without_a_token_at_hand_it_says_where_to_get_one(
    hawker: Hawker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HAWKER_DATA_DIR", str(tmp_path))
    monkeypatch.delenv("HAWKER_TOKEN", raising=False)
    said = hawker("--token", "", "tokens", "create", "--app", "a")
    assert said.status != ExitStatus.OK and "no token found" in said.err


def test_token_is_narrowed_to_no_name_of_a_machine(hawker: Hawker) -> None:
    wide = hawker("tokens", "create", "--app", "shop").out.strip()
    said = hawker("tokens", "attenuate", wide, "--machine", "web")
    assert said.status == ExitStatus.USAGE and "no id" in said.err and not said.out
