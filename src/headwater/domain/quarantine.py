"""Why a record could not be processed, and the way out of each reason."""

from dataclasses import dataclass
from typing import Final

# A line that was never an event, or that contradicts one, has nothing that could be derived again.
# Of what was read in part, that part is in its table, and stays.
FINAL: Final = ("BAD_EVENT", "SKIPPED", "CONFLICT", "WRONG_CUSTOMER", "PARTIAL")
# A rule kept it out of bronze: it has no event that could be derived, and is taken in once the rules allow it.
FORBIDDEN: Final = "FORBIDDEN"
# What may mend itself is tried again by itself: after half a minute, then twice as late each time, at most hourly, and
# after so many attempts only when somebody asks.
TRANSIENT: Final = ("MODEL_DOWN", "MISSING_OBJECT", "UNFETCHABLE")
RETRY_SECONDS_MIN: Final = 30
RETRY_SECONDS_MAX: Final = 3_600
RETRY_ATTEMPTS_MAX: Final = 16
# What its batch did not wait for is derived beside the run; the ledger's fact says that there is some.
SLOW: Final = "SLOW"
STRAGGLERS: Final = "stragglers"
# The ledger's fact that tells when the next one is due.
RETRY_DUE: Final = "retry_due"

REASONS: Final[dict[str, str]] = {
    "EMPTY": "The object has no bytes. Send the file again under a new --id.",
    "UNREADABLE": "The bytes are not what the name says, or are damaged. Send a sound copy under a new --id.",
    "TRUNCATED": "The file ends too early. Send the whole file under a new --id.",
    "TOO_LARGE": "It is or claims to be larger than the limits in [limits]. Raise the limit, then headwater retry.",
    "ENCRYPTED": "It needs a password. Send an unlocked copy under a new --id.",
    "UNSUPPORTED": "No decoder here reads this format. Convert it, or add a decoder, then headwater retry.",
    "MISSING_OBJECT": "The event came without its bytes. It is tried again by itself; at once: headwater retry.",
    "UNFETCHABLE": "The store answers, but does not give it. Mend what its detail names: policy, key, archive, disk. "
    "It is tried again by itself; at once: headwater retry.",
    "CORRUPT": "The stored bytes do not match their checksum. Restore the object, then headwater retry; where the "
    "event was wrong: headwater event correct.",
    "CRASHED": "A decoder or model crashed on it. After an upgrade, headwater retry.",
    "TIMEOUT": "It took longer than the limits in [limits]. Raise the limit, then headwater retry.",
    "PARTIAL": "Time ran out before all of it was read; what was read is in its table. Raise the limit, send it anew.",
    "SLOW": "Its batch did not wait for it. It is derived beside the run, by itself; at once: headwater retry.",
    "BAD_OUTPUT": "The model answered with something unusable. Fix or change the model, then headwater retry.",
    "BAD_EVENT": "The log line is not an event: its detail names each field. Mend the producer, try it by "
    "headwater check-event, and publish again.",
    "CONFLICT": "The id or the object was announced before with other content. Publish it under an id of its own; "
    "where the first one was wrong, with that one's id as corrects, or: headwater event correct.",
    "SKIPPED": "Somebody had the line passed over, as its detail says. Publish it again, sound, if it is wanted.",
    "WRONG_CUSTOMER": "The path is another customer's than the event says. Mend the producer and publish again.",
    "FORBIDDEN": "Its producer may not write for this customer. Where it should, change [producers] in headwater.toml, "
    "then headwater retry; else mend the producer.",
    "LANGUAGE": "The model does not know the language that is spoken. By one that does: headwater retry --model.",
    "OVER_BUDGET": "The replay's budget does not reach so far. Replay again, with more.",
    "MODEL_DOWN": "The model did not answer. It is tried again by itself; at once: headwater retry.",
}


def known_fault(reason: object, detail: str) -> tuple[str, str]:
    """A model of somebody else's may give a reason that nobody knows a way out of, or that is no word at all."""
    return (reason, detail) if isinstance(reason, str) and reason in REASONS else ("CRASHED", f"{reason}: {detail}")


@dataclass(frozen=True, slots=True)
class Retried:
    """What became of the rows: out of quarantine, or back in with one attempt more."""

    tried: int
    recovered: int
    still_quarantined: int

    def __add__(self, other: "Retried") -> "Retried":
        return Retried(
            self.tried + other.tried,
            self.recovered + other.recovered,
            self.still_quarantined + other.still_quarantined,
        )
