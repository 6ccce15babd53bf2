"""The steps as values: what a step's model is given, the table that it fills, the setting that names its first model.

Whoever must know something of a step asks here: derive and embed, the model book, quotes, replays, packing. A step is
one entry here and one function of that name in the file of each modality that has it.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Literal

from headwater.domain.tables import CAPTIONS, EMBEDDINGS, EVENTS, MESSAGES, METADATA, TEXT_TABLES, TRANSCRIPTS, Table


@dataclass(frozen=True, slots=True)
class Step:
    """`setting` names the step's first model; a step without one always has its `fixed_model`.

    `helper_setting` names a model that the step's own model asks. An `optional` step need not have a model; it shares
    its table with another step.
    """

    name: str
    table: Table
    accepts: Literal["speech", "picture", "document", "text"]
    setting: str = ""
    fixed_model: str = ""
    helper_setting: str = ""
    optional: bool = False
    reads: tuple[Table, ...] = (EVENTS,)
    codec: str | None = None  # the only one, as a probe tells it, of which it has something to say

    @property
    def produces(self) -> Literal["text", "vector"]:
        return "vector" if self.table is EMBEDDINGS else "text"

    @property
    def named_by(self) -> str:
        """What `Models` knows its model by."""
        return self.setting or self.fixed_model

    @property
    def frontier(self) -> Table:
        """The table that tells how far the live flow has come with it: the step's own, unless nobody moves that on as
        long as the step has no model."""
        return METADATA if self.optional else self.table


PROBE: Final = Step("probe", METADATA, "document", fixed_model="probe")
TRANSCRIBE: Final = Step("transcribe", TRANSCRIPTS, "speech", "models.transcribe")
CAPTION: Final = Step("caption", CAPTIONS, "picture", "models.caption")
EXTRACT: Final = Step("extract", CAPTIONS, "document", "models.extract", helper_setting="models.scans", codec="pdf")
# What needs no model, because it was written as text: Word, e-mail, subtitles.
READ: Final = Step("read", CAPTIONS, "document", fixed_model="readers")
MESSAGE: Final = Step("message", MESSAGES, "text", fixed_model="inline")
EMBED: Final = Step("embed", EMBEDDINGS, "text", "models.embed", reads=TEXT_TABLES)
PICTURE: Final = Step("picture", EMBEDDINGS, "picture", "models.picture", optional=True)

STEPS: Final = {step.name: step for step in (PROBE, TRANSCRIBE, CAPTION, EXTRACT, READ, MESSAGE, EMBED, PICTURE)}
# Those whose model can be chosen.
CHOICES: Final = {name: step for name, step in STEPS.items() if step.setting}


def derived_tables(with_model: Collection[str] = STEPS) -> tuple[Table, ...]:
    """The tables whose position every batch of derive moves on, where these steps have a model.

    Quarantine is not among them: it moves only when it gets something.
    """
    steps = [step for step in STEPS.values() if EVENTS in step.reads]
    return tuple(dict.fromkeys(step.table for step in steps if not step.optional or step.name in with_model))
