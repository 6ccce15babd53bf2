"""What people write is read with its place; what is broken, locked or made to hurt has its reason and costs one row."""

import io
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import written
from test_decoding import Lab, faults
from written import docx, mail, packed, paragraph, pptx, xlsx

# Of each kind a file, what its probe tells, and some of its texts with their places.
READ: dict[str, tuple[bytes, tuple[int | None, str], list[dict[str, Any]]]] = {
    "a.txt": (
        b"The first line\n\nand a walnut\n",
        (None, "plain"),
        [{"text": "The first line\nand a walnut", "section": "lines 1–3"}],
    ),
    "utf-16.txt": ("A żubr".encode("utf-16"), (None, "plain utf-16"), [{"text": "A żubr", "section": "lines 1–1"}]),
    "old.txt": (
        "Die Straße über die Brücke führt nach Köln.".encode("cp1252"),
        (None, "plain cp1252"),
        [{"text": "Die Straße über die Brücke führt nach Köln.", "section": "lines 1–1"}],
    ),
    "a.md": (
        written.MARKDOWN.encode(),
        (None, "markdown"),
        [
            {"text": "Refunds are fast.", "section": "Prices"},
            {"text": "A heron waits.", "section": "Prices › Europe"},
            {"text": "print('otter')", "section": "Prices › Europe"},
        ],
    ),
    "a.html": (
        written.HTML.encode(),
        (None, "html"),
        [
            {"text": "Terms"},
            {"text": "The badger pays.", "section": "Prices & fees"},
            {"text": "Later", "section": "Prices & fees"},
        ],
    ),
    "named.html": (
        b"<meta charset='windows-1251'><p>" + "Привет".encode("cp1251"),
        (None, "html windows-1251"),
        [{"text": "Привет"}],
    ),
    "a.eml": (
        mail(attached={"offer.pdf": b"%PDF-"}),
        (None, "mail"),
        [
            {"text": "The parcel holds a kettle.", "section": "body"},
            {"text": "offer.pdf", "section": "attachments"},
        ],
    ),
    "a.docx": (
        docx(
            paragraph("Tariffs", "berschrift1")
            + paragraph("The gannet costs two.")
            + paragraph("unseen", run="<w:vanish/>")
            + "<w:p><w:del><w:r><w:delText>gone</w:delText></w:r></w:del></w:p>"
            + f"<w:tbl><w:tr><w:tc>{paragraph('a cell')}</w:tc></w:tr></w:tbl>"
        ),
        (None, "word"),
        [
            {"text": "Tariffs", "section": "Tariffs"},
            {"text": "The gannet costs two.", "section": "Tariffs"},
            {"text": "a cell", "section": "Tariffs"},
            {"text": "a footnote on walruses", "section": "footnotes"},
        ],
    ),
    "a.pptx": (
        pptx(["shown last", "shown first"]),
        (2, "slides"),
        [
            {"text": "shown first", "page": 1},
            {"text": "shown last", "page": 2},
            {"text": "mention the narwhal", "page": 2, "section": "notes"},
        ],
    ),
    "a.xlsx": (
        xlsx(("Prices", [["item", "cost"], ["teapot", 3.5], [None, True]]), ("Later", [["=1+1"], ["ibis"]])),
        (2, "sheets"),
        [
            {"text": "item | cost\nteapot | 3.5\nTRUE", "page": 1, "section": "Prices!1–3"},
            {"text": "ibis", "page": 2, "section": "Later!2–2"},
        ],
    ),
    "a.srt": (
        written.SRT.encode(),
        (None, "subtitles"),
        [{"text": "The lighthouse was dark.", "start_ms": 1000, "end_ms": 2500}],
    ),
    "a.vtt": (
        written.VTT.encode(),
        (None, "subtitles"),
        [{"text": "The buoy & bell", "start_ms": 1000, "end_ms": 2500, "speaker": "Roger"}],
    ),
}
WORD = {"word/document.xml": "<w/>"}
BROKEN: dict[str, tuple[str, Callable[[], bytes], str]] = {
    "a text of no letters": ("a.txt", lambda: b" \n ", "EMPTY"),
    "a text with NULs": ("a.txt", lambda: b"abc\0def", "UNREADABLE"),
    "a program named .txt": ("a.txt", lambda: b"\x7fELF\x02\x01\x01" + bytes(60), "UNREADABLE"),
    "21 MB of text": ("a.md", lambda: b"word " * 4_200_000, "TOO_LARGE"),
    "UTF-16 that stops in a letter": ("a.txt", lambda: b"\xff\xfeab\x00", "UNREADABLE"),
    "HTML of 200,000 elements in one another": (
        "a.html",
        lambda: b"<div>" * 200_000 + b"hello" + b"</div>" * 200_000,
        "UNREADABLE",
    ),
    "a letter whose HTML is as deep": (
        "a.eml",
        lambda: b"From: a@b.org\nSubject: x\nContent-Type: text/html\n\n" + b"<b>" * 200_000,
        "UNREADABLE",
    ),
    "subtitles without times": ("a.srt", lambda: b"Hello\nthere\n", "UNREADABLE"),
    "a letter without headers": ("a.eml", lambda: b"Dear Sir,\n\nhello\n", "UNREADABLE"),
    "a message that is encrypted": (
        "a.eml",
        lambda: written.multipart("encrypted", 1),
        "ENCRYPTED",
    ),
    "a message of 5,000 parts": (
        "a.eml",
        lambda: written.multipart("mixed", 5_000),
        "TOO_LARGE",
    ),
    "a PDF named .docx": ("a.docx", lambda: b"%PDF-1.7\n" + bytes(100), "UNREADABLE"),
    "a document behind a password": (
        "a.docx",
        lambda: written.OLE + "EncryptedPackage".encode("utf-16-le") + bytes(500),
        "ENCRYPTED",
    ),
    "a Word file of 1997": ("a.docx", lambda: written.OLE, "UNSUPPORTED"),
    "a zip without a document": ("a.docx", lambda: packed({"a.txt": "hello"}), "UNREADABLE"),
    "a workbook named .docx": ("a.docx", lambda: xlsx(("A", [["x"]])), "UNREADABLE"),
    "a truncated document": ("a.docx", lambda: docx(paragraph("hello"))[:-60], "TRUNCATED"),
    "a document that breaks off": (
        "a.docx",
        lambda: packed({"word/document.xml": f"<w:document {written._W}><w:p><w:t>hal"}),
        "UNREADABLE",
    ),
    "a billion laughs in Word": (
        "a.docx",
        lambda: docx("", **{"word/document.xml": f"{written.BOMB}<w:document {written._W}>&b;</w:document>"}),
        "UNREADABLE",
    ),
    "a billion laughs in Excel": (
        "a.xlsx",
        lambda: replaced(xlsx(("A", [["x"]])), "xl/worksheets/sheet1.xml", f"{written.BOMB}<worksheet>&b;</worksheet>"),
        "UNREADABLE",
    ),
    "300 MB of blanks as XML": (
        "a.docx",
        lambda: packed({"word/document.xml": b" " * (300 << 20)}),
        "TOO_LARGE",
    ),
    "30,000 parts": ("a.pptx", lambda: packed({f"{n}": "" for n in range(30_000)}), "TOO_LARGE"),
    "10,000 sheets": ("a.xlsx", lambda: many_sheets(10_000), "TOO_LARGE"),
    "a presentation without slides": ("a.pptx", lambda: pptx([]), "UNREADABLE"),
    "a part that is packed twice over": ("a.docx", lambda: locked_flag(docx(paragraph("x"))), "ENCRYPTED"),
}


