"""Results on paper: one Markdown file and one HTML file that needs nothing beside it."""

import os
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from veilmap import __version__
from veilmap._util import files
from veilmap._util.threads import threads
from veilmap.paper.experiment import Finding, Result, Table
from veilmap.reports import html
from veilmap.reports.html import Html

_MARKS = {True: "✓", False: "✗"}


def about(
    command: str,
    seconds: float,
    *,
    computed: int,
    remembered: int,
    workers: int,
    quick: bool = False,
) -> list[str]:
    """What a reader should know first, in lines.

    In ``seconds`` some processes ``computed`` tasks; others were ``remembered``.
    """
    cores = f"{platform.machine()}, {threads()} cores, Python {platform.python_version()}"
    when = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    by = "1 process" if workers == 1 else f"{workers} processes"
    work = f"{computed} tasks computed in {seconds:.0f} s by {by}, " if computed else ""
    return [
        f"`{command}`, veilmap {__version__}, {when}, {platform.system()} on {cores}.",
        f"{work}{remembered} tasks remembered from before.",
        *(["Quick settings: the figures show that things run, not what they give."] * quick),
    ]


def write(results: Sequence[Result], about: Sequence[str], out: Path, stem: str) -> list[Path]:
    """Draw all pictures and write the two reports, which begin with ``about``; their paths."""
    from veilmap import figures

    pictures = {}
    for result in results:
        for picture in result.pictures:
            path = out / "figures" / f"{picture.name}.png"
            pictures[picture.name] = figures.save(picture, path)
    reports = {
        out / f"{stem}.md": _markdown(results, about, pictures, out),
        out / f"{stem}.html": _page(results, about, pictures),
    }
    for path, text in reports.items():
        files.write_text(text, path)
    return [*reports, *pictures.values()]


def as_dict(results: Sequence[Result]) -> dict[str, Any]:
    """For JSON."""
    return {"veilmap": __version__, "experiments": [result.as_dict() for result in results]}


def _title(results: Sequence[Result]) -> str:
    return results[0].title if len(results) == 1 else "The paper's results, reproduced"


# ---- Markdown


def _markdown(
    results: Sequence[Result], about: Sequence[str], pictures: dict[str, Path], out: Path
) -> str:
    parts = [f"# {_title(results)}", *about]
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


def _page(results: Sequence[Result], about: Sequence[str], pictures: dict[str, Path]) -> str:
    body = [html.paragraph(line) for line in about]
    if len(results) > 1:
        entries = ((result.name, _summary(result)) for result in results)
        body += [html.heading("What holds"), html.contents(entries)]
    for result in results:
        body.append(html.heading(f"{result.name}: {result.title}", anchor=result.name))
        body.append(html.paragraph(result.shows))
        body += [html.table(one.title, one.columns, one.text()) for one in result.tables]
        body += [html.picture(pictures[p.name].read_bytes(), p.caption) for p in result.pictures]
        if result.findings:
            items = "".join(_item(finding) for finding in result.findings)
            body.append(Html(f'<ul class="findings">{items}</ul>'))
    return html.page(_title(results), body)


def _item(finding: Finding) -> Html:
    kind = "yes" if finding.holds else "no"
    return Html(
        f'<li><span class="{kind}">{_MARKS[finding.holds]}</span> {html.text(finding.claim)}'
        f' <span class="{kind}">{finding.verdict.capitalize()}</span>:'
        f" {html.text(finding.measured)}.</li>"
    )
