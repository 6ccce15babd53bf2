"""`headwater submit`"""

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
    import os
    import shlex

    from headwater.settings import load
    from headwater.storage.io.java import check_java
    from headwater.storage.spark.jars import jars_for, resolve_jars
    from headwater.storage.spark.packed_environment import shipped_conf
    from headwater.storage.spark.submit import submit_environment, submit_line
    from headwater.storage.spark.submit_process import run_submitted

    chosen = {**session.options, **({"spark.master": master} if master else {})}
    settings = load(session.directory, chosen)
    flags = [*(["--once"] if once else []), *(["--json"] if session.as_json else [])]
    sets = [part for name, value in chosen.items() for part in ("--set", f"{name}={value}")]
    shipped = shipped_conf(settings, settings.text("spark.master") or "local", session.note)
    line = submit_line(settings, resolve_jars(jars_for(settings), report=session.note), shipped, [*flags, *sets])
    if only_print:
        session.show({"line": line}, lambda _: click.echo(shlex.join(line)))
        return
    environment = {**os.environ, **submit_environment(settings, check_java().executable)}
    click.get_current_context().exit(run_submitted(line, environment))
