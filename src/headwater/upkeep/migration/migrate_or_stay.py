"""The command's way into a migration: it moves what differs; where nothing does, an earlier try is put in order."""

from headwater.storage.ledger.plans import finish_plan, unfinished_plans
from headwater.upkeep import work
from headwater.upkeep.journal import DONE
from headwater.upkeep.migration.migrate import Migrate, Migrated, Report, migrate
from headwater.upkeep.migration.new_settings import Document
from headwater.upkeep.migration.note import take_back, was_cut_short
from headwater.upkeep.migration.places import PLACES, place
from headwater.upkeep.migration.plan import plan_migration
from headwater.upkeep.parts import Parts


def migrate_or_stay(source: Parts, target: Parts, document: Document, report: Report) -> Migrated:
    """Where nothing is to move, no more than what an earlier try has left is put in order."""
    plan = plan_migration(source, target.settings)
    if plan:
        return migrate(source, target, document, report)
    _stay(source)
    return Migrated(plan, {})


def _stay(source: Parts) -> None:
    """Nothing is to move. What a migration that was cut short has changed is taken back; one that arrived is over."""
    here = {"to": {name: place(source.settings, name) for name in PLACES}}
    arrived = [plan for plan in unfinished_plans(source.ledger, Migrate.kind) if plan.about == here]
    if arrived or was_cut_short(source.ledger):
        with work.alone(source, Migrate.kind, any_format=True) as held:
            take_back(source)
            for plan in arrived:
                finish_plan(held.ledger, plan.id, DONE, source.clock())
