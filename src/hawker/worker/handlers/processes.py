"""The list of processes in a machine, as the API sorts and shows it."""

from collections.abc import Sequence

from hawker.api.contract.exec import ListenSocket, ProcessesQuery, ProcessStat
from hawker.errors import BadRequest
from hawker.runtime.driver import ProcessInfo

_ORDERS = ("asc", "desc")


def process_stats(found: Sequence[ProcessInfo], query: ProcessesQuery, now: float) -> tuple[ProcessStat, ...]:
    """Sorted by pid unless the query says otherwise. Raises `BadRequest`."""
    sort_by, order = query.sort_by or "pid", query.order or "asc"
    sortable = tuple(name for name in ProcessStat.__struct_fields__ if name != "listen_sockets")
    if sort_by not in sortable:
        raise BadRequest(f"sort_by must be one of {', '.join(sortable)}")
    if order not in _ORDERS:
        raise BadRequest(f"order must be one of {', '.join(_ORDERS)}")
    stats = [_stat(process, now) for process in found]
    return tuple(sorted(stats, key=lambda stat: getattr(stat, sort_by), reverse=order == "desc"))


def _stat(process: ProcessInfo, now: float) -> ProcessStat:
    ran_s = max(0.0, now - process.started_at)
    return ProcessStat(
        pid=process.pid,
        stime=int(process.cpu_s),
        rtime=int(ran_s),
        command=process.command,
        directory=process.cwd,
        cpu=round(100 * process.cpu_s / ran_s) if ran_s else 0,
        rss=process.rss_bytes,
        container=process.container,
        listen_sockets=tuple(ListenSocket(proto=socket.proto, address=socket.address) for socket in process.sockets),
    )
