"""What a release installs: a software bill of materials (CycloneDX) and the list of licences.

    python release/bill.py [--sbom FILE] [--licences FILE]

Both come from requirements-release.lock; licences are what the installed packages say of theirs.
"""

import argparse
import json
import re
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "requirements-release.lock"

# Packages that are not installed on Linux, where the list is made.
_ELSEWHERE = {"colorama": "BSD-3-Clause"}
_LONGEST = 60  # letters of a licence's name; longer ones are its text

_PACKAGE = re.compile(r"(?P<name>[\w.-]+)==(?P<version>[\w.+!]+)")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


@dataclass(frozen=True)
class Package:
    """One package of the lock: the SHA-256 hashes are of its files for all systems."""

    name: str
    version: str
    hashes: tuple[str, ...]

    @property
    def licence(self) -> str:
        """What its metadata call its licence."""
        if self.name in _ELSEWHERE:
            return _ELSEWHERE[self.name]
        told = metadata.metadata(self.name)
        named = told.get("License-Expression") or told.get("License") or ""
        if named not in ("", "UNKNOWN") and "\n" not in named and len(named) <= _LONGEST:
            return named
        kinds = [one.rpartition(" :: ")[2] for one in told.get_all("Classifier", [])
                 if one.startswith("License :: ")]  # fmt: skip
        return " OR ".join(kinds) or "unknown"

    def component(self) -> dict[str, Any]:
        """It, as CycloneDX has it."""
        return {
            "type": "library",
            "bom-ref": f"pkg:pypi/{self.name}@{self.version}",
            "name": self.name,
            "version": self.version,
            "purl": f"pkg:pypi/{self.name}@{self.version}",
            "licenses": [{"license": {"name": self.licence}}],
            "hashes": [{"alg": "SHA-256", "content": one} for one in self.hashes],
        }


def locked(lock: Path = LOCK) -> list[Package]:
    """The packages of a lock."""
    found = []
    for part in re.split(r"\n(?=\S)", lock.read_text(encoding="utf-8").strip()):
        named = _PACKAGE.match(part)
        if named is None:
            raise ValueError(f"{lock}: no package in {part[:60]!r}")
        found.append(Package(named["name"], named["version"], tuple(_HASH.findall(part))))
    return found


def bill(packages: list[Package], version: str) -> dict[str, Any]:
    """The bill of materials, without a date: the same lock gives the same file."""
    own = {"type": "library", "bom-ref": "veilmap", "name": "veilmap", "version": version,
           "licenses": [{"license": {"id": "Apache-2.0"}}]}  # fmt: skip
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": own},
        "components": [one.component() for one in packages],
    }


def licences(packages: list[Package]) -> str:
    """The list of licences, as a page of the documentation."""
    rows = "".join(f"| {one.name} | {one.version} | {one.licence} |\n" for one in packages)
    return (
        "# Licences of what a release installs\n\n"
        "With all extras but `torch`, `sionna` and `bench`; `make sbom` writes this page from\n"
        "`requirements-release.lock` and what the packages say of themselves.\n\n"
        f"| package | version | licence |\n|---|---|---|\n{rows}"
    )


def main() -> None:
    """Write both."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--sbom", type=Path, default=ROOT / "build" / "veilmap.cdx.json")
    parser.add_argument(
        "--licences", type=Path, default=ROOT / "docs" / "reference" / "licences.md"
    )
    wanted = parser.parse_args()
    packages = locked()
    wanted.sbom.parent.mkdir(parents=True, exist_ok=True)
    content = json.dumps(bill(packages, metadata.version("veilmap")), indent=1)
    wanted.sbom.write_text(content + "\n", encoding="utf-8")
    wanted.licences.write_text(licences(packages), encoding="utf-8")


if __name__ == "__main__":
    main()
