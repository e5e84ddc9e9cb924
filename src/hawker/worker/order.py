"""An order at a worker: admitted and created in one transaction, at most once, or refused.

With the order comes its app, which this node may not know. `AppBundles` packs and unpacks what else of an app its
machines need on another node than the app's home.

Invariant: an order with a key is sent only to the node that its claim names, and the claim moves on only from a node
that has written down that it will not fill it. So it is filled once, whichever brokers try, and however often.
"""

from collections import OrderedDict
from collections.abc import Callable, Coroutine
from ipaddress import IPv4Network
from typing import Any, Protocol, TypeVar

import anyio
import msgspec

from hawker.api.codec import encode_json
from hawker.api.contract.app import AppParams
from hawker.api.contract.machine import CreateMachineRequest, Machine
from hawker.api.contract.market import (
    CANCEL,
    CLAIM,
    EXPORT_APP,
    FILL,
    QUOTE,
    Bids,
    BidsRequest,
    CancelAnswer,
    CancelQuery,
    Claim,
    ClaimParams,
    ClaimRequest,
    OrderedApp,
    OrderParams,
    OrderRequest,
)
from hawker.api.handlers import Handlers
from hawker.api.route import Call, NoParams, NoQuery
from hawker.app import machine_name, new_machine_name
from hawker.clock import Clock
from hawker.config import MachineConfig, validate
from hawker.config.effective import uploads_of
from hawker.config.placement import Placement, Spread, lacking, parse_labels, placement_of
from hawker.errors import (
    AlreadyExists,
    BadRequest,
    DeadlineExceeded,
    NameTaken,
    NoRoom,
    NotFound,
    NotServed,
    OrderCancelled,
    Unavailable,
)
from hawker.failpoint import reach
from hawker.fsm.runner import Runner
from hawker.ids import AppName, InstanceId, MachineId, NodeId, OrderId, Version, new_machine_id, new_ulid
from hawker.machine import GONE, State
from hawker.node import Resources
from hawker.record.app import APPS, AppRecord
from hawker.record.machine import (
    BY_APP,
    BY_NAME,
    MACHINES,
    Detail,
    MachineRecord,
    MachineTarget,
    Network,
    machine_resource,
)
from hawker.record.node import CANCELLED, CLAIMS, CancelRecord, ClaimRecord, Dated, NodeRecord, closed
from hawker.region import accepts
from hawker.store.contract import Bucket, Reader, Store, Tx
from hawker.volume.attachment import as_wished, attach, volume_id_of
from hawker.worker import leases
from hawker.worker.admission import Admission, free_ipv4
from hawker.worker.apps import AppTable, FilesOfApp
from hawker.worker.bids import MOST_AT_ONCE, Bidder
from hawker.worker.capacity import room_for
from hawker.worker.id_ranges import id_pool, with_ids
from hawker.worker.images import Images, OrgImages, resolve
from hawker.worker.lifecycle.deps import FlowDeps
from hawker.worker.lifecycle.start import CREATE, Launch
from hawker.worker.operations import Operations, check_standbys
from hawker.worker.table import Happened, MachineTable, order_key

KEPT_S = 7 * 86_400.0
MAX_KEY_BYTES = 255
_SWEPT = 8  # looked at, and dropped if old, for each that is added


D = TypeVar("D", bound=Dated)


