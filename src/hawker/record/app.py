"""What a node stores of apps: the app itself, its addresses, its network policies, its secrets and secret keys."""

import msgspec

from hawker.ids import AppName, MachineId, NodeId
from hawker.policy import Direction, Transport
from hawker.store.contract import Bucket, Reader


class AppRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A named group of machines. `number` is its internal numeric id; `network_id` the 32 bits in its addresses.
    `home` is the node where it was made, when that is another one: its secrets and policies are kept there. `reign`
    counts how often another node became its home because the one before was forgotten."""

    id: str  # 16 hex digits, drawn by the node that made it; a later app of the name has another
    number: int
    name: AppName
    org: str  # slug of the organization that owns the app
    network: str  # name of its private network, unique in the organization
    network_id: int
    created_at: float  # Unix seconds, by the clock of its home
    idempotency_key: str | None = None
    """The key of the create: the same create again answers this app; None for a create without a key."""
    home: NodeId | None = None
    reign: int = 0


class CarriedApp(msgspec.Struct, frozen=True, kw_only=True):
    """An app whose home is another node: when what this node has of it was read there."""

    home: NodeId
    read_at: float  # Unix seconds, by the home's clock; what was read earlier changes nothing


class NameRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A name of an app that this node keeps for whoever makes it. `claim` tells one who asked from another; `home` is
    where the app is to be; `at` is this node's clock."""

    claim: str
    home: NodeId
    at: float


APPS = Bucket("apps", AppRecord)  # app name


def org_of(reader: Reader, app: str) -> str:
    """The app's organization; the app itself when there is no record of it."""
    record = reader.get(APPS, app)
    return app if record is None else record.org


CARRIED_APPS = Bucket("carried_apps", CarriedApp)  # app name


NAMES = Bucket("app_names", NameRecord)  # app name


class HostnameClaim(msgspec.Struct, frozen=True, kw_only=True):
    """A host name that this node keeps for an app, in a fleet; `home` is the node that has the app's certificates.
    `org` is the slug of the app's organization, as its home says it, else as this node knew it; empty in claims of
    older versions."""

    app: AppName
    home: NodeId
    at: float  # Unix seconds, by this node's clock: when the app last asked for it
    org: str = ""


HOSTNAMES = Bucket("hostnames", HostnameClaim)  # host name


class HostnameCount(msgspec.Struct, frozen=True, kw_only=True):
    """How many host names this node keeps for an organization, or for all of them, which are then so many `orgs`. Each
    process of the node counts anew before it goes on, since older versions do not keep this."""

    names: int
    """How many host names are kept, 0 or more."""
    orgs: int = 0
    """How many organizations have at least one host name here; only the record for all of them counts it."""


HOSTNAME_COUNTS = Bucket("hostname_counts", HostnameCount)  # slug of the organization; empty for all


class NetworkOwner(msgspec.Struct, frozen=True, kw_only=True):
    """The organization and name of a private network."""

    org: str  # slug of the organization that has the network
    network: str  # the network's name, unique in the organization

    @property
    def name(self) -> str:
        return f"{self.org}/{self.network}"


NETWORKS = Bucket("networks", NetworkOwner)  # its 32 bits, as 8 hexadecimal digits: who claimed them first at this node


class NetworkNumber(msgspec.Struct, frozen=True, kw_only=True):
    """The 32 bits in a private network's addresses."""

    network_id: int  # the network's number, 0 to 2^32 - 1


NETWORKS_OF_ORG = Bucket("networks_of_org", NetworkNumber)  # LENGTH:organization/8 digits, of each in `networks`
NETWORK_IDS = Bucket("network_ids", NetworkNumber)  # organization/network, of those that this node has made apps in


class PeerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody's own computer that is let into a private network through this node. `id`, as long as a machine's, makes
    its address; `public_key` is its own of WireGuard, base64. `created_at` is Unix seconds."""

    org: str  # slug of the organization whose network the peer enters
    name: str  # name of the peer, unique in the organization on this node
    network: str  # name of the private network
    network_id: int  # the 32 bits of the network that the peer's address has
    public_key: str
    id: MachineId
    created_at: float


WIREGUARD_PEERS = Bucket("wireguard_peers", PeerRecord)  # organization/name


class IpRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An address of an app; `type` is an `ips.IpType`. `shared`: other apps have it, too. `network` and `org` are the
    private network that the address is in, and its organization; empty for a public one."""

    id: str  # ULID, later ones of an app are greater
    ip: str  # an IPv4 or IPv6 address as text, without a prefix
    type: str
    region: str  # region that the call asked for; `global` where it asked for none
    service_name: str  # name of a service, as the client wrote it; it is only shown
    shared: bool
    network: str = ""
    org: str = ""
    created_at: float  # Unix seconds when the app got the address

    @property
    def is_public(self) -> bool:
        """It is on no private network; a `v6` is on one where the host had no other."""
        return self.type != "private_v6" and not self.ip.startswith("fdaa:")


class IpOwner(msgspec.Struct, frozen=True, kw_only=True):
    """The app that has an address which is not shared."""

    app: AppName


