"""The lease answers as both families of clients read them (contract 1.0.1 a and b)."""

import msgspec

from hawker.api.codec import encode_json
from hawker.api.contract.machine_operation import LeaseData, lease_answer, lease_released


def test_a_lease_is_the_envelope_with_the_flat_fields_beside_it() -> None:
    data = LeaseData(nonce="n", expires_at=1700000000, owner="alice", description="", version="01H")
    flat = msgspec.to_builtins(data)
    sent = msgspec.json.decode(encode_json(lease_answer(data)))
    assert flat == {"nonce": "n", "expires_at": 1700000000, "owner": "alice", "description": "", "version": "01H"}
    assert sent == {"status": "success", "data": flat, **flat}


def test_a_release_says_ok_in_the_envelope() -> None:
    assert encode_json(lease_released()) == b'{"status":"success","data":{"ok":true}}'
