"""Work on a lake that is closed: one of another format, one that lost a part, one that moves.

Each function mirrors a command, takes the lake's directory and calls one function. `headwater.open` refuses such a
lake; a `Lake` that is open while its lake moves stays where it was.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from headwater import settings
from headwater.components import Components
from headwater.setting import Value

if TYPE_CHECKING:
    from headwater.upkeep.backup.restore import Restored, RestorePlan
    from headwater.upkeep.doctor import Finding
    from headwater.upkeep.migration.migrate import Migrated
    from headwater.upkeep.migration.new_settings import Document
    from headwater.upkeep.migration.plan import MigrationPlan
    from headwater.upkeep.upgrade import RaiseFormat, UpgradePlan

Options = Mapping[str, Value] | None
Report = Callable[[str], None]


def doctor(directory: str | Path, options: Options = None) -> "list[Finding]":
    """Whether what the lake needs is there and answers; starts no JVM, changes nothing."""
    from headwater.upkeep.doctor import examine

    parts = _parts(directory, options)
    try:
        return examine(parts)
    finally:
        parts.close()


def plan_upgrade(directory: str | Path, options: Options = None) -> "UpgradePlan":
    """What `upgrade` would do; starts no JVM."""
    from headwater.upkeep.upgrade import UpgradeLake

    return UpgradeLake(_parts(directory, options)).plan()


def upgrade(
    directory: str | Path,
    options: Options = None,
    *,
    report: Report | None = None,
    stepped: "Callable[[RaiseFormat], None] | None" = None,
) -> "UpgradePlan":
    """Bring a lake of an older format to this version's; gives what was planned, and is done."""
    from headwater.upkeep.upgrade import upgrade

    return upgrade(_parts(directory, options), report, stepped)


def plan_restore(
    directory: str | Path, file: str | Path, options: Options = None, *, force: bool = False
) -> "RestorePlan":
    """What `restore` would bring back; starts no JVM."""
    from headwater.upkeep.backup.restore import plan_restore

    return plan_restore(_parts(directory, options), Path(file), force=force)


def restore(
    directory: str | Path,
    file: str | Path,
    options: Options = None,
    *,
    force: bool = False,
    report: Report | None = None,
) -> "Restored":
    """Bring back a lost catalog or ledger from a backup; what is there stays, or with `force` is set back too."""
    from headwater.upkeep.backup.restore import restore

    return restore(_parts(directory, options), Path(file), force=force, report=report or _silent)


def plan_migration(directory: str | Path, to: str | Path, options: Options = None) -> "MigrationPlan":
    """What `migrate` would move to where the settings file `to` says; starts no JVM."""
    from headwater.upkeep.migration.plan import plan_migration

    source, target, _ = _both(directory, to, options)
    return plan_migration(source, target.settings)


def migrate(
    directory: str | Path, to: str | Path, options: Options = None, *, report: Report | None = None
) -> "Migrated":
    """Copy, verify and switch the lake's parts to where the settings file `to` says. Killed, call it again."""
    from headwater.upkeep.migration.migrate_or_stay import migrate_or_stay

    source, target, document = _both(directory, to, options)
    return migrate_or_stay(source, target, document, report or _silent)


def _parts(directory: str | Path, options: Options) -> Components:
    return Components(settings.load(Path(directory), options))


def _both(directory: str | Path, to: str | Path, options: Options) -> "tuple[Components, Components, Document]":
    from headwater.upkeep.migration.new_settings import merge, settings_of

    source = _parts(directory, options)
    document = merge(source.settings.lake, Path(to))
    return source, Components(settings_of(source.settings.lake, document, options or {})), document


def _silent(*_: object) -> None:
    pass
