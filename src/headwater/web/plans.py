"""Plans: what may be planned and then done from afar, as the commands that a person would type.

A plan is what the command says with `--dry-run`; doing it is the same command without, and so is going on with one that
was cut short.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from headwater.errors import InvalidRequest

_LETTERS: Final = 200


@dataclass(frozen=True, slots=True)
class _Kind:
    """`given` stand alone behind the command, `options` have their names; all of `needed` must be said.

    `look` is another command that shows what would be done, where the command has no dry run, with its options.
    """

    given: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    needed: frozenset[str] = frozenset()
    look: tuple[str, ...] = ()


_KINDS: Final = {
    "maintain": _Kind(),
    "rescan": _Kind(),
    "upgrade": _Kind(),
    "retry": _Kind(options=("reason", "model"), look=("quarantine", "reason")),
    "replay": _Kind(("step",), ("model", "budget", "yes"), frozenset({"step", "model"})),
    "retire": _Kind(("step", "model"), (), frozenset({"step", "model"})),
}


def command_of(kind: str, options: Mapping[str, str], *, dry_run: bool) -> tuple[str, ...]:
    """Raises InvalidRequest where it is no kind, or has no such option. No value is taken for an option."""
    if kind not in _KINDS:
        raise InvalidRequest(f"{kind[:_LETTERS]} is not planned here. These are: {', '.join(_KINDS)}.")
    about = _KINDS[kind]
    _check(kind, about, options)
    if dry_run and about.look:
        name, *known = about.look
        return (name, *(f"--{each}={options[each]}" for each in known if each in options))
    switches = [
        f"--{name}" if name == "yes" else f"--{name}={options[name]}" for name in _given(about.options, options)
    ]
    alone = [options[name] for name in _given(about.given, options)]
    return (kind, *(["--dry-run"] if dry_run else []), *switches, *(["--", *alone] if alone else []))


def _given(names: tuple[str, ...], options: Mapping[str, str]) -> list[str]:
    return [name for name in names if name in options]


def _check(kind: str, about: _Kind, options: Mapping[str, str]) -> None:
    known = (*about.given, *about.options)
    if strange := sorted(set(options) - set(known)):
        raise InvalidRequest(f"{kind} has no option {strange[0][:_LETTERS]}. It has: {', '.join(known) or 'none'}.")
    if missing := sorted(about.needed - set(options)):
        raise InvalidRequest(f"{kind} of what? Say {' and '.join(missing)} in its options.")
    if bad := [name for name, value in options.items() if not 0 < len(value) <= _LETTERS or "\0" in value]:
        raise InvalidRequest(f"{bad[0]} has 1 to {_LETTERS} letters.")
