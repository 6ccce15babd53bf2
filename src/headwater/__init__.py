"""Headwater: a multimodal lakehouse.

`headwater.open("lake")` opens a lake, `headwater.init("lake")` makes one. What is done to a lake that is closed stands
beside them, such as `headwater.restore("lake", "lake.backup")`. Importing this package imports nothing heavy: each name
is fetched when it is first asked for.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwater.closed_lake import doctor, migrate, plan_migration, plan_restore, plan_upgrade, restore, upgrade
    from headwater.cluster import submit
    from headwater.domain.check_event import check_event
    from headwater.domain.event_schema import event_schema
    from headwater.domain.kinds import kinds
    from headwater.lake import Lake, init, open
    from headwater.remote_lake import RemoteLake, connect

    __version__: str

__all__ = (
    "Lake",
    "RemoteLake",
    "__version__",
    "check_event",
    "connect",
    "doctor",
    "event_schema",
    "init",
    "kinds",
    "migrate",
    "open",
    "plan_migration",
    "plan_restore",
    "plan_upgrade",
    "restore",
    "submit",
    "upgrade",
)

_CLOSED = ("doctor", "migrate", "plan_migration", "plan_restore", "plan_upgrade", "restore", "upgrade")
_HOMES = {
    **dict.fromkeys(_CLOSED, "headwater.closed_lake"),
    "submit": "headwater.cluster",
    **dict.fromkeys(("RemoteLake", "connect"), "headwater.remote_lake"),
    "kinds": "headwater.domain.kinds",
    "check_event": "headwater.domain.check_event",
    "event_schema": "headwater.domain.event_schema",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("headwater")
    if name in __all__:
        from importlib import import_module

        return getattr(import_module(_HOMES.get(name, "headwater.lake")), name)
    raise AttributeError(f"module 'headwater' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
