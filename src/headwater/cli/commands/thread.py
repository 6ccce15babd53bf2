"""`headwater thread`"""

import json
from typing import Any, Final

import click

from headwater.cli.session import Session, with_session

_SAID_LETTERS: Final = 400


@click.command(
    short_help="A conversation in its order.",
    help="What belongs to the conversation ID, as it happened: messages, calls, pictures, documents.",
)
@click.argument("thread", metavar="ID")
@click.option("--customer", metavar="NAME", help="Whose, where several customers have a thread of that name.")
@with_session
def command(session: Session, thread: str, customer: str | None) -> None:
    with session.open() as lake:
        session.show(lake.thread(thread, customer=customer), draw)


def draw(document: dict[str, Any]) -> None:
    from headwater.cli.output import one_line, plural, say, text

    for item in document["items"]:
        labels = [f"{label['key']}={label['value']}" for label in item["labels"]]
        about = [json.dumps(item["meta"], ensure_ascii=False) if item["meta"] else "", *labels]
        say(text(item["occurred_at"], "bold"), f"  {item['modality']}  ", text("  ".join(filter(None, about)), "dim"))
        say(f"    {one_line(item['text'] or '', _SAID_LETTERS)}")
        say(text(f"    {item['object_id']}", "dim"))
    say(f"{plural(len(document['items']), 'object')} of {document['customer']} in the thread {document['thread']}")
