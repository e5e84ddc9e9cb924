"""The broker's part of a node: whom it answers, and what the broker answers beside the worker, or in its place."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from hawker.api.handlers import Handlers
from hawker.broker.handlers import TokenHandlers
from hawker.broker.preferences import Preferences
from hawker.broker.revocations import REVOKED, Revocations
from hawker.broker.tokens import Tokens, load_or_create_token
from hawker.ids import NodeId
from hawker.place import Place
from hawker.store.contract import Reader
from hawker.up.alone import place_alone
from hawker.up.fleet import InFleet
from hawker.worker.fleet.publish import Source
from hawker.worker.fleet.rows import Row, revoked_row
from hawker.worker.handlers import worker_handlers
from hawker.worker.parts import Parts
from hawker.worker.records import APPS


def front_alone(place: Place, parts: Parts, preferences: Preferences) -> tuple[Handlers, Tokens]:
    """Of a node that knows no others: the worker's own answers, and orders in the market of one."""
    handlers = worker_handlers(parts)
    tokens = _tokens(handlers, place, parts, lambda ids: False)
    place_alone(parts, handlers, preferences)
    return handlers, tokens


def front_of_fleet(place: Place, fleet: InFleet, preferences: Preferences) -> tuple[Handlers, Tokens]:
    """Of a node in a cluster."""
    handlers = worker_handlers(fleet.parts)
    tokens = _tokens(handlers, place, fleet.parts, fleet.revoked)
    place_alone(fleet.parts, handlers, preferences)
    return handlers, tokens


def revocations_of(node: NodeId, store: Reader) -> Source:
    """What was revoked here, for the whole fleet."""

    def rows(token_id: str) -> Iterable[Row]:
        found = store.get(REVOKED, token_id)
        return () if found is None else (revoked_row(node, token_id, at=found.at, by=found.by, note=found.note),)

    return Source(name=REVOKED.name, every=lambda: [key for key, _ in store.scan(REVOKED)], rows=rows)


def _tokens(handlers: Handlers, place: Place, parts: Parts, elsewhere: Callable[[Sequence[str]], bool]) -> Tokens:
    """`elsewhere` says whether a token was revoked at another node."""
    store, clock = parts.deps.store, parts.deps.clock
    org_of = partial(_org_of, store)
    revocations = Revocations(store, clock)
    root = load_or_create_token(place.token, clock)
    tokens = Tokens(root, clock, lambda ids: revocations(ids) or elsewhere(ids), org_of)
    TokenHandlers(tokens, revocations, clock, lambda app: org_of(app) is not None).bind(handlers)
    return tokens


def _org_of(store: Reader, app: str) -> str | None:
    record = store.get(APPS, app)
    return None if record is None else record.org