IPS = Bucket("ips", IpRecord)  # app/address


IPS_TAKEN = Bucket("ips_taken", IpOwner)  # address; without those that are shared


class ReleaseRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What an app was to run. `version` counts from 1; `status` is a `deploys.releases.ReleaseStatus`; `definition` the
    JSON that the client sent, empty for none. Times are Unix seconds."""

    version: int
    status: str
    strategy: str  # strategy of the deploy, such as `rolling`, as the client named it; may be empty
    image: str  # reference of the image, as the client named it; may be empty
    description: str  # text for people, at most 2,000 characters; may be empty
    definition: bytes
    user: str  # name of the token that made the release
    created_at: float
    updated_at: float
    pinned: str = ""
    """The reference with the digest that `image` meant when a deploy was accepted; empty for the release of a client
    that drives deploys by itself, and in releases of older versions."""


RELEASES = Bucket("releases", ReleaseRecord)  # app/version, in ten digits


class PortRule(msgspec.Struct, frozen=True, kw_only=True):
    """The ports of one protocol that a rule allows."""

    protocol: Transport
    port: int | None = None  # port, 1 to 65535; None allows every port of the protocol


class PolicyRule(msgspec.Struct, frozen=True, kw_only=True):
    """What a policy allows in one direction: these ports; None is everything."""

    direction: Direction
    ports: tuple[PortRule, ...] | None = None


class PolicySelector(msgspec.Struct, frozen=True, kw_only=True):
    """Machines of an app: all, these, or those with all of these pairs of metadata."""

    all: bool = False  # every machine of the app, now and later
    machines: tuple[str, ...] = ()  # ids of machines; empty selects none by id
    metadata: dict[str, str] = {}  # pairs that a machine must have, all of them; empty selects none by metadata


class PolicyRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One network policy of an app. Times are Unix seconds."""

    id: str  # 16 hex digits, unique in the app; it stays when the policy is changed
    name: str  # name of the policy, for people; it need not be unique
    selector: PolicySelector
    rules: tuple[PolicyRule, ...]
    created_at: float
    updated_at: float


POLICIES = Bucket("network_policies", PolicyRecord)  # app/id


class SecretRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One secret of an app. Times are Unix seconds."""

    name: str  # name of the secret and of the environment variable, unique in the app
    sealed: bytes  # the secret's value under the vault's key
    digest: str  # hex digest of the value, keyed: equal values of one secret have equal digests, and it tells no more
    created_at: float
    updated_at: float


class SecretKeyRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One secret key of an app; `type` is a `keyring.KeyType`. Times are Unix seconds."""

    name: str  # name of the key, unique in the app
    type: str
    sealed: bytes  # the private or symmetric key under the vault's key
    public: bytes | None  # the public half; None for a symmetric key
    created_at: float
    updated_at: float


class SecretsVersion(msgspec.Struct, frozen=True, kw_only=True):
    """Counts the changes of an app's secrets, also over the app's end."""

    number: int  # the newest version, 1 or more; rises by one with each change


class Pinned(msgspec.Struct, frozen=True, kw_only=True):
    """The secrets that one version of a machine was given, by name, sealed as the app's are."""

    app: AppName
    sealed: dict[str, bytes]  # name of the secret to its value under the vault's key


SECRETS = Bucket("secrets", SecretRecord)  # app/name


SECRET_KEYS = Bucket("secret_keys", SecretKeyRecord)  # app/name


SECRETS_VERSIONS = Bucket("secrets_versions", SecretsVersion)  # app


PINNED = Bucket("machine_secrets", Pinned)  # machine id/version


class CertificateRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A certificate for a host name of an app, imported, or `ordered` by the node itself; `sealed` is its chain and
    key. `kind` is rsa or ecdsa, `authority` who issued it. `points_here`: at the last check the name led to an address
    of the app. Times are Unix seconds."""

    hostname: str  # the host name, lower case; may begin with `*.`
    app: AppName
    sealed: bytes
    kind: str
    authority: str
    not_after: float  # Unix seconds; from then on clients refuse the certificate
    points_here: bool = False
    created_at: float
    updated_at: float
    ordered: bool = False


CERTIFICATES = Bucket("certificates", CertificateRecord)  # host name; it is one app's


class CertificateOrder(msgspec.Struct, frozen=True, kw_only=True):
    """An app's wish that the node orders the certificate of a host name, and a new one before it expires. `failures`
    are those since the last success, `reason` the cause of the last one; empty when there is none. `proof` is the kind
    of challenge that was last met. Before `limited_until` the authority takes no order; `renew_at` is when it wants the
    certificate renewed, 0 when it did not say. One that is not `owned` waits until something shows that the host name
    is the app's, and keeps nobody else from the name. Times are Unix seconds."""

    hostname: str  # the host name that the certificate is for, lower case
    app: AppName
    created_at: float
    failures: int = 0
    failed_at: float = 0.0
    reason: str = ""
    proof: str = ""
    limited_until: float = 0.0
    renew_at: float = 0.0
    owned: bool = True


CERTIFICATE_ORDERS = Bucket("certificate_orders", CertificateOrder)  # host name; it is one app's
