"""Six kinds of error; each knows its exit code, its HTTP status and whether trying again can help.

A bad *record* never raises one of these: it becomes a quarantine row. A bad request, batch or part does.
What they say is always text that a table, a journal and a terminal take, whatever a foreign library said.
"""

from typing import ClassVar, Final

# What to say where a database of a lake is gone.
WAY_BACK: Final = "If it is lost, bring it back from a backup: headwater restore FILE; for a new lake: headwater init"


class HeadwaterError(Exception):
    """What went wrong, in one sentence that ends with the next move."""

    exit_code: ClassVar[int] = 1
    http_status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False

    def __init__(self, message: str = "") -> None:
        super().__init__(sound_text(message))

    @property
    def kind(self) -> str:
        return type(self).__name__


class InvalidRequest(HeadwaterError):
    """The caller asked for something that cannot be; asking again changes nothing."""

    exit_code = 2
    http_status = 400


class AccessRefused(InvalidRequest):
    """A store does not take our key: nothing is wrong with what was asked for, and mending the key mends it."""


class NotFound(HeadwaterError):
    exit_code = 3
    http_status = 404


class Conflict(HeadwaterError):
    """Somebody else was first: other bytes under that name, another run, a moved table."""

    exit_code = 4
    http_status = 409


class Unavailable(HeadwaterError):
    """A part we depend on did not answer; the same call may succeed later, `after_seconds` where that is known."""

    exit_code = 5
    http_status = 503
    retryable = True

    def __init__(self, message: str = "", after_seconds: float = 0.0) -> None:
        super().__init__(message)
        self.after_seconds = after_seconds


class OutcomeUnknown(Unavailable):
    """A commit was sent and no answer came, nor to the question what became of it; the next run finds out."""

    exit_code = 7


class ModelNotLoaded(Unavailable):
    """A model is there and does not start: no object's fault, and none can be tried before somebody mends it."""


class SnapshotExpired(Unavailable):
    """Files of the snapshot that was being read are gone: their rows are in a newer one. `file` is one of them."""

    def __init__(self, sentence: str, file: str = "") -> None:
        super().__init__(sentence)
        self.file = file


class DataFault(HeadwaterError):
    """The bytes are not what they claim to be. `reason` is a code from `domain.quarantine`."""

    exit_code = 6
    http_status = 422

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = sound_text(detail)


class InternalError(HeadwaterError):
    """A promise of our own was broken: a bug."""

    exit_code = 70


def sound_text(text: str) -> str:
    """The same text where it is valid Unicode; half a character, which no table takes, is spelled out as `\\ud800`."""
    return str(text).encode("utf-8", "backslashreplace").decode()


def spelled(data: bytes) -> str:
    """The first bytes of something, as a person reads them: letters in quotes, else hexadecimal digits."""
    if data and all(32 <= byte < 127 for byte in data):
        return f'"{data.decode("ascii")}"'
    return data.hex(" ") or "nothing"


def describe(error: BaseException, letters: int = 300) -> str:
    """Its kind and what it says, on one line; never raises, though an exception's own words may."""
    try:
        words = " ".join(str(error)[: 2 * letters].split())
    except (Exception, SystemExit):  # one of Spark's asks a JVM that may have ended
        words = "it cannot say what it is"
    return sound_text(f"{type(error).__name__}: {words}"[:letters])
