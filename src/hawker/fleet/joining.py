"""How a host becomes one of a cluster (`hawker join`), and the invitations that it comes with.

A living node is asked with an invitation or the root token, of which neither is sent; the answer goes into the data
directory. What can be refused is refused before anything is written. The last thing written is cluster.json.
An invitation is made, listed, ended and spent at one node, in its store: spent in the transaction that names the host
which uses it, before that host is answered. One that lost the answer asks again with the same key; another is refused.
"""

import hashlib
import hmac
import socket
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from hawker.api.client import Client, RateLimitRetry
from hawker.api.contract.cluster import ADMIT_HOST, AdmitRequest, JoinAnswer, Welcome
from hawker.auth.invitation import (
    KEY_BYTES,
    PREFIX,
    ROOT_INVITE,
    Invitation,
    JoinAttempt,
    from_text,
    is_proof,
    join_secret,
    to_text,
)
from hawker.clock import Clock
from hawker.cluster import USUAL_PEER_PORT, Cluster, Keyring, Peer, read_cluster, write_cluster, write_privately
from hawker.errors import BadRequest, CannotStart, Forbidden, NotFound, Unauthorized, Unprocessable
from hawker.ids import NodeId
from hawker.log import Secret, bind
from hawker.place import Place
from hawker.record.machine import MACHINES
from hawker.record.node import INVITES, InviteRecord, JoinedHost
from hawker.record.volume import VOLUMES
from hawker.store.contract import Store, Tx
from hawker.store.sqlite import SqliteStore

USUAL_S, SHORTEST_S, LONGEST_S = 3600, 60, 7 * 86_400
MOST_USES = 100
MOST_INVITES = 256
KEPT_S = 30 * 86_400.0
_ID_BYTES = 6
_AGAIN = "ask for another: `hawker fleet invite` at a living node"

_log = bind("hawker.fleet")


class Invites:
    """The invitations of the node `me`. `root` is the root token of the cluster's nodes."""

    def __init__(self, store: Store, clock: Clock, root: Secret, me: NodeId) -> None:
        self._store = store
        self._clock = clock
        self.root = root
        self._me = me

    async def make(
        self, cluster: str, *, by: str, expires_s: int | None = None, uses: int | None = None
    ) -> tuple[InviteRecord, str]:
        """The record, durable, and the text that lets a host join. Raises `Unprocessable`."""
        expires_s, uses = USUAL_S if expires_s is None else expires_s, 1 if uses is None else uses
        if not SHORTEST_S <= expires_s <= LONGEST_S:
            raise Unprocessable(f"expires_s: an invitation is good for {SHORTEST_S} s to 7 days, not {expires_s} s")
        if not 1 <= uses <= MOST_USES:
            raise Unprocessable(f"uses: 1 to {MOST_USES} hosts may join by one invitation, not {uses}")
        now = self._clock.now()
        invite_id = f"{self._me}{self._clock.token_bytes(_ID_BYTES).hex()}"
        made = InviteRecord(id=invite_id, created_at=now, expires_at=now + expires_s, uses=uses, by=by)
        await self._store.write(lambda tx: _kept(tx, made))
        secret = join_secret(self.root, invite_id)
        return made, to_text(Invitation(cluster=cluster, id=invite_id, secret=secret))

    def list(self) -> tuple[InviteRecord, ...]:
        """All invitations, the newest first."""
        found = (each for _, each in self._store.scan(INVITES))
        return tuple(sorted(found, key=lambda each: -each.created_at))

    def state_of(self, record: InviteRecord) -> str:
        """open, used, expired or revoked."""
        now = self._clock.now()
        if record.open_at(now):
            return "open"
        if record.revoked_at is not None:
            return "revoked"
        return "used" if len(record.joined) >= record.uses else "expired"

    async def revoke(self, invite_id: str) -> InviteRecord:
        """End an invitation, durable when this returns; hosts that have joined stay. Raises `NotFound`."""
        now = self._clock.now()

        def apply(tx: Tx) -> InviteRecord:
            known = tx.get(INVITES, invite_id)
            if known is None:
                raise NotFound(f"there is no invitation {invite_id!r:.40} here: see `hawker fleet invites`")
            if known.revoked_at is None:
                known = msgspec.structs.replace(known, revoked_at=now)
                tx.put(INVITES, invite_id, known)
            return known

        return await self._store.write(apply)

    async def admit(self, request: AdmitRequest, source: str) -> bytes:
        """The secret to answer with, once this host counts as joined. Raises `Unauthorized` for a host that has no
        secret of this cluster, `Forbidden` for an invitation that is over."""
        secret = join_secret(self.root, request.invite)
        if not is_proof(request.proof, secret, request.invite, request.key, request.node or ""):
            raise Unauthorized("this invitation or root token is not good here: it was made in another cluster")
        if request.invite != ROOT_INVITE:
            host = JoinedHost(
                key=hashlib.sha256(request.key).hexdigest(),
                node=request.node or "",
                source=source,
                at=self._clock.now(),
            )
            await self._store.write(lambda tx: _spent(tx, request.invite, host))
        _log.warning("host joins", extra={"invite": request.invite, "host": request.node or "new", "source": source})
        return secret


