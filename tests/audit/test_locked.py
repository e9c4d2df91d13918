"""requirements.txt and the bill of materials say what is locked, and no address."""

import audit
import locked
import pytest
from packaging.tags import Tag

LOCKED = """\
a==1 \\
    --hash=sha256:00 \\
    --hash=sha256:01
b==2 ; sys_platform == 'none' \\
    --hash=sha256:02
"""
FILES = {"a": [("a-1.tar.gz", "sha256:00"), ("a-1-py3-none-any.whl", "sha256:01")], "b": [("b-2.tar.gz", "sha256:02")]}
ANY = (Tag("py3", "none", "any"),)


def test_the_requirements_are_what_is_locked_here() -> None:
    """Where this fails after a change of a pin: make requirements. Else see docs/operations.md, Install by hashes."""
    text = locked.REQUIREMENTS.read_text()
    assert list(locked.requirement_troubles(text, locked.requirements_text(), locked.files_by_package())) == []
    assert "://" not in text


@pytest.mark.parametrize(
    ("committed", "told"),
    [
        (LOCKED, []),
        (LOCKED.replace("a==1", "a==2"), ["a==1: locked, and not in", "a==2: in requirements.txt, and not locked"]),
        (LOCKED.replace(":01", ":03"), ["a-1-py3-none-any.whl would be installed here"]),
        (LOCKED.replace(":00", ":03"), []),
        (LOCKED.replace(":02", ":03"), []),
    ],
    ids=["the same", "another version", "another wheel", "another file, not of this machine", "another platform's"],
)
def test_what_is_not_as_it_is_locked_is_said(committed: str, told: list[str]) -> None:
    found = list(locked.requirement_troubles(committed, LOCKED, FILES, ANY))
    assert len(found) == len(told)
    assert [words for words, line in zip(told, found, strict=True) if words not in line] == []


def test_an_installer_takes_the_best_wheel_else_the_sources() -> None:
    best = Tag("cp311", "cp311", "linux_x86_64")
    files = [("a-1-py3-none-any.whl", "1"), ("a-1-cp311-cp311-linux_x86_64.whl", "2"), ("a-1.tar.gz", "3")]
    assert locked.chosen_file(files, (best, *ANY)) == files[1]
    assert locked.chosen_file(files, ANY) == files[0]
    assert locked.chosen_file(files, (Tag("py2", "none", "any"),)) == files[2]
    assert locked.chosen_file(files[:1], (best,)) is None


def test_the_bill_of_materials_has_all_that_is_required_and_our_own_parts() -> None:
    bill = locked.bill_of_materials()
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.5")
    theirs = {one["name"]: one for one in bill["components"] if "purl" in one}
    required = locked.hashes_by_requirement(locked.REQUIREMENTS.read_text())
    assert {f"{one['name']}=={one['version']}" for one in theirs.values()} == {one.split(" ;")[0] for one in required}
    assert all(reference["hashes"] for one in theirs.values() for reference in one["externalReferences"])
    elsewhere = audit.read_toml(audit.LIST)["elsewhere"]
    assert {one["name"] for one in theirs.values() if "licenses" not in one} <= elsewhere.keys()
    ours = {one["name"] for one in bill["components"]} - theirs.keys()
    assert ours == {part["project"]["name"] for part in audit.read_projects()[1:]}
    known = {one["bom-ref"] for one in (bill["metadata"]["component"], *bill["components"])}
    assert {one for each in bill["dependencies"] for one in (each["ref"], *each.get("dependsOn", ()))} <= known
    assert not [one for one in theirs.values() for reference in one["externalReferences"] if "/" in reference["url"]]
