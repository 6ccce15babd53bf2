"""What may stand in each field of an event: the rules that the reader of lines and who explains a fault both ask.

Pure and quick, because every event goes through them.
"""

import re
from datetime import UTC, datetime
from typing import Final, TypeGuard
from urllib.parse import unquote

from headwater.clock import parse_time
from headwater.domain.modality import Modality

NAME_BYTES_MAX: Final = 1024  # an S3 key's; Postgres has no room in an index for much more
WHOLE_END: Final = 1 << 63
CHECKSUM: Final = re.compile("[0-9a-f]{64}")
# No part of a path: what a file system passes over, or goes up by. Its second part would not tell whose it is.
NO_PART: Final = re.compile(r"(?:^|/)\.{0,2}(?:/|\Z)")
MODALITIES: Final = frozenset(modality.value for modality in Modality)


def is_name(name: object) -> TypeGuard[str]:
    """What databases and stores take as a key: some bytes, not too many, none of them zero."""
    return type(name) is str and 0 < len(name.encode()) <= NAME_BYTES_MAX and "\0" not in name


def is_brief(word: object) -> TypeGuard[str | None]:
    return word is None or (type(word) is str and len(word.encode()) <= NAME_BYTES_MAX)


def is_whole(number: object) -> TypeGuard[int]:
    return type(number) is int and 0 <= number < WHOLE_END


def is_correction(corrects: object, event_id: object) -> bool:
    """Whether it names an event that it may correct; none at all is good."""
    return corrects is None or (is_name(corrects) and corrects != event_id)


def read_moment(value: object) -> datetime | None:
    """ISO 8601, or seconds since 1970."""
    try:
        if type(value) is str:
            return parse_time(value)
        return datetime.fromtimestamp(value, UTC) if type(value) is int else None
    except (ValueError, OverflowError, OSError):
        return None


def owner_of(path: str) -> str | None:
    """Whose object it is: the second part of its path, in which `domain.keys` spells some letters as `%20`.

    Every path has one owner at most, so that two names, `a b` and `a%20b`, never own the same object.
    """
    _, _, rest = path.partition("/")
    part, slash, name = rest.partition("/")
    return unquote(part) if slash and name else None