def replaced(package: bytes, name: str, content: str) -> bytes:
    with zipfile.ZipFile(io.BytesIO(package)) as found:
        return packed({each: content if each == name else found.read(each) for each in found.namelist()})


def many_sheets(count: int) -> bytes:
    sheets = "".join(f'<sheet name="s{n}" sheetId="{n}"/>' for n in range(count))
    return replaced(xlsx(("A", [["x"]])), "xl/workbook.xml", f"<workbook><sheets>{sheets}</sheets></workbook>")


def locked_flag(package: bytes) -> bytes:
    """As a zip that asks for a password says it."""
    data = bytearray(package)
    at = data.index(b"PK\x01\x02")
    data[at + 8] |= 1
    return bytes(data)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    lab = Lab(tmp_path_factory.mktemp("lake"))
    yield lab
    lab.sandbox.close()


@pytest.mark.parametrize("name", list(READ))
def test_each_kind_is_read_with_the_place_of_each_text(lab: Lab, name: str) -> None:
    data, (pages, codec), wanted = READ[name]
    results = lab.derive(name, data)
    assert faults(results) == [], results
    assert (results["probe"]["ok"]["pages"], results["probe"]["ok"]["codec"]) == (pages, codec)
    assert results["extract"]["ok"] is None, "no model was asked"
    row = results["read"]["ok"]
    told = [{name: value for name, value in part.items() if value is not None} for part in row["segments"]]
    assert [part for part in told if part in wanted] == wanted, told
    assert not any(word in row["text"] for word in ("secret", "unseen", "gone")) and row["cost"] == 0


