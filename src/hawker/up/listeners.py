"""The addresses at which a node is to be reached, all bound before anything is made: one that is taken is a refusal."""

import socket
from dataclasses import dataclass

from hawker.api.listener import bind
from hawker.catalog.http import server as catalog_server
from hawker.clock import Clock
from hawker.errors import CannotStart
from hawker.place import Place
from hawker.settings import Settings
from hawker.up.catalog import token_of_agent
from hawker.up.fleet import Seat, take_seat


@dataclass(frozen=True, slots=True, kw_only=True)
class Doors:
    """`public` is for clients, `seat` has the one for peers, `catalog` is that of the catalog's own API."""

    public: socket.socket | None
    seat: Seat | None
    catalog: socket.socket | None

    def close(self) -> None:
        for each in (self.public, self.catalog, self.seat.listener if self.seat else None):
            if each is not None:
                each.close()


def open_doors(settings: Settings, place: Place, clock: Clock, given: socket.socket | None, *, public: bool) -> Doors:
    """`given` is the public one that systemd has handed over. Raises `CannotStart`."""
    seat = take_seat(settings, place, clock)
    if seat is None and not public:
        raise CannotStart("a worker is one of a cluster: give --advertise, or run `hawker join --no-start` first")
    if seat is None and settings.catalog_listen is not None:
        raise CannotStart("--catalog-listen is for a node of a cluster: give --advertise, too")
    if settings.catalog_url is None and settings.catalog_token_file is not None:
        raise CannotStart("--catalog-token-file is the token of an agent: give --catalog-url, too")
    token_of_agent(settings.catalog_token_file)
    if settings.catalog_listen is not None and settings.catalog_url is not None:
        raise CannotStart("--catalog-listen and --catalog-url exclude each other: the agent answers for its catalog")
    doors = Doors(public=(given or _bind(settings.listen)) if public else None, seat=seat, catalog=None)
    if settings.catalog_listen is None:
        return doors
    try:
        return Doors(public=doors.public, seat=seat, catalog=catalog_server.bind(settings.catalog_listen))
    except CannotStart:
        doors.close()
        raise


def _bind(listen: str) -> socket.socket:
    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit():
        raise CannotStart(f"--listen takes HOST:PORT, not {listen!r}")
    return bind(host.strip("[]"), int(port))
