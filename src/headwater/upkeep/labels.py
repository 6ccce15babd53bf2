"""Labels as people give and ask for them: by any id of an object, and as what a search is narrowed by.

Reads   bronze.events and silver, to know which object an id means; the ledger
Writes  the ledger's labels; twice is once
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from headwater.domain.meta import KEY_LETTERS_MAX, WantedFact, parse_fact
from headwater.errors import InvalidRequest, NotFound
from headwater.storage.ledger.labels import labels_by_key, labels_of, remove_labels, set_labels
from headwater.storage.ledger.ledger import Ledger
from headwater.upkeep import work
from headwater.upkeep.lineage import find_object
from headwater.upkeep.parts import Parts

_VALUE_LETTERS_MAX = 1_000

# `channel=phone` in one word, or by key and value.
Facts = Mapping[str, object] | Iterable[str] | str


def label_object(
    parts: Parts, name: str, labels: Mapping[str, str], remove: Sequence[str], *, customer: str | None, by: str
) -> dict[str, Any]:
    """`{"object", "labels": [{"key", "value", "labelled_at", "labelled_by"}]}`, as they are now.

    Alone, as all small changes of the ledger are: none is left behind where the lake is being moved or restored.
    """
    _require_unicode(by)
    for key, value in labels.items():
        _check(key, value)
    with work.alone(parts, "label") as held:
        object_id = find_object(parts.reader, name, customer)
        if missing := sorted(set(remove) - {label.key for label in labels_of(held.ledger, object_id)}):
            raise NotFound(f"{object_id} has no label {missing[0]}. See: headwater trace {object_id}")
        set_labels(held.ledger, object_id, labels, now=parts.clock(), by=by)
        remove_labels(held.ledger, object_id, remove)
        return {"object": object_id, "labels": shown_labels(held.ledger, object_id)}


def shown_labels(ledger: Ledger, object_id: str) -> list[dict[str, str]]:
    found = [label.to_dict() for label in labels_of(ledger, object_id)]
    return [{name: value for name, value in label.items() if name != "object_id"} for label in found]


def wanted_facts(ledger: Ledger, where: Facts | None) -> tuple[WantedFact, ...]:
    """What a search asks for, with the objects that were labelled so, or otherwise, since they came."""
    return tuple(_wanted(ledger, key, value) for key, value in parse_facts(where).items())


def parse_facts(given: Facts | None) -> dict[str, str]:
    """Raises InvalidRequest where one key is asked for with two values, which no object has."""
    if isinstance(given, Mapping):
        return {str(key): _as_word(value) for key, value in given.items()}
    found: dict[str, str] = {}
    for key, value in map(parse_fact, [given] if isinstance(given, str) else given or ()):
        if found.setdefault(key, value) != value:
            raise InvalidRequest(f"{key} cannot be both {found[key]} and {value}. Ask for one of them.")
    return found


def _as_word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _wanted(ledger: Ledger, key: str, value: str) -> WantedFact:
    _require_unicode(key + value)
    known = labels_by_key(ledger, key)
    labelled = frozenset(name for name, given in known.items() if given == value)
    return WantedFact(key, value, labelled, frozenset(known) - labelled)


def _require_unicode(text: str) -> None:
    """A shell hands on bytes that are no UTF-8 as halves of letters, which nothing keeps."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"{text[:KEY_LETTERS_MAX]!r} is not valid Unicode. Send it as UTF-8.") from error


def _check(key: str, value: str) -> None:
    _require_unicode(key + value)
    if not 0 < len(key) <= KEY_LETTERS_MAX or len(value) > _VALUE_LETTERS_MAX or "\0" in key + value:
        raise InvalidRequest(
            f"{key[:KEY_LETTERS_MAX]!r} is no label: a key has 1 to {KEY_LETTERS_MAX} letters, its value at most "
            f"{_VALUE_LETTERS_MAX}. Say it shorter."
        )
