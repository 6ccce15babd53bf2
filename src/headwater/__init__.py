"""Headwater: a multimodal lakehouse.

`headwater.open("lake")` opens a lake, `headwater.init("lake")` makes one. Importing this package imports nothing heavy:
each name is fetched when it is first asked for.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwater.lake import Lake, init, open

    __version__: str

__all__ = ("Lake", "__version__", "init", "open")


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("headwater")
    if name in __all__:
        from headwater import lake

        return getattr(lake, name)
    raise AttributeError(f"module 'headwater' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
