"""What every command shares: which lake, which settings, JSON or not; and times, parsed the same everywhere."""

import functools
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from headwater.errors import InvalidRequest

if TYPE_CHECKING:
    from headwater.domain.ref import Ref
    from headwater.lake import Lake
    from headwater.setting import Value

DEFAULT_LAKE: Final = "lake"


@dataclass(frozen=True, slots=True)
class Session:
    """One call of one command. `named` is the lake's directory where the caller gave one."""

    named: Path | None
    as_json: bool
    options: "Mapping[str, Value]"

    @property
    def directory(self) -> Path:
        return self.named or find_lake(Path.cwd())

    def open(self, **options: "Value") -> "Lake":
        from headwater.lake import open

        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always", UserWarning)
            lake = open(self.directory, {**self.options, **options})
        for warning in told:
            self.note(f"headwater: {warning.message}")
        return lake

    def show(self, document: Any, draw: Callable[[Any], None]) -> None:
        """The result, on stdout: as the JSON document, or drawn from it."""
        if self.as_json:
            from headwater.cli.output import print_json

            print_json(document)
        else:
            draw(document)

    def note(self, text: str) -> None:
        """A word beside the result, on stderr."""
        from headwater.cli.output import clean

        print(clean(text), file=sys.stderr, flush=True)


def find_lake(start: Path) -> Path:
    """The nearest directory upwards that is a lake, else `./lake`."""
    from headwater.settings import FILE_NAME

    for directory in (start, *start.parents):
        if (directory / FILE_NAME).is_file():
            return directory
    return start / DEFAULT_LAKE


class Moment(click.ParamType[datetime]):
    """A time in ISO 8601; without a zone it is UTC."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        from headwater.clock import parse_time

        try:
            return value if isinstance(value, datetime) else parse_time(value)
        except ValueError:
            self.fail(f"{value!r} is not a time. Write it as 2026-01-31 or 2026-01-31T09:30:00Z.", param, ctx)


class RefName(click.ParamType["Ref"]):
    """A snapshot's id, a tag or branch, or a time."""

    name = "ref"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> "Ref":
        from headwater.domain.ref import Ref

        try:
            return value if isinstance(value, Ref) else Ref.parse(value)
        except InvalidRequest as error:
            self.fail(str(error), param, ctx)


as_of_option = click.option(
    "--as-of",
    metavar="REF",
    type=RefName(),
    help="As it was then: a snapshot's id, a tag or branch, or a time such as 2026-01-31T09:30:00Z.",
)

GLOBAL_OPTIONS: Final = (
    click.Option(
        ["--lake"],
        metavar="DIR",
        type=click.Path(path_type=Path),
        envvar="HEADWATER_LAKE",
        help="The lake's directory. Default: the nearest one upwards from here, else ./lake.",
    ),
    click.Option(["--set", "sets"], metavar="NAME=VALUE", multiple=True, help="Override a setting, for this call."),
    click.Option(["--json", "as_json"], is_flag=True, help="Print the result as JSON (shapes: docs/cli.md)."),
)


def with_session(function: Callable[..., None]) -> Callable[..., None]:
    """Gives a command the global options and a `Session` as its first argument; they may stand before it or after."""

    @functools.wraps(function)
    def wrapped(lake: Path | None, sets: tuple[str, ...], as_json: bool, **rest: Any) -> None:
        ctx = click.get_current_context()
        before: Mapping[str, Any] = ctx.obj or {}
        session = Session(
            named=_named(ctx, lake, before),
            as_json=as_json or bool(before.get("as_json")),
            options=_parse_sets((*before.get("sets", ()), *sets)),
        )
        function(session, **rest)

    declared: list[click.Option] = getattr(wrapped, "__click_params__", [])
    # Click keeps a function's parameters in reverse; these come last in the help.
    wrapped.__click_params__ = [*reversed(GLOBAL_OPTIONS), *declared]  # type: ignore[attr-defined]
    return wrapped


def hand_on(session: Session) -> None:
    """From a group to the command behind it: what was said between the two."""
    sets = tuple(f"{name}={value}" for name, value in session.options.items())
    click.get_current_context().obj = {"lake": session.named, "as_json": session.as_json, "sets": sets}


def _named(ctx: click.Context, lake: Path | None, before: Mapping[str, Any]) -> Path | None:
    typed = ctx.get_parameter_source("lake") is click.core.ParameterSource.COMMANDLINE
    return lake if typed else before.get("lake") or lake


def _parse_sets(sets: tuple[str, ...]) -> "dict[str, Value]":
    pairs = [text.partition("=") for text in sets]
    for name, equals, _ in pairs:
        if not equals:
            raise InvalidRequest(f"--set {name} has no value. Write --set {name}=VALUE")
    return {name.strip(): value for name, _, value in pairs}
