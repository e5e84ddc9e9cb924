"""Facts about one GET: where it goes, what goes with it, and how failures are sorted."""

import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from urllib.parse import urlsplit

import anyio
import anyio.abc
import pytest

from hawker.clock import ManualClock, SystemClock
from hawker.errors import Unavailable
from hawker.image.reach import PullReach
from hawker.image.transport import (
    RegistryRefused,
    RegistryTransport,
    TryLater,
    new_session,
    persist,
    read_error,
)
from tests.image.fake_registry import FakeRegistry, dripping_registry, fake_registry

pytestmark = pytest.mark.anyio

_BLOB = "sha256:" + "0" * 64
_SECRET = {"Authorization": "Bearer secret"}


async def body(transport: RegistryTransport, url: str, headers: dict[str, str] | None = None) -> bytes:
    async with transport.get(url, headers or {}, urlsplit(url).netloc) as response:
        return await response.read()


def blob_url(registry: FakeRegistry) -> str:
    return f"http://{registry.host}/v2/x/blobs/{_BLOB}"


async def test_body_comes(transport: RegistryTransport, fake: FakeRegistry) -> None:
    fake.blobs[_BLOB] = b"content"
    assert await body(transport, blob_url(fake)) == b"content"


async def test_redirect_within_the_host_keeps_the_credentials(transport: RegistryTransport, fake: FakeRegistry) -> None:
    fake.redirect_to = f"http://{fake.host}"
    with pytest.raises(RegistryRefused, match="redirects in circles"):
        await body(transport, blob_url(fake), _SECRET)
    assert {asked.authorization for asked in fake.asked} == {"Bearer secret"}
    assert len(fake.asked) == 6


async def test_redirect_to_another_host_leaves_the_credentials_behind(fake: FakeRegistry) -> None:
    reach = PullReach(frozenset({"127.0.0.1"}))
    async with fake_registry() as storage, new_session(reach) as session:
        transport = RegistryTransport(lambda: session, reach)
        storage.blobs[_BLOB] = b"content"
        fake.redirect_to = f"http://{storage.host}"
        assert await body(transport, blob_url(fake), _SECRET) == b"content"
        assert [asked.authorization for asked in storage.asked] == [None]


@pytest.mark.parametrize("target", ["http://192.0.2.1", "ftp://127.0.0.1", "file:///etc", "http://127.0.0.1:1"])
async def test_redirect_out_of_safety_is_refused(transport: RegistryTransport, fake: FakeRegistry, target: str) -> None:
    fake.redirect_to = target
    with pytest.raises(RegistryRefused, match=r"refusing to speak (http|ftp|file)"):
        await body(transport, blob_url(fake))


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
async def test_failure_of_the_moment_is_for_later(
    transport: RegistryTransport, fake: FakeRegistry, status: int
) -> None:
    fake.refusals, fake.retry_after = [status], "7"
    with pytest.raises(TryLater, match=rf"answered {status}$") as caught:
        await body(transport, blob_url(fake))
    assert caught.value.after_s == 7.0


@pytest.mark.parametrize("status", [400, 403, 404, 410])
async def test_no_is_no(transport: RegistryTransport, fake: FakeRegistry, status: int) -> None:
    fake.refusals = [status]
    with pytest.raises(RegistryRefused, match=f"the registry answered {status}") as caught:
        await body(transport, blob_url(fake))
    assert (caught.value.status, caught.value.code) == (status, str(status))


async def test_nobody_there_is_for_later(transport: RegistryTransport) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        host = f"127.0.0.1:{probe.getsockname()[1]}"
        with pytest.raises(TryLater, match=f"cannot reach {host}"):
            await body(transport, f"http://{host}/v2/")


async def test_cut_while_reading_is_for_later(transport: RegistryTransport, fake: FakeRegistry) -> None:
    fake.blobs[_BLOB], fake.cuts = bytes(100_000), [50_000]
    with pytest.raises(TryLater):
        await body(transport, blob_url(fake))


async def pull(transport: RegistryTransport, host: str) -> None:
    await body(transport, f"http://{host}/v2/")


async def push(transport: RegistryTransport, host: str) -> None:
    async with transport.send("PUT", f"http://{host}/v2/", {}, host, b"content"):
        pass


