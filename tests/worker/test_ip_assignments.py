"""Addresses of apps: each given to one app at a time, and back when it goes."""

from ipaddress import ip_address, ip_network
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hawker.api.contract.app import DELETE_APP, AppParams
from hawker.app import network_id
from hawker.errors import BadRequest, NotFound, Unprocessable
from hawker.host.address import machine_prefix, network_prefix
from hawker.ids import MachineId
from hawker.record.app import IPS, IPS_TAKEN
from hawker.sim.node.sim_worker import APP, SimWorker
from hawker.sim.node.world import HOST_ADDRESSES
from hawker.worker.ip_assignments import MAX_PER_APP, IpAllocator, IpRequest

pytestmark = pytest.mark.anyio


def ips_of(worker: SimWorker, *, outward: dict[int, str] | None = None, **settings: Any) -> IpAllocator:
    deps = worker.parts.deps
    changed = msgspec.structs.replace(deps.settings, **settings)
    here = HOST_ADDRESSES if outward is None else outward
    return IpAllocator(deps.store, deps.clock, changed, "mad", here.get, worker.parts.quotas)


async def test_a_pool_gives_each_address_to_one_app_until_it_is_empty(worker: SimWorker) -> None:
    await worker.app("other")
    ips = ips_of(worker, public_ipv4=("203.0.113.0/29", "198.51.100.7/32"))
    given = [await ips.allocate(app, IpRequest(type="v4")) for app in (APP, "other") * 3] + [
        await ips.allocate(APP, IpRequest(type="v4"))
    ]
    addresses = {record.ip for record in given}
    assert addresses == {*(f"203.0.113.{n}" for n in range(1, 7)), "198.51.100.7"}
    assert not any(record.shared for record in given)
    with pytest.raises(Unprocessable, match="release one, or add to --public-ipv4"):
        await ips.allocate("other", IpRequest(type="v4"))
    await ips.release(APP, given[0].ip)
    assert (await ips.allocate("other", IpRequest(type="v4"))).ip == given[0].ip


async def test_the_nodes_shared_address_is_given_to_nobody_alone(worker: SimWorker) -> None:
    ips = ips_of(worker, public_ipv4=("203.0.113.1/32",), shared_ipv4="203.0.113.1")
    with pytest.raises(Unprocessable, match="every address"):
        await ips.allocate(APP, IpRequest(type="v4"))


async def test_without_a_pool_there_is_no_address_of_ones_own(worker: SimWorker) -> None:
    with pytest.raises(Unprocessable, match="shared_v4, or give the node a pool with --public-ipv4"):
        await ips_of(worker).allocate(APP, IpRequest(type="v4"))


async def test_a_pool_of_ipv6_may_be_as_large_as_it_is(worker: SimWorker) -> None:
    ips = ips_of(worker, public_ipv6=("2001:db8:1::/48",))
    one, other = [await ips.allocate(APP, IpRequest(type="v6")) for _ in range(2)]
    assert one.ip != other.ip and not one.shared
    assert ip_address(one.ip) in ip_network("2001:db8:1::/48")


async def test_the_first_deploy_of_a_client_gets_what_it_asks_for_without_any_setting(worker: SimWorker) -> None:
    """It asks for v6 and then for shared_v4, and gives up when either is refused."""
    ips = ips_of(worker)
    v6, v4 = await ips.allocate(APP, IpRequest(type="v6")), await ips.allocate(APP, IpRequest(type="shared_v4"))
    assert (v6.ip, v6.shared, v4.ip, v4.shared) == (HOST_ADDRESSES[6], True, HOST_ADDRESSES[4], True)
    assert [record.type for record in ips.list(APP)] == ["v6", "shared_v4"]


async def test_a_host_without_ipv6_gives_an_address_of_the_private_network(worker: SimWorker) -> None:
    ips = ips_of(worker, outward={4: "192.0.2.10"})
    v6 = await ips.allocate(APP, IpRequest(type="v6"))
    assert ip_address(v6.ip) in network_prefix(network_id("personal", "default")) and not v6.shared


async def test_a_host_without_any_way_outwards_says_what_to_set(worker: SimWorker) -> None:
    with pytest.raises(Unprocessable, match="--shared-ipv4"):
        await ips_of(worker, outward={}).allocate(APP, IpRequest(type="shared_v4"))
    shared = await ips_of(worker, outward={}, shared_ipv4="203.0.113.5").allocate(APP, IpRequest(type="shared_v4"))
    assert shared.ip == "203.0.113.5"


async def test_an_address_there_is_one_of_is_given_once(worker: SimWorker) -> None:
    ips = ips_of(worker)
    for kind in ("shared_v4", "private_v6", "v6"):
        first = await ips.allocate(APP, IpRequest(type=kind, service_name="web"))
        assert await ips.allocate(APP, IpRequest(type=kind)) == first
        with pytest.raises(Unprocessable, match=r"^service_name"):
            await ips.allocate(APP, IpRequest(type=kind, service_name="mail"))


async def test_apps_share_the_shared_address_and_one_that_goes_leaves_it_to_the_others(worker: SimWorker) -> None:
    await worker.app("other")
    ips = ips_of(worker)
    for app in (APP, "other"):
        assert (await ips.allocate(app, IpRequest(type="shared_v4"))).ip == HOST_ADDRESSES[4]
    await ips.release("other", HOST_ADDRESSES[4])
    assert len(ips.list(APP)) == 1 and ips.list("other") == []


