"""The sentences that a program can break and the mutants that break them, as the TOML files beside this package say."""

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
    """A mutant that does not fit the tree any more; the text says what was expected."""


@dataclass(frozen=True, slots=True)
class Sentence:
    """says: in our words. out_of_reach: why no line can break it; empty for all that one can."""

    id: str
    says: str
    out_of_reach: str = ""


@dataclass(frozen=True, slots=True)
class Mutant:
    """old: a text of file that stands there exactly once; new: what stands there instead. tests: the closest ones, by
    path or as pytest names them, the likeliest first. equivalent: why nothing can tell it from the program; empty: not
    known to be. seeds_cannot: why no seed of the simulation reaches that line; empty: some may.
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
        """Another one where the change or its tests are others; not where only words about it are."""
        texts = (self.file, self.old, self.new, *self.tests)
        return sha256("\0".join(texts).encode()).hexdigest()[:12]

    @property
    def source_folder(self) -> str:
        """The folder of sources that the file is in, as services/planner/src."""
        before, src, _ = self.file.partition("/src/")
        return before + src.rstrip("/")

    @property
    def module_name(self) -> str:
        """As Python imports it."""
        return self.file.removeprefix(f"{self.source_folder}/").removesuffix(".py").replace("/", ".")

    def mutated_text(self, root: Path) -> str:
        """The whole file as the mutant has it. Raises Stale."""
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
    """In the order of the file."""
    return [Sentence(**entry) for entry in tomllib.loads(path.read_text())["sentence"]]


def read_mutants(folder: Path = MUTANTS) -> list[Mutant]:
    """Of all files of the folder, in the order of their names and then of each file."""
    return [mutant for path in sorted(folder.glob("*.toml")) for mutant in _read_mutants_of_file(path)]


def _read_mutants_of_file(path: Path) -> Iterator[Mutant]:
    for entry in tomllib.loads(path.read_text())["mutant"]:
        yield Mutant(**{**entry, "sentences": tuple(entry["sentences"]), "tests": tuple(entry["tests"])})


def path_of_test(test: str) -> str:
    """The file of a test, which may be named with its function."""
    return test.partition("::")[0]