def _kept(tx: Tx, made: InviteRecord) -> None:
    """Those that ended long ago go. Raises `Unprocessable` when too many are there."""
    there = [each for _, each in tx.scan(INVITES)]
    for each in there:
        if each.expires_at + KEPT_S < made.created_at:
            tx.delete(INVITES, each.id)
    if sum(each.open_at(made.created_at) for each in there) >= MOST_INVITES or len(there) >= 4 * MOST_INVITES:
        raise Unprocessable(f"this node has {MOST_INVITES} invitations: end some with `hawker fleet uninvite ID`")
    tx.put(INVITES, made.id, made)


def _spent(tx: Tx, invite_id: str, host: JoinedHost) -> None:
    """Raises `Forbidden`."""
    known = tx.get(INVITES, invite_id)
    if known is None:
        raise Forbidden(f"this invitation is not known here; {_AGAIN}")
    if known.revoked_at is not None:
        raise Forbidden(f"this invitation was revoked; {_AGAIN}")
    if host.at >= known.expires_at:
        raise Forbidden(f"this invitation has expired; {_AGAIN}")
    if any(hmac.compare_digest(each.key, host.key) for each in known.joined):
        return
    if len(known.joined) >= known.uses:
        raise Forbidden(f"this invitation was used; {_AGAIN}")
    tx.put(INVITES, invite_id, msgspec.structs.replace(known, joined=(*known.joined, host)))


USUAL_PORT = 4280
MOST_SKEW_S = 60.0
_WITHIN_S = 30.0


async def join_cluster(
    place: Place, clock: Clock, target: str, token: Secret, *, advertise: str | None, peer_port: int | None
) -> Cluster:
    """Make the node of `place` one of the cluster that `target` is in, by `token`: an invitation or the root token.
    Joining again brings keys and peers up to date; what is not given then stays as it was. Raises `CannotStart` when
    the directory or the clock speaks against it, and what the other node answers."""
    url = url_of(target)
    place.make()
    with place.held():
        known = read_cluster(place.cluster)
        attempt, cluster = _attempt(place, token, clock)
        if known is not None and cluster is not None:
            _refuse_other_cluster(place, known, cluster)
        answer = await _asked(url, attempt, clock)
        if known is not None:
            _refuse_other_cluster(place, known, answer.cluster)
        await _take_token(place, Secret(answer.token))
        host = advertise or (known.advertise if known else own_address_towards(url))
        joined = _joined(answer, host, peer_port or (known.peer_port if known else USUAL_PEER_PORT))
        write_cluster(place.cluster, joined)
        place.joining.unlink(missing_ok=True)
    return joined


def url_of(target: str) -> str:
    """A URL, or HOST or HOST:PORT. Raises `BadRequest`."""
    url = target if "://" in target else f"http://{target}"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise BadRequest(f"{target!r:.200} is no address of a node: {error}") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BadRequest(f"{target!r:.200} is no address of a node: give a URL, HOST or HOST:PORT")
    if "://" not in target and port is None:
        return f"{url.rstrip('/')}:{USUAL_PORT}"
    return url.rstrip("/")


