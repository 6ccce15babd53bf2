"""Lake tags as the ledger knows them, each a fact of its own. Backups and migrations carry them. Twice is once."""

from typing import Final

from headwater.domain.lake_tag import LakeTag
from headwater.storage.ledger.ledger import Ledger

_PREFIX: Final = "tag:"


def read_tag(ledger: Ledger, name: str) -> LakeTag | None:
    text = ledger.fact(_PREFIX + name)
    return LakeTag.from_text(text) if text else None


def read_tags(ledger: Ledger) -> list[LakeTag]:
    """The latest first."""
    found = [LakeTag.from_text(text) for text in ledger.facts(_PREFIX).values()]
    return sorted(found, key=lambda tag: tag.made_at, reverse=True)


def write_tag(ledger: Ledger, tag: LakeTag) -> None:
    ledger.set_fact(_PREFIX + tag.name, tag.to_text())


def forget_tag(ledger: Ledger, name: str) -> None:
    ledger.forget_fact(_PREFIX + name)
