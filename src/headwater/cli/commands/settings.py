"""`headwater settings`"""

from typing import Any

import click

from headwater.cli.session import Session, with_session


@click.command(
    short_help="Every value and where it came from.",
    help="Every setting: its value, where it came from and what it is for. Secrets are masked.",
)
@click.option("--markdown", is_flag=True, help="The settings page of the docs, generated.")
@with_session
def command(session: Session, markdown: bool) -> None:
    import os

    from headwater.settings import FILE_NAME, load, resolve

    if markdown:
        click.echo(settings_page(), nl=False)
        return
    if (session.directory / FILE_NAME).is_file():
        found = load(session.directory, session.options)
    else:
        session.note(f"No lake in {session.directory}; these are the defaults.")
        found = resolve(session.directory, {}, session.options, os.environ)
    session.show({"lake": str(found.lake), "settings": found.shown()}, _draw)


def _draw(document: dict[str, Any]) -> None:
    from headwater.cli.output import table, text

    rows = [
        (
            shown["name"],
            text(shown["value"] if shown["value"] != "" else "–", "" if shown["origin"] == "default" else "bold"),
            shown["origin"],
            shown["purpose"],
        )
        for shown in document["settings"]
    ]
    table(("setting", "value", "from", "purpose"), rows)


def settings_page() -> str:
    """docs/settings.md; a test holds the file to it."""
    from headwater.producer_section import SECTION
    from headwater.setting import Setting
    from headwater.settings import FILE_NAME, OPEN_SECTIONS, SETTINGS

    def row(setting: Setting) -> str:
        default = f"`{setting.default}`" if setting.default != "" else "empty"
        bounds = " to ".join(f"{bound:,}" for bound in (setting.minimum, setting.maximum) if bound is not None)
        bounds = f"at least {bounds}" if bounds and setting.maximum is None else bounds
        return f"| `{setting.name}` | {default} | {bounds} | {setting.purpose} |"

    opened = ", ".join(f"`[{name}]`" for name in OPEN_SECTIONS)
    return "\n".join(
        [
            "# Settings",
            "",
            f"One `{FILE_NAME}` in the lake's directory, then the environment (`raw.uri` is `HEADWATER_RAW_URI`), then",
            "`--set name=value`: the later wins. `headwater settings` shows each value and where it came from. An",
            "unknown name is refused. `{lake}` stands for the lake's directory.",
            "",
            f"The sections {opened} pass their keys on as they are. `[{SECTION}.NAME]` says for whom a producer",
            "may write ([events.md](events.md#who-may-write-for-which-customer)).",
            "",
            "This page is generated: `headwater settings --markdown > docs/settings.md`.",
            "",
            "| name | default | range | purpose |",
            "|---|---|---|---|",
            *map(row, SETTINGS),
            "",
        ]
    )