class OrderLedger:
    """The memory of a worker of orders beside the machines that they became: which were cancelled here and, at the home
    of an app, to which node each order with a key belongs. Each entry that is added looks at the next few old ones, so
    both lists are bounded by age."""

    def __init__(self, store: Store, clock: Clock, table: MachineTable, *, kept_s: float = KEPT_S) -> None:
        self._store = store
        self._clock = clock
        self._table = table
        self._kept_s = kept_s
        self._swept: dict[str, str | None] = {}

    def check(self, reader: Reader, app: AppName, order: OrderId) -> None:
        """Checks that the order was not cancelled, in the transaction that would fill it. Raises `OrderCancelled`."""
        if reader.get(CANCELLED, order_key(app, order)) is not None:
            raise OrderCancelled(f"order {order} was cancelled at this node")

    async def cancel(self, app: AppName, order: OrderId, *, anyway: bool = False) -> MachineRecord | None:
        """The machine if the order was filled; else it never will be. `anyway`: it counts as not filled from now on."""
        key = checked_key(app, order)

        def apply(tx: Tx) -> MachineRecord | None:
            made = self._table.made_for(tx, app, order)
            if not anyway and tx.get(CANCELLED, key) is not None:
                return None
            if made is None or anyway:
                tx.put(CANCELLED, key, CancelRecord(at=self._clock.now()))
                self._sweep(tx, CANCELLED)
            return made

        return await self._store.write(apply)

    async def claim(self, app: AppName, order: OrderId, node: NodeId, instead_of: int | None) -> ClaimRecord:
        """The claim of the order: at `node` if nobody had claimed it, or the claim of the number `instead_of` was the
        last one."""
        key = checked_key(app, order)

        def apply(tx: Tx) -> ClaimRecord:
            there = tx.get(CLAIMS, key)
            if there is not None and there.number != instead_of:
                return there
            number = 0 if there is None else there.number + 1
            claim = ClaimRecord(node=node, number=number, at=self._clock.now())
            tx.put(CLAIMS, key, claim)
            self._sweep(tx, CLAIMS)
            return claim

        return await self._store.write(apply)

    def _sweep(self, tx: Tx, bucket: Bucket[D]) -> None:
        oldest = self._clock.now() - self._kept_s
        found = list(tx.scan(bucket, after=self._swept.get(bucket.name), limit=_SWEPT))
        for key, record in found:
            if record.at < oldest:
                tx.delete(bucket, key)
        self._swept[bucket.name] = found[-1][0] if len(found) == _SWEPT else None


def checked_key(app: AppName, order: OrderId) -> str:
    """The key of an order. Raises `BadRequest`."""
    if not order or len(order.encode()) > MAX_KEY_BYTES:
        raise BadRequest(f"an order's id, or its Idempotency-Key, has 1 to {MAX_KEY_BYTES} bytes")
    return order_key(app, order)


LOOPBACK = "::1"
"""The private address of a machine on the host's own network."""


def serves_region(own: str, wanted: str | None) -> None:
    """Checks that this node is in a wanted region. Raises `NoRoom` when no region of the list (contract 3.11) is this
    node's."""
    if not accepts(wanted, own):
        raise NoRoom(
            f"could not find a candidate host: no host in region '{wanted}', the nearest is '{own}'",
            scope="region",
            shortfall={"hosts": 1},
            nearest=own,
        )


def new_record(
    node: NodeRecord,
    deps: FlowDeps,
    app: AppRecord,
    order: CreateMachineRequest,
    images: Images,
    *,
    caller: str,
    key: OrderId | None,
) -> MachineRecord:
    """The record that an order becomes if it is filled; `key` is the client's name for the order. Raises
    `Unprocessable` for a bad name."""
    clock = deps.clock
    machine_id, now = new_machine_id(clock), clock.now()
    launch = not order.skip_launch
    return MachineRecord(
        id=machine_id,
        app=app.name,
        name=machine_name(order.name) if order.name else new_machine_name(clock.random),
        region=node.region,
        state=State.CREATED,
        version=Version(new_ulid(clock)),
        config=order.config,
        image=images.shown,
        container_images=images.of_containers,
        network=Network(private_ip=_private_ip(deps, app, machine_id), network_id=app.network_id),
        holds=room_for(deps.settings, deps.driver.features.overhead_mib, order.config) if launch else Resources(),
        cordoned=bool(order.skip_service_registration),
        lease=leases.new(clock, caller, "", float(order.lease_ttl)) if order.lease_ttl else None,
        order=key,
        created_at=now,
        updated_at=now,
    )