@pytest.mark.parametrize("name", list(BROKEN))
def test_what_is_broken_locked_or_made_to_hurt_has_its_reason(lab: Lab, name: str) -> None:
    file, make, reason = BROKEN[name]
    pid = lab.sandbox.pid
    assert faults(lab.derive(file, make())) == [reason]
    assert pid is None or lab.sandbox.pid == pid, "it did not end its child"


def test_headers_of_an_e_mail_are_told_as_they_were_meant(lab: Lab) -> None:
    row = lab.derive("a.eml", mail(html="<p>not this one</p>"))["read"]["ok"]
    (headers,) = (part["text"] for part in row["segments"] if part["section"] == "headers")
    assert "From: zoë@example.org" in headers and "Subject: Grüße aus Köln" in headers
    assert "kettle" in row["text"] and "not this one" not in row["text"]


def test_rows_far_down_and_far_right_cost_no_more_than_what_is_in_them(lab: Lab) -> None:
    sheet = (
        '<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><dimension ref="A1:XFD1048576"/>'
    )
    cell = '<row r="{0}"><c r="{1}{0}" t="inlineStr"><is><t>{2}</t></is></c></row>'
    rows = cell.format(1, "A", "near") + cell.format(1_000_000, "XFD", "far")
    data = replaced(
        xlsx(("A", [["x"]])), "xl/worksheets/sheet1.xml", f"{sheet}<sheetData>{rows}</sheetData></worksheet>"
    )
    row = lab.derive("a.xlsx", data)["read"]["ok"]
    assert [(part["text"], part["section"]) for part in row["segments"]] == [("near\nfar", "A!1–1000000")]


def test_html_with_many_elements_beside_one_another_is_read_however_its_tags_end() -> None:
    from headwater.flow.models.readers.html import html_segments

    many = 12_000
    for page, last in (
        ("<ul>" + "<li><p>a gnat" * many, "a gnat"),
        ("<svg>" + "<path d='M0'/>" * many + "</svg><p>a newt", "a newt"),
        ("<script>" + "'<div>';" * many + "</script><!-- " + "<div>" * many + " --><p>an eft", "an eft"),
        ("<p><b>an owl</b></p>" * many, "an owl"),
    ):
        *_, found = html_segments(page)
        assert found.text == last


def test_a_pdf_is_read_by_its_model_alone(lab: Lab) -> None:
    from headwater.demo.drawing import pdf_bytes

    results = lab.derive("a.pdf", pdf_bytes([["A page of a curlew."]]))
    assert results["read"]["ok"] is None and "curlew" in results["extract"]["ok"]["text"]


def test_a_child_that_is_not_asked_loads_no_reader() -> None:
    """What a start costs does not grow with the kinds."""
    import subprocess
    import sys

    code = (
        "import sys, headwater.flow.derive.child, headwater.flow.derive.document\n"
        "print(sorted({'openpyxl', 'selectolax', 'markdown_it', 'charset_normalizer'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "[]\n"


def test_the_place_of_a_text_is_shown_to_people() -> None:
    from headwater.cli.output import place

    assert place({"page": 2, "section": "Prices!1–14"}) == "page 2 § Prices!1–14"
    assert place({"section": "Prices › Europe"}) == "§ Prices › Europe"
