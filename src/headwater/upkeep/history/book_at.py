"""The models as they were: what whoever reads the past asks first. Apart from what makes tags, which loads far more."""

from headwater.domain.model_book import ModelBook
from headwater.domain.ref import Ref
from headwater.errors import NotFound
from headwater.storage.ledger.lake_tags import read_tag, read_tags
from headwater.upkeep.parts import Parts


def book_at(parts: Parts, ref: Ref | None) -> ModelBook:
    """The models as they were with a tag of the lake, else as they are: nothing else says what they were."""
    tag = read_tag(parts.ledger, ref.name) if ref is not None and ref.name is not None else None
    if tag is None:
        return parts.book()
    if tag.has_ended(parts.clock()):
        raise NotFound(f"The {tag.kind} {tag.name} ended on {tag.until}; what it kept may be gone. {_others(parts)}")
    return tag.book


def _others(parts: Parts) -> str:
    now = parts.clock()
    known = [tag.name for tag in read_tags(parts.ledger) if not tag.has_ended(now)][:20]
    return f"There is still {', '.join(known)}." if known else "No other tag is there."
