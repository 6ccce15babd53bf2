"""The list of kinds is what the code takes: in the command, in Python, in the docs."""

import json
import re
from pathlib import Path

import pytest

import headwater
from headwater.cli.main import main
from headwater.domain.locator import Locator
from headwater.domain.modality import CONTENT_TYPES, Modality
from headwater.domain.steps import STEPS
from headwater.flow.models.readers.kinds import READERS, reader_of

PAGE = (Path(__file__).parent.parent / "docs" / "kinds.md").read_text(encoding="utf-8")


def test_the_command_lists_what_is_taken_and_needs_no_lake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--lake", str(tmp_path / "none"), "--json", "kinds"]) == 0
    told = json.loads(capsys.readouterr().out)["kinds"]
    assert told == headwater.kinds()
    taken = {ending: (kind["modality"], kind["content_type"]) for kind in told for ending in kind["endings"]}
    assert taken == {ending: (modality.value, kind) for ending, (modality, kind) in CONTENT_TYPES.items()}
    assert {step for kind in told for step in kind["steps"]} <= STEPS.keys()
    assert {place for kind in told for place in kind["places"]} <= set(Locator.__dataclass_fields__)
    assert main(["kinds"]) == 0
    assert ".docx" in capsys.readouterr().out


def test_the_page_lists_every_ending_with_its_modality_and_its_places() -> None:
    rows = re.findall(r"^\| (`\..*?) \| (\w+) \| .*? \| (.*?) \|$", PAGE, re.MULTILINE)
    listed = {
        ending: (modality, places) for names, modality, places in rows for ending in re.findall(r"`(.+?)`", names)
    }
    assert {ending: modality for ending, (modality, _) in listed.items()} == {
        ending: modality.value for ending, (modality, _) in CONTENT_TYPES.items()
    }
    for kind in headwater.kinds():
        for ending in kind["endings"]:
            assert all(f"`{place}`" in listed[ending][1] for place in kind["places"]), ending


def test_every_kind_of_document_but_pdf_has_its_reader() -> None:
    kinds = set(Modality.DOCUMENT.content_types.values())
    assert kinds - {"application/pdf"} == READERS.keys()
    assert all(reader_of(kind) for kind in READERS) and reader_of("application/pdf") is None
    assert reader_of("Text/HTML; charset=utf-8") is reader_of("text/html")
