"""Headers of our own: what they may hold, and that nobody can put more into them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.api.call_metadata import (
    DEADLINE_HEADER,
    MAX_CALLER,
    CallMetadata,
    place_of,
    read_behalf,
    read_deadline,
    read_name,
    read_tokens,
    written_behalf,
    written_deadline,
    written_name,
)
from hawker.api.route import Call, NoParams, NoQuery, Tag, Unary
from hawker.errors import BadRequest
from tests.api.serving import Fake, served

WAIT = Unary(
    name="wait",
    method="POST",
    path="/hawker/v1/wait",
    params=NoParams,
    query=NoQuery,
    body=type(None),
    response=type(None),
    tag=Tag.NODE,
    summary="Wait",
    timeout_s=7.0,
)


def test_empty_metadata_has_no_headers() -> None:
    assert CallMetadata().headers() == []


def test_version_and_missing_regions_are_a_header_each() -> None:
    metadata = CallMetadata()
    metadata.version, metadata.missing_regions = "0123abcd:2:7", ("mad", "far\r\naway")
    assert metadata.headers() == [
        (b"hawker-version", b"0123abcd:2:7"),
        (b"hawker-missing-regions", b"mad, far%0D%0Aaway"),
    ]


def test_metadata_is_heard_as_it_was_sent() -> None:
    sent, heard = CallMetadata(), CallMetadata()
    sent.version, sent.missing_regions = "5888b352:7:3", ("mad", "a, b")
    heard.hear({name.decode(): value.decode() for name, value in sent.headers()})
    assert (heard.version, heard.missing_regions) == (sent.version, sent.missing_regions)


def test_a_place_is_read_as_it_was_given_out() -> None:
    assert place_of("0123abcd:2:7") == "0123abcd:2:7"
    assert place_of(None) is None and place_of("") is None


@pytest.mark.parametrize(
    "text", ["x", "0123abcd:2", "0123ABCD:2:7", "0123abcd:-1:7", "0123abcd:2:7 ", "0123abcd:2:" + "9" * 40]
)
def test_a_header_that_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(BadRequest):
        place_of(text)


@given(st.text())
def test_any_name_travels_in_a_header_and_is_bounded(name: str) -> None:
    written = written_name(name.encode(errors="replace").decode())
    assert written.isascii() and written.isprintable()
    assert read_name(written) == name.encode(errors="replace").decode()[:MAX_CALLER]


def test_a_hostile_name_is_cut() -> None:
    assert len(read_name("%41" * 100_000)) == MAX_CALLER


@given(st.text(), st.lists(st.from_regex(r"[0-9a-f]{24}", fullmatch=True), min_size=1, max_size=17).map(tuple))
def test_a_caller_is_read_as_it_was_written(name: str, token_ids: tuple[str, ...]) -> None:
    assert read_behalf(written_behalf(name, token_ids)) == (name, token_ids)


@given(st.text())
def test_a_name_makes_no_token(name: str) -> None:
    forged = f"{name}\n{'0' * 24}"
    assert read_behalf(written_behalf(forged, ("1" * 24,))) == (forged, ("1" * 24,))


@pytest.mark.parametrize(
    "text", [None, "", "x", "0" * 23, "0" * 25, "A" * 24, ",".join(["0" * 24] * 18), "0" * 24 + "\n"]
)
def test_a_header_that_is_no_list_of_tokens_names_none(text: str | None) -> None:
    assert read_tokens(text) == ()


@pytest.mark.parametrize(("text", "left_s"), [(None, None), ("", None), ("0", 0.0), ("1500", 1.5)])
def test_deadline_header_is_read_in_seconds(text: str | None, left_s: float | None) -> None:
    assert read_deadline(text) == left_s


@pytest.mark.parametrize("text", ["-1", "1.5", "x", "1" * 10, "²"])
def test_deadline_header_that_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(BadRequest, match="Hawker-Deadline-Ms"):
        read_deadline(text)


def test_deadline_is_read_as_it_was_written() -> None:
    assert [read_deadline(written_deadline(left_s)) for left_s in (-1.0, 0.25, 60.0)] == [0.0, 0.25, 60.0]


@pytest.mark.anyio
async def test_a_handler_knows_how_long_its_caller_waits() -> None:
    fake = Fake()
    async with served(fake.handlers([WAIT]), [WAIT]) as node:
        await node.client.call(WAIT)
        await node.client.call(WAIT, timeout_s=30.5)
        async with node.http.post(WAIT.path) as response:
            assert response.status == 200
        async with node.http.post(WAIT.path, headers={DEADLINE_HEADER: "soon"}) as response:
            assert response.status == 400
    calls: list[Call[NoParams, NoQuery, None]] = fake.calls
    assert [call.deadline_s for call in calls] == [7.0, 30.5, None]
