"""The API of a VMM: errors in its own words, cut and cleaned."""

from pathlib import Path

import msgspec
import pytest

from hawker.clock import SystemClock
from hawker.errors import Unavailable
from hawker.runtime.vmm.vmm_api import VmmApi, VmmRefused, VmmRequest, readable
from tests.runtime.vmm.test_vmm_api_exchange import answering, stay

pytestmark = pytest.mark.anyio
LOOK = VmmRequest("GET", "/look")


class Size(msgspec.Struct, frozen=True, kw_only=True):
    size: int


def api(path: Path) -> VmmApi:
    return VmmApi("Played", path / "s", lambda body: body.decode())


def reply(status: int, body: bytes) -> bytes:
    return b"HTTP/1.1 %d x\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)


async def test_an_answer_is_a_value(tmp_path: Path) -> None:
    with answering(tmp_path / "s", reply(200, b'{"size":7,"more":1}'), stay):
        assert await api(tmp_path).ask(LOOK, Size) == Size(size=7)


@pytest.mark.parametrize("body", [b"", b"[]", b'{"size":"7"}', b'{"size"' * 1000, b"[" * 100_000])
async def test_an_answer_that_is_no_such_value_is_an_error(tmp_path: Path, body: bytes) -> None:
    with answering(tmp_path / "s", reply(200, body), stay), pytest.raises(Unavailable, match="cannot be read"):
        await api(tmp_path).ask(LOOK, Size)


async def test_a_refusal_has_its_words(tmp_path: Path) -> None:
    with answering(tmp_path / "s", reply(400, b"no\nsuch \x1b[31mthing"), stay), pytest.raises(VmmRefused) as caught:
        await api(tmp_path).send(LOOK)
    assert str(caught.value) == "Played refuses GET /look: no such [31mthing"
    assert caught.value.said == "no such [31mthing"


async def test_a_refusal_without_words_has_its_status(tmp_path: Path) -> None:
    with answering(tmp_path / "s", reply(503, b""), stay), pytest.raises(VmmRefused, match="status 503"):
        await api(tmp_path).send(LOOK)


async def test_a_request_that_may_fail_fails_quietly(tmp_path: Path) -> None:
    await api(tmp_path).try_send(LOOK)


async def test_one_that_has_not_appeared_yet_is_waited_for(tmp_path: Path) -> None:
    looks = []

    def alive() -> bool:
        looks.append(True)
        return len(looks) < 3

    with pytest.raises(Unavailable, match="Played ended before it listened"):
        await api(tmp_path).appeared(LOOK, alive, SystemClock())
    with answering(tmp_path / "s", reply(200, b"{}"), stay) as heard:
        await api(tmp_path).appeared(LOOK, alive, SystemClock())
    assert heard[0].startswith(b"GET /look ")


def test_what_is_readable_is_one_short_line() -> None:
    assert readable(" a\r\n\tb\0c\u202e ") == "a b c"
    assert len(readable("x" * 10_000)) == 400
