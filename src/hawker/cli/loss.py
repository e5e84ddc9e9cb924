"""What is lost with a node that is forgotten, as the catalog of the asked node has it."""

from collections.abc import Iterator
from dataclasses import dataclass

from hawker.api.caller import Caller
from hawker.api.contract.catalog import QUERY_CATALOG, CatalogStatement, Cell

_APPS = (
    "SELECT a.name, (SELECT count(*) FROM apps o WHERE o.name = a.name AND o.node <> a.node),"
    " (SELECT count(*) FROM apps o WHERE o.name = a.name AND o.home > a.home)"
    " FROM apps a WHERE a.node = ? AND a.home > 0 ORDER BY a.name"
)
_MACHINES = "SELECT count(*) FROM machines WHERE node = ?"
_VOLUMES = "SELECT count(*) FROM volumes WHERE node = ?"


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """`left` are apps that another node can be the home of, `gone` those that nobody else knows."""

    machines: int
    volumes: int
    left: tuple[str, ...]
    gone: tuple[str, ...]


async def loss_of(caller: Caller, node: str) -> Loss:
    """Machines and volumes of another region are not known here, and counted as none."""
    (machines, *_), *_ = await _rows(caller, _MACHINES, node)
    (volumes, *_), *_ = await _rows(caller, _VOLUMES, node)
    apps = [(str(name), known) for name, known, better in await _rows(caller, _APPS, node) if not better]
    return Loss(
        machines=int(str(machines)),
        volumes=int(str(volumes)),
        left=tuple(name for name, known in apps if known),
        gone=tuple(name for name, known in apps if not known),
    )


def said_of(node: str, loss: Loss) -> Iterator[str]:
    yield f"node {node} has {loss.machines} machines and {loss.volumes} volumes: they will no longer be listed"
    if loss.left:
        yield (
            f"node {node} is the home of {', '.join(loss.left)}: the next call that needs a home moves it to another"
            " node, with that node's copy of secrets and policies; the claims of its orders' keys are lost"
        )
    if loss.gone:
        yield f"no other node knows {', '.join(loss.gone)}: it is lost with its secrets and policies; create it again"


async def _rows(caller: Caller, query: str, node: str) -> list[tuple[Cell, ...]]:
    async with caller.stream(QUERY_CATALOG, body=CatalogStatement(query=query, params=(node,))) as lines:
        return [line.row async for line in lines if line.row is not None]
