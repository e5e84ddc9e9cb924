"""Bodies of the market: what a broker asks of workers, what they bid, orders between nodes; how a client places, and
asks where machines would find room.
"""

from enum import StrEnum

import msgspec

from hawker.api.contract.app import AppParams
from hawker.api.contract.body import Answer, Problem, Request
from hawker.api.contract.machine import CreateMachineRequest, Machine
from hawker.api.route import NoParams, Tag, Unary
from hawker.config.machine import Guest
from hawker.errors import (
    AlreadyExists,
    Conflict,
    Damaged,
    NoRoom,
    NoRoomAtVolume,
    NotFound,
    OrderCancelled,
    OrderUncertain,
    RateLimited,
    Unavailable,
    WrongState,
)
from hawker.permission import Action


class LayerRef(Answer, frozen=True, kw_only=True):
    """A layer of an image, in its compressed form."""

    digest: str
    """The digest of the layer: `sha256:` and 64 hexadecimal digits."""
    size: int
    """Bytes of the layer, compressed, 0 or more."""


class BidAsk(Request, frozen=True, kw_only=True):
    """A machine that someone wants, `count` times. `layers` are those of the config's images that the broker knows, by
    their names."""

    app: str
    """The name of the app that the machine is for."""
    machine: CreateMachineRequest
    count: int = 1
    order_id: str | None = None
    """The id of the order, so that the node knows what it has filled already; null for a mere question."""
    layers: dict[str, tuple[LayerRef, ...]] = msgspec.field(default_factory=dict)


class BidsRequest(Request, frozen=True, kw_only=True):
    """Each of `asks` is a `BidAsk`, written once for all nodes that are asked, and read one by one: a bad one spoils no
    other."""

    asks: tuple[msgspec.Raw, ...]


class DeclineKind(StrEnum):
    """Why a node does not bid."""

    NO_ROOM = "no_room"
    UNFIT = "unfit"  # the config is wrong, or this node's driver does not serve it
    CLOSED = "closed"  # cordoned or draining
    APART = "apart"  # it has a machine of this app already
    LABELS = "labels"
    DRIVER = "driver"
    VOLUME = "volume"


class Decline(Answer, frozen=True, kw_only=True):
    """`http_status` and `problem` where there is an error that says it better than the lack of a host."""

    kind: DeclineKind
    reason: str
    """The reason why the node does not bid, for people."""
    shortfall: dict[str, int] = msgspec.field(default_factory=dict)
    """How much of each resource was missing, by its name; empty where no resource is missing."""
    http_status: int = 0
    problem: Problem | None = None


class Headroom(Answer, frozen=True, kw_only=True):
    """The room of one resource at a node: `total` is what the node sells, `takes` what one such machine takes, `left`
    what is left after one was filled."""

    total: int
    takes: int
    left: int


class Bid(Answer, frozen=True, kw_only=True):
    """A quote that reserves nothing. `fits` so many of those asked for; 0 with a `decline`. `headroom` by resource,
    cpus in thousandths. The image's bytes are None where the node does not know the image; `nearby_bytes` are those of
    the missing ones that another node can hand over. `same_app` counts the app's
    machines here. `filled` is the machine that the order became here already."""

    fits: int
    headroom: dict[str, Headroom] = msgspec.field(default_factory=dict)
    image_bytes: int | None = None
    """Bytes of all layers of the image, compressed."""
    missing_bytes: int | None = None
    """Bytes of the image's layers that the node would have to fetch, compressed."""
    nearby_bytes: int = 0
    layers: dict[str, tuple[LayerRef, ...]] = msgspec.field(default_factory=dict)
    same_app: int = 0
    filled: str | None = None
    name_taken: bool = False
    """True when another machine of the app has the name that is asked for."""
    decline: Decline | None = None


class Bids(Answer, frozen=True, kw_only=True):
    """One for each that was asked, in that order."""

    bids: tuple[Bid, ...]


