"""`headwater submit`"""

from typing import Any

import click

from headwater.cli.session import Session, with_session


@click.command(
    short_help="Run on a cluster by spark-submit.",
    help="Run by spark-submit, on a cluster: as `run`, with jars and packages shipped. --print shows the line.",
)
@click.option("--once", is_flag=True, help="Drain what is there, then exit.")
@click.option("--master", metavar="URL", help="Spark's master, such as spark://host:7077. Default: spark.master.")
@click.option("--print", "only_print", is_flag=True, help="Print the line and run nothing.")
@with_session
def command(session: Session, once: bool, master: str | None, only_print: bool) -> None:
    import shlex

    from headwater.cluster import submit, submit_line

    options = {**session.options, **({"spark.master": master} if master else {})}
    about: dict[str, Any] = {"once": once, "as_json": session.as_json, "report": session.note}
    if only_print:
        line = submit_line(session.directory, options, **about)
        session.show({"line": line}, lambda _: click.echo(shlex.join(line)))
        return
    click.get_current_context().exit(submit(session.directory, options, **about))
