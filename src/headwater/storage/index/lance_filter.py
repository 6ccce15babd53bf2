"""Conditions in LanceDB's words: which entries a search or a deletion is about."""

from collections.abc import Collection
from datetime import UTC, datetime

from headwater.domain.meta import WantedFact
from headwater.storage.index.vector_index import Filter


def condition(only: Filter) -> str:
    parts = []
    if only.customer is not None:
        parts.append(f"customer = {quoted(only.customer)}")
    if only.modality is not None:
        parts.append(f"modality = {quoted(only.modality)}")
    if only.speaker is not None:
        parts.append(f"speaker = {quoted(only.speaker)}")
    if only.thread is not None:
        parts.append(f"thread = {quoted(only.thread)}")
    parts += [_known_by(wanted) for wanted in only.where]
    if only.since is not None:
        parts.append(f"occurred_at >= {_moment(only.since)}")
    if only.until is not None:
        parts.append(f"occurred_at < {_moment(only.until)}")
    if only.hidden:
        parts.append(f"source_fingerprint NOT IN ({', '.join(quoted(value) for value in sorted(only.hidden))})")
    return " AND ".join(parts)


def _known_by(wanted: WantedFact) -> str:
    """No object is labelled in most lakes; then it is the one question of what came with it."""
    fact = f"array_has(facts, {quoted(f'{wanted.key}={wanted.value}')})"
    if wanted.otherwise:
        fact = f"({fact} AND NOT {any_of('object_id', sorted(wanted.otherwise))})"
    return f"({fact} OR {any_of('object_id', sorted(wanted.labelled))})" if wanted.labelled else fact


def any_of(column: str, values: Collection[str]) -> str:
    return f"{column} IN ({', '.join(quoted(value) for value in values)})"


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _moment(moment: datetime) -> str:
    return f"timestamp '{moment.astimezone(UTC).isoformat().replace('+00:00', 'Z')}'"