def _private_ip(deps: FlowDeps, app: AppRecord, machine_id: MachineId) -> str:
    networks = deps.networks
    return LOOPBACK if networks is None else networks.private_ip(app.network_id, machine_id)


_SOUND_CONFIGS, _SOUND_BYTES = 256, 16 * 1024


class AppBundles(Protocol):
    """The part of an app that travels with its orders, beside its record."""

    def pack(self, reader: Reader, app: AppRecord) -> bytes:
        """The app's bundle, at its home."""

    def unpack(self, tx: Tx, app: AppRecord, packed: bytes) -> None:
        """Writes what a bundle has, in the transaction that creates the machine. What is older than what is here
        changes nothing."""


class NoAppBundles:
    """Apps are no more than their records."""

    def pack(self, reader: Reader, app: AppRecord) -> bytes:
        return b""

    def unpack(self, tx: Tx, app: AppRecord, packed: bytes) -> None:
        return None


class HomeOfAll(NoAppBundles):
    """The bundles of a node alone, which is the home of all its apps: an app that is not here was deleted meanwhile."""

    def unpack(self, tx: Tx, app: AppRecord, packed: bytes) -> None:
        """Checks that the app is here. Raises `NotFound`."""
        if tx.get(APPS, app.name) is None:
            raise NotFound("app not found")


