"""Pieces of pages that need nothing beside them: no script, no other file, no address.

Whatever goes in as plain text is escaped here, once; `Html` is what has been.
"""

import base64
import html
from collections.abc import Iterable, Sequence
from typing import NewType

Html = NewType("Html", str)
"""Text that may stand in a page as it is."""

_STYLE = """
:root { color-scheme: light dark; --line: #8885; --no: #b3400a; --yes: #00684a; }
@media (prefers-color-scheme: dark) { :root { --no: #ff9d6b; --yes: #5fd3a8; } }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem;
  overflow-wrap: anywhere; }
h1, h2, h3 { line-height: 1.2; } h2 { margin-top: 3rem; border-top: 1px solid var(--line);
  padding-top: 1rem; } h3 { margin-top: 2rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; margin: 1rem 0; font-size: .9rem;
  font-variant-numeric: tabular-nums; overflow-wrap: normal; }
caption { text-align: left; font-weight: 600; padding-bottom: .3rem; }
caption span { display: inline-block; position: sticky; left: 0; max-width: calc(100vw - 2rem); }
th, td { padding: .2rem .7rem; text-align: right; border-bottom: 1px solid var(--line);
  white-space: nowrap; }
td.words { white-space: normal; text-align: left; min-width: 14rem; }
th:first-child, td:first-child { text-align: left; } tbody th { font-weight: inherit;
  position: sticky; left: 0; background: Canvas; }
code { display: inline-block; max-width: 100%; }
figure { margin: 1rem 0; } img { max-width: 100%; height: auto; background: white; }
.wide img { min-width: 50rem; }
figcaption { font-size: .9rem; opacity: .8; }
.pictures { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 26rem), 1fr));
  gap: 0 1.5rem; }
dl.facts { display: grid; grid-template-columns: max-content 1fr; gap: .3rem 1.2rem; }
dl.facts dt { font-weight: 600; } dl.facts dd { margin: 0; }
@media (max-width: 40rem) { dl.facts { display: block; } dl.facts dd { margin-bottom: .6rem; }
  th, td { padding: .2rem .4rem; } }
ul.findings { list-style: none; padding: 0; } ul.findings li { margin: .5rem 0 .5rem 1.6rem;
  text-indent: -1.6rem; }
.yes { color: var(--yes); } .no { color: var(--no); font-weight: 600; }
@page { margin: 15mm; }
@media print { :root { color-scheme: light; --no: #b3400a; --yes: #00684a; }
  body { max-width: none; margin: 0; padding: 0; font-size: 11pt; }
  h2, h3, h4 { break-after: avoid; } figure, table, tr { break-inside: avoid; }
  img { width: auto; max-height: 16cm; } .wide { overflow: visible; } .wide img { min-width: 0; }
  .pictures { display: block; orphans: 1; widows: 1; } .pictures figure { display: inline-block;
  width: 48%; margin: 0 1% .5rem 0; vertical-align: top; } .pictures img { max-height: 6.5cm; }
  table { font-size: 8.5pt; } th, td { padding: .05rem .35rem; } }
""".strip()

# Even what slipped through could neither run nor ask for anything.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"

# Pixels of a picture to those of a page: letters of pictures come out as large as small print.
_SHRUNK = 0.8
_MUCH = 30  # letters in a cell
_LONG = 2.0  # times as wide as high: too small to read on a phone, so that it scrolls instead


def text(value: object) -> Html:
    """Anything as text."""
    return Html(html.escape(str(value)))


def inline(words: str) -> Html:
    """Text with backquotes to code."""
    pieces = text(words).split("`")
    return Html("".join(f"<code>{p}</code>" if i % 2 else p for i, p in enumerate(pieces)))


def heading(words: str, level: int = 2, anchor: str = "") -> Html:
    """A heading, and perhaps a name for links to it."""
    named = f' id="{text(anchor)}"' if anchor else ""
    return Html(f"<h{level}{named}>{text(words)}</h{level}>")


def paragraph(words: str) -> Html:
    """Text with backquotes to code, as a paragraph."""
    return Html(f"<p>{inline(words)}</p>")


def contents(entries: Iterable[tuple[str, str]]) -> Html:
    """Links to headings of the same page: (anchor, words) each."""
    items = "".join(f'<li><a href="#{text(to)}">{text(words)}</a></li>' for to, words in entries)
    return Html(f"<ul>{items}</ul>")


def facts(pairs: Iterable[tuple[str, str]]) -> Html:
    """What is known, by name."""
    items = "".join(f"<dt>{text(name)}</dt><dd>{inline(words)}</dd>" for name, words in pairs)
    return Html(f'<dl class="facts">{items}</dl>')


def table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Html:
    """A table that scrolls by itself where the page is too narrow; rows begin with their name."""
    head = "".join(f'<th scope="col">{text(column)}</th>' for column in columns)
    body = "".join(
        f'<tr><th scope="row">{text(name)}</th>' + "".join(map(_cell, cells)) + "</tr>"
        for name, *cells in rows
    )
    # A part that scrolls must be reachable by keyboard, and have a name.
    return Html(
        f'<div class="wide" role="region" tabindex="0" aria-label="{text(caption)}">'
        f"<table><caption><span>{text(caption)}</span></caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _cell(words: str) -> Html:
    """A cell of a table; one that says much takes several lines."""
    kind = ' class="words"' if len(words) > _MUCH else ""
    return Html(f"<td{kind}>{text(words)}</td>")


def picture(png: bytes, caption: str, seen: str = "") -> Html:
    """A picture inside the page; ``seen`` says what is on it to who cannot see it."""
    data = base64.b64encode(png).decode()
    width, height = (round(_SHRUNK * int.from_bytes(png[at : at + 4])) for at in (16, 20))
    image = (
        f'<img alt="{text(seen or caption)}" width="{width}" height="{height}"'
        f' src="data:image/png;base64,{data}">'
    )
    if width > _LONG * height:
        image = f'<div class="wide" role="region" tabindex="0" aria-label="picture">{image}</div>'
    return Html(f"<figure>{image}<figcaption>{text(caption)}.</figcaption></figure>")


def pictures(several: Iterable[Html]) -> Html:
    """Pictures side by side where there is room."""
    return Html(f'<div class="pictures">{"".join(several)}</div>')


def page(title: str, body: Iterable[Html]) -> str:
    """A whole file."""
    parts = [
        "<!doctype html>",
        f'<html lang="en"><head><meta charset="utf-8"><title>{text(title)}</title>',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<style>{_STYLE}</style></head><body>",
        f"<h1>{text(title)}</h1>",
        *body,
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"
