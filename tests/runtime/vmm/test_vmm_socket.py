"""Whatever answers at the socket of a VMM: an answer, or an error, in bounded time and memory."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hawker.errors import Unavailable
from hawker.runtime.vmm.vmm_socket import ANSWER_MAX, VmmAbsent, VmmHungUp, exchange

pytestmark = pytest.mark.anyio
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"


@contextmanager
def answering(path: Path, said: bytes, then: Callable[[socket.socket], None] = lambda _: None) -> Iterator[list[bytes]]:
    """Takes one request and says this, byte for byte; `then` before it hangs up."""
    heard: list[bytes] = []

    def serve(listener: socket.socket) -> None:
        joined, _ = listener.accept()
        with joined:
            heard.append(joined.recv(65536))
            try:
                joined.sendall(said)
                then(joined)
            except OSError:
                heard.append(b"the client left")

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        yield heard
        thread.join()


def stay(joined: socket.socket) -> None:
    """Until the client leaves."""
    joined.recv(1)


async def test_an_answer_has_a_status_and_a_body(tmp_path: Path) -> None:
    with answering(tmp_path / "s", OK, stay) as heard:
        answer = await exchange(tmp_path / "s", "PUT", "/a", b"{}", timeout_s=5)
    assert (answer.status, answer.body) == (200, b"hi")
    head, _, body = heard[0].partition(b"\r\n\r\n")
    assert head.startswith(b"PUT /a HTTP/1.1\r\nHost: localhost\r\n") and body == b"{}"
    assert b"Content-Length: 2" in head and b"Content-Type: application/json" in head


async def test_a_request_without_a_body_does_not_speak_of_one(tmp_path: Path) -> None:
    with answering(tmp_path / "s", b"HTTP/1.1 204 \r\nServer: x\r\nConnection: keep-alive\r\n\r\n", stay) as heard:
        answer = await exchange(tmp_path / "s", "PUT", "/b", None, timeout_s=5)
    assert (answer.status, answer.body) == (204, b"")
    assert b"Content" not in heard[0]


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-",
        b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nhalf",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nha",
    ],
)
async def test_half_an_answer_is_none(tmp_path: Path, said: bytes) -> None:
    with answering(tmp_path / "s", said), pytest.raises(VmmHungUp):
        await exchange(tmp_path / "s", "GET", "/", None, timeout_s=5)


@pytest.mark.parametrize(
    "said",
    [
        b"SSH-2.0-nothing\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n\r\n",
        b"\0" * 64,
    ],
)
async def test_an_answer_that_is_no_http_is_an_error(tmp_path: Path, said: bytes) -> None:
    with answering(tmp_path / "s", said, stay), pytest.raises(Unavailable, match="no HTTP"):
        await exchange(tmp_path / "s", "GET", "/", None, timeout_s=5)


@pytest.mark.parametrize(
    "said",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 999999999\r\n\r\n" + b"x" * (ANSWER_MAX + 1),
        b"HTTP/1.1 200 OK\r\n" + b"X-Y: z\r\n" * (ANSWER_MAX // 8 + 1),
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * (ANSWER_MAX + 1),
    ],
)
async def test_an_answer_without_end_is_cut(tmp_path: Path, said: bytes) -> None:
    with answering(tmp_path / "s", said), pytest.raises(Unavailable):
        await exchange(tmp_path / "s", "GET", "/", None, timeout_s=20)


async def test_silence_has_an_end(tmp_path: Path) -> None:
    with answering(tmp_path / "s", b"HTTP/1.1 ", stay), pytest.raises(Unavailable, match=r"no answer .* within 0.05 s"):
        await exchange(tmp_path / "s", "GET", "/", None, timeout_s=0.05)


async def test_nobody_there_is_told_apart(tmp_path: Path) -> None:
    with pytest.raises(VmmAbsent):
        await exchange(tmp_path / "s", "GET", "/", None, timeout_s=5)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "s"))
    with pytest.raises(VmmAbsent, match="refused"):
        await exchange(tmp_path / "s", "GET", "/", None, timeout_s=5)


async def test_a_link_or_a_file_in_its_place_is_not_spoken_to(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "other"))
        listener.listen()
        (tmp_path / "link").symlink_to(tmp_path / "other")
        (tmp_path / "file").touch()
        for name in ("link", "file"):
            with pytest.raises(Unavailable, match="tampered"):
                await exchange(tmp_path / name, "GET", "/", None, timeout_s=5)


async def test_its_path_may_be_longer_than_an_address(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 120)
    deep.mkdir()
    with answering(tmp_path / "s", OK, stay):
        (tmp_path / "s").rename(deep / "s")
        assert (await exchange(deep / "s", "GET", "/", None, timeout_s=5)).status == 200
