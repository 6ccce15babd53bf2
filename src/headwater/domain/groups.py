"""Groups: a sequence cut into pieces that are worth doing at once and not too much for it."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def grouped(
    items: Iterable[T], size: Callable[[T], int], *, most_bytes: int, most_items: int | None = None
) -> Iterator[list[T]]:
    """In their order; one that is too large by itself is a group of its own."""
    group: list[T] = []
    total = 0
    for item in items:
        weight = size(item)
        if group and (len(group) == most_items or total + weight > most_bytes):
            yield group
            group, total = [], 0
        group.append(item)
        total += weight
    if group:
        yield group
