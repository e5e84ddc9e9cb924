from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import apsw
import msgspec
import pytest

from hawker.config import PUBLISH
from hawker.config.machine import Port, Service
from hawker.feed import EVERYWHERE, ShownChallenge
from hawker.fleet.rows import (
    COLUMNS,
    KEYS,
    NodeFacts,
    Row,
    address_rows,
    app_ip_rows,
    app_row,
    capacity_row,
    certificate_row,
    challenge_row,
    health_rows,
    image_name_row,
    image_row,
    login_row,
    machine_row,
    mesh_row,
    node_row,
    own_rows,
    peer_row,
    quota_row,
    removal,
    revoked_row,
    row_of,
    served_rows,
    service_rows,
    takeover_row,
    upsert,
    usage_row,
    volume_row,
)
from hawker.gpu import parse_gpus
from hawker.ids import AppName, MachineId, NodeId, VolumeId
from hawker.node import Capacity, Resources
from hawker.record.app import AppRecord, CertificateRecord, IpRecord, PeerRecord
from hawker.record.machine import CheckResult
from hawker.record.node import NodeRecord, TakeoverRecord
from hawker.record.org import Amount, LoginRecord, QuotaRecord, QuotaRule
from hawker.record.volume import VolumeRecord, VolumeState
from hawker.sim.node.sim_worker import config_of
from tests.worker.machines import machine

NODE = NodeId("0000000a")
SAID = NodeFacts(
    api="http://10.0.0.1:4282", version="1", drivers=("container",), labels={"disk": "ssd"}, started_at=5.0
)
APP = AppRecord(id="a", number=1, name=AppName("web"), org="me", network="default", network_id=1, created_at=1.0)

TAKEOVER = TakeoverRecord(machine=MachineId("d1"), spare=MachineId("e1"), owner=NodeId("bbbbbbbb"), seen=2.5, at=3.5)


LOGIN = LoginRecord(org="me", registry="reg.example", username="ada", sealed=b"sealed", at=4.0, by="root")


def every_row() -> Iterator[Row]:
    record = machine(
        config=config_of(
            services=[{"protocol": "tcp", "internal_port": 80, "ports": [{"port": 80}]}], metadata={"a": "b"}
        )
    )
    yield node_row(NodeRecord(id=NODE, region="mad", created_at=1.0, cordoned=True), SAID)
    yield app_row(NODE, APP)
    yield machine_row(NODE, record)
    yield from service_rows(NODE, record)
    yield from address_rows(NODE, record)
    yield from served_rows(NODE, record)
    yield mesh_row(NODE, "key", "10.0.0.1:4283")
    yield from health_rows(NODE, record, [CheckResult("web", "passing", "200", 7.5)])
    yield volume_row(NODE, volume())
    yield capacity_row(NODE, Capacity(cpus=4, memory_mib=1024, disk_mib=2048), Resources(memory_mib=256), ())
    yield image_row(NODE, "sha256:00")
    yield takeover_row(NODE, TAKEOVER)
    yield quota_row(NODE, QuotaRecord(subject="org/me", limits=QuotaRule(machines=3), at=4.0, by="root"))
    yield usage_row(NODE, "org/me", Amount(machines=1, memory_mb=256))
    yield login_row(NODE, LOGIN)
    yield image_name_row(NODE, "docker.io/library/app:v1", "sha256:00", 5.5)
    yield from app_ip_rows(NODE, "web", ip_of("v4"))
    yield from app_ip_rows(NODE, "web", ip_of("private_v6", "fdaa:0:1::2"))
    yield certificate_row(NODE, CERTIFICATE, "c2VhbGVk")
    yield peer_row(NODE, PEER)
    yield challenge_row(NODE, ShownChallenge(hostname="a.example", token="t", answer="t.k", app=AppName("web")))
    yield revoked_row(NODE, "t1", at=3.0, by="root", note="lost")


PEER = PeerRecord(
    org="o", name="laptop", network="n", network_id=7, public_key="k", id=MachineId("00000000000001"), created_at=1.0
)
CERTIFICATE = CertificateRecord(
    hostname="a.example",
    app=AppName("web"),
    sealed=b"own",
    kind="ecdsa",
    authority="x",
    not_after=9.0,
    created_at=1.0,
    updated_at=2.5,
)


def ip_of(kind: str, ip: str = "203.0.113.7") -> IpRecord:
    return IpRecord(id="1", ip=ip, type=kind, region="global", service_name="", shared=False, created_at=2.5)


@pytest.mark.parametrize("kind", ["private_v6", "v6"])  # the second where the host had no other
def test_private_addresses_are_told_apart_from_those_that_are_reached_from_outside(kind: str) -> None:
    (row,) = app_ip_rows(NODE, "web", ip_of(kind, "fdaa:0:1::2"))
    assert row.at.table == "private_ips"


