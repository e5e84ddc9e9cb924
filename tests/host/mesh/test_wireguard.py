"""Facts about what a device is told and says."""

import base64
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.errors import CannotStart, Unprocessable
from hawker.host.mesh.device import MemoryDevice
from hawker.host.mesh.wireguard import (
    KeyFile,
    MeshPeer,
    difference,
    is_key,
    own_key,
    peer_key,
    read_uapi,
    read_wg,
    renew_key,
    uapi_change,
)

KEYS = [base64.b64encode(bytes([number]) * 32).decode() for number in range(3)]
ADDRESSES = [f"fdaa::{number}/112" for number in range(4)]
PEERS = st.dictionaries(
    st.sampled_from(KEYS),
    st.builds(
        MeshPeer, st.sampled_from(["", "10.0.0.1:1", "[::1]:2"]), st.frozensets(st.sampled_from(ADDRESSES)), st.just(0)
    ),
)


def one_peer_each(peers: dict[str, MeshPeer]) -> dict[str, MeshPeer]:
    """An address is the first one's that has it."""
    taken: set[str] = set()
    found = {}
    for key in sorted(peers):
        found[key] = MeshPeer(peers[key].endpoint, peers[key].allowed - taken)
        taken |= peers[key].allowed
    return found


@given(PEERS, PEERS)
def test_a_device_has_what_is_wanted_whatever_it_had(before: dict[str, MeshPeer], after: dict[str, MeshPeer]) -> None:
    mesh, before, after = MemoryDevice(), one_peer_each(before), one_peer_each(after)
    for wanted in (before, after):
        mesh.change(difference(mesh.read().peers, wanted), wanted)
        assert mesh.read().peers == wanted
        assert difference(wanted, wanted).is_none


def test_an_address_that_moves_is_given_once_and_leads_nowhere_never() -> None:
    before = {KEYS[0]: MeshPeer(allowed=frozenset(ADDRESSES[:2])), KEYS[1]: MeshPeer()}
    after = {KEYS[0]: MeshPeer(allowed=frozenset(ADDRESSES[:1])), KEYS[1]: MeshPeer(allowed=frozenset(ADDRESSES[1:2]))}
    change = difference(before, after)
    assert change.given == {KEYS[1]: {ADDRESSES[1]}} and not change.nowhere
    assert uapi_change(change, after) == f"set=1\npublic_key={'01' * 32}\nallowed_ip={ADDRESSES[1]}\n\n"


def test_an_address_that_leads_nowhere_goes_with_a_peer_that_goes() -> None:
    before = {KEYS[0]: MeshPeer(allowed=frozenset(ADDRESSES[:2]))}
    after = {KEYS[0]: MeshPeer(allowed=frozenset(ADDRESSES[:1]))}
    lines = uapi_change(difference(before, after), after).splitlines()
    assert lines[0] == "set=1" and lines[2] == f"allowed_ip={ADDRESSES[1]}" and lines[-2:] == ["remove=true", ""]
    assert lines[1] == lines[3] and "01" * 32 not in lines[1]


def test_an_answer_of_a_device_is_read() -> None:
    said = f"""private_key={"0a" * 32}
listen_port=4283
public_key={"01" * 32}
endpoint=10.0.0.2:4283
last_handshake_time_sec=17
tx_bytes=5
rx_bytes=6
persistent_keepalive_interval=25
allowed_ip=fdaa::/112
public_key={"02" * 32}
"""
    state = read_uapi(said)
    assert (state.port, state.private) == (4283, base64.b64encode(b"\n" * 32).decode())
    assert state.peers == {KEYS[1]: MeshPeer("10.0.0.2:4283", frozenset({"fdaa::/112"}), 25), KEYS[2]: MeshPeer()}
    assert state.traffic[KEYS[1]].handshake_at == 17 and state.traffic[KEYS[1]].received_bytes == 6


def test_an_answer_of_wg_is_read() -> None:
    rows = [f"{KEYS[0]}\t{KEYS[1]}\t4283\toff", f"{KEYS[1]}\t(none)\t[::1]:4283\tfdaa::/112\t17\t6\t5\t25",
            f"{KEYS[2]}\t(none)\t(none)\t(none)\t0\t0\t0\toff"]  # fmt: skip
    state = read_wg("\n".join(rows) + "\n")
    assert (state.private, state.port) == (KEYS[0], 4283)
    assert state.peers == {KEYS[1]: MeshPeer("[::1]:4283", frozenset({"fdaa::/112"}), 25), KEYS[2]: MeshPeer()}
    assert state.traffic[KEYS[1]].sent_bytes == 5


@pytest.mark.parametrize("said", ["public_key=zz", "listen_port=x", f"public_key={'01' * 32}\nrx_bytes=many"])
def test_a_text_that_is_no_answer_is_an_error(said: str) -> None:
    with pytest.raises(ValueError):
        read_uapi(said)
    with pytest.raises(ValueError):
        read_wg(said)


def test_a_key_has_one_spelling() -> None:
    """The last two of the bits that 43 digits have mean nothing."""
    key = base64.b64encode(bytes(32)).decode()
    assert key.endswith("AA=") and is_key(key)
    for other in ("B", "C", "D"):
        spelled = key[:-2] + other + "="
        assert base64.b64decode(spelled, validate=True) == bytes(32) and not is_key(spelled)
        with pytest.raises(Unprocessable, match="wg pubkey"):
            peer_key(spelled)
    assert not is_key(key + "\n") and not is_key("\u00e4" * 44) and not is_key("")


def test_a_key_is_made_once_and_readable_by_its_owner_only(tmp_path: Path) -> None:
    first = own_key(tmp_path / "key")
    assert own_key(tmp_path / "key") == first and is_key(first.public)
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    assert first.private not in repr(first)


def test_a_damaged_key_is_said_to_be_one(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("nonsense")
    with pytest.raises(CannotStart, match="remove it for a new one"):
        own_key(tmp_path / "key")


def test_key_file_says_once_that_its_key_was_replaced(tmp_path: Path) -> None:
    file = tmp_path / "key"
    own = KeyFile(file)
    before = own.key
    assert not own.renewed() and file.stat().st_mode & 0o777 == 0o600
    made = renew_key(file)
    assert made != before and own.renewed() and own.key == made == own_key(file)
    assert not own.renewed() and file.stat().st_mode & 0o777 == 0o600


def test_key_file_that_is_lost_or_is_no_key_leaves_the_key_that_was_there(tmp_path: Path) -> None:
    file = tmp_path / "key"
    own = KeyFile(file)
    before = own.key
    file.unlink()
    assert not own.renewed() and not file.exists()
    file.write_text("no key")
    assert not own.renewed() and own.key == before
