"""Installed packages without pip: modules, and the metadata that tells of their entry points."""

import re
import tomllib
from pathlib import Path

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to" / "plug-in.md"


def install(site, name, entry_points, **modules):
    """A package in the folder ``site``, its modules by name, its entry points by group."""
    metadata = site / f"{name.replace('-', '_')}-0.1.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1\n")
    lines = []
    for group, entries in entry_points.items():
        lines += [f"[{group}]", *(f"{key} = {value}" for key, value in entries.items())]
    (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n")
    for module, text in modules.items():
        (site / f"{module}.py").write_text(text)
    return site


def install_example(site):
    """The package of the how-to, file by file as it stands there; its tests are beside it."""
    found = re.findall(r"\n`([\w./]+)`:\n\n```\w+\n(.*?)```", HOW_TO.read_text(), re.DOTALL)
    blocks = dict(found)
    project = tomllib.loads(blocks.pop("pyproject.toml"))["project"]
    install(site, project["name"], project["entry-points"])
    for path, text in blocks.items():
        (site / path).parent.mkdir(exist_ok=True)
        (site / path).write_text(text)
    return site