def volume() -> VolumeRecord:
    return VolumeRecord(
        id=VolumeId("vol_0000000000000001"),
        app=AppName("web"),
        name="data",
        region="mad",
        state=VolumeState.CREATED,
        size_gb=1,
        created_at=1.0,
        updated_at=1.0,
    )


@pytest.fixture
def tables() -> apsw.Connection:
    connection = apsw.Connection(":memory:")
    connection.execute((files("hawker.catalog") / "tables.sql").read_text())
    return connection


def test_every_table_is_told_of(tables: apsw.Connection) -> None:
    for row in every_row():
        tables.execute(upsert(row).query, upsert(row).params)
    for table in KEYS:
        assert tables.execute(f"SELECT count(*) FROM {table}").get == 1, table


def test_a_row_is_found_again_and_says_the_same(tables: apsw.Connection) -> None:
    for row in every_row():
        tables.execute(upsert(row).query, upsert(row).params)
        question = own_rows(row.at.table).statement((NODE,), None, 10)
        (found,) = tables.execute(question.query, question.params)
        again = row_of(row.at.table, tuple(found))
        assert (again.at, again.digest) == (row.at, row.digest)


def test_the_columns_are_those_of_the_tables(tables: apsw.Connection) -> None:
    for table in KEYS:
        names = tuple(row[1] for row in tables.execute(f"PRAGMA table_info({table})"))
        assert names == (*KEYS[table], *COLUMNS[table])


def test_a_row_told_again_replaces_itself_and_can_be_removed(tables: apsw.Connection) -> None:
    for number, state in enumerate(("started", "stopped")):
        row = machine_row(NODE, machine(state=state, updated_at=float(number)))
        tables.execute(upsert(row).query, upsert(row).params)
    assert tables.execute("SELECT state FROM machines").get == "stopped"
    tables.execute(removal(row.at).query, removal(row.at).params)
    assert tables.execute("SELECT count(*) FROM machines").get == 0


def values(row: Row) -> dict[str, Any]:
    return dict(zip((*KEYS[row.at.table], *COLUMNS[row.at.table]), (*row.at.key, *row.values), strict=True))


def test_an_apps_home_is_where_it_was_made() -> None:
    assert values(app_row(NODE, APP))["home"] == 1
    assert values(app_row(NODE, msgspec.structs.replace(APP, home=NODE)))["home"] == 1
    assert values(app_row(NODE, msgspec.structs.replace(APP, home=NodeId("0000000b"))))["home"] == 0
    assert values(app_row(NODE, msgspec.structs.replace(APP, reign=2)))["home"] == 3
    assert msgspec.json.decode(values(app_row(NODE, APP))["record"], type=AppRecord) == APP


def test_gpus_that_are_taken_are_not_free() -> None:
    gpus = parse_gpus(("a100=0000:01:00.0", "a100=0000:02:00.0"))
    room = Capacity(cpus=4, memory_mib=1024, disk_mib=2048, gpus=gpus)
    assert values(capacity_row(NODE, room, Resources(), ("0000:01:00.0",)))["gpus"] == '{"a100":1}'


def test_a_check_that_passes_again_says_nothing_new() -> None:
    record = machine()
    first, again, worse = (
        next(iter(health_rows(NODE, record, [CheckResult("web", status, "", at)])))
        for status, at in (("passing", 1.0), ("passing", 2.0), ("critical", 2.0))
    )
    assert first.digest == again.digest != worse.digest


def test_services_are_told_as_the_config_has_them() -> None:
    record = machine(config=config_of(services=[{"internal_port": 80}, {"protocol": "udp", "internal_port": 53}]))
    rows = [values(row) for row in service_rows(NODE, record)]
    assert [(row["machine"], row["number"], row["protocol"], row["internal_port"]) for row in rows] == [
        (MachineId("00000000000001"), 0, "tcp", 80),
        (MachineId("00000000000001"), 1, "udp", 53),
    ]
    assert msgspec.json.decode(rows[1]["config"], type=Service) == (record.config.services or ())[1]


def test_services_for_other_regions_are_without_what_only_their_own_host_needs() -> None:
    web = {"internal_port": 80, "ports": [{"port": 80}], "autostop": "stop", "concurrency": {"hard_limit": 3}}
    dns = {"internal_port": 53, "protocol": "udp", "ports": [{"port": 53}]}
    record = machine(config=config_of(services=[dns, web], metadata={PUBLISH: EVERYWHERE}))
    (row,) = served_rows(NODE, record)
    app, publish, services = row.values
    assert (row.at.key, app, publish) == ((NODE, record.id), record.app, EVERYWHERE)
    assert msgspec.json.decode(str(services), type=list[Service]) == [
        Service(internal_port=53, protocol="udp", ports=(Port(port=53),)),
        Service(internal_port=80, ports=(Port(port=80),)),
    ]
    assert not list(served_rows(NODE, machine(config=config_of(services=[{"internal_port": 80}]))))
