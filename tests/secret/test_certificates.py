"""Certificates in the store: sealed, each of one app, gone with it."""

import msgspec
import pytest

from hawker.api.contract.app import CREATE_APP, DELETE_APP, AppParams, CreateAppRequest
from hawker.errors import Fault, NotFound, Unprocessable
from hawker.fair.table import CERTIFICATES as CERTIFICATES_SHARE
from hawker.record.app import CERTIFICATES
from hawker.secret.certificates import Certificates, open_pair
from hawker.sim.node.sim_worker import APP, SimWorker
from hawker.vault import Vault
from tests.certificates import issued

pytestmark = pytest.mark.anyio
HOST = "shop.example.com"


@pytest.fixture
def certificates(worker: SimWorker) -> Certificates:
    return worker.parts.deps.certificates


async def test_a_certificate_is_kept_sealed_and_opened_with_its_own_key(
    worker: SimWorker, certificates: Certificates
) -> None:
    told: list[int] = []
    certificates.listen(lambda: told.append(1))
    chain, key = issued(HOST)
    record = await certificates.put(APP, "Shop.example.com.", chain, key)
    clock = worker.parts.deps.clock
    assert record.hostname == HOST and b"PRIVATE KEY" not in record.sealed and told == [1]
    assert open_pair(Vault(certificates.key, clock), HOST, record.sealed).key.decode() == key
    with pytest.raises(Fault):
        open_pair(Vault(b"x" * 32, clock), HOST, record.sealed)
    with pytest.raises(Fault):
        open_pair(Vault(certificates.key, clock), "other.example.com", record.sealed)


async def test_the_key_of_certificates_opens_no_other_secret(worker: SimWorker, certificates: Certificates) -> None:
    await worker.parts.deps.secrets.set(APP, {"URL": "x"})
    record = worker.parts.deps.secrets.get(APP, "URL")
    with pytest.raises(Fault):
        Vault(certificates.key, worker.parts.deps.clock).open(f"{APP}/URL", record.sealed)


async def test_a_host_name_is_one_apps(worker: SimWorker, certificates: Certificates) -> None:
    await worker.api.call(CREATE_APP, body=CreateAppRequest(name="other", org_slug="personal"))
    first = await certificates.put(APP, HOST, *issued(HOST))
    with pytest.raises(Unprocessable, match="another app's"):
        await certificates.put("other", HOST, *issued(HOST))
    with pytest.raises(NotFound):
        certificates.get("other", HOST)
    with pytest.raises(NotFound):
        await certificates.delete("other", HOST)
    again = await certificates.put(APP, HOST, *issued(HOST))
    assert again.created_at == first.created_at and again.sealed != first.sealed
    await certificates.delete(APP, HOST)
    assert (await certificates.put("other", HOST, *issued(HOST))).app == "other"


async def test_an_app_has_only_so_many(certificates: Certificates, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hawker.secret.certificates.MAX_OF_APP", 2)
    for name in ("a.example.com", "b.example.com", "a.example.com"):
        await certificates.put(APP, name, *issued("*.example.com"))
    with pytest.raises(Unprocessable, match="at most 2"):
        await certificates.put(APP, "c.example.com", *issued("*.example.com"))


async def test_an_organization_leaves_the_last_of_a_node_to_others(
    worker: SimWorker, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    share = msgspec.structs.replace(CERTIFICATES_SHARE, total=4, each=3, reserve=1)
    monkeypatch.setattr("hawker.secret.certificates.CERTIFICATES_SHARE", share)
    for app, org in (("second", "personal"), ("theirs", "other"), ("new", "third")):
        await worker.api.call(CREATE_APP, body=CreateAppRequest(name=app, org_slug=org))
    for app, name in ((APP, "a"), ("second", "b"), (APP, "c")):
        await certificates.put(app, f"{name}.example.com", *issued("*.example.com"))
    with pytest.raises(Unprocessable, match=r"at most 4 certificates, .* it has 3, 3 of this organization"):
        await certificates.put("second", "d.example.com", *issued("*.example.com"))
    await certificates.put("theirs", "d.example.com", *issued("*.example.com"))
    with pytest.raises(Unprocessable, match="it has 4, 0 of this organization"):
        await certificates.put("new", "e.example.com", *issued("*.example.com"))


async def test_they_go_with_the_app(worker: SimWorker, certificates: Certificates) -> None:
    await certificates.put(APP, HOST, *issued(HOST))
    await worker.api.call(DELETE_APP, params=AppParams(app_name=APP))
    assert list(worker.store.scan(CERTIFICATES)) == []
    with pytest.raises(NotFound):
        await certificates.put(APP, HOST, *issued(HOST))


async def test_the_host_name_of_the_platforms_api_is_no_apps(worker: SimWorker) -> None:
    deps = worker.parts.deps
    certificates = Certificates(
        worker.store, Vault(b"x" * 32, deps.clock), deps.clock, "example.com", f"{APP}.example.com"
    )
    with pytest.raises(Unprocessable, match="its API is reached there"):
        await certificates.put(APP, f"{APP}.example.com", *issued(f"{APP}.example.com"))
