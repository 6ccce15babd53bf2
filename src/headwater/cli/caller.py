"""Who calls: the name that is noted beside what somebody says of a lake."""

import getpass

import click


def caller() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may run as a number that has no name
        raise click.UsageError("Nobody knows who calls. Say it: --by NAME", click.get_current_context()) from None
