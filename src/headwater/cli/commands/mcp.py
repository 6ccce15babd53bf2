"""`headwater mcp`"""

import click

from headwater.cli.session import Session, with_session
from headwater.domain.access import READER


@click.command(
    short_help="The lake as tools for a copilot (MCP).",
    help="Answer a copilot's questions by the Model Context Protocol: search, trace, the text of an object, SQL that "
    "only reads; every answer names its sources. On standard input and output, as a copilot starts it itself; or with "
    "--http by an address and a token.",
    epilog="""Examples:

\b
  headwater --lake /data/lake mcp
  headwater --lake /data/lake mcp --customer acme
  headwater mcp --http""",
)
@click.option("--http", is_flag=True, help="By an address, with the pages of headwater serve, until Ctrl-C.")
@click.option("--port", type=click.IntRange(0, 65_535), default=8472, show_default=True, help="Of --http; 0 is any.")
@click.option("--customer", "customers", multiple=True, metavar="NAME", help="Only of this customer; again for more.")
@click.option("--link", metavar="URL", help="Where headwater serve answers, for the links in answers.")
@with_session
def command(session: Session, http: bool, port: int, customers: tuple[str, ...], link: str | None) -> None:
    if not http:
        from headwater.web.agents import LINK, run_stdio

        session.open().close()  # a lake that cannot be opened is told before anybody asks
        run_stdio(session.open, customers=customers, link=link or LINK)
        return
    from headwater.web.server import serve

    with session.open() as lake:
        made = lake.access.make(READER, name="headwater mcp", customers=customers)

    def ready(address: str) -> None:
        session.show({"url": f"{address}/mcp", "token": made["token"]}, _draw)

    try:
        serve(session.open, session.directory, port=port, ready=ready)
    finally:
        with session.open() as lake:
            lake.access.revoke(made["id"])


def _draw(document: dict[str, str]) -> None:
    click.echo(f"{document['url']}\nAuthorization: Bearer {document['token']}\nCtrl-C ends it.")
