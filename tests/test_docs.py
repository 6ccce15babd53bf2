"""Docs that lie fail here: every command, target, setting, table, path and link that they name exists."""

import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click import Context

import headwater
from headwater.cli.commands.settings import settings_page
from headwater.cli.main import COMMANDS
from headwater.cli.main import headwater as program
from headwater.domain.quarantine import REASONS
from headwater.domain.tables import TABLES
from headwater.flow.map import FLOW
from headwater.flow.models.port import ModelCard, Said, Sound
from headwater.lake import Lake
from headwater.settings import BY_NAME, OPEN_SECTIONS
from headwater.upkeep.exclusion import matrix_page

ROOT = Path(__file__).parent.parent
PAGES = sorted({*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")})
FULL_SETTING = re.compile(r"`([a-z0-9]+\.[a-z_]+)`")


def code_of(text: str) -> Iterator[str]:
    """Everything that is set as code."""
    for block in re.findall(r"```[a-z]*\n(.*?)```", text, re.DOTALL):
        yield from block.splitlines()
    yield from re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))


def lies(text: str, page: Path) -> list[str]:
    """What a page names and the repository does not have."""
    found = []
    commands = {
        match[1] for line in code_of(text) for match in re.finditer(r"\bheadwater (?:--lake \S+ )?([a-z][\w-]*)", line)
    }
    found += [f"command {name}" for name in commands - {*COMMANDS}]
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    made = {match[1] for line in code_of(text) if (match := re.match(r"make ([a-z]+)", line))}
    found += [f"make {name}" for name in made - targets]
    found += [f"table {name}" for name in set(re.findall(r"\b(?:bronze|silver|gold)\.(?!py\b)[a-z_]+\b", text))
              if name not in {table.name for table in TABLES}]  # fmt: skip
    known = {*BY_NAME, *OPEN_SECTIONS, *(table.name for table in TABLES)}
    for name in FULL_SETTING.findall(text):
        section, _, key = name.partition(".")
        if section in {each.partition(".")[0] for each in BY_NAME} and key not in {"py", "md"} and name not in known:
            found.append(f"setting {name}")
    found += [
        f"variable {name}" for name in set(re.findall(r"(?<!_)HEADWATER_[A-Z0-9_]+", text)) if not _is_variable(name)
    ]
    for path in re.findall(r"`((?:src|docs|tests|examples|scripts|benchmarks)/[\w./-]*)`", text):
        found += [] if (ROOT / path).exists() else [f"path {path}"]
    for link in re.findall(r"\]\(([^)#]+)\)", text):
        found += [] if "://" in link or (page.parent / link).exists() else [f"link {link}"]
    return found


def _is_variable(name: str) -> bool:
    by_hand = any(f'"{name}"' in file.read_text(encoding="utf-8") for file in (ROOT / "src").rglob("*.py"))
    return by_hand or name in {setting.variable for setting in BY_NAME.values()}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_name_only_what_exists(page: Path) -> None:
    assert lies(page.read_text(encoding="utf-8"), page) == []


@pytest.mark.parametrize(
    "lie",
    ["`headwater fly`", "```\nmake coffee\n```", "silver.dreams", "`run.batch_row`", "HEADWATER_MOOD",
     "`src/headwater/no.py`", "[gone](gone.md)"],
)  # fmt: skip
def test_a_lie_is_found(lie: str) -> None:
    assert lies(lie, ROOT / "README.md") != []


def test_the_settings_page_is_the_generated_one() -> None:
    assert (ROOT / "docs/settings.md").read_text(encoding="utf-8") == settings_page()
    assert all(f"| `{name}` |" in settings_page() for name in BY_NAME)


def test_every_command_and_each_of_its_options_is_in_the_docs() -> None:
    page = (ROOT / "docs/cli.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^## ([a-z-]+)\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))
    assert set(COMMANDS) <= set(sections)
    with Context(program) as context:
        for name in COMMANDS:
            command = program.get_command(context, name)
            assert command is not None
            options = {option for parameter in command.params for option in parameter.opts if option.startswith("--")}
            # -o is shown in its short form.
            missing = {option for option in options if option not in sections[name]} - {"--output"}
            assert missing <= {"--lake", "--set", "--json"}, name


def test_the_map_in_the_docs_is_the_map() -> None:
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\w+) \| (.*?) ?\| (.*?) \| (.*?) \|$", page, re.MULTILINE)
    drawn = [row for row in rows if row[0] in {stage.name for stage in FLOW}]
    assert drawn == [(stage.name, ", ".join(stage.reads), ", ".join(stage.writes), stage.key) for stage in FLOW]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert all(table.name in readme for table in TABLES)


def test_the_matrix_in_the_docs_is_what_leases_do() -> None:
    assert matrix_page() in (ROOT / "docs/runbook.md").read_text(encoding="utf-8")


def test_the_glossary_has_every_stage_and_the_words_are_sorted_out_once() -> None:
    page = (ROOT / "docs/glossary.md").read_text(encoding="utf-8")
    words = [word for row in re.findall(r"^\| ([a-z, ]+) \|", page, re.MULTILINE) for word in row.split(", ")]
    assert len(words) == len(set(words))
    assert {"step", "seq", "memo", "quarantine", "fingerprint", "pointer", "locator"} <= set(words)
    for stage in FLOW:
        assert re.search(rf"\b{stage.name}\b", page)


def python_blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)


def test_the_five_lines_of_python_call_what_exists() -> None:
    block = python_blocks()[0]
    compile(block, "README.md", "exec")
    assert all(hasattr(headwater, name) for name in re.findall(r"headwater\.(\w+)\(", block))
    assert all(hasattr(Lake, name) for name in re.findall(r"lake\.(\w+)\(", block))


def test_the_speech_model_of_the_readme_fits_the_port(monkeypatch: pytest.MonkeyPatch) -> None:
    class WhisperModel:
        def __init__(self, *_: object, **__: object) -> None: ...

        def transcribe(self, samples: Any) -> Any:
            assert samples.dtype == np.float32 and abs(samples).max() <= 1
            part = types.SimpleNamespace(text=" hello ", start=0.5, end=1.25)
            return iter([part]), types.SimpleNamespace(language="en")

    stand_in = types.ModuleType("faster_whisper")
    stand_in.WhisperModel = WhisperModel  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "faster_whisper", stand_in)
    scope: dict[str, Any] = {}
    exec(compile(python_blocks()[1], "README.md", "exec"), scope)
    model = scope["Whisper"]()
    model.load()
    said: Said = model.run([Sound(iter([np.full(16_000, -32768, np.int16)]))])[0]
    assert isinstance(model.card, ModelCard)
    assert (said.text, said.language, said.segments[0].locator.end_ms) == ("hello", "en", 1250)


def test_every_reason_points_to_a_way_out_that_exists() -> None:
    for reason, way_out in REASONS.items():
        assert lies(f"`{way_out}`", ROOT / "README.md") == [], reason


def test_decisions_are_numbered_and_complete() -> None:
    files = sorted((ROOT / "docs/decisions").glob("*.md"))
    assert [int(file.name[:4]) for file in files] == list(range(1, len(files) + 1))
    for file in files:
        text = file.read_text(encoding="utf-8")
        assert text.startswith(f"# {file.name[:4]} ")
        assert all(part in text for part in ("**Context.**", "**Decision.**", "**Consequences.**"))
