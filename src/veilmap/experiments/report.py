"""Results on paper: one Markdown file and one HTML file that needs nothing beside it."""

import base64
import html
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from veilmap import __version__, _files
from veilmap._threads import threads
from veilmap.experiments.results import Finding, Result, Table

_MARKS = {True: "✓", False: "✗"}


@dataclass(frozen=True)
class About:
    """How results came about.

    Attributes
    ----------
    command : str
    seconds : float
        The computing took this time, spread over ``workers`` processes.
    computed, remembered : int
        Tasks that were run, and that were found done.
    workers : int
    quick : bool
    """

    command: str
    seconds: float
    computed: int
    remembered: int
    workers: int
    quick: bool = False

    def lines(self) -> list[str]:
        """What a reader should know first."""
        cores = f"{platform.machine()}, {threads()} cores, Python {platform.python_version()}"
        when = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
        by = "1 process" if self.workers == 1 else f"{self.workers} processes"
        work = f"{self.computed} tasks computed in {self.seconds:.0f} s by {by}, "
        lines = [
            f"`{self.command}`, veilmap {__version__}, {when}, {platform.system()} on {cores}.",
            f"{work if self.computed else ''}{self.remembered} tasks remembered from before.",
        ]
        if self.quick:
            lines.append("Quick settings: the figures show that things run, not what they give.")
        return lines


def write(results: Sequence[Result], about: About, out: Path, stem: str) -> list[Path]:
    """Draw all pictures and write the two reports; their paths."""
    from veilmap import plots

    pictures = {}
    for result in results:
        for picture in result.pictures:
            path = out / "figures" / f"{picture.name}.png"
            pictures[picture.name] = plots.save(plots.draw(picture), path)
    reports = {
        out / f"{stem}.md": _markdown(results, about, pictures, out),
        out / f"{stem}.html": _page(results, about, pictures),
    }
    for path, text in reports.items():
        _files.write_text(text, path)
    return [*reports, *pictures.values()]


def as_dict(results: Sequence[Result]) -> dict[str, Any]:
    """For JSON."""
    return {"veilmap": __version__, "experiments": [result.as_dict() for result in results]}


def _title(results: Sequence[Result]) -> str:
    return results[0].title if len(results) == 1 else "The paper's results, reproduced"


# ---- Markdown


def _markdown(results: Sequence[Result], about: About, pictures: dict[str, Path], out: Path) -> str:
    parts = [f"# {_title(results)}", *about.lines()]
    if len(results) > 1:
        parts += ["## What holds", "\n".join(f"- {_summary(result)}" for result in results)]
    for result in results:
        parts += [f"## {result.name}: {result.title}", result.shows]
        parts += [_markdown_table(table) for table in result.tables]
        parts += [
            f"![{picture.caption}]({os.path.relpath(pictures[picture.name], out)})\n\n"
            f"*{picture.caption}.*"
            for picture in result.pictures
        ]
        if result.findings:
            parts.append("\n".join(_bullet(finding) for finding in result.findings))
    return "\n\n".join(parts) + "\n"


def _summary(result: Result) -> str:
    held = sum(finding.holds for finding in result.findings)
    count = f": {held} of {len(result.findings)} statements hold" if result.findings else ""
    return f"{result.name}, {result.title}{count}"


def _bullet(finding: Finding) -> str:
    mark = _MARKS[finding.holds]
    return f"- {mark} {finding.claim} **{finding.verdict.capitalize()}**: {finding.measured}."


def _markdown_table(table: Table) -> str:
    rows = [list(table.columns), ["---"] * len(table.columns), *table.text()]
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([f"**{table.title}**", "", *lines])


# ---- HTML

_STYLE = """
:root { color-scheme: light dark; --line: #8885; --no: #b3400a; --yes: #00684a; }
@media (prefers-color-scheme: dark) { :root { --no: #ff9d6b; --yes: #5fd3a8; } }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1, h2 { line-height: 1.2; } h2 { margin-top: 3rem; border-top: 1px solid var(--line);
  padding-top: 1rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; margin: 1rem 0; font-size: .9rem;
  font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding-bottom: .3rem; }
th, td { padding: .2rem .7rem; text-align: right; border-bottom: 1px solid var(--line);
  white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
figure { margin: 1rem 0; } img { max-width: 100%; height: auto; background: white; }
figcaption { font-size: .9rem; opacity: .8; }
ul.findings { list-style: none; padding: 0; } ul.findings li { margin: .5rem 0 .5rem 1.6rem;
  text-indent: -1.6rem; }
.yes { color: var(--yes); } .no { color: var(--no); font-weight: 600; }
@media print { body { max-width: none; } h2 { break-after: avoid; } figure, table {
  break-inside: avoid; } }
""".strip()


def _page(results: Sequence[Result], about: About, pictures: dict[str, Path]) -> str:
    title = html.escape(_title(results))
    parts = [
        "<!doctype html>",
        f'<html lang="en"><head><meta charset="utf-8"><title>{title}</title>',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<style>{_STYLE}</style></head><body>",
        f"<h1>{title}</h1>",
        *(f"<p>{_inline(line)}</p>" for line in about.lines()),
    ]
    if len(results) > 1:
        items = "".join(
            f'<li><a href="#{result.name}">{html.escape(_summary(result))}</a></li>'
            for result in results
        )
        parts.append(f"<h2>What holds</h2><ul>{items}</ul>")
    for result in results:
        parts.append(f'<h2 id="{result.name}">{result.name}: {html.escape(result.title)}</h2>')
        parts.append(f"<p>{html.escape(result.shows)}</p>")
        parts += [_page_table(table) for table in result.tables]
        parts += [_page_picture(p.caption, pictures[p.name]) for p in result.pictures]
        if result.findings:
            items = "".join(_item(finding) for finding in result.findings)
            parts.append(f'<ul class="findings">{items}</ul>')
    return "\n".join([*parts, "</body></html>"]) + "\n"


def _inline(text: str) -> str:
    """Backquotes to code."""
    pieces = html.escape(text).split("`")
    return "".join(f"<code>{p}</code>" if i % 2 else p for i, p in enumerate(pieces))


def _page_table(table: Table) -> str:
    head = "".join(f"<th>{html.escape(column)}</th>" for column in table.columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>"
        for row in table.text()
    )
    caption = html.escape(table.title)
    return (
        f'<div class="wide"><table><caption>{caption}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _page_picture(caption: str, path: Path) -> str:
    data = base64.b64encode(path.read_bytes()).decode()
    text = html.escape(caption)
    return (
        f'<figure><img alt="{text}" src="data:image/png;base64,{data}">'
        f"<figcaption>{text}.</figcaption></figure>"
    )


def _item(finding: Finding) -> str:
    kind = "yes" if finding.holds else "no"
    return (
        f'<li><span class="{kind}">{_MARKS[finding.holds]}</span> {html.escape(finding.claim)}'
        f' <span class="{kind}">{finding.verdict.capitalize()}</span>:'
        f" {html.escape(finding.measured)}.</li>"
    )
