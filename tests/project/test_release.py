"""What a release installs is fixed, hashed, licensed as we can use it, and billed."""

import json
import re
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

import bill

ROOT = Path(__file__).parents[2]
# Licences that forbid no use beside ours; LGPL where a library is only called.
PERMISSIVE = ("MIT", "BSD", "Apache", "ISC", "PSF", "Python Software Foundation", "MPL", "Mozilla",
              "LGPL")  # fmt: skip


@pytest.fixture(scope="module")
def packages():
    return bill.locked()


def test_every_package_of_a_release_has_hashes_and_nothing_says_where_it_was_found(packages):
    assert all(one.hashes for one in packages)
    text = bill.LOCK.read_text()
    assert "://" not in text
    assert not re.search(r"^\s*--(?!hash=)", text, re.MULTILINE)


def test_the_release_installs_the_versions_that_are_tested(packages):
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    tested = dict(line.split("==") for line in lines if "==" in line)
    assert {one.name: one.version for one in packages if one.name in tested} == {
        one.name: tested[one.name] for one in packages if one.name in tested
    }
    # Only what the tests do not install on Linux may be missing there.
    assert {one.name for one in packages} - tested.keys() <= {"colorama"}


def test_everything_that_a_user_can_install_is_locked(packages):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    apart = {"bench", "dev", "sionna", "torch"}
    extras = [own for name, own in project["optional-dependencies"].items() if name not in apart]
    wanted = {re.match(r"[\w.-]+", one)[0] for own in [project["dependencies"], *extras]
              for one in own}  # fmt: skip
    assert wanted - {"veilmap"} <= {one.name for one in packages}
    make = (ROOT / "Makefile").read_text()
    named = re.search(r"^EXTRAS := (.*)$", make, re.MULTILINE)[1].split()
    assert set(named) == project["optional-dependencies"].keys() - apart


def test_the_list_of_licences_is_that_of_the_lock(packages):
    page = (ROOT / "docs" / "reference" / "licences.md").read_text()
    rows = re.findall(r"^\| (\S+) \| (\d\S*) \| (.+) \|$", page, re.MULTILINE)
    assert [row[:2] for row in rows] == [(one.name, one.version) for one in packages]
    assert all(any(known in licence for known in PERMISSIVE) for *_, licence in rows)


def test_the_bill_names_every_package_with_its_licence(packages, tmp_path, monkeypatch):
    installed = [one for one in packages if _is_known(one)]
    assert len(installed) > 20
    monkeypatch.setattr(bill, "locked", lambda: installed)
    files = tmp_path / "new" / "bill.json", tmp_path / "licences.md"
    monkeypatch.setattr(sys, "argv", ["bill", "--sbom", str(files[0]), "--licences", str(files[1])])
    bill.main()
    made = json.loads(files[0].read_text())
    assert (made["bomFormat"], made["specVersion"]) == ("CycloneDX", "1.6")
    assert [one["purl"] for one in made["components"]] == [
        f"pkg:pypi/{one.name}@{one.version}" for one in installed
    ]
    assert all(one["hashes"] and one["licenses"] for one in made["components"])
    assert len({one["bom-ref"] for one in made["components"]}) == len(installed)


def _is_known(package):
    """Whether its licence can be told here: not all that the lock names need be installed."""
    try:
        return package.licence != "unknown"
    except metadata.PackageNotFoundError:
        return False
