"""Certificates over the API."""

from typing import Any

import msgspec
import pytest

from hawker.api.contract.app import ASSIGN_IP, CREATE_APP, AppParams, AssignIpRequest, CreateAppRequest
from hawker.api.contract.certificate import (
    CHECK_CERTIFICATE,
    DELETE_CERTIFICATE,
    DELETE_CUSTOM_CERTIFICATE,
    DELETE_ORDERED_CERTIFICATE,
    DELETE_PLATFORM_CERTIFICATE,
    GET_CERTIFICATE,
    IMPORT_CERTIFICATE,
    IMPORT_PLATFORM_CERTIFICATE,
    LIST_CERTIFICATES,
    LIST_PLATFORM_CERTIFICATES,
    ORDER_CERTIFICATE,
    CertificateParams,
    ImportCertificateRequest,
    ListCertificatesQuery,
    OrderCertificateRequest,
    PlatformCertificate,
    PlatformCertificateParams,
)
from hawker.api.handlers import Handlers
from hawker.api.in_process import InProcessCaller
from hawker.api.route import Call, NoQuery
from hawker.errors import BadRequest, NotFound, NotServed, Unprocessable
from hawker.handlers.certificates import CertificateHandlers, PlatformCertificateHandlers
from hawker.ids import AppName
from hawker.record.app import CERTIFICATE_ORDERS, CertificateOrder
from hawker.secret.certificate_orders import CertificateBuyer
from hawker.secret.certificates import PLATFORM, Certificates, FarCertificate
from hawker.secret.ownership import NameLookup
from hawker.sim.node.sim_worker import APP, SimWorker
from hawker.sim.node.world import HOST_ADDRESSES
from hawker.vault import Vault
from tests.certificates import issued

pytestmark = pytest.mark.anyio
HERE = AppParams(app_name=APP)
NAME = "shop.example.com"
ONE = CertificateParams(app_name=APP, hostname=NAME)


async def unsaid(name: str, kind: str) -> tuple[str, ...]:
    return ()


async def imported(worker: SimWorker, name: str = NAME) -> Any:
    chain, key = issued(name)
    body = ImportCertificateRequest(hostname=name, fullchain=chain, private_key=key)
    return await worker.api.call(IMPORT_CERTIFICATE, params=HERE, body=body)


async def test_a_certificate_is_imported_shown_listed_and_removed_and_its_key_never_comes_back(
    worker: SimWorker,
) -> None:
    made = await imported(worker)
    assert (made.hostname, made.status, made.configured) == (NAME, "active", False)
    (entry,) = made.certificates
    assert (entry.source, entry.issuer, entry.issued[0].type) == ("custom", "Test Root", "ecdsa")
    assert await worker.api.call(GET_CERTIFICATE, params=ONE) == made
    listed = await worker.api.call(LIST_CERTIFICATES, params=HERE)
    assert listed.total_count == 1 and listed.certificates[0].has_custom_certificate
    assert b"PRIVATE" not in msgspec.json.encode((made, listed))
    await worker.api.call(DELETE_CERTIFICATE, params=ONE)
    with pytest.raises(NotFound):
        await worker.api.call(GET_CERTIFICATE, params=ONE)


async def test_a_list_has_pages_and_a_filter(worker: SimWorker) -> None:
    for name in ("a.example.com", "b.example.com", "b.example.net"):
        await imported(worker, name)
    first = await worker.api.call(LIST_CERTIFICATES, params=HERE, query=ListCertificatesQuery(limit=2))
    assert [each.hostname for each in first.certificates] == ["a.example.com", "b.example.com"]
    assert first.total_count == 3
    rest = ListCertificatesQuery(limit=2, cursor=first.next_cursor)
    second = await worker.api.call(LIST_CERTIFICATES, params=HERE, query=rest)
    assert [each.hostname for each in second.certificates] == ["b.example.net"] and not second.next_cursor
    some = await worker.api.call(LIST_CERTIFICATES, params=HERE, query=ListCertificatesQuery(filter="B.EXAMPLE"))
    assert some.total_count == 2
    with pytest.raises(BadRequest, match="cursor"):
        await worker.api.call(LIST_CERTIFICATES, params=HERE, query=ListCertificatesQuery(cursor="?"))