class OrderedApp(Answer, frozen=True, kw_only=True):
    """An app as it goes from its home to a node that does not know it. `luggage` is what else of it a machine needs
    there, sealed by who packed it."""

    id: str
    """The id of the app; a later app of the same name has another id."""
    number: int
    """The app's `internal_numeric_id`, 0 to 2147483647."""
    name: str
    """The name of the app, unique in the cluster."""
    org: str
    """The slug of the app's organization."""
    network: str
    """The name of the app's private network; `default` for the organization's default one."""
    network_id: int
    """The number of the private network: the 32 bits that its addresses have."""
    created_at: float
    """The moment when the app was created, Unix seconds, by its home's clock."""
    reign: int = 0
    """How often another node became the app's home, 0 or more; the home with the highest number wins."""
    luggage: bytes = b""


class OrderRequest(Request, frozen=True, kw_only=True):
    """Create this machine here, once for this order."""

    order_id: str
    """The id of the order, unique in the app; a second call with it makes no second machine."""
    app: OrderedApp
    machine: CreateMachineRequest


class CancelAnswer(Answer, frozen=True, kw_only=True):
    """`filled` is the machine, if the order came before its cancel; else it will not be filled here any more."""

    filled: Machine | None = None


class ClaimRequest(Request, frozen=True, kw_only=True):
    """`node` is where the order is to go. `instead_of` is the number of the claim at whose node the order is cancelled
    for certain."""

    node: str
    instead_of: int | None = None


class Claim(Answer, frozen=True, kw_only=True):
    """The node where the order belongs, whoever asks. `number` counts how often it moved on: at each node it goes by
    another name, so that what was cancelled there once does not stand in the way later."""

    node: str
    """The id of the node that fills it."""
    number: int


class PlaceRequest(Request, frozen=True, kw_only=True):
    """`count` machines, one unless told; a dry run only asks who would fill them."""

    app: str
    """The name of the app that the machines are for."""
    machine: CreateMachineRequest
    count: int | None = None
    all_or_nothing: bool | None = None
    """True: if not all `count` machines fit, none stays. Absent: as many as there is room for."""
    dry_run: bool | None = None
    """True only asks for bids and creates nothing."""


class BidPart(Answer, frozen=True, kw_only=True):
    """What one resource adds to a bid's score. `value` is its utilisation (0 to 1), the missing MiB of the image, or
    the number of the app's machines; `utility` what the operator's curve makes of it; `points` is its share of the
    score."""

    name: str
    """The name of what counts: `cpu`, `memory`, `disk`, `gpu`, `image` or `spread`."""
    value: float
    utility: float
    weight: float
    """How much this counts beside the other parts, 0 or more."""
    points: float


class Verdict(StrEnum):
    BEST = "best"
    FILLS = "fills"
    DECLINES = "declines"
    SILENT = "silent"
    NOT_ASKED = "not_asked"


class BidShown(Answer, frozen=True, kw_only=True):
    """One node, and what became of its bid. `score` is between 0 and 1."""

    node: str
    """The id of the node."""
    region: str
    """The code of the node's region."""
    verdict: Verdict
    why: str
    """The reason for the verdict, for people; empty where there is nothing to say."""
    score: float | None = None
    fits: int = 0
    """How many of the machines that were asked for the node has room for, 0 or more."""
    parts: tuple[BidPart, ...] = ()


class PlaceAnswer(Answer, frozen=True, kw_only=True):
    """`filled` of `asked`; `machines` are those. In a dry run `filled` counts what would be. `refusal` says why the
    rest was not."""

    order_id: str
    """The id of the order; empty for a dry run."""
    asked: int
    filled: int
    machines: tuple[Machine, ...]
    bids: tuple[BidShown, ...]
    refusal: Problem | None = None


# Calls of the market: the one for clients, and those that brokers make to workers' peer API.

ORDER_TIMEOUT_S = 75.0
NUMBERED = "~"
"""Between an order's key and the number of its claim, in its name at the node of the claim; the first has no number."""


class OrderParams(msgspec.Struct, frozen=True, kw_only=True):
    order_id: str
    """The order's id, or the client's Idempotency-Key, 1 to 255 bytes."""


class CancelQuery(msgspec.Struct, frozen=True, kw_only=True):
    """`destroy`: the machine, too, if there is one."""

    app_name: str = ""
    """The name of the app that the order is for; the same key of two apps is two orders."""
    destroy: bool = False


class ClaimParams(msgspec.Struct, frozen=True, kw_only=True):
    app_name: str
    """The name of the app that the order is for; the call goes to the app's home."""
    order_id: str
    """The client's Idempotency-Key, 1 to 255 bytes."""


