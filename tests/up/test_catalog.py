"""An agent that keeps the catalog: its token, and who is refused or waited for when a node begins."""

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from hawker.catalog.storage import SqliteStorage
from hawker.clock import ManualClock, SystemClock
from hawker.errors import CannotStart
from hawker.fleet.gossip_bridge import GossipBridge
from hawker.ids import NodeId
from hawker.place import Place
from hawker.settings import Settings
from hawker.up.catalog import NodeCatalog, agent_catalog
from hawker.up.seat import token_of_agent
from hawker.up.servers import open_doors
from tests.catalog.answering import answering


def test_a_token_is_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("abc\n")
    token = token_of_agent(file)
    assert token is not None and token.reveal() == "abc" and "abc" not in repr(token)
    assert token_of_agent(None) is None


@pytest.mark.parametrize("content", [b"", b"a\nb", b"\xff", "é".encode()])
def test_a_text_that_is_no_token_is_refused_and_not_shown(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "token"
    file.write_bytes(content)
    with pytest.raises(CannotStart, match="--catalog-token-file"):
        token_of_agent(file)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match=r"cannot read .*/none"):
        token_of_agent(tmp_path / "none")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"HTTP/1.1 405 Not Allowed\r\nserver: nginx\r\n\r\n<html>", "no agent of a catalog .it answered 405"),
        (b"HTTP/1.1 301 Moved\r\nlocation: https://192.0.2.1/\r\n\r\n", "it answered 301"),
        (b'HTTP/1.1 404 Not Found\r\n\r\n{"error":"no such call"}', "it answered 404: 'no such call'"),
        (b"HTTP/1.1 200 OK\r\n\r\n<html>It works!</html>\n", "It works!"),
        (b"HTTP/1.1 401 Unauthorized\r\n\r\n", "refuses our token: give the right one with --catalog-token-file"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "does not speak HTTP"),
    ],
)
@pytest.mark.anyio
async def test_a_node_does_not_begin_beside_what_is_no_agent_of_its(answer: bytes, words: str) -> None:
    async with answering(answer) as url, AsyncExitStack() as stack:
        with pytest.raises(CannotStart, match=words) as refusal:
            await begun(stack, url)
        assert url in str(refusal.value) and "\n" not in str(refusal.value)


@pytest.mark.anyio
async def test_a_node_does_not_begin_where_tls_is_asked_of_an_agent_without() -> None:
    async with answering(b"HTTP/1.1 400 Bad Request\r\n\r\n") as url, AsyncExitStack() as stack:
        with pytest.raises(CannotStart, match="does not speak TLS as https:// asks"):
            await begun(stack, url.replace("http://", "https://"))


@pytest.mark.parametrize(
    "answer", [b"", b'HTTP/1.1 500 Oops\r\n\r\n{"error":"disk I/O error"}', b"HTTP/1.1 503 Later\r\n\r\n"]
)
@pytest.mark.anyio
async def test_a_node_begins_without_an_agent_that_may_come_back(answer: bytes) -> None:
    async with answering(answer) as url, AsyncExitStack() as stack:
        kept = await begun(stack, url)
        assert kept.check is not None and len(await kept.check.findings()) == 1
    async with AsyncExitStack() as stack:
        assert (await begun(stack, url)).mirror is not None, "nobody is there any more"


async def begun(stack: AsyncExitStack, url: str) -> NodeCatalog:
    settings = Settings(data_dir=Path("/nowhere"), catalog_url=url)
    meeting: GossipBridge[SqliteStorage] = GossipBridge()
    return await agent_catalog(stack, settings, SystemClock(), NodeId("0000beef"), meeting, {}, lambda _: None)


def test_an_agent_of_a_node_that_is_alone_is_refused(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, catalog_url="http://127.0.0.1:8080")
    with pytest.raises(CannotStart, match="--catalog-url is for a node of a cluster: give --advertise"):
        open_doors(settings, Place(tmp_path), ManualClock(), None, public=True)


def test_a_token_without_an_agent_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, advertise="127.0.0.1", peer_port=1, catalog_token_file=tmp_path / "t")
    place = Place(tmp_path)
    with pytest.raises(CannotStart):
        open_doors(settings, place, ManualClock(), None, public=False)
    assert not list(tmp_path.iterdir())