class OrderIntake:
    """The one place where an order becomes a machine of this node."""

    def __init__(
        self,
        node: NodeRecord,
        deps: FlowDeps,
        apps: AppTable,
        admission: Admission,
        runner: Runner[FlowDeps],
        ledger: OrderLedger,
        bundles: AppBundles,
    ) -> None:
        self._node = node
        self._deps = deps
        self._apps = apps
        self._admission = admission
        self._runner = runner
        self._ledger = ledger
        self._bundles = bundles
        self._labels = parse_labels(",".join(deps.settings.labels))
        self._ipv4_pool = IPv4Network(deps.settings.ipv4_pool)
        self._id_pool = id_pool(deps.settings, deps.driver.features)
        self._sound: OrderedDict[bytes, Placement] = OrderedDict()

    def export(self, name: str) -> OrderedApp:
        """The app as it travels with an order. Raises `NotFound`."""
        store = self._deps.store
        app = self._apps.get(store, name)
        fields = msgspec.structs.asdict(app)
        fields.pop("idempotency_key")
        fields.pop("home")
        return OrderedApp(**fields, luggage=self._bundles.pack(store, app))

    async def accept_order(self, order: OrderRequest, caller: str, deadline_s: float | None = None) -> MachineRecord:
        """The machine, new or of the same order before, admitted and created in one transaction; once it returns the
        order is filled, whether the answer arrives or not. Raises `NoRoom` when the node cannot fill it,
        `AlreadyExists` when the name is taken, `OrderCancelled` when it came too late, `DeadlineExceeded` when its
        caller has gone before it began."""
        deps, body, key = self._deps, order.machine, OrderId(order.order_id)
        app = _record(order.app)
        checked_key(app.name, key)
        self._ledger.check(deps.store, app.name, key)
        made = deps.table.made_for(deps.store, app.name, key)
        if made is not None:
            return made
        written = encode_json(body.config)
        placement = self._sound.get(written) or placement_of(body.config)
        self._check(deps.store, app.name, placement)
        self._validate(body.config, written, placement)
        serves_region(self._node.region, body.region)
        await check_uploads(deps, app, body.config)
        images = await _in_time(resolve(OrgImages(deps.images, deps.logins, app.org), body.config), deadline_s)
        record = new_record(self._node, deps, app, body, images, caller=caller, key=key)
        skip = bool(body.skip_secrets)

        def apply(tx: Tx) -> MachineRecord:
            self._ledger.check(tx, app.name, key)
            made = deps.table.made_for(tx, app.name, key)
            if made is not None:
                return made
            self._check(tx, app.name, placement)
            _check_same(tx, app)
            self._bundles.unpack(tx, app, order.app.luggage)
            _know(tx, app)
            deps.secrets.check_version(tx, app.name, body.min_secrets_version)
            deps.secrets.check_names(app.name, body.config, skip=skip, reader=tx)
            return self._create(tx, record, launch=not body.skip_launch, skip_secrets=skip)

        reach("create.accept.before")
        filled = await deps.store.write(apply)
        reach("create.accept.after")
        return filled

    def _create(self, tx: Tx, record: MachineRecord, *, launch: bool, skip_secrets: bool) -> MachineRecord:
        """Raises `NoRoom`, and `AlreadyExists` when the name is taken."""
        deps, table = self._deps, self._deps.table
        if tx.get(BY_NAME, f"{record.app}/{record.name}") is not None:
            raise AlreadyExists(f"unique machine name violation, '{record.name}' is taken in app '{record.app}'")
        check_standbys(tx, record.app, record.config)
        placed = attach(tx, self._wished(record), deps.clock.now(), to_guest=deps.driver.features.disks)
        placed = with_ids(tx, self._id_pool, self._with_ipv4(tx, placed))
        placed = self._admission.place(tx, placed)
        table.insert(tx, placed)
        deps.secrets.pin(tx, placed.app, placed.id, placed.version, skip=skip_secrets)
        run = Launch(instance_id=InstanceId(new_ulid(deps.clock)), launch=launch)
        made = table.change(tx, placed, Happened("launch", "created", "user"), awaited=run.instance_id)
        made = _note_watched(tx, table, table.note_attached(tx, made, volume_id_of(made.config)))
        self._runner.accept(tx, CREATE, machine_resource(record.id), run)
        return made

    def _wished(self, record: MachineRecord) -> MachineRecord:
        """A mount that is to be encrypted takes a volume that is not, where the node's settings say so."""
        if self._deps.settings.volume_encryption != "wished":
            return record
        return msgspec.structs.replace(record, config=as_wished(record.config))

    def _with_ipv4(self, tx: Tx, record: MachineRecord) -> MachineRecord:
        """For traffic outwards; machines on the host's own network have none."""
        if self._deps.networks is None:
            return record
        address = free_ipv4(tx, self._ipv4_pool, record.id)
        return msgspec.structs.replace(record, network=msgspec.structs.replace(record.network, ipv4=address))

    def _validate(self, config: MachineConfig, written: bytes, placement: Placement) -> None:
        """Apps order the same machine again and again: a config that was found sound is so for as long as this lives.
        Raises `Unprocessable`."""
        if written in self._sound:
            return
        validate(config, self._deps.driver.features)
        if len(written) <= _SOUND_BYTES:
            self._sound[written] = placement
            if len(self._sound) > _SOUND_CONFIGS:
                self._sound.popitem(last=False)

    def _check(self, reader: Reader, app: AppName, wanted: Placement) -> None:
        """What may have changed since the bid. Raises `Unavailable`, so that the broker goes on to the next."""
        reason = closed(reader)
        if reason is not None:
            raise Unavailable(f"{reason}: nothing was created")
        missing = lacking(wanted.labels, self._labels)
        if missing is not None:
            raise Unavailable(f"the node does not have the label {missing}: nothing was created")
        if wanted.spread is Spread.HARD and (there := reader.count(BY_APP, f"{app}/")):
            raise NoRoom(
                f"machines of the app that the node has already: {there}; they are to be apart",
                scope="host",
                shortfall={"hosts": 1},
            )


async def check_uploads(deps: FlowDeps, app: AppRecord, config: MachineConfig) -> None:
    """Checks that the files of a config are here. Raises `Unprocessable` for a file that was not uploaded for the
    app."""
    wanted = uploads_of(config)
    if wanted and deps.files is None:
        raise NotServed("this node keeps no uploaded files")
    if wanted and deps.files is not None:
        await deps.files.check(FilesOfApp(app.id, app.name), wanted)


