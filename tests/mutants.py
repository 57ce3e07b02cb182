"""Does a test fail when a privacy-critical line is wrong? `make test-mutants` tries every one.

`mutations.toml` lists the mutations. Each is applied to a copy of the source, on which the test
that it names must fail. Arguments select those whose file, text or test contains one of them:
``python tests/mutants.py noise.py``.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "veilmap"
_LIST = Path(__file__).with_name("mutations.toml")
_SECONDS = 600  # a mutant that hangs has not been noticed by a test
_TESTS_FAILED = 1  # pytest's exit code; others mean that no test was run


@dataclass(frozen=True)
class Mutation:
    """One wrong line.

    Attributes
    ----------
    file : str
        Within the package.
    before, after : str
        Text of the source, which occurs once, and what is put in its place.
    test : str
        The test that must fail, as pytest names it.
    consequence : str
        What would be lost.
    """

    file: str
    before: str
    after: str
    test: str
    consequence: str

    def apply(self, package: Path) -> str:
        """The file's text with the mutation, out of the package at this path."""
        text = (package / self.file).read_text(encoding="utf-8")
        found = text.count(self.before)
        if found != 1:
            raise ValueError(f"{self.file} has {found} times, not once: {self.before!r}")
        return text.replace(self.before, self.after)

    def __str__(self) -> str:
        before, after = (text.strip().partition("\n")[0] for text in (self.before, self.after))
        return f"{self.file}: {before} -> {after or 'nothing'}"


def listed() -> list[Mutation]:
    """All mutations of the list."""
    with _LIST.open("rb") as file:
        return [Mutation(**entry) for entry in tomllib.load(file)["mutation"]]


def copied(work: Path) -> Path:
    """A fresh copy of the package, always at the same path: compiled kernels are found again."""
    package = work / "src" / "veilmap"
    shutil.rmtree(package, ignore_errors=True)
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    return package


def exit_code(work: Path, cache: Path, *tests: str) -> int | None:
    """Of pytest with the copy in ``work``; None if it does not end."""
    environment = os.environ | {
        "PYTHONPATH": str(work / "src"),
        "NUMBA_CACHE_DIR": str(cache),
        "HYPOTHESIS_PROFILE": "fixed",
    }
    command = [sys.executable, "-m", "pytest", "--exitfirst", "--no-header", *tests]
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return None
    return done.returncode


def killed(mutation: Mutation, work: Path) -> bool:
    """Whether the test fails on a copy with the mutation."""
    package = copied(work)
    (package / mutation.file).write_text(mutation.apply(package), encoding="utf-8")
    # Kernels that were compiled from a mutant must not meet the next one.
    own = work / "compiled-mutant"
    shutil.rmtree(own, ignore_errors=True)
    cache = own if mutation.file.startswith("_kernels/") else work / "compiled"
    return exit_code(work, cache, mutation.test) == _TESTS_FAILED


def main(wanted: list[str]) -> int:
    """Try the mutations, tell of each, and end with 1 if any survives."""
    chosen = [
        mutation
        for mutation in listed()
        if not wanted
        or any(text in f"{mutation.file} {mutation.after} {mutation.test}" for text in wanted)
    ]
    if not chosen:
        sys.stdout.write(f"no mutation contains any of {wanted}\n")
        return 2
    with tempfile.TemporaryDirectory(prefix="veilmap-mutants-") as folder:
        work = Path(folder)
        copied(work)
        if exit_code(work, work / "compiled", *sorted({one.test for one in chosen})) != 0:
            sys.stdout.write("the tests do not pass on the source as it is\n")
            return 1
        survivors = 0
        for mutation in chosen:
            dead = killed(mutation, work)
            survivors += not dead
            sys.stdout.write(f"{'killed  ' if dead else 'SURVIVED'}  {mutation}\n")
            sys.stdout.write(f"          {mutation.test}\n")
            sys.stdout.flush()
    sys.stdout.write(f"{len(chosen) - survivors} of {len(chosen)} mutations killed\n")
    return int(survivors > 0)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
