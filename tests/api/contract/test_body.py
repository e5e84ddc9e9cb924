from hawker.api.codec import encode_json
from hawker.api.contract.body import instant


def test_an_instant_is_written_in_utc() -> None:
    assert encode_json(instant(1_700_000_000)) == b'"2023-11-14T22:13:20Z"'
    assert encode_json(instant(1_700_000_000.5)) == b'"2023-11-14T22:13:20.500000Z"'