def own_address_towards(url: str) -> str:
    """The address that this host would speak from to the other one. Nothing is sent. Raises `CannotStart`."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    try:
        family, _, _, _, there = socket.getaddrinfo(parts.hostname, parts.port or 80, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(there)
            return str(probe.getsockname()[0])
    except OSError as error:
        raise CannotStart(
            f"cannot tell by which address others reach this host: {error}; say it with --advertise"
        ) from (error)


class _Joining(msgspec.Struct, frozen=True, kw_only=True):
    """In DATA_DIR/joining while a join is under way: with the same key a repeated join uses an invitation once."""

    invite: str
    key: bytes


def _attempt(place: Place, token: Secret, clock: Clock) -> tuple[JoinAttempt, str | None]:
    """And the cluster that an invitation is for. Raises `BadRequest` for a token that is cut off."""
    node = place.remembered() or ""
    if not token.reveal().startswith(PREFIX):
        secret = join_secret(token, ROOT_INVITE)
        return JoinAttempt(ROOT_INVITE, secret, clock.token_bytes(KEY_BYTES), node), None
    try:
        invitation = from_text(token.reveal())
    except ValueError as error:
        raise BadRequest(str(error)) from error
    key = _kept_key(place.joining, invitation.id, clock)
    return JoinAttempt(invitation.id, invitation.secret, key, node), invitation.cluster


def _kept_key(file: Path, invite: str, clock: Clock) -> bytes:
    """Durable before it is shown to anybody."""
    try:
        known = msgspec.json.decode(file.read_bytes(), type=_Joining)
    except (OSError, ValueError):
        known = None
    if known is None or known.invite != invite:
        known = _Joining(invite=invite, key=clock.token_bytes(KEY_BYTES))
        write_privately(file, msgspec.json.encode(known))
    return known.key


async def _asked(url: str, attempt: JoinAttempt, clock: Clock) -> Welcome:
    before = clock.now()
    request = AdmitRequest(invite=attempt.invite, key=attempt.public, proof=attempt.proof, node=attempt.node or None)
    try:
        async with Client(url, retry=RateLimitRetry(clock)) as client:
            sealed = await client.call(ADMIT_HOST, body=request, timeout_s=_WITHIN_S)
        answer = msgspec.json.decode(attempt.opened(sealed.key, sealed.sealed), type=Welcome)
    except Unauthorized as error:
        raise Unauthorized(
            f"{url} does not take this token ({error}): give an invitation of `hawker fleet invite` or the root token"
            " of that node"
        ) from error
    except NotFound as error:
        raise NotFound(f"{url} is no node that can be joined ({error}): is it this version of hawker?") from error
    except ValueError as error:
        raise Unauthorized(f"{url} is no node of that cluster: {error}") from error
    skew_s = (before + clock.now()) / 2 - answer.now.timestamp()
    if abs(skew_s) > MOST_SKEW_S:
        how = "ahead of" if skew_s > 0 else "behind"
        raise CannotStart(f"this host's clock is {abs(skew_s):.0f} s {how} that of {url}: set it, then join again")
    return answer


def _refuse_other_cluster(place: Place, known: Cluster, other: str) -> None:
    if known.id != other:
        raise CannotStart(f"{place.root} is in another cluster ({known.id}, not {other}): choose another --data-dir")


async def _take_token(place: Place, token: Secret) -> None:
    """All nodes of a cluster share the root token. What was made under another one would be lost to its clients."""
    there = _read(place.token)
    if there == token.reveal():
        return
    if there is not None and place.store.exists() and await _has_machines(place):
        raise CannotStart(
            f"{place.root} has machines that were made under another root token: choose another --data-dir,"
            " or destroy them first"
        )
    write_privately(place.token, f"{token.reveal()}\n".encode())


def _read(file: Path) -> str | None:
    try:
        return file.read_text().strip() or None
    except FileNotFoundError:
        return None


async def _has_machines(place: Place) -> bool:
    store = SqliteStore(place.store)
    try:
        return store.count(MACHINES) > 0 or store.count(VOLUMES) > 0
    finally:
        await store.close()


def _joined(answer: JoinAnswer, advertise: str, peer_port: int) -> Cluster:
    try:
        keyring = Keyring(keys=dict(answer.keys), primary=answer.primary, version=answer.keyring)
    except (ValueError, msgspec.ValidationError) as error:
        raise CannotStart(f"the other node's keyring cannot be used: {error}") from error
    peers = tuple(Peer(node=NodeId(peer.node), address=peer.address) for peer in answer.peers)
    return Cluster(id=answer.cluster, keyring=keyring, advertise=advertise, peer_port=peer_port, peers=peers)
