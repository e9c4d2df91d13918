"""Where the member binary is kept, and what is said when Go is missing."""

from pathlib import Path

import pytest

from spillway_local import kube_binary
from spillway_local.tools import MissingTool


def test_a_built_binary_is_not_built_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPILLWAY_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    binary = kube_binary.kube_binary_path()
    binary.parent.mkdir(parents=True)
    binary.touch()
    assert kube_binary.ensure_kube_binary() == binary


def test_a_changed_module_is_another_binary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = kube_binary.kube_binary_path()
    for name in ("go.mod", "go.sum", "main.go"):
        (tmp_path / name).write_text("changed")
    monkeypatch.setattr(kube_binary, "MODULE_FOLDER", tmp_path)
    assert kube_binary.kube_binary_path() != before


def test_a_machine_without_go_is_told_what_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "uv").write_text("#!/bin/sh\necho no network\nexit 2\n")
    (tmp_path / "uv").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("SPILLWAY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(kube_binary, "_LEAST_GO_VERSION", (99, 0))
    with pytest.raises(MissingTool, match=r"(?s)no network.*MEMBERS=sim"):
        kube_binary.find_go()