async def test_a_check_looks_where_the_name_leads(worker: SimWorker) -> None:
    await imported(worker)
    found: list[str] = []
    parts = worker.parts
    assert HOST_ADDRESSES[4] is not None
    leads: tuple[str, ...] = ("192.0.2.77",)

    async def lookup(name: str) -> tuple[str, ...]:
        found.append(name)
        return leads

    handlers = CertificateHandlers(
        worker.store,
        parts.deps.clock,
        parts.apps,
        parts.ips,
        parts.deps.certificates,
        parts.deps.settings,
        NameLookup(lookup, unsaid),
    )
    call: Call[Any, Any, Any] = Call(params=ONE, query=NoQuery(), body=None, grant=None, request_id="r")  # type: ignore[arg-type]
    alone = await handlers.check(call)
    assert alone.validation.dns_configured and alone.configured, "an app without addresses is reached at its host"
    given = await worker.api.call(ASSIGN_IP, params=HERE, body=AssignIpRequest(type="shared_v4"))
    wrong = await handlers.check(call)
    assert not wrong.configured and wrong.validation_errors[0].code == "dns"
    assert wrong.dns_records is not None and wrong.dns_records.a == ("192.0.2.77",)
    assert wrong.dns_requirements.a == (given.ip,)
    leads = (given.ip, "2001:db8::9")
    right = await handlers.check(call)
    assert right.configured and right.dns_records is not None and right.dns_records.aaaa == ("2001:db8::9",)
    assert found == [NAME] * 3
    assert (await worker.api.call(LIST_CERTIFICATES, params=HERE)).certificates[0].configured


async def test_where_ownership_is_required_a_name_is_given_to_whose_it_is_and_not_asked_for_again(
    worker: SimWorker,
) -> None:
    said: dict[tuple[str, str], tuple[str, ...]] = {}
    parts = worker.parts

    async def nowhere(name: str) -> tuple[str, ...]:
        return ()

    async def records(name: str, kind: str) -> tuple[str, ...]:
        return said.get((name, kind), ())

    required = msgspec.structs.replace(parts.deps.settings, cert_ownership="required", domain="apps.example.net")
    handlers = CertificateHandlers(
        worker.store,
        parts.deps.clock,
        parts.apps,
        parts.ips,
        parts.deps.certificates,
        required,
        NameLookup(nowhere, records),
    )

    def call(params: Any, body: Any = None) -> Call[Any, Any, Any]:
        return Call(params=params, query=NoQuery(), body=body, grant=None, request_id="r")  # type: ignore[arg-type]

    def pair(name: str) -> ImportCertificateRequest:
        chain, key = issued(name)
        return ImportCertificateRequest(hostname=name, fullchain=chain, private_key=key)

    with pytest.raises(Unprocessable, match=f"_fly-ownership.{NAME} to app-"):
        await handlers.put(call(HERE, pair(NAME)))
    with pytest.raises(NotFound):
        await worker.api.call(GET_CERTIFICATE, params=ONE)
    below = f"{APP}.apps.example.net"
    needs = (await handlers.put(call(HERE, pair(below)))).dns_requirements.ownership
    said[(f"_fly-ownership.{NAME}", "TXT")] = (f"other; {needs.app_value}",)
    assert (await handlers.put(call(HERE, pair(NAME)))).status == "active"
    assert (await handlers.check(call(ONE))).validation.ownership_txt_configured
    said.clear()
    assert (await handlers.put(call(HERE, pair(NAME)))).status == "active", "it is the app's already"
    assert not (await handlers.check(call(ONE))).validation.ownership_txt_configured


