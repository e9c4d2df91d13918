"""Reads from TOML files the sentences that the program promises, and the mutants that break them."""

import ast
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

FOLDER = Path(__file__).parent.parent
ROOT = FOLDER.parent.parent
SENTENCES = FOLDER / "sentences.toml"
MUTANTS = FOLDER / "mutants"


class Stale(Exception):
    """Raised for a mutant that does not fit the source any more. The text says what was expected."""


@dataclass(frozen=True, slots=True)
class Sentence:
    """A promised sentence. says: its text. out_of_reach: why no changed line can break it; empty if one can."""

    id: str
    says: str
    out_of_reach: str = ""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One changed line.

    old: a text that the file has exactly once. new: the text in its place.
    tests: the closest tests, by path or pytest's name, the likeliest first.
    equivalent: why no test can tell the mutant from the program; empty: not known to be equivalent.
    seeds_cannot: why no seed of the simulation reaches the line; empty: some seeds may.
    """

    id: str
    sentences: tuple[str, ...]
    breaks: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    equivalent: str = ""
    seeds_cannot: str = ""

    @property
    def change_digest(self) -> str:
        """Returns a digest of the change and its tests. The texts that describe the mutant do not count."""
        texts = (self.file, self.old, self.new, *self.tests)
        return sha256("\0".join(texts).encode()).hexdigest()[:12]

    @property
    def source_folder(self) -> str:
        """Returns the folder of sources that the file is in, for example services/planner/src."""
        before, src, _ = self.file.partition("/src/")
        return before + src.rstrip("/")

    @property
    def module_name(self) -> str:
        """Returns the module's name as Python imports it."""
        return self.file.removeprefix(f"{self.source_folder}/").removesuffix(".py").replace("/", ".")

    def mutated_text(self, root: Path) -> str:
        """Returns the whole file with the change. Raises Stale unless the file has `old` exactly once."""
        path = root / self.file
        if not path.is_file():
            raise Stale(f"{self.id}: file: {self.file}: there is none of this name")
        text = path.read_text()
        times = text.count(self.old)
        if times != 1:
            raise Stale(f"{self.id}: old: stands {times} times in {self.file}: expected once: {self.old!r}")
        changed = text.replace(self.old, self.new)
        try:
            same = ast.dump(ast.parse(changed)) == ast.dump(ast.parse(text))
        except SyntaxError as error:
            raise Stale(f"{self.id}: new: {self.file} does not parse with it: {error}") from error
        if same:
            raise Stale(f"{self.id}: new: changes nothing but blanks or comments in {self.file}")
        return changed


def read_sentences(path: Path = SENTENCES) -> list[Sentence]:
    """Returns the sentences in the order of the file."""
    return [Sentence(**entry) for entry in tomllib.loads(path.read_text())["sentence"]]


def read_mutants(folder: Path = MUTANTS) -> list[Mutant]:
    """Returns the mutants of all files of the folder, sorted by file name and then in the order of each file."""
    return [mutant for path in sorted(folder.glob("*.toml")) for mutant in _read_mutants_of_file(path)]


def _read_mutants_of_file(path: Path) -> Iterator[Mutant]:
    for entry in tomllib.loads(path.read_text())["mutant"]:
        yield Mutant(**{**entry, "sentences": tuple(entry["sentences"]), "tests": tuple(entry["tests"])})


def path_of_test(test: str) -> str:
    """Returns the file of a test. The test may be named with its function, as path::function."""
    return test.partition("::")[0]
