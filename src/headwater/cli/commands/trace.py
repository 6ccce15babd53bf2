"""`headwater trace`"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from headwater.cli.known import known
from headwater.cli.session import Session, as_of_option, with_session

if TYPE_CHECKING:
    from rich.tree import Tree

    from headwater.domain.ref import Ref

_VECTORS_SHOWN: Final = 5


@click.command(
    short_help="From any id to its source and all made of it.",
    help="From any ID, path or hit: the object, its event, all that was derived, its vectors; and back.",
)
@click.argument("object_id", metavar="ID")
@click.option("--customer", metavar="NAME", help="Whose, where several customers have an event of that id.")
@as_of_option
@with_session
def command(session: Session, object_id: str, customer: str | None, as_of: "Ref | None") -> None:
    with session.open() as lake:
        session.show(lake.trace(object_id, customer=customer, as_of=as_of), draw)


def draw(trace: dict[str, Any]) -> None:
    from rich.tree import Tree

    from headwater.cli.output import console, text

    then = f"  as of {trace['as_of']['ref']}" if "as_of" in trace else ""
    tree = Tree(text(trace["object"]["id"] + then, "bold"), guide_style="dim")
    tree.add(text(_object(trace["object"])))
    if event := trace["event"]:
        tree.add(text(f"event {event['event_id']}  {event['customer']}  {event['occurred_at']}"))
        if about := known(event):
            tree.add(text(about))
        if event["corrected"]:
            tree.add(text(f"stands in the place of {', '.join(event['corrected'])}"))
        if event["corrected_by"]:
            tree.add(text(f"corrected by {event['corrected_by']}", "yellow"))
    for label in trace["labels"]:
        said = f"{label['key']}={label['value']}  {label['labelled_by']}, {label['labelled_at']}"
        tree.add(text(f"label {said}"))
    for line in _related(trace):
        tree.add(text(line))
    _add_derived(tree, trace)
    for refused in trace["quarantined"]:
        tree.add(text(f"quarantined  {refused['step']}: {refused['reason']}  {refused['detail'] or ''}", "yellow"))
    for line in _held_by(trace["refs"]):
        tree.add(text(line, "dim"))
    console().print(tree)


def _object(found: dict[str, Any]) -> str:
    from headwater.domain.quantities import size

    where = "inline in its event" if found["inline"] else "stored" if found["exists"] else "GONE from the raw store"
    checksum = f"  sha256 {found['checksum'][:16]}…" if found.get("checksum") else ""
    return f"object {found.get('content_type') or ''}  {size(found.get('size'))}  {where}{checksum}"


def _related(trace: dict[str, Any]) -> Iterator[str]:
    """What it came in, what came in it, and what lies beside it."""
    from headwater.domain.keys import shown_path

    if container := trace["part_of"]:
        yield f"part of {shown_path(container['id']) if container['id'] else container['name']}"
    yield from (f"holds {shown_path(path)}" for path in trace["parts"])
    yield from (f"beside {shown_path(path)}" for path in trace["beside"])


def _add_derived(tree: "Tree", trace: dict[str, Any]) -> None:
    """Each derived row, and under it the vectors of its text."""
    from headwater.cli.output import place, plural, text

    for row in trace["derived"]:
        branch = tree.add(text(f"{row['table']}  {row['model']}  {row['derived_at']}"))
        vectors = [vector for vector in trace["vectors"] if vector["source_table"] == row["table"]]
        for vector in vectors[:_VECTORS_SHOWN]:
            state = "in the index" if vector["indexed"] else "not yet in the index"
            told = (f"vector {vector['id']}", vector["model"], place(vector["locator"]), state)
            branch.add(text("  ".join(filter(None, told))))
        if len(vectors) > _VECTORS_SHOWN:
            branch.add(text(f"… and {plural(len(vectors) - _VECTORS_SHOWN, 'vector')} more", "dim"))


def _held_by(refs: list[dict[str, Any]]) -> list[str]:
    """One line a table: its tags and branches by name, its snapshots counted."""
    from headwater.cli.output import plural

    names: dict[str, list[str]] = {}
    snapshots: dict[str, int] = {}
    for ref in refs:
        named = names.setdefault(ref["table"], [])
        if ref["ref"] is None:
            snapshots[ref["table"]] = snapshots.get(ref["table"], 0) + 1
        else:
            named.append(f"{ref['type']} {ref['ref']}")
    return [
        f"held by {table}: {', '.join([*named, plural(snapshots.get(table, 0), 'snapshot')])}"
        for table, named in names.items()
    ]