async def test_an_order_waits_until_something_shows_that_its_name_is_the_apps(worker: SimWorker) -> None:
    said: dict[tuple[str, str], tuple[str, ...]] = {}
    parts = worker.parts

    async def nowhere(name: str) -> tuple[str, ...]:
        return ()

    async def records(name: str, kind: str) -> tuple[str, ...]:
        return said.get((name, kind), ())

    settings = msgspec.structs.replace(parts.deps.settings, cert_ownership="required", acme_directory="https://ca/")
    certificates, look = parts.deps.certificates, NameLookup(nowhere, records)
    handlers = CertificateHandlers(worker.store, parts.deps.clock, parts.apps, parts.ips, certificates, settings, look)
    await worker.api.call(CREATE_APP, body=CreateAppRequest(name="other"))

    def call(params: Any, body: Any = None) -> Call[Any, Any, Any]:
        return Call(params=params, query=NoQuery(), body=body, grant=None, request_id="r")  # type: ignore[arg-type]

    other, order = AppParams(app_name="other"), OrderCertificateRequest(hostname=NAME)
    asked = await handlers.order(call(other, order))
    assert asked.status == "pending_ownership" and asked.validation_errors[0].code == "ownership"
    buyer = CertificateBuyer(worker.store, certificates, settings, parts.deps.clock)
    assert buyer.next() is None, "the authority is not asked"
    with pytest.raises(Unprocessable, match="show first that it is yours"):
        await handlers.order(call(HERE, order))

    needs = asked.dns_requirements.ownership
    value = f"app-{parts.apps.get(worker.store, APP).id[:10]}"
    said[(needs.name, "TXT")] = (value,)
    assert (await handlers.order(call(HERE, order))).status == "pending_validation", "it kept nobody from the name"
    with pytest.raises(NotFound):
        await handlers.get(call(CertificateParams(app_name="other", hostname=NAME)))
    await handlers.delete(call(ONE))

    await handlers.order(call(other, order))
    theirs = CertificateParams(app_name="other", hostname=NAME)
    assert (await handlers.check(call(theirs))).status == "pending_ownership"
    said[(needs.name, "TXT")] = (needs.app_value,)
    assert (await handlers.check(call(theirs))).status == "pending_validation"
    due = buyer.next()
    assert due is not None and due.app == "other"


async def test_a_name_that_leads_nowhere_is_said_to(worker: SimWorker) -> None:
    await imported(worker, "*.example.com")
    params = CertificateParams(app_name=APP, hostname="*.example.com")
    checked = await worker.api.call(CHECK_CERTIFICATE, params=params)
    assert "nowhere" in checked.validation_errors[0].message


async def test_removing_the_only_one_is_warned_about(worker: SimWorker) -> None:
    await imported(worker)
    assert (await worker.api.call(DELETE_ORDERED_CERTIFICATE, params=ONE)).status == "active", "none was ordered"
    gone = await worker.api.call(DELETE_CUSTOM_CERTIFICATE, params=ONE)
    assert gone.certificates == () and "no certificate any more" in gone.warning
    with pytest.raises(NotFound):
        await worker.api.call(DELETE_CUSTOM_CERTIFICATE, params=ONE)


async def test_ordering_one_is_not_served_and_says_what_is(worker: SimWorker) -> None:
    with pytest.raises(NotServed, match="`hawker certs import` imports one"):
        await worker.api.call(ORDER_CERTIFICATE, params=HERE, body=OrderCertificateRequest(hostname=NAME))
    ghost = AppParams(app_name="ghost")
    with pytest.raises(NotFound):
        await worker.api.call(ORDER_CERTIFICATE, params=ghost, body=OrderCertificateRequest(hostname=NAME))


async def test_a_bad_pair_is_refused_in_words(worker: SimWorker) -> None:
    body = ImportCertificateRequest(hostname=NAME, fullchain=issued(NAME)[0], private_key=issued(NAME)[1])
    with pytest.raises(Unprocessable, match="private_key"):
        await worker.api.call(IMPORT_CERTIFICATE, params=HERE, body=body)


WIDE, API = "*.apps.example.com", "api.example.com"


class Operator:
    """Of a node with these names of its own."""

    def __init__(self, worker: SimWorker, domain: str | None = "apps.example.com", api: str | None = API) -> None:
        clock, handlers = worker.parts.deps.clock, Handlers()
        self.certificates = Certificates(worker.store, Vault(b"x" * 32, clock), clock, domain, api)
        PlatformCertificateHandlers(clock, self.certificates).bind(handlers)
        self._caller = InProcessCaller(handlers, clock, "operator")

    async def list(self) -> dict[str, PlatformCertificate]:
        answer = await self._caller.call(LIST_PLATFORM_CERTIFICATES)
        return {each.hostname: each for each in answer.certificates}

    async def put(self, name: str, *, certified: str | None = None) -> PlatformCertificate:
        chain, key = issued(certified or name)
        body = ImportCertificateRequest(hostname=name, fullchain=chain, private_key=key)
        return await self._caller.call(IMPORT_PLATFORM_CERTIFICATE, body=body)

    async def delete(self, name: str) -> PlatformCertificate:
        params = PlatformCertificateParams(hostname=name)
        return await self._caller.call(DELETE_PLATFORM_CERTIFICATE, params=params)


