"""Check."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The latest answer of one check. `status` is passing, warning (not asked yet) or critical; `at` Unix seconds."""

    name: str
    status: str
    output: str
    at: float