async def _in_time(asking: Coroutine[Any, Any, Images], deadline_s: float | None) -> Images:
    """A registry may take longer than whoever sent the order waits."""
    with anyio.move_on_after(deadline_s):
        return await asking
    raise DeadlineExceeded("the image's registry did not answer in time; nothing was created")


def _record(app: OrderedApp) -> AppRecord:
    fields = msgspec.structs.asdict(app)
    fields.pop("luggage")
    return AppRecord(**{**fields, "name": AppName(app.name)})


def _know(tx: Tx, app: AppRecord) -> None:
    """The app is here from now on, also if it brought nothing."""
    if tx.get(APPS, app.name) is None:
        tx.put(APPS, app.name, app)


def _check_same(tx: Tx, app: AppRecord) -> None:
    """Raises `NameTaken` when there is another one of its name."""
    there = tx.get(APPS, app.name)
    if there is not None and there.id != app.id:
        raise NameTaken(f"app '{app.name}' of this order is not the app of that name at this node")


def _note_watched(tx: Tx, table: MachineTable, made: MachineRecord) -> MachineRecord:
    """In its history: that it stands by for machines of its own host, and so for nothing until it is moved."""
    beside = [each for each in made.config.standbys or () if tx.get(MACHINES, MachineId(each)) is not None]
    if not beside:
        return made
    why = f"it is on the host of {', '.join(beside)}, and would be lost with it: move one of the two"
    return table.change(tx, made, Happened("standby", "beside", detail=Detail(error=why)))


Shown = Callable[..., Machine]


class OrderHandlers:
    """`show` is how the API shows a machine."""

    def __init__(
        self,
        intake: OrderIntake,
        ledger: OrderLedger,
        bidding: Bidder,
        operations: Operations,
        show: Shown,
    ) -> None:
        self._intake = intake
        self._ledger = ledger
        self._bidding = bidding
        self._operations = operations
        self._show = show

    def bind(self, handlers: Handlers) -> None:
        handlers.on(QUOTE, self.quote)
        handlers.on(FILL, self.fill)
        handlers.on(CANCEL, self.cancel)
        handlers.on(CLAIM, self.claim)
        handlers.on(EXPORT_APP, self.export)

    async def quote(self, call: Call[NoParams, NoQuery, BidsRequest]) -> Bids:
        if len(call.body.asks) > MOST_AT_ONCE:
            raise BadRequest(f"asks: {len(call.body.asks)} are more than {MOST_AT_ONCE}")
        return Bids(bids=self._bidding.quotes(call.body.asks))

    async def fill(self, call: Call[NoParams, NoQuery, OrderRequest]) -> Machine:
        made = await self._intake.accept_order(call.body, call.caller, call.deadline_s)
        return self._shown(made, with_nonce=bool(call.body.machine.lease_ttl))

    async def cancel(self, call: Call[OrderParams, CancelQuery, None]) -> CancelAnswer:
        app, order = AppName(call.query.app_name), OrderId(call.params.order_id)
        made = await self._ledger.cancel(app, order, anyway=call.query.destroy)
        if made is not None and call.query.destroy and made.state not in GONE:
            nonce = made.lease.nonce if made.lease else None
            await self._operations.destroy(MachineTarget(app, made.id, nonce), force=True)
        return CancelAnswer(filled=None if made is None else self._shown(made, with_nonce=True))

    async def claim(self, call: Call[ClaimParams, NoQuery, ClaimRequest]) -> Claim:
        app, order = AppName(call.params.app_name), OrderId(call.params.order_id)
        claim = await self._ledger.claim(app, order, NodeId(call.body.node), call.body.instead_of)
        return Claim(node=claim.node, number=claim.number)

    async def export(self, call: Call[AppParams, NoQuery, None]) -> OrderedApp:
        return self._intake.export(call.params.app_name)

    def _shown(self, made: MachineRecord, *, with_nonce: bool) -> Machine:
        return self._show(made, nonce=made.lease.nonce if made.lease and with_nonce else None)
