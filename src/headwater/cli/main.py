"""The command line's door: find the command, run it, and turn every failure into one sentence and an exit code.

Exit codes are those of `errors`: 2 invalid request, 3 not found, 4 conflict, 5 unavailable, 6 bad data, 70 a bug of
ours; 130 for Ctrl-C, 141 when the reader of a pipe went away. With `--json` the sentence is a JSON document on stdout,
so that a program finds exactly one document there, whatever happened. HEADWATER_DEBUG=1 shows tracebacks.
"""

import difflib
import errno
import importlib
import os
import sys
import traceback
from typing import Any, Final

import click

from headwater.cli.session import GLOBAL_OPTIONS
from headwater.errors import HeadwaterError, InternalError, InvalidRequest, Unavailable, describe

# In the order in which a newcomer meets them; each is a module of `cli.commands`.
COMMANDS: Final = (
    "init",
    "demo",
    "put",
    "run",
    "search",
    "trace",
    "thread",
    "label",
    "get",
    "preview",
    "ls",
    "customers",
    "export",
    "status",
    "flow",
    "kinds",
    "show",
    "sql",
    "quarantine",
    "retry",
    "models",
    "replay",
    "compare",
    "activate",
    "retire",
    "snapshots",
    "tag",
    "tags",
    "untag",
    "rescan",
    "maintain",
    "settings",
    "schema",
    "check-event",
    "event",
    "connect",
    "doctor",
    "upgrade",
    "migrate",
    "backup",
    "restore",
    "serve",
    "token",
    "mcp",
    "metrics",
    "submit",
    "up",
    "down",
)
INTERRUPTED: Final = 130
PIPE_CLOSED: Final = 141


class _Commands(click.Group):
    """Imports a command when it is called; none of them imports anything heavy before it runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            near = difflib.get_close_matches(cmd_name, COMMANDS, n=1)
            raise click.UsageError(
                f"There is no command {cmd_name}." + (f" Did you mean {near[0]}?" if near else ""), ctx
            )
        command: click.Command = importlib.import_module(f"headwater.cli.commands.{cmd_name.replace('-', '_')}").command
        return command


def _print_version(ctx: click.Context, _parameter: click.Parameter, asked: bool) -> None:
    if asked:
        import headwater

        click.echo(f"headwater {headwater.__version__}")
        ctx.exit()


@click.group(cls=_Commands, params=[*GLOBAL_OPTIONS], context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Show it and exit."
)
def headwater(**given: Any) -> None:
    """Headwater: calls, screenshots, videos, documents and chat go in; answers that know their source come out.

    New here? Try: headwater demo
    """
    click.get_current_context().obj = given


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    if "_HEADWATER_COMPLETE" in os.environ:
        headwater.main(prog_name="headwater")  # the shell asks what could come next
    try:
        # Not `headwater.main`: click's has opinions of its own on Ctrl-C and on closed pipes.
        with headwater.make_context("headwater", [*arguments] or ["--help"]) as context:
            headwater.invoke(context)
        sys.stdout.flush()
        return 0
    except click.exceptions.Exit as leaving:
        return leaving.exit_code
    except BrokenPipeError:
        # What is still buffered has no reader either; without this the interpreter complains about it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except (KeyboardInterrupt, click.Abort):
        print("Interrupted.", file=sys.stderr)
        return INTERRUPTED
    except Exception as error:
        if os.environ.get("HEADWATER_DEBUG"):
            traceback.print_exc()
        return _report(_as_ours(error), as_json=_wants_json(arguments))


def _as_ours(error: Exception) -> HeadwaterError:
    match error:
        case HeadwaterError():
            return error
        case click.UsageError() if error.ctx is not None:
            return InvalidRequest(f"{error.format_message()} Help: {error.ctx.command_path} --help")
        case click.ClickException():
            return InvalidRequest(error.format_message())
        case OSError() if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            return Unavailable(f"The disk is full{_about(error)}. Make room and try again; what was committed is safe.")
        case OSError() if error.errno is not None:
            return Unavailable(f"{error.strerror}{_about(error)}.")
    return InternalError(f"Something broke that should not: {describe(error)} (HEADWATER_DEBUG=1 shows where.)")


def _about(error: OSError) -> str:
    return f": {error.filename}" if error.filename else ""


def _wants_json(arguments: list[str]) -> bool:
    """Asked of the plain arguments, because an error may come before they are parsed."""
    return "--json" in (arguments[: arguments.index("--")] if "--" in arguments else arguments)


def _report(error: HeadwaterError, *, as_json: bool) -> int:
    from headwater.cli.output import clean, print_json

    if as_json:
        print_json({"error": {"kind": error.kind, "message": str(error), "retryable": error.retryable}})
    else:
        print(f"headwater: {clean(str(error))}", file=sys.stderr)
    return error.exit_code