async def test_an_operator_imports_certificates_of_the_platforms_own_names_and_takes_them_back(
    worker: SimWorker,
) -> None:
    operator = Operator(worker)
    assert {name: each.status for name, each in (await operator.list()).items()} == {WIDE: "missing", API: "missing"}
    made = await operator.put(API.upper())
    assert (made.hostname, made.status, made.source, made.issuer) == (API, "active", "imported", "Test Root")
    assert (await operator.list())[API] == made and b"PRIVATE" not in msgspec.json.encode(made)
    assert operator.certificates.find(PLATFORM, API) is not None
    assert (await operator.delete(API)).status == "missing"
    with pytest.raises(NotFound, match="`hawker node certs list`"):
        await operator.delete(API)


async def test_a_wildcard_covers_the_name_of_the_api(worker: SimWorker) -> None:
    operator = Operator(worker, "example.com")
    await operator.put("*.example.com")
    assert (await operator.list())[API].status == "covered"


@pytest.mark.parametrize(
    ("domain", "api", "name", "said"),
    [
        ("apps.example.com", API, "shop.example.com", rf"none of this node's own names, which are \{WIDE} and {API}"),
        ("apps.example.com", None, API, "none of this node's own names"),
        (None, None, API, "it has none: see --domain, --api-hostname"),
    ],
)
async def test_a_name_that_is_not_the_platforms_own_is_refused(
    worker: SimWorker, domain: str | None, api: str | None, name: str, said: str
) -> None:
    with pytest.raises(Unprocessable, match=said):
        await Operator(worker, domain, api).put(name)


async def test_a_platforms_name_gets_no_certificate_of_another_one(worker: SimWorker) -> None:
    with pytest.raises(Unprocessable, match="fullchain"):
        await Operator(worker).put(API, certified="shop.example.com")


async def test_a_certificate_of_another_node_is_listed_and_removed_there(worker: SimWorker) -> None:
    operator = Operator(worker)
    now = worker.parts.deps.clock.now()
    operator.certificates.tell_far([FarCertificate(API, PLATFORM, b"", now, now, now + 60.0)])
    there = (await operator.list())[API]
    assert (there.status, there.source, there.issuer) == ("active", "elsewhere", "")
    with pytest.raises(NotFound, match="another node has one"):
        await operator.delete(API)
    operator.certificates.tell_far([FarCertificate(API, PLATFORM, b"", now, now, now - 60.0)])
    assert (await operator.list())[API].status == "expired"
    operator.certificates.tell_far([FarCertificate(API, AppName(APP), b"", now, now, now + 60.0)])
    assert (await operator.list())[API].status == "missing", "an app's is shown for no name of the platform"


async def test_why_a_name_of_the_platform_has_no_certificate_is_listed_and_found(worker: SimWorker) -> None:
    operator = Operator(worker)
    ((name, why),) = operator.certificates.ending()
    assert name == API and "`hawker node certs import`" in why
    operator.certificates.refused_orders[API] = "another app's"
    assert list(operator.certificates.ending()) == [(API, "it cannot be ordered: another app's")], "and nothing else"
    operator.certificates.refused_orders.clear()
    order = CertificateOrder(hostname=API, app=PLATFORM, created_at=0.0, reason="the authority is away")
    await worker.store.write(lambda tx: tx.put(CERTIFICATE_ORDERS, API, order))
    assert list(operator.certificates.ending()) == [(API, "there is none: the authority is away")]
    assert (await operator.list())[API].error == "the authority is away"
    await operator.put(API)
    assert list(operator.certificates.ending()) == []


async def test_a_certificate_that_was_ordered_is_not_removed_as_an_imported_one(worker: SimWorker) -> None:
    operator = Operator(worker)
    order = CertificateOrder(hostname=API, app=PLATFORM, created_at=0.0)
    await worker.store.write(lambda tx: tx.put(CERTIFICATE_ORDERS, API, order))
    await operator.certificates.put(PLATFORM, API, *issued(API), ordered=True)
    assert (await operator.list())[API].source == "ordered"
    with pytest.raises(NotFound, match="no certificate was imported here"):
        await operator.delete(API)
