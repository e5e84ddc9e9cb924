"""What two clients of one app are to be answered: contract section 3, written out. Pure: no worker is known here.

Machines are at rest between calls. `Expected` is a status and a piece of the text that clients match on.
"""

from dataclasses import dataclass, field

STARTED, STOPPED, SUSPENDED, DESTROYED = "started", "stopped", "suspended", "destroyed"


@dataclass(frozen=True, slots=True)
class Expected:
    status: int
    text: str = ""


OK = Expected(200)
NO_MACHINE = Expected(404, "machine not found")
NO_LEASE = Expected(404, "lease not found")
HELD = Expected(409, "lease currently held by")


@dataclass(slots=True)
class Lease:
    """`until` is when it ends, by the worker's clock."""

    nonce: str
    owner: str
    until: float


@dataclass(slots=True)
class Machine:
    """`versions` oldest first; the last is current."""

    id: str
    state: str
    versions: list[str]
    metadata: dict[str, str] = field(default_factory=dict)
    lease: Lease | None = None
    cordoned: bool = False
    image: str = ""

    @property
    def version(self) -> str:
        return self.versions[-1]

    @property
    def has_room(self) -> bool:
        """It has an instance, running or held still, and with it its part of the node."""
        return self.state in (STARTED, SUSPENDED)

    def held(self, now: float) -> Lease | None:
        """3.4: a lease that has ended is none."""
        return self.lease if self.lease is not None and self.lease.until > now else None

    def locked(self, nonce: str | None, now: float) -> bool:
        lease = self.held(now)
        return lease is not None and lease.nonce != nonce

    def may(self, operation: str, nonce: str | None, now: float, *, force: bool = False) -> Expected:
        """What an operation is answered. A lease is asked before the state; a machine that is gone holds none."""
        if self.state == DESTROYED:
            gone = operation in ("destroy", "cordon", "uncordon", "lease", "metadata")
            return NO_MACHINE if gone else Expected(412, f"unable to {operation} machine from current state")
        guarded = operation not in ("metadata", "signal", "exec")
        if guarded and self.locked(nonce, now):
            return HELD
        if operation in ("signal", "exec") and self.state != STARTED:
            return Expected(412, f"unable to {operation} machine from current state: '{self.state}'")
        if operation == "suspend" and self.state == STOPPED:
            return Expected(412, "unable to suspend machine from current state: 'stopped'")
        if operation == "exec" and self.locked(nonce, now):
            return HELD
        if operation == "destroy" and self.state == STARTED and not force:
            return Expected(412, "unable to destroy machine, not currently stopped")
        return Expected({"lease": 201, "metadata": 204}.get(operation, 200))

    def update(self, nonce: str | None, now: float, current_version: str | None) -> Expected:
        answer = self.may("update", nonce, now)
        if answer.status == 200 and current_version not in (None, self.version):
            return Expected(409, "concurrent update")
        return answer

    def release(self, nonce: str | None, now: float) -> Expected:
        if self.state == DESTROYED or self.held(now) is None:
            return NO_LEASE
        return HELD if self.locked(nonce, now) else OK

    def waited(self, words: list[str], version: str | None) -> Expected:
        """3.3: any of the states; an old version can no longer be reached, a machine that is gone reaches nothing."""
        if version is not None and version != self.version:
            return Expected(409, "was replaced") if version < self.version else Expected(408, "failed to reach")
        if self.state in words or "settled" in words:
            return OK
        return NO_MACHINE if self.state == DESTROYED else Expected(408, "machine failed to reach desired state")

    def settle(self, state: str) -> None:
        self.state = state
        if state == DESTROYED:
            self.lease = None
