"""Puts the HTTP API together: every route over the parts of one catalog."""

from pathlib import Path

from hawker.catalog.http.app import CatalogApp
from hawker.catalog.http.health import HealthEndpoints
from hawker.catalog.http.queries import Queries
from hawker.catalog.http.service import CatalogAccess, CatalogWriter, Doctor, Migrations
from hawker.catalog.http.subscriptions import Subscriptions
from hawker.catalog.http.transactions import Transactions
from hawker.catalog.live.engine import Live
from hawker.catalog.read_connection import ReadPool
from hawker.clock import Clock
from hawker.ids import NodeId


def catalog_app(
    file: Path,
    node: NodeId,
    clock: Clock,
    *,
    writer: CatalogWriter,
    live: Live,
    pool: ReadPool,
    doctor: Doctor,
    migrations: Migrations | None = None,
    access: CatalogAccess | None = None,
) -> CatalogApp:
    """`file` is the catalog's, `pool` reads it. Without `migrations` that route is not served."""
    rooms = (
        Transactions(writer, migrations, node, clock),
        Queries(pool, clock),
        Subscriptions(live, clock),
        HealthEndpoints(doctor, file, pool, clock),
    )
    return CatalogApp([endpoint for room in rooms for endpoint in room.endpoints()], access or CatalogAccess())