async def test_a_private_address_is_in_the_apps_network_or_the_one_that_was_asked_for(worker: SimWorker) -> None:
    ips = ips_of(worker)
    own = await ips.allocate(APP, IpRequest(type="private_v6"))
    there = await ips.allocate(APP, IpRequest(type="private_v6", network="lab"))
    abroad = await ips.allocate(APP, IpRequest(type="private_v6", network="lab", org="acme"))
    networks = [network_id("personal", "default"), network_id("personal", "lab"), network_id("acme", "lab")]
    for record, number in zip((own, there, abroad), networks, strict=True):
        assert ip_address(record.ip) in network_prefix(number)
    assert [(each.org, each.network) for each in (own, there, abroad)] == [
        ("personal", "default"),
        ("personal", "lab"),
        ("acme", "lab"),
    ]


@given(st.integers(0, 2**56 - 1))
def test_no_machine_can_have_a_private_address_of_an_app(number: int) -> None:
    """A machine owns the /112 of its id; in it, bits 16 to 23 are 0."""
    prefix = machine_prefix(1, MachineId(f"{number:014x}"))
    assert int(prefix.network_address) >> 16 & 0xFF == 0


async def test_private_addresses_are_outside_of_what_machines_own(worker: SimWorker) -> None:
    record = await ips_of(worker).allocate(APP, IpRequest(type="private_v6"))
    assert int(ip_address(record.ip)) >> 16 & 0xFF == 1


@pytest.mark.parametrize(
    ("wish", "error", "text"),
    [
        (IpRequest(type="v5"), BadRequest, "invalid ip address type"),
        (IpRequest(type=""), BadRequest, "invalid ip address type"),
        (IpRequest(type="egress_v4"), Unprocessable, "egress_v4 is not served"),
        (IpRequest(type="egress_v6"), Unprocessable, "egress_v6 is not served"),
        (IpRequest(type="egress_pair"), Unprocessable, "egress_pair is not served"),
        (IpRequest(type="shared_v4", network="lab"), Unprocessable, "^network"),
        (IpRequest(type="shared_v4", org="acme"), Unprocessable, "^org_slug"),
        (IpRequest(type="private_v6", network="no such!"), Unprocessable, "^network"),
        (IpRequest(type="shared_v4", region="iad"), Unprocessable, "^region"),
        (IpRequest(type="shared_v4", service_name="x" * 64), Unprocessable, "^service_name"),
    ],
)
async def test_an_address_that_cannot_be_given_is_refused_by_name(
    worker: SimWorker, wish: IpRequest, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        await ips_of(worker).allocate(APP, wish)
    assert ips_of(worker).list(APP) == []


async def test_a_region_is_kept_and_global_without_one(worker: SimWorker) -> None:
    ips = ips_of(worker, public_ipv4=("203.0.113.0/29",))
    regions = [
        (await ips.allocate(APP, IpRequest(type="v4", region=region))).region for region in ("", "mad", "eu", "global")
    ]
    assert regions == ["global", "mad", "eu", "global"]


async def test_an_app_has_a_bounded_number(worker: SimWorker) -> None:
    ips = ips_of(worker, public_ipv6=("2001:db8:1::/48",))
    for _ in range(MAX_PER_APP):
        await ips.allocate(APP, IpRequest(type="v6"))
    with pytest.raises(Unprocessable, match="at most 64"):
        await ips.allocate(APP, IpRequest(type="v6"))


@pytest.mark.parametrize("text", ["203.0.113.9", "banana", "", "fe80::1%eth0"])
async def test_an_address_that_the_app_does_not_have_cannot_be_released(worker: SimWorker, text: str) -> None:
    await worker.app("other")
    ips = ips_of(worker, public_ipv4=("203.0.113.8/30",))
    await ips.allocate("other", IpRequest(type="v4"))
    with pytest.raises(NotFound, match="not found"):
        await ips.release(APP, text)


async def test_an_address_may_be_written_in_another_way(worker: SimWorker) -> None:
    ips = ips_of(worker, public_ipv6=("2001:db8:1::5/128",))
    await ips.allocate(APP, IpRequest(type="v6"))
    await ips.release(APP, "2001:0DB8:0001:0000:0000:0000:0000:0005")
    assert ips.list(APP) == []


async def test_addresses_go_with_their_app_and_to_the_next_one(worker: SimWorker) -> None:
    await worker.app("next")
    ips = ips_of(worker, public_ipv4=("203.0.113.8/32",))
    for kind in ("v4", "shared_v4", "private_v6"):
        await ips.allocate(APP, IpRequest(type=kind))
    await worker.api.call(DELETE_APP, params=AppParams(app_name=APP))
    assert not list(worker.store.scan(IPS)) and not list(worker.store.scan(IPS_TAKEN))
    assert (await ips.allocate("next", IpRequest(type="v4"))).ip == "203.0.113.8"


async def test_an_app_that_is_not_there_gets_nothing(worker: SimWorker) -> None:
    with pytest.raises(NotFound, match="app not found"):
        await ips_of(worker).allocate("ghost", IpRequest(type="shared_v4"))
    with pytest.raises(NotFound, match="app not found"):
        await ips_of(worker).release("ghost", "192.0.2.10")
