"""`headwater token`: who may look in by `headwater serve`."""

from typing import Any

import click

from headwater.cli.session import Session, hand_on, with_session
from headwater.domain.access import ROLES


@click.group(
    short_help="Who may look in by headwater serve.",
    help="Tokens for the pages and the HTTP API; without a word more, those that there are. A reader looks, a writer "
    "also puts and labels, an admin also tends the lake. A token is told once; the lake keeps only its hash.",
    epilog="""Examples:

\b
  headwater token new reader --customer acme --days 30
  headwater token revoke 1f2e3d4c""",
    invoke_without_command=True,
)
@with_session
def command(session: Session) -> None:
    context = click.get_current_context()
    if context.invoked_subcommand is None:
        with session.open() as lake:
            session.show({"tokens": lake.access.list()}, _draw_list)
        return
    hand_on(session)


@command.command("new", help="Make a token and tell it, this once.")
@click.argument("role", type=click.Choice(ROLES), default=ROLES[0])
@click.option("--name", default="", help="What it is for.")
@click.option("--customer", "customers", multiple=True, metavar="NAME", help="It sees this customer; again for more.")
@click.option("--days", type=float, help="How long it is good for. Default: until it is revoked.")
@with_session
def new(session: Session, role: str, name: str, customers: tuple[str, ...], days: float | None) -> None:
    with session.open() as lake:
        session.show(lake.access.make(role, name=name, customers=customers, days=days), _draw_new)


@command.command("revoke", help="Let nobody in by it any more. ID is a token's id, or the token.")
@click.argument("id")
@with_session
def revoke(session: Session, id: str) -> None:
    with session.open() as lake:
        session.show(lake.access.revoke(id), lambda token: click.echo(f"{token['id']} was revoked."))


@command.command("audit", help="Calls that were refused or changed something, the latest first.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True)
@with_session
def audit(session: Session, limit: int) -> None:
    with session.open() as lake:
        session.show({"audit": lake.access.audit(limit=limit)}, _draw_audit)


def _draw_new(token: dict[str, Any]) -> None:
    from headwater.cli.output import say, text

    click.echo(token["token"])
    say(text(f"{_about(token)}. It is not told again.", "dim"))


def _draw_list(document: dict[str, Any]) -> None:
    from headwater.cli.output import say, text

    for token in document["tokens"]:
        gone = "revoked" if token["revoked_at"] else f"until {token['expires_at']}" if token["expires_at"] else ""
        say(text(token["id"], "bold"), text(f"  {_about(token)}  {gone}"))
    if not document["tokens"]:
        say("No token yet. Make one: headwater token new reader")


def _draw_audit(document: dict[str, Any]) -> None:
    from headwater.cli.output import say, text

    for row in document["audit"]:
        who = f"{row['role']} {row['token']}" if row["token"] else "nobody known"
        say(text(f"{row['at']}  {row['status']}  {row['action']}{row['detail']}  {who} from {row['client']}"))


def _about(token: dict[str, Any]) -> str:
    whose = f" for {', '.join(token['customers'])}" if token["customers"] else ""
    return " ".join(filter(None, (token["name"], f"{token['role']}{whose}")))
