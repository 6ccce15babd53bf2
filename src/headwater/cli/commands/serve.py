"""`headwater serve`"""

import webbrowser
from contextlib import suppress

import click

from headwater.cli.session import Session, with_session
from headwater.domain.access import ADMIN


@click.command(
    short_help="The lake as pages and as an HTTP API.",
    help="Serve the lake's pages and its HTTP API, on this machine, until Ctrl-C. The link that is printed lets in "
    "whoever opens it; the token in it is good until the server ends.",
    epilog="""Examples:

\b
  headwater serve --open
  headwater token new reader --customer acme
  headwater serve --host 0.0.0.0 --name lake.example.com   (behind a proxy with TLS)""",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option("--port", type=click.IntRange(0, 65_535), default=8472, show_default=True, help="0 is any that is free.")
@click.option("--name", "names", multiple=True, metavar="HOST", help="A name by which a proxy asks for it.")
@click.option("--open", "open_browser", is_flag=True, help="Open the link in the browser.")
@with_session
def command(session: Session, host: str, port: int, names: tuple[str, ...], open_browser: bool) -> None:
    from headwater.web.server import serve

    directory = session.directory
    with session.open() as lake:
        made = lake.access.make(ADMIN, name="headwater serve")

    def ready(address: str) -> None:
        link = f"{address}/?token={made['token']}"
        session.show({"address": address, "link": link, "token": made["token"]}, _draw)
        if open_browser:
            webbrowser.open(link)

    try:
        # Ctrl-C is how it ends, and no mishap.
        with suppress(KeyboardInterrupt):
            serve(session.open, directory, host=host, port=port, names=names, ready=ready)
    finally:
        with session.open() as lake:
            lake.access.revoke(made["id"])


def _draw(document: dict[str, str]) -> None:
    click.echo(f"Open {document['link']}\nCtrl-C ends it.")
