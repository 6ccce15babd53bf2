"""Why a record could not be processed, and the way out of each reason."""

from dataclasses import dataclass
from typing import Final

# A line that was never an event, or that contradicts one, has nothing that could be derived again.
FINAL: Final = ("BAD_EVENT", "CONFLICT")
# What may mend itself is tried again by itself: after half a minute, then twice as late each time, at most hourly, and
# after so many attempts only when somebody asks.
TRANSIENT: Final = ("MODEL_DOWN", "MISSING_OBJECT")
RETRY_SECONDS_MIN: Final = 30
RETRY_SECONDS_MAX: Final = 3_600
RETRY_ATTEMPTS_MAX: Final = 16
# Faults of one pointer or of what is stored under it: another with the same content may be good.
UNFETCHED: Final = ("MISSING_OBJECT", "CORRUPT", "BAD_EVENT", "TOO_LARGE")
# The ledger's fact that tells when the next one is due.
RETRY_DUE: Final = "retry_due"

REASONS: Final[dict[str, str]] = {
    "EMPTY": "The object has no bytes. Send the file again under a new --id.",
    "UNREADABLE": "The bytes are not what the name says, or are damaged. Send a sound copy under a new --id.",
    "TRUNCATED": "The file ends too early. Send the whole file under a new --id.",
    "TOO_LARGE": "It claims to be larger than the limits in [limits]. Raise the limit, then headwater retry.",
    "ENCRYPTED": "It needs a password. Send an unlocked copy under a new --id.",
    "UNSUPPORTED": "No decoder here reads this format. Convert it, or add a decoder, then headwater retry.",
    "MISSING_OBJECT": "The event came without its bytes. It is tried again by itself; at once: headwater retry.",
    "CORRUPT": "The stored bytes no longer match their checksum. Restore the object, then headwater retry.",
    "CRASHED": "A decoder or model crashed on it. After an upgrade, headwater retry.",
    "TIMEOUT": "It took longer than the limits in [limits]. Raise the limit, then headwater retry.",
    "BAD_OUTPUT": "The model answered with something unusable. Fix or change the model, then headwater retry.",
    "BAD_EVENT": "The log line is not an event. Mend the producer and publish again.",
    "CONFLICT": "The id was used before with other content. Publish it under an id of its own.",
    "MODEL_DOWN": "The model did not answer. It is tried again by itself; at once: headwater retry.",
}


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
