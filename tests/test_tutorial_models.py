"""docs/tutorial-models.md is true: its commands are walked on the demo's recordings, against a server of their own."""

import re
import shlex
from pathlib import Path

import pytest
from endpoint_server import EndpointServer

from headwater.cli.main import main
from headwater.settings import FILE_NAME

PAGE = (Path(__file__).parent.parent / "docs" / "tutorial-models.md").read_text(encoding="utf-8")
RECORDINGS = Path(__file__).parent.parent / "src/headwater/demo/recordings"
CALLS = ("broken-screen-call.wav", "office-hours-call.wav")
LABEL = "openai-transcription/whisper-1 1"


class Reader:
    """Does what the page says, and looks whether what comes of it is what the page shows."""

    def __init__(self, lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._lake = lake
        self._capsys = capsys

    def does(self, command: str, *shown: str, code: int = 0) -> str:
        assert f"$ headwater {command}\n" in PAGE, command
        return self.quietly(command, *shown, code=code)

    def quietly(self, command: str, *shown: str, code: int = 0) -> str:
        self._capsys.readouterr()
        assert main([*shlex.split(command), "--lake", str(self._lake)]) == code, command
        told = self._capsys.readouterr()
        for words in shown:
            assert words in PAGE, f"the page does not show {words!r}"
            assert words in told.out + told.err, f"{command} does not say {words!r}:\n{told.out}{told.err}"
        return told.out


def section_of_the_page(server: EndpointServer) -> str:
    (block,) = (block for block in re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL) if "openai-transcription" in block)
    dearer = re.sub(r"price = .*", "price = 0.0002", block)  # two calls here must cost what six cost there
    return re.sub(r'url = "[^"]*"', f'url = "{server.url}"', dearer)


def test_the_page_is_walked_from_quote_to_retirement(
    engine: None, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADWATER_MODELS_TRANSCRIBE", "pocketsphinx")
    monkeypatch.setenv("HEADWATER_MODELS_EMBED", "lexical")
    lake = tmp_path / "demo-lake"
    assert main(["init", str(lake)]) == 0
    reader = Reader(lake, capsys)
    with EndpointServer() as server:
        with (lake / FILE_NAME).open("a", encoding="utf-8") as file:
            file.write(section_of_the_page(server))
        for name in CALLS:
            reader.quietly(f"put {RECORDINGS / name} --customer acme")
        reader.quietly("run --once")
        monkeypatch.delenv("HEADWATER_MODELS_TRANSCRIBE")
        monkeypatch.delenv("HEADWATER_MODELS_EMBED")

        offer = "moonshine is better than pocketsphinx 5.1.1 for transcribe: "
        bring_in = "Bring it in: headwater replay transcribe --model moonshine"
        reader.does("models", "pocketsphinx 5.1.1", "active", "lexical 1", offer, bring_in)
        rows = ("bytes to read", "reads by storage class", "answers remembered", "model calls", "model seconds")
        quote = ("from standard", " at the pace of pocketsphinx 5.1.1", "money", "rows", "vectors", "time")
        reader.does("replay transcribe --model whisper --dry-run", "objects to do.", *rows, *quote)
        assert server.requests == []

        spent = "It stopped as the budget says; the same command goes on where it was left."
        reader.does("replay transcribe --model whisper --budget 0.002", "quoted  actual", spent)
        paid = len(server.requests)
        assert 0 < paid < len(CALLS)
        refused = f"{LABEL} has not been made for all objects yet."
        reader.does("activate transcribe whisper", refused, code=4)
        reader.does(
            "replay transcribe --model whisper --yes", "It is complete. Look: headwater compare transcribe ACTIVE "
        )
        assert len(server.requests) == sum(server.work.values()) == len(CALLS)

        reader.does(
            "compare transcribe ACTIVE whisper", "objects covered", "Words that differ: ", "Where they differ most"
        )
        reader.does(
            "activate transcribe whisper", f"transcribe: {LABEL} (", ") is active.", "Flip back: headwater activate"
        )
        found = reader.does("search goodbye --limit 1", LABEL)
        assert "pocketsphinx" not in found
        reader.does("activate transcribe pocketsphinx", "transcribe: pocketsphinx 5.1.1 (")

        the_endpoint_goes_down_and_comes_back(reader, server)
        the_bill_and_the_end(reader, server)


def the_endpoint_goes_down_and_comes_back(reader: Reader, server: EndpointServer) -> None:
    server.leave()
    reader.quietly(f"put {RECORDINGS / 'screen-video.wav'} --customer umbrella")
    reader.does(
        "run --once", "Set aside by this run: 1 row. All that waits, why, and the way out: headwater quarantine"
    )
    reader.does('search "show you the problem" --customer umbrella --limit 1', "pocketsphinx 5.1.1")
    reader.does("quarantine --reason MODEL_DOWN", "MODEL_DOWN × 1", "Connection refused")
    waits = f"1 of the objects still wait for {LABEL}, which did not answer."
    reader.quietly("activate transcribe whisper", waits, code=4)
    server.come_back()
    reader.does("retry --reason MODEL_DOWN", "1 tried: 1 recovered, 0 still held.")


def the_bill_and_the_end(reader: Reader, server: EndpointServer) -> None:
    (bill,) = re.findall(r"^\$ headwater (sql .* from runs .*)$", PAGE, re.MULTILINE)
    reader.does(bill, "calls", "remembered", "attempts", "cost", LABEL)
    reader.does("retire transcribe whisper --dry-run", "To be removed: transcribe by", "silver.transcripts", "Do it: ")
    reader.does("retire transcribe whisper", "Removed: transcribe by", "The memo keeps its answers.")
    asked = len(server.requests)
    again = reader.does("replay transcribe --model whisper --dry-run")
    assert re.search(r"model calls +0\s*\n", again) and re.search(r"model calls +0\n", PAGE)
    assert len(server.requests) == asked
