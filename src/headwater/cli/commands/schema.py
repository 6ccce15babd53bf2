"""`headwater schema`"""

import click

from headwater.cli.session import Session, with_session


@click.command(
    short_help="The JSON Schema of events, for producers.",
    help="Print the JSON Schema of an event, for producers that are not Headwater. Needs no lake.",
)
@click.option("--version", "version", default=1, show_default=True, metavar="N", type=int, help="Which version.")
@with_session
def command(session: Session, version: int) -> None:
    from headwater.cli.output import print_json
    from headwater.domain.event_schema import event_schema

    session.show(event_schema(version), print_json)
