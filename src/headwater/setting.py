"""A setting: a name with its unit, a default, a range, one sentence; and the value of it that a lake has."""

import importlib.util
from dataclasses import dataclass
from typing import Any, Final

from headwater.errors import InvalidRequest

DEFAULT: Final = "default"  # where a value came from that nobody has set
Value = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Chosen:
    """A value and where it came from: `default`, the file, an environment variable or an option."""

    value: Value
    origin: str


@dataclass(frozen=True, slots=True)
class Setting:
    """`{lake}` in a default stands for the lake's directory. `fallback` is the default of a machine that has no such
    package: its name, and the value."""

    name: str
    default: Value
    purpose: str
    minimum: float | None = None
    maximum: float | None = None
    secret: bool = False
    fallback: tuple[str, Value] | None = None

    @property
    def variable(self) -> str:
        return "HEADWATER_" + self.name.upper().replace(".", "_")

    def default_here(self) -> "Chosen":
        if self.fallback is None or importlib.util.find_spec(self.fallback[0]) is not None:
            return Chosen(self.default, DEFAULT)
        return Chosen(self.fallback[1], DEFAULT)


def checked(setting: Setting, value: Any, origin: str) -> Value:
    """As a value of this setting; InvalidRequest where it is none, or out of its range."""
    kind = type(setting.default)
    try:
        if kind is bool and isinstance(value, str):
            typed: Value = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}[
                value.lower()
            ]
        elif isinstance(value, bool) is not (kind is bool) or not isinstance(value, str | int | float):
            raise TypeError
        else:
            typed = kind(value)
    except (KeyError, TypeError, ValueError):
        raise InvalidRequest(f"{origin}: {setting.name} must be a {kind.__name__}, not {value!r}.") from None
    if not isinstance(typed, str | bool):
        low, high = setting.minimum, setting.maximum
        if (low is not None and typed < low) or (high is not None and typed > high):
            raise InvalidRequest(f"{origin}: {setting.name} is {typed}; it must be {_range(low, high)}.")
    return typed


def _range(low: float | None, high: float | None) -> str:
    if low is not None and high is not None:
        return f"between {low:g} and {high:g}"
    return f"at least {low:g}" if low is not None else f"at most {high:g}"
