"""Files as people write them, sound and hostile, made here: no Office is needed."""

import io
import zipfile
from collections.abc import Mapping
from email.message import EmailMessage

from openpyxl import Workbook

_W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
_P = 'xmlns:p="http://schemas.openxmlformats.org/presentationml/2006/main"'
_A = 'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main"'
_R = 'xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"'
_REL = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1".ljust(1_024, b"\0")


def packed(parts: Mapping[str, str | bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as package:
        for name, content in parts.items():
            package.writestr(name, content)
    return buffer.getvalue()


def _rels(targets: Mapping[str, tuple[str, str]]) -> str:
    found = "".join(
        f'<Relationship Id="{each}" Type="{_REL}/{kind}" Target="{target}"/>'
        for each, (kind, target) in targets.items()
    )
    return (
        f'<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">{found}</Relationships>'
    )


def docx(body: str, **more: str | bytes) -> bytes:
    """`body` is in Word's own words."""
    styles = '<w:style w:styleId="berschrift1"><w:name w:val="heading 1"/></w:style>'
    notes = "<w:footnote><w:p><w:r><w:t>a footnote on walruses</w:t></w:r></w:p></w:footnote>"
    return packed(
        {
            "_rels/.rels": _rels({"rId1": ("officeDocument", "word/document.xml")}),
            "word/document.xml": f"<w:document {_W}><w:body>{body}</w:body></w:document>",
            "word/_rels/document.xml.rels": _rels(
                {"rId1": ("styles", "styles.xml"), "rId2": ("footnotes", "footnotes.xml")}
            ),
            "word/styles.xml": f"<w:styles {_W}>{styles}</w:styles>",
            "word/footnotes.xml": f"<w:footnotes {_W}>{notes}</w:footnotes>",
            **more,
        }
    )


def paragraph(text: str, style: str = "", run: str = "") -> str:
    named = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
    return f"<w:p>{named}<w:r><w:rPr>{run}</w:rPr><w:t>{text}</w:t></w:r></w:p>"


def pptx(slides: list[str]) -> bytes:
    """The last one is shown first: order is not the order of names."""
    order = "".join(f'<p:sldId id="{255 + n}" r:id="rId{n}"/>' for n in range(len(slides), 0, -1))
    named = {f"rId{n}": ("slide", f"slides/slide{n}.xml") for n in range(1, len(slides) + 1)}
    parts: dict[str, str | bytes] = {
        "_rels/.rels": _rels({"rId1": ("officeDocument", "/ppt/presentation.xml")}),
        "ppt/presentation.xml": f"<p:presentation {_P} {_R}><p:sldIdLst>{order}</p:sldIdLst></p:presentation>",
        "ppt/_rels/presentation.xml.rels": _rels(named),
        "ppt/slides/_rels/slide1.xml.rels": _rels({"rId1": ("notesSlide", "../notesSlides/notesSlide1.xml")}),
        "ppt/notesSlides/notesSlide1.xml": _slide("mention the narwhal"),
    }
    return packed(parts | {f"ppt/slides/slide{n}.xml": _slide(text) for n, text in enumerate(slides, 1)})


def _slide(text: str) -> str:
    return f"<p:sld {_P} {_A}><a:p><a:r><a:t>{text}</a:t></a:r></a:p></p:sld>"


def xlsx(*sheets: tuple[str, list[list[object]]]) -> bytes:
    book, buffer = Workbook(), io.BytesIO()
    book.remove(book.active)
    for title, rows in sheets:
        sheet = book.create_sheet(title)
        for row in rows:
            sheet.append(row)
    book.save(buffer)
    return buffer.getvalue()


def mail(body: str = "The parcel holds a kettle.", attached: Mapping[str, bytes] | None = None, **more: str) -> bytes:
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = "zoë@example.org", "help@example.org", "Grüße aus Köln"
    message["Date"] = "Mon, 02 Mar 2026 10:00:00 +0100"
    message.set_content(body)
    if "html" in more:
        message.add_alternative(more["html"], subtype="html")
    for name, data in (attached or {}).items():
        message.add_attachment(data, maintype="application", subtype="octet-stream", filename=name)
    return message.as_bytes()


SRT = (
    "1\n00:00:01,000 --> 00:00:02,500\nThe <i>lighthouse</i> was dark.\n\n2\n"
    "00:00:03,000 --> 00:00:04,000\nNobody came.\n"
)
VTT = "WEBVTT\n\nNOTE not told\n\n00:01.000 --> 00:02.500 align:start\n<v Roger>The buoy &amp; bell\n"
MARKDOWN = "# Prices\n\nRefunds **are** [fast](http://x).\n\n## Europe\n\nA heron waits.\n\n```\nprint('otter')\n```\n"
HTML = (
    "<html><head><title>Terms</title><style>p {}</style><script>var secret</script></head><body>"
    "<h1>Prices &amp; fees</h1><p>The badger <b>pays</b>.<p hidden>secret<p>Later"
    "<div style='display: none'>secret</div></body></html>"
)
BOMB = '<!DOCTYPE w [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;">]>'


def multipart(kind: str, parts: int) -> bytes:
    head = f"From: a@example.org\r\nContent-Type: multipart/{kind}; boundary=x\r\n\r\n"
    return head.encode() + b"--x\r\n\r\nhi\r\n" * parts + b"--x--\r\n"
