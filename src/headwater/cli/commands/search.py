"""`headwater search`"""

from typing import Any

import click

from headwater.cli.known import known
from headwater.cli.session import Moment, Session, with_session


@click.command(
    short_help="Find what was said, shown or written.",
    help="Find what was said, shown or written, by words and by meaning.",
    epilog="""Examples:

\b
  headwater search refund --customer acme --since 2026-01-31
  headwater search "broken router" --modality audio --where channel=phone""",
)
@click.argument("query")
@click.option("--customer", metavar="NAME", help="Only theirs.")
@click.option("--modality", metavar="KIND", help="Only audio, image, video, document or chat.")
@click.option("--speaker", metavar="NAME", help="Only what they said in a call: speech.channel_names, or 0, 1.")
@click.option("--where", multiple=True, metavar="KEY=VALUE", help="Only what is known so, by its meta or a label.")
@click.option("--thread", metavar="ID", help="Only of this conversation.")
@click.option("--since", type=Moment(), metavar="TIME", help="Not before.")
@click.option("--until", type=Moment(), metavar="TIME", help="Only before.")
@click.option("--limit", default=10, show_default=True, type=click.IntRange(1, 1000), help="How many hits.")
@with_session
def command(session: Session, query: str, **only: Any) -> None:
    with session.open() as lake:
        answer = lake.search(query, **only).to_dict()
        session.show(answer, draw)
        if not answer["hits"] and (waits := sum(lake.pending().to_dict().values())):
            session.note(f"{waits:,} events or rows wait to be brought in: headwater run --once")


def draw(answer: dict[str, Any]) -> None:
    from headwater.cli.output import highlighted, place, say, text

    if not answer["hits"]:
        say("No hits.")
    for number, hit in enumerate(answer["hits"], 1):
        where = place(hit["locator"])
        facts = (hit["customer"], hit["modality"], where, hit["model"])
        say(f"{number:>2}. ", text(f"{hit['score']:.3f}", "bold"), f"  {hit['why']}  ", "  ".join(filter(None, facts)))
        say("    ", highlighted(hit["snippet"], hit["marks"]))
        if hit["meta"] or hit["thread"]:
            say(text(f"    {known(hit)}", "dim"))
        say(text(f"    {hit['pointer']['path']}  trace: {hit['id']}", "dim"))
    if answer["stale_by"]:
        say(f"The index is {answer['stale_by']:,} vectors behind: headwater run --once", stderr=True)
