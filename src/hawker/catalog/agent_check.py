"""What is wrong with an agent that keeps the catalog, in words that say what to put where: for a node that begins, and
for the doctor.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

import anyio

from hawker.catalog.contract import Catalog, ResultTable, Statement
from hawker.catalog.schema import read, shipped
from hawker.errors import BadRequest, DeadlineExceeded, HawkerError
from hawker.value_object import ValueObject

CHECK_S = 5.0
FAR_BEHIND = 100
_MEMBERS = "SELECT count(*) FROM __corro_members WHERE json_extract(foca_state, '$.state') = 'Alive'"
_MISSING = 'SELECT coalesce(sum("end" - start + 1), 0) FROM __corro_bookkeeping_gaps'
_HOW_TO = (
    "write the output of `hawker catalog schema` into a file of the agent's db.schema_paths, such as"
    " /etc/corrosion/schemas/hawker.sql, and run `corrosion reload`"
)


class AgentCheck(ValueObject, frozen=True):
    """`url` is how operators know the agent; `others` counts the other nodes that gossip sees alive. `within_s` is the
    longest wait for all that is asked at once."""

    agent: Catalog
    url: str
    others: Callable[[], int] = lambda: 0
    within_s: float = CHECK_S

    async def lacks(self) -> str | None:
        """The parts of this version's tables that the agent does not have, in its own words, and what to do; None when
        it has all. Raises what `Catalog.query` raises where it cannot be asked, after `within_s` at the latest."""
        found: list[str] = []
        with _within(self.within_s):
            for name, table in read((shipped(),)).tables.items():
                try:
                    await self._asked(f"SELECT {', '.join((*table.key, *table.columns))} FROM {name} LIMIT 0")
                except BadRequest as error:
                    found.append(f"{name} ({_plain(error)})")
        if not found:
            return None
        return (
            f"the catalog's agent at {self.url} lacks what this version of Hawker needs: {', '.join(found)}; {_HOW_TO}"
        )

    async def findings(self) -> Sequence[str]:
        """The troubles of the agent, as sentences for people, within twice `within_s`; empty when all is well."""
        try:
            lacks = await self.lacks()
            if lacks:
                return [lacks]
            with _within(self.within_s):
                return [*await self._alone(), *await self._behind()]
        except HawkerError as error:
            return [f"{_plain(error)}; machines go on, and other nodes are seen as they were last"]

    async def _alone(self) -> Sequence[str]:
        """Agents have a membership of their own."""
        living = await self._number(_MEMBERS)
        if living == 0 and self.others():
            return [
                f"the agent at {self.url} saw no other agent alive when it last wrote that down, once a minute, and"
                f" {self.others()} other nodes live: name the other agents in its gossip.bootstrap, and let their"
                " gossip.addr be reached from here"
            ]
        return []

    async def _behind(self) -> Sequence[str]:
        missing = await self._number(_MISSING)
        if missing is None or missing < FAR_BEHIND:
            return []
        return [
            f"the agent at {self.url} lacks {missing} changes of other agents that it has heard of: until it has them,"
            " other nodes are seen as they were; it gets them by itself, and if the number does not fall, see its log"
        ]

    async def _number(self, query: str) -> int | None:
        """None of an agent that cannot say."""
        with suppress(BadRequest):
            cells = [cell for row in (await self._asked(query)).rows[:1] for cell in row]
            return cells[0] if cells and isinstance(cells[0], int) else None
        return None

    async def _asked(self, query: str) -> ResultTable:
        return await self.agent.query(Statement(query=query), timeout_s=self.within_s)


@contextmanager
def _within(seconds: float) -> Iterator[None]:
    try:
        with anyio.fail_after(seconds):
            yield
    except TimeoutError as error:
        raise DeadlineExceeded(f"the catalog's agent did not answer within {seconds:.0f} s") from error


def _plain(error: HawkerError) -> str:
    return str(error).removeprefix(f"{error.prefix}: ")