async def push_a_stream(transport: RegistryTransport, host: str) -> None:
    async def data() -> AsyncIterator[bytes]:
        yield b"content"
        await SystemClock().sleep(0.4)  # longer than an answer may take: the time begins with the last byte
        sent.append(True)

    sent: list[bool] = []
    with pytest.raises(TryLater) as caught:
        async with transport.send("PUT", f"http://{host}/v2/", {}, host, data()):
            pass
    assert sent
    raise caught.value


@pytest.mark.parametrize("ask", [pull, push, push_a_stream])
async def test_head_of_an_answer_that_drips_is_given_up(
    transport: RegistryTransport, ask: Callable[[RegistryTransport, str], Awaitable[None]]
) -> None:
    """Each byte began the time of silence anew."""
    hasty = RegistryTransport(transport.session, PullReach(), answer_s=0.3)
    async with dripping_registry() as host:
        with anyio.fail_after(20), pytest.raises(TryLater, match=f"{host} does not answer within"):
            await ask(hasty, host)


@pytest.mark.parametrize("ask", [pull, push])
async def test_error_that_drips_is_judged_by_its_status(
    transport: RegistryTransport, ask: Callable[[RegistryTransport, str], Awaitable[None]]
) -> None:
    hasty = RegistryTransport(transport.session, PullReach(), answer_s=2.0)  # the head is in time on a busy host, too
    async with dripping_registry(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 60000\r\n\r\n") as host:
        with anyio.fail_after(20), pytest.raises(RegistryRefused, match="the registry answered 403"):
            await ask(hasty, host)


async def test_plain_server_behind_https_gets_a_hint(transport: RegistryTransport, fake: FakeRegistry) -> None:
    with pytest.raises(
        RegistryRefused, match="does not speak TLS; if it speaks plain HTTP, list it in insecure_registries"
    ):
        await body(transport, f"https://{fake.host}/v2/")


async def test_proxy_of_the_environment_is_used_but_not_for_loopback(
    transport: RegistryTransport, fake: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", "")
    fake.blobs[_BLOB] = b"content"
    assert await body(transport, blob_url(fake)) == b"content"
    lab = RegistryTransport(transport.session, PullReach(frozenset({"lab.example"})))
    with pytest.raises(TryLater, match=r"cannot reach lab.example: its proxy, .*Connection refused"):
        await body(lab, "http://lab.example/v2/")


@pytest.mark.parametrize("text", [b"", b"<html>", b"{}", b'{"errors": []}', b'{"errors": "x"}'])
def test_error_body_of_another_kind_says_nothing(text: bytes) -> None:
    assert read_error(text) == ("", "")


class Flaky:
    """Fails with each error in turn, then answers."""

    def __init__(self, *errors: TryLater) -> None:
        self.errors = list(errors)
        self.calls = 0

    async def __call__(self) -> str:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return "answer"


async def test_answer_comes_after_failures() -> None:
    flaky = Flaky(*[TryLater("down")] * 4)
    assert await persist(ManualClock(), "asking", flaky) == "answer"
    assert flaky.calls == 5


async def test_fifth_failure_in_a_row_is_the_last() -> None:
    flaky = Flaky(*[TryLater("down")] * 9)
    with pytest.raises(Unavailable, match="asking: down"):
        await persist(ManualClock(), "asking", flaky)
    assert flaky.calls == 5


async def test_progress_counts_anew() -> None:
    flaky = Flaky(*[TryLater("cut", progressed=True)] * 20)
    assert await persist(ManualClock(), "asking", flaky) == "answer"


async def test_waits_grow_and_are_as_long_as_asked_within_reason() -> None:
    clock = ManualClock()
    began = clock.now()
    await persist(clock, "asking", Flaky(TryLater("busy", after_s=4)))
    assert 3 <= clock.now() - began <= 4
    began = clock.now()
    await persist(clock, "asking", Flaky(TryLater("busy", after_s=100_000)))
    assert clock.now() - began <= 15
    began = clock.now()
    await persist(clock, "asking", Flaky(*[TryLater("down")] * 4))
    assert 0.75 * 4.5 <= clock.now() - began <= 4.5
