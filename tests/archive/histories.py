"""Histories as tests need them: one with a row of everything, and any that Hypothesis can think of."""

from datetime import UTC, datetime

from hypothesis import strategies as st

from hawker.archive.history_file import EventRow, History, MachineRow, RunRow, StepRow, VersionRow

ID = "0123456789abcd"
AT = datetime(2026, 11, 21, 12, 0, 0, 250_000, tzinfo=UTC)


def machine(machine_id: str = ID) -> MachineRow:
    return MachineRow(
        id=machine_id,
        app="shop",
        name="web",
        node="00c0ffee",
        region="local",
        state="destroyed",
        version="V1",
        image="hawker/hello",
        image_digest="sha256:" + "0" * 64,
        private_ip="fdaa::2",
        created_at=AT,
        updated_at=AT,
        config_json='{"image":"hawker/hello","env":{"KEY":"secret"}}',
        details_json="{}",
    )


def history(machine_id: str = ID) -> History:
    """Has one row of each kind."""
    run = RunRow(
        id="R1",
        flow="destroy",
        state="done",
        accepted_at=AT,
        started_at=AT,
        ended_at=AT,
        step="forget",
        attempt=1,
        error=None,
        parent=None,
        input_json='{"signal":"SIGINT"}',
        result_json=None,
    )
    step = StepRow(
        run="R1",
        number=0,
        step="halt",
        attempt=1,
        outcome="done",
        started_at=AT,
        ended_at=AT,
        error=None,
        result_json='{"exit_code":0}',
    )
    version = VersionRow(version="V1", created_at=AT, image="hawker/hello", image_digest="sha256:0", config_json="{}")
    event = EventRow(id="E1", at=AT, type="launch", status="created", source="user", request_json=None)
    return History(machine=machine(machine_id), versions=(version,), events=(event,), runs=(run,), steps=(step,))


_MOMENTS = st.datetimes(timezones=st.just(UTC))
_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def _rows(row: type, **keys: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    """Rows whose other fields are anything of their type."""
    kinds = {"str": _TEXTS, "int": st.integers(0, 2**62), "datetime": _MOMENTS}
    fields = {name: _values(str(kind), kinds) for name, kind in row.__annotations__.items()}
    return st.builds(row, **{**fields, **keys})


def _values(kind: str, kinds: dict[str, st.SearchStrategy[object]]) -> st.SearchStrategy[object]:
    found = next(strategy for name, strategy in kinds.items() if name in kind)
    return st.none() | found if "None" in kind else found


def _many(row: type, key: str) -> st.SearchStrategy[tuple[object, ...]]:
    """In the order of their keys, each once."""

    def keyed(names: set[str]) -> st.SearchStrategy[tuple[object, ...]]:
        return st.tuples(*(_rows(row, **{key: st.just(name)}) for name in sorted(names)))

    return st.sets(st.text("0123456789ABC", min_size=1, max_size=4), max_size=3).flatmap(keyed)


ANY_HISTORY = st.builds(
    History,
    machine=_rows(MachineRow),
    versions=_many(VersionRow, "version"),
    events=_many(EventRow, "id"),
    runs=_many(RunRow, "id"),
    steps=_many(StepRow, "run"),
)
