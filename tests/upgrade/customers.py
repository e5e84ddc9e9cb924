"""Clients that work while the daemon is replaced. They ask again as the API's own rules say, and write down what they
were told: a call that says `retry` is tried again; one that was cut off is tried again only if it is keyed or harmless.
"""

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import aiohttp
import anyio

from hawker.api.contract.machine import Machine
from hawker.errors import Fault, HawkerError
from tests.e2e.shop import Shop
from tests.waiting import eventually

T = TypeVar("T")

ANSWERED_WITHIN_S = 90.0


class Refused(AssertionError):
    """What no client has to put up with."""


@dataclass(slots=True)
class Book:
    """How many calls were answered, told to come again, cut off."""

    told: Counter[str] = field(default_factory=Counter)

    @property
    def answers(self) -> int:
        return sum(count for what, count in self.told.items() if what.endswith(" answered"))


@dataclass(slots=True)
class Order:
    """One machine, and what was acknowledged of it."""

    key: str
    machine_id: str = ""
    words: list[str] = field(default_factory=list)  # what its commands were told to have written
    doubtful: list[str] = field(default_factory=list)  # what commands that were cut off may have written
    stops: int = 0
    destroyed: bool = False


class Customer:
    def __init__(self, shop: Shop, config: dict[str, Any], name: str, book: Book) -> None:
        self._shop = shop
        self._config = config
        self._name = name
        self._book = book
        self.orders: list[Order] = []

    async def work(self, closing: anyio.Event) -> None:
        while not closing.is_set():
            order = Order(f"{self._name}-{len(self.orders)}")
            self.orders.append(order)
            await self._serve(order, keep=len(self.orders) % 2 == 0)

    async def _serve(self, order: Order, *, keep: bool) -> None:
        shop = self._shop
        made: Machine = await self._insist("create", lambda: shop.order(self._config, key=order.key))
        order.machine_id = made.id
        await self._insist("wait", lambda: shop.wait(made.id, "started"))
        await self._write(order, "first")
        await self._insist("stop", lambda: shop.stop(made.id))
        await self._insist("wait", lambda: shop.wait(made.id, "stopped"))
        order.stops += 1
        await self._insist("start", lambda: shop.start(made.id))
        await self._insist("wait", lambda: shop.wait(made.id, "started"))
        order.words.clear()
        order.doubtful.clear()  # a stop gives back the root filesystem
        await self._write(order, "second")
        got = await self._insist("get", lambda: shop.get(made.id))
        assert got.state == "started", got
        if not keep:
            await self._insist("destroy", lambda: shop.destroy(made.id))
            await self._insist("wait", lambda: shop.gone(made.id))
            order.destroyed = True

    async def _write(self, order: Order, word: str) -> None:
        """A command that must not run twice: one that was cut off is not asked for again."""
        script = f"echo {word} >> /tmp/words"
        try:
            await self._insist("exec", lambda: self._shop.said(order.machine_id, "sh", "-c", script), again=False)
        except Fault:
            self._book.told["exec cut off"] += 1
            order.doubtful.append(word)
        else:
            order.words.append(word)

    async def _insist(self, name: str, call: Callable[[], Awaitable[T]], *, again: bool = True) -> T:
        """The answer. Raises `Fault` for a call that was cut off and may not be asked for `again`."""

        async def answers() -> list[T]:
            try:
                answer = await call()
            except HawkerError as error:
                self._put_up_with(name, error, again=again)
                return []
            self._book.told[f"{name} answered"] += 1
            return [answer]

        return (await eventually(answers, ANSWERED_WITHIN_S))[0]

    def _put_up_with(self, name: str, error: HawkerError, *, again: bool) -> None:
        cut = isinstance(error, Fault)
        if isinstance(error.__cause__, aiohttp.ClientConnectorError):
            raise Refused(f"{name}: connection refused") from error
        if not cut and not error.retry:
            raise Refused(f"{name}: {type(error).__name__} {error}") from error
        if cut and not again:
            raise error
        self._book.told[f"{name} cut off" if cut else f"{name} told to come again"] += 1
