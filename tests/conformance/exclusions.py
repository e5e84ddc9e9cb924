"""What the official document says otherwise than the contract, in one table: nothing else is passed over.

A letter is a row of the contract's list of where document and wire differ. The rest is behaviour that the contract
states and the document leaves out. A test fails for an entry that explains nothing any more.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from tests.conformance.judge import Finding, Reach

_STATUS, _VALID, _INVALID = "status_code_conformance", "positive_data_acceptance", "negative_data_rejection"
_TYPED = r'"error":".+"status":"\w+"'
_NULL = r"(Incorrect type|Missing request body|null)"


@dataclass(frozen=True, slots=True)
class Exclusion:
    """Explains a finding of `check` whose status, operation and text (message, request, answer) all fit. `found_by`:
    the least reach whose calls find such a one."""

    why: str
    check: str
    statuses: tuple[int, ...]
    operations: str = ""
    text: str = ""
    found_by: Reach = Reach.FEW

    def explains(self, finding: Finding) -> bool:
        text = f"{finding.message}\n{finding.sent}\n{finding.answer}"
        return (
            finding.check == self.check
            and finding.status in self.statuses
            and re.search(self.operations, finding.operation) is not None
            and re.search(self.text, text, re.DOTALL) is not None
        )


EXCLUSIONS = (
    # Statuses that the contract lists for every call and the document for hardly any; always with a typed body.
    Exclusion("contract 1.0: 400 for what cannot be read", _STATUS, (400,), text=_TYPED),
    Exclusion(
        "contract 1.2: 401 without a good token",
        _STATUS,
        (401,),
        "tokens/authenticate",
        text=_TYPED,
        found_by=Reach.WHOLE,
    ),
    Exclusion("contract 1.0: 404 for what is not there", _STATUS, (404,), text=_TYPED),
    Exclusion(
        "contract 1.0: 408 when a wait's deadline passes",
        _STATUS,
        (408,),
        "/wait",
        text=_TYPED,
        found_by=Reach.BOUNDARIES,
    ),
    Exclusion("contract 1.0: 412 in the wrong state", _STATUS, (412,), text=_TYPED),
    Exclusion("contract 1.0: 422 for what cannot be served", _STATUS, (422,), text=_TYPED),
    # Not served: a typed 501, whatever the method.
    Exclusion(
        "certificates are imported, and not ordered yet",
        _STATUS,
        (501,),
        "/certificates/acme",
        text=_TYPED,
        found_by=Reach.BOUNDARIES,
    ),
    Exclusion("OIDC and KMS tokens are Fly's own services", _STATUS, (501,), "/tokens/(oidc|kms)", text=_TYPED),
    Exclusion(
        "what is not served has no methods",
        "unsupported_method",
        (501,),
        "/tokens/(oidc|kms)",
        found_by=Reach.BOUNDARIES,
    ),
    # Bounds and forms that the contract states and the document leaves out.
    Exclusion(
        "contract 1.0: limits have bounds",
        _VALID,
        (400,),
        "machines|volumes|events|certificates",
        "at `limit`",
        found_by=Reach.BOUNDARIES,
    ),
    Exclusion("contract 1.1: expiry is a Go duration", _VALID, (400,), "deploy_token", "expiry", found_by=Reach.WHOLE),
    Exclusion(
        "contract 1.1: an address has one of the types", _VALID, (400,), "ip_assignments", "invalid ip address type"
    ),
    Exclusion("contract 1.1: exec needs a command", _VALID, (400,), "/exec", "command|cmd"),
    Exclusion(
        "contract 1.1: a stop has a real signal and duration, a restart a real duration",
        _VALID,
        (400,),
        "/(stop|restart)",
        "signal|timeout",
        found_by=Reach.WHOLE,
    ),
    Exclusion(
        "contract 1.1: processes are listed in a known order",
        _VALID,
        (400,),
        "/ps",
        "at `(order|sort_by)`",
        found_by=Reach.WHOLE,
    ),
    Exclusion(
        "contract 1.1: 1 to 60 days of retention",
        _VALID,
        (400,),
        r"PUT .*\{volume_id\}",
        "snapshot_retention",
        found_by=Reach.WHOLE,
    ),
    # The contract is wider than the document.
    Exclusion("contract 1.0: an optional field may be null, as flyctl sends it", _INVALID, (200, 201, 204), text=_NULL),
    Exclusion(
        "contract 1.0: a null beside a stale version is still stale",
        _INVALID,
        (412,),
        "/metadata",
        "stale",
        found_by=Reach.WHOLE,
    ),
    Exclusion(
        "(i) a lease needs no body", _INVALID, (201,), "POST .*/lease", "Missing request body", found_by=Reach.WHOLE
    ),
    Exclusion("(k) a restart's signal may be left empty", _INVALID, (200,), "/restart", "signal", found_by=Reach.WHOLE),
    Exclusion("contract 1.0: bytes are base64", _INVALID, (200, 204), "/(decrypt|verify)", '"(plain|cipher)text": "'),
    Exclusion("contract 1.0: bytes are base64, not numbers", "response_schema_conformance", (200,), "/secretkeys/"),
    Exclusion(
        "contract 1.1: attached_machine_id of a free volume is null",
        "response_schema_conformance",
        (200,),
        "/volumes",
        'null is not of type "string"',
    ),
)


def unexplained(findings: Iterable[Finding]) -> list[Finding]:
    return [finding for finding in findings if not any(each.explains(finding) for each in EXCLUSIONS)]


def unneeded(findings: Iterable[Finding], reach: Reach) -> list[Exclusion]:
    """The exclusions that explain nothing, of those whose findings calls of this reach do find."""
    found = list(findings)
    asked = (each for each in EXCLUSIONS if each.found_by <= reach)
    return [each for each in asked if not any(each.explains(finding) for finding in found)]