PLACE = Unary(
    name="place",
    method="POST",
    path="/hawker/v1/place",
    params=NoParams,
    body=PlaceRequest,
    response=PlaceAnswer,
    tag=Tag.MACHINES,
    summary="Order machines and show every bid, or only ask for bids",
    errors=(NotFound, AlreadyExists, NoRoom, NoRoomAtVolume, OrderUncertain, RateLimited, Unavailable),
    guarded=False,
    strict=True,
    keyed=True,
    timeout_s=120.0,
)

QUOTE = Unary(
    name="quote",
    method="POST",
    path="/internal/v1/bids",
    params=NoParams,
    body=BidsRequest,
    response=Bids,
    tag=Tag.NODE,
    summary="Answer with this node's bids; reserves nothing",
    timeout_s=5.0,
    action=Action.READ,
)

FILL = Unary(
    name="fill",
    method="POST",
    path="/internal/v1/orders",
    params=NoParams,
    body=OrderRequest,
    response=Machine,
    tag=Tag.NODE,
    summary="Fill an order here, or refuse it",
    errors=(
        NotFound,
        AlreadyExists,
        Conflict,
        NoRoom,
        NoRoomAtVolume,
        OrderCancelled,
        Unavailable,
        WrongState,
        Damaged,
    ),
    timeout_s=ORDER_TIMEOUT_S,
)

CANCEL = Unary(
    name="cancel_order",
    method="DELETE",
    path="/internal/v1/orders/{order_id}",
    params=OrderParams,
    query=CancelQuery,
    response=CancelAnswer,
    tag=Tag.NODE,
    summary="Cancel an order at this node, or learn that it was filled",
    timeout_s=5.0,
)

CLAIM = Unary(
    name="claim_order",
    method="POST",
    path="/internal/v1/apps/{app_name}/claims/{order_id}",
    params=ClaimParams,
    body=ClaimRequest,
    response=Claim,
    tag=Tag.NODE,
    summary="Record at the app's home which node gets an order with a key",
    errors=(NotFound,),
    timeout_s=5.0,
)

EXPORT_APP = Unary(
    name="export_app",
    method="GET",
    path="/internal/v1/apps/{app_name}",
    params=AppParams,
    response=OrderedApp,
    tag=Tag.NODE,
    summary="Show the app as an order carries it to another node",
    errors=(NotFound,),
    timeout_s=5.0,
)

MARKET_ROUTES = (PLACE,)
MARKET_PEER_ROUTES = (QUOTE, FILL, CANCEL, CLAIM, EXPORT_APP)


class PlacementsRequest(Request, frozen=True, kw_only=True):
    """`count` 0 asks how many would fit. `weights` maps `region` and `spread` to how much they matter."""

    org_slug: str
    """The slug of the organization that asks; the token must be allowed to read there."""
    compute: Guest | None = None
    region: str | None = None
    count: int | None = None
    volume_name: str | None = None
    """The name of a volume that each machine gets, of 3 GiB unless `volume_size_bytes` is given."""
    volume_size_bytes: int | None = None
    """Bytes of the volume that each machine gets; absent or 0: no volume, unless it has a name."""
    weights: dict[str, int] | None = None


class RegionPlacement(Answer, frozen=True, kw_only=True):
    """`count` machines would fit in the region, and `concurrency` of them could be ordered at once. Each key is there
    in both spellings: the document's and the live API's."""

    region: str
    """The code of the region."""
    count: int
    concurrency: int
    Region: str
    """The value of `region` once more, as the live API spells it."""
    Count: int
    """The value of `count` once more, as the live API spells it."""
    Concurrency: int
    """The value of `concurrency` once more, as the live API spells it."""


class Placements(Answer, frozen=True, kw_only=True):
    """The regions that have room, the best first; `Regions` has them once more, as the live API spells it."""

    regions: tuple[RegionPlacement, ...]
    Regions: tuple[RegionPlacement, ...]


# The call that asks where machines would find room.

LIST_PLACEMENTS = Unary(
    name="list_placements",
    method="POST",
    path="/v1/platform/placements",
    params=NoParams,
    body=PlacementsRequest,
    response=Placements,
    tag=Tag.PLATFORM,
    summary="Count how many machines of a size have room, and where",
    strict=True,
    guarded=False,
)

PLACEMENT_ROUTES = (LIST_PLACEMENTS,)
