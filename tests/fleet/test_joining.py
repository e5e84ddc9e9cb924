from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from hawker.api.contract.body import instant
from hawker.api.contract.cluster import ADMIT_HOST, AdmitAnswer, AdmitRequest, ClusterPeer, Welcome
from hawker.api.grant import Grant
from hawker.api.handlers import Handlers
from hawker.api.listener import listening
from hawker.api.route import Call, NoParams, NoQuery
from hawker.api.server import Server
from hawker.auth.invitation import from_text, sealed_for
from hawker.clock import ManualClock
from hawker.cluster import read_cluster
from hawker.errors import BadRequest, CannotStart, Fault, Forbidden, NotFound, Unauthorized, Unavailable, WrongState
from hawker.fleet.joining import Invites, join_cluster, own_address_towards, url_of
from hawker.ids import NodeId
from hawker.log import Secret
from hawker.place import Place
from hawker.record.machine import MACHINES
from hawker.store.memory_store import MemoryStore
from hawker.store.sqlite import SqliteStore
from tests.ports import free_port
from tests.worker.machines import machine

pytestmark = pytest.mark.anyio

ROOT = Secret("hwk_root")
KEY = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE="


class Living:
    """A node that can be joined, as far as its answer goes."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.cluster, self.keyring, self.keys = "c1", 3, {"2": KEY}
        self.alone = False
        self.dies_before_it_answers = False
        self.asked: list[AdmitRequest] = []
        self.invites = Invites(MemoryStore(), self.clock, ROOT, NodeId("0000000a"))

    async def invited(self, uses: int = 1) -> Secret:
        _, token = await self.invites.make("c1", expires_s=3600, uses=uses, by="root")
        return Secret(token)

    async def admit(self, call: Call[NoParams, NoQuery, AdmitRequest]) -> AdmitAnswer:
        self.asked.append(call.body)
        if self.alone:
            raise WrongState("this node is in no cluster")
        secret = await self.invites.admit(call.body, call.source)
        if self.dies_before_it_answers:
            raise Fault("died")
        welcome = msgspec.json.encode(self._welcome())
        key, sealed = sealed_for(call.body.key, secret, call.body.invite, welcome)
        return AdmitAnswer(key=key, sealed=sealed)

    def _welcome(self) -> Welcome:
        return Welcome(
            token=ROOT.reveal(),
            cluster=self.cluster,
            keys=self.keys,
            primary=2,
            keyring=self.keyring,
            peers=(ClusterPeer(node="0000000a", address="10.0.0.1:4281"),),
            now=instant(self.clock.now()),
            version="1",
        )

    @asynccontextmanager
    async def answering(self, routes: bool = True) -> AsyncIterator[str]:
        handlers = Handlers()
        handlers.on(ADMIT_HOST, self.admit)
        server = Server(handlers, self._nobody, self.clock, routes=(ADMIT_HOST,) if routes else ())
        async with listening(server, "127.0.0.1", free_port()) as url:
            yield url

    async def _nobody(self, header: str | None, source: str) -> Grant:
        raise AssertionError("nobody is asked for a token")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "data")


async def join(place: Place, url: str, token: Secret = ROOT, clock: ManualClock | None = None) -> None:
    await join_cluster(place, clock or ManualClock(), url, token, advertise=None, peer_port=4281)


async def test_a_host_joins_by_one_question(place: Place) -> None:
    living = Living()
    async with living.answering() as url:
        await join(place, url)
    cluster = read_cluster(place.cluster)
    assert cluster is not None and (cluster.id, cluster.advertise, cluster.peer_port) == ("c1", "127.0.0.1", 4281)
    assert (cluster.keyring.keys, cluster.keyring.primary, cluster.keyring.version) == ({"2": KEY}, 2, 3)
    assert [(peer.node, peer.address) for peer in cluster.peers] == [("0000000a", "10.0.0.1:4281")]
    assert place.token.read_text() == "hwk_root\n" and place.token.stat().st_mode & 0o777 == 0o600
    assert [(asked.invite, asked.node) for asked in living.asked] == [("root", None)]


async def test_an_invitation_lets_one_host_join(tmp_path: Path) -> None:
    living, first, second = Living(), Place(tmp_path / "1"), Place(tmp_path / "2")
    token = await living.invited()
    async with living.answering() as url:
        await join(first, url, token)
        with pytest.raises(Forbidden, match="this invitation was used; ask for another: `hawker fleet invite`"):
            await join(second, url, token, ManualClock(seed=2))
    assert first.token.read_text() == "hwk_root\n" and not first.joining.exists()
    assert not second.token.exists() and not second.cluster.exists()


async def test_a_host_that_lost_the_answer_joins_by_the_same_invitation(tmp_path: Path) -> None:
    living, first, second = Living(), Place(tmp_path / "1"), Place(tmp_path / "2")
    token = await living.invited()
    async with living.answering() as url:
        living.dies_before_it_answers = True
        with pytest.raises(Fault):
            await join(first, url, token)
        assert first.joining.stat().st_mode & 0o777 == 0o600 and not first.token.exists()
        living.dies_before_it_answers = False
        with pytest.raises(Forbidden, match="was used"):
            await join(second, url, token, ManualClock(seed=2))
        await join(first, url, token)
    assert read_cluster(first.cluster) is not None
    assert [len(each.joined) for each in living.invites.list()] == [1]


async def test_nothing_secret_crosses_the_wire_of_a_join(place: Place) -> None:
    living = Living()
    token = await living.invited()
    secret = from_text(token.reveal()).secret
    async with living.answering() as url:
        await join(place, url, token)
    asked = living.asked[0]
    assert secret not in (asked.key, asked.proof) and ROOT.reveal() not in repr(asked)


async def test_an_answer_of_somebody_else_is_not_believed(place: Place) -> None:
    class Impostor(Living):
        async def admit(self, call: Call[NoParams, NoQuery, AdmitRequest]) -> AdmitAnswer:
            key, sealed = sealed_for(call.body.key, bytes(32), call.body.invite, b"{}")
            return AdmitAnswer(key=key, sealed=sealed)

    async with Impostor().answering() as url:
        with pytest.raises(Unauthorized, match="is no node of that cluster"):
            await join(place, url)
    assert not place.token.exists()


async def test_an_invitation_of_another_cluster_is_refused_before_it_is_shown(place: Place) -> None:
    living = Living()
    async with living.answering() as url:
        await join(place, url)
        _, token = await living.invites.make("c2", expires_s=60, uses=1, by="root")
        with pytest.raises(CannotStart, match=r"is in another cluster \(c1, not c2\)"):
            await join(place, url, Secret(token))
    assert len(living.asked) == 1


async def test_an_invitation_that_is_cut_off_is_told(place: Place) -> None:
    token = await Living().invited()
    with pytest.raises(BadRequest, match="part of it is missing"):
        await join(place, "http://127.0.0.1:1", Secret(token.reveal()[:-9]))


async def test_joining_again_brings_keys_up_to_date(place: Place) -> None:
    living = Living()
    async with living.answering() as url:
        await join(place, url)
        (place.root / "node").write_text("0000000b\n")
        living.keyring = 4
        await join(place, url)
    cluster = read_cluster(place.cluster)
    assert cluster is not None and cluster.keyring.version == 4
    assert living.asked[-1].node == "0000000b"


async def test_a_setting_not_said_again_stays(place: Place) -> None:
    async with Living().answering() as url:
        await join_cluster(place, ManualClock(), url, ROOT, advertise="10.0.0.9", peer_port=5281)
        cluster = await join_cluster(place, ManualClock(), url, ROOT, advertise=None, peer_port=None)
        assert (cluster.advertise, cluster.peer_port) == ("10.0.0.9", 5281)
        cluster = await join_cluster(place, ManualClock(), url, ROOT, advertise="10.0.0.8", peer_port=None)
        assert (cluster.advertise, cluster.peer_port) == ("10.0.0.8", 5281)


async def test_a_directory_of_another_cluster_is_refused(place: Place) -> None:
    living = Living()
    async with living.answering() as url:
        await join(place, url)
        before = place.cluster.read_bytes()
        living.cluster = "c2"
        with pytest.raises(CannotStart, match=r"is in another cluster \(c1, not c2\): choose another --data-dir"):
            await join(place, url)
    assert place.cluster.read_bytes() == before


@pytest.mark.parametrize("machines", [True, False])
async def test_machines_under_another_root_token_are_not_lost(place: Place, machines: bool) -> None:
    place.make()
    place.token.write_text("hwk_own\n")
    store = SqliteStore(place.store)
    if machines:
        record = machine()
        await store.write(lambda tx: tx.put(MACHINES, record.id, record))
    await store.close()
    async with Living().answering() as url:
        if machines:
            with pytest.raises(CannotStart, match="made under another root token"):
                await join(place, url)
            assert place.token.read_text() == "hwk_own\n" and not place.cluster.exists()
        else:
            await join(place, url)
            assert place.token.read_text() == "hwk_root\n"


async def test_a_wrong_token_is_told_and_nothing_is_written(place: Place) -> None:
    async with Living().answering() as url:
        with pytest.raises(Unauthorized, match=r"does not take this token .*: give an invitation"):
            await join(place, url, Secret("hwk_wrong"))
    assert not place.token.exists() and not place.cluster.exists()


@pytest.mark.parametrize(("ahead_s", "how"), [(90.0, "90 s ahead of"), (-3600.0, "3600 s behind")])
async def test_a_wrong_clock_is_told(place: Place, ahead_s: float, how: str) -> None:
    living = Living()
    async with living.answering() as url:
        with pytest.raises(CannotStart, match=f"clock is {how} that of {url}: set it, then join again"):
            await join(place, url, clock=ManualClock(living.clock.now() + ahead_s))
        await join(place, url, clock=ManualClock(living.clock.now() + 59))


async def test_whoever_cannot_be_joined_says_so(place: Place) -> None:
    living = Living()
    living.alone = True
    async with living.answering() as url:
        with pytest.raises(WrongState, match="in no cluster"):
            await join(place, url)
    with pytest.raises(Unavailable, match="cannot reach"):
        await join(place, url)
    async with living.answering(routes=False) as url:
        with pytest.raises(NotFound, match="is no node that can be joined"):
            await join(place, url)


async def test_keys_that_are_none_are_refused(place: Place) -> None:
    living = Living()
    living.keys = {"2": "short"}
    async with living.answering() as url:
        with pytest.raises(CannotStart, match="keyring cannot be used"):
            await join(place, url)
    assert not place.cluster.exists()


async def test_a_directory_in_use_is_refused(place: Place) -> None:
    place.make()
    with place.held(), pytest.raises(CannotStart, match="in use by another hawker"):
        await join(place, "http://127.0.0.1:1")


@pytest.mark.parametrize(
    ("target", "url"),
    [
        ("10.0.0.1", "http://10.0.0.1:4280"),
        ("host.local:80", "http://host.local:80"),
        ("[::1]", "http://[::1]:4280"),
        ("https://host/", "https://host"),
        ("http://host:1/", "http://host:1"),
    ],
)
def test_an_address_is_a_url_in_short(target: str, url: str) -> None:
    assert url_of(target) == url


@pytest.mark.parametrize("target", ["", "ftp://host", "host:port", "http://", "[::1", "host:99999"])
def test_a_text_that_is_no_address_is_told(target: str) -> None:
    with pytest.raises(BadRequest, match="is no address of a node"):
        url_of(target)


def test_the_own_address_is_the_one_towards_the_other() -> None:
    assert own_address_towards("http://127.0.0.1:4280") == "127.0.0.1"
