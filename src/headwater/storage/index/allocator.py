"""What the C allocator keeps back of what LanceDB has freed.

glibc gives every thread an arena of its own, up to eight for each core, and an arena keeps the peak of what its threads
ever held. LanceDB's many threads take turns in merging rows and in compacting, so in a stream one arena after another
grows to the peak: hundreds of megabytes that nobody uses. Two arenas are enough for threads that mostly compute. What
organising a large index has freed lies strewn in them, and is given back when that is done.
"""

import ctypes
from contextlib import suppress
from functools import cache
from typing import Final

M_ARENA_MAX: Final = -8  # as malloc.h has it
ARENAS: Final = 2


@cache
def share_arenas() -> None:
    """Of this process, from here on; where there is no glibc, nothing."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, ARENAS)


def give_back() -> None:
    """Pages that nobody uses, wherever they lie; where there is no glibc, nothing."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
