"""Replay: a step's rows once more, by another model, beside what is there.

It derives with the very code of the live flow; what differs is where the model's position begins. While it works, what
arrives is brought in as in any run, so nothing waits for it. When the model has caught up it stands beside the active
one and is kept up by every run from then on.
"""

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Final

from headwater import telemetry
from headwater.domain.model_book import KnownModel, ModelBook, State
from headwater.domain.steps import EMBED, STEPS
from headwater.domain.tables import EVENTS
from headwater.errors import Conflict, InvalidRequest, NotFound
from headwater.flow import map as flow
from headwater.flow.derive.plan import only_by, plan_work
from headwater.flow.derive.stage import Derived, replay_next
from headwater.flow.drive.batch_size import BatchSize
from headwater.flow.drive.retry_schedule import note_set_aside, note_set_aside_in
from headwater.flow.drive.run import Run
from headwater.flow.embed.stage import Embeddings, replay_embed_next
from headwater.flow.models.choice import card_of, fitting, require_same
from headwater.flow.models.loaded import models_of
from headwater.flow.models.port import ModelCard
from headwater.flow.rows import BatchLimit, batch_limit, driver_rows
from headwater.flow.spent import Spent
from headwater.storage.ledger.model_book import change_book, read_book
from headwater.storage.tables.read_progress import read_progress

_TEXTS_AT_ONCE: Final = 5_000


@dataclass(frozen=True, slots=True)
class Allowance:
    """How far a replay may go, asked before every batch with what was spent so far and where it stands.

    `until` is the first event that is not to be read, for a derivation; `money` is what is left, None without a bound.
    Every call is held to it: no call is made that it cannot pay, or, where nobody can say before what a call will cost,
    one at a time, so that it is overdrawn by one call at most.
    """

    until: int
    money: float | None = None


Allow = Callable[[Spent, int], Allowance | None]


def replay(run: Run, known: KnownModel, allow: Allow) -> bool:
    """Until the model has caught up (True), or it may not go on or is stopped (False)."""
    _require_single_tasks(run, known)
    with run.interruptible():
        run.begin()
        resting = _stage_in_trouble(run)
        if resting is not flow.DERIVE:
            run.derivation.end_cut_short()
        run.follow(resting=resting)
        batch_size = BatchSize(run.settings.number("run.batch_seconds"), batch_limit(run.writer).rows)
        alone = not _is_priced_before(run, known)
        while not run.stop.is_set():
            run.check()
            may = allow(run.account.spent.get(_tag(known), Spent()), _position(run, known))
            if may is None:
                break
            # As long as it is not known to have caught up, the stage must not go on without it.
            with run.held_back(flow.EMBED) if known.step == EMBED.name else nullcontext():
                made = _step(run, known, may, batch_size, alone=alone)
                if made is None:
                    # From here on what it left is tried again by every run.
                    note_set_aside(run.ledger, run.clock(), passing=1, slow=1)
                    _caught_up(run, known)
            if made is not None and made.over:
                if alone:
                    break
                alone = True  # each worker had its share: what is left of all is for one
            if made is None:
                run.derivation.look_again()
                run.finish()
                return True
            run.take_turn()
    return False


def _position(run: Run, known: KnownModel) -> int:
    """The first event that it has yet to see; an embedder, which reads texts, has none."""
    step = STEPS[known.step]
    if EVENTS not in step.reads:
        return 0
    return read_progress(run.settings, step.table).seq_of(known.position_in(EVENTS.name))


def _require_single_tasks(run: Run, known: KnownModel) -> None:
    """Of two tasks that do the same at the same time each would pay, and nobody would hear of the slower one's bill."""
    speculates = run.spark.sparkContext.getConf().get("spark.speculation", "false")
    if str(speculates).lower() == "true" and _card(run, known).price > 0:
        raise InvalidRequest(
            f"spark.speculation is on, so Spark may have {known.label} paid twice for the same. "
            "Take it out of [spark.conf], then replay again."
        )


def _card(run: Run, known: KnownModel) -> ModelCard:
    return card_of(models_of(run.settings), known.step, known.name)


def _is_priced_before(run: Run, known: KnownModel) -> bool:
    """Whether what a call costs is known before it is made, so that several may be under way. Of texts it is, but
    their calls are quick, and made in the order of the texts."""
    return known.step != EMBED.name and _card(run, known).price_unit != "1k_tokens"


def _step(
    run: Run, known: KnownModel, may: Allowance, batch_size: BatchSize, *, alone: bool
) -> Derived | Embeddings | None:
    begun = time.monotonic()
    made = _embed(run, known, may) if known.step == EMBED.name else _derive(run, known, may, batch_size, alone=alone)
    if made is None:
        return None
    seen = made.texts if isinstance(made, Embeddings) else made.events
    batch_size.learn(seen, time.monotonic() - begun)
    effort = made.efforts.get(_tag(known), Spent())
    done = made.texts if isinstance(made, Embeddings) else effort.calls + effort.remembered + effort.faults
    run.wake_readers(flow.EMBED if known.step == EMBED.name else flow.DERIVE)
    run.account.add(made.efforts, {_tag(known): known.label})
    run.account.count("replay", done)
    if made.quarantined:  # tried again when the model has caught up
        run.account.count("quarantine", made.quarantined, shown=False)
    telemetry.note("replay.committed", step=known.step, model=known.label, done=done)
    return made


def _derive(run: Run, known: KnownModel, may: Allowance, batch_size: BatchSize, *, alone: bool) -> Derived | None:
    workers = run.spark.sparkContext.defaultParallelism
    book = only_by(read_book(run.ledger), known)
    work = plan_work(run.settings, book, now=run.clock(), share=workers)
    if not work.planned()[_tag(known)].paid:  # what is paid is paid within its budget: nothing of it is set aside
        work = work.hurried()
    limit = batch_limit(run.writer)
    limit = BatchLimit(batch_size.within(limit.rows), limit.bytes)
    if may.money is not None:
        workers = 1 if alone else workers
        work = replace(work, purse=may.money / workers, alone=alone)
        limit = BatchLimit(min(limit.rows, driver_rows(run.writer)), limit.bytes)
    return replay_next(
        run.writer, work, _tag(known), limit, workers, may.until, note_set_aside_in(run.ledger, run.clock)
    )


def _embed(run: Run, known: KnownModel, may: Allowance) -> Embeddings | None:
    return replay_embed_next(run.writer, known, batch_rows=_TEXTS_AT_ONCE, clock=run.clock, purse=may.money)


def _caught_up(run: Run, known: KnownModel) -> None:
    def on_standby(book: ModelBook) -> ModelBook:
        found = book.get(known.step, known.fingerprint)
        if found is None:
            raise NotFound(f"{known.label} was taken out of the book meanwhile. Replay it again.")
        return book if found.kept else book.with_model(replace(found, state=State.STANDBY))

    change_book(run.ledger, on_standby)


def _stage_in_trouble(run: Run) -> flow.Stage | None:
    """Where a model that is kept is no longer to be had, its stage rests: this replay is the way out."""
    book = read_book(run.ledger)
    models = models_of(fitting(run.settings, book))
    for known in book.models:
        try:
            if known.kept:
                require_same(known, card_of(models, known.step, known.name))
        except (Conflict, InvalidRequest) as trouble:
            telemetry.note("stage.rests", level="warning", detail=str(trouble))
            return flow.EMBED if known.step == EMBED.name else flow.DERIVE
    return None


def _tag(known: KnownModel) -> str:
    return f"{known.step}/{known.fingerprint}"
