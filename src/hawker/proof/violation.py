"""One broken promise, as every check reports it. Checks return all they find and raise nothing."""

from enum import StrEnum

from hawker.value_object import ValueObject


class Invariant(StrEnum):
    """What holds of a worker, whatever happened."""

    KEPT = "acknowledged means kept"
    ONE_INSTANCE = "at most one instance per machine"
    EXIT_ONCE = "an exit is recorded once, with its true code"
    WHOLE = "no operation is half-visible"
    ONE_MACHINE = "a volume has one machine at a time"
    CAPACITY = "capacity is the sum of the records"
    NOTHING_STRAY = "nothing stray on the host"
    LEGAL_PATH = "the events of a machine form a legal path"
    HELD = "what is suspended is held still, and nothing else is"
    ENFORCED = "network policies are in force"
    UNDISTURBED = "an instance ends by itself or by order"
    FILLED_ONCE = "no order fills twice"
    NOT_OVERSOLD = "no host is oversold"
    CONVERGED = "every replica converges"
    ALL_OR_NONE = "an order of all or nothing that is refused leaves nothing"
    CORDONED = "a cordoned node takes no new machines"
    SPARE_ONCE = "a spare starts at most once for one loss"
    ONE_SLOT = "a deploy changes a machine in one slot"
    BUDGET = "a deploy takes no more machines away at once than it may"
    ONE_COORDINATOR = "a deploy has one coordinator at a time"
    KEPT_BEFORE = "a majority knows of a change before it is made"
    REFUSED = "a deploy that is refused changes nothing"
    PAUSED = "a paused deploy begins nothing"
    OWN_LIFE = "a machine starts again by itself amid a deploy"
    GATED = "a release that does not pass its gates is not complete"
    DEPLOY_ENDS = "a deploy ends"
    DEPLOYED = "a deploy ends with each machine at its release, or as it was"
    ONE_OWNER = "exactly one node owns a machine or volume"
    ONE_WRITER = "one node at a time writes to a volume"
    FOUND = "what has moved is found"
    SAME = "what has moved is the same"
    ONE_AWAY = "one machine of an app moves at a time"
    ZEROS_SAID = "zeros in place of what was lost are listed"
    OFF_ONCE = "a machine is stopped once for a move"
    GOES_BACK = "a machine that does not start where it came to goes back once"
    SETTLED = "nothing is taken back once its new owner was told that it is not"
    MOVE_ENDS = "a move ends, and leaves nothing"
    HARD_LIMIT = "a machine never has more in flight than its hard limit"
    UNCUT = "nobody is let into a machine that rests or stops, and a rest cuts nobody"
    SENT_ONCE = "what may not be repeated reaches a machine once"
    SERVED = "a request that some machine can take is not refused"
    ANSWERED = "every request is answered in time"
    WAKES_BOUND = "a host starts no more machines for requests at once than it may"
    WOKEN = "a burst wakes no more machines than it needs"
    OWN_APP = "a request reaches machines of its app, or of one that may be replayed to"
    OWN_REGION = "a request that is forced to a region reaches no machine of another one"
    NOT_ROUND = "a request that came from another region is passed on to no other"
    UNFORGED = "no client sets what the edge vouches for"
    RESTED = "machines that nobody needs rest, and as many stay as are to run"
    LEFT_EMPTY = "an edge that nobody uses holds nothing"
    OWN_NUMBER = "no two private networks have one number"
    NAMED = "names lead to started machines of the network that asks, and to nothing else"
    WAYS = "ways between hosts are those of the machines that are there, each to one host"
    SHOWN = "a certificate is shown for its names, and none that has expired while another one is there"
    SEALED = "a private key is in clear in no row, log, answer or backup"
    ANSWERS = "the worker goes on, and answers with what callers can act on"


class Violation(ValueObject, frozen=True, order=True):
    """`about` is a machine's id, or what else it is about; `what` a sentence with the facts."""

    invariant: Invariant
    about: str
    what: str

    def __str__(self) -> str:
        return f"{self.invariant.value}: {self.about}: {self.what}"
