"""What the README shows must run."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_ten_lines_run(tmp_path, monkeypatch, capsys):
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {})
    assert "dB" in capsys.readouterr().out
    assert (tmp_path / "city.nc").exists()


def test_every_linked_page_and_picture_exists():
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *ROOT.glob("[CS]*.md")):
        targets = re.findall(r"\]\(([^)#]+)\)", page.read_text())
        for target in (one for one in targets if "://" not in one):  # nothing here asks a network
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().split()) <= 600
