"""What a collector tells of its settings and of what is watched, and to whom."""

from pathlib import Path
from typing import Any

import pytest

from longpole_collector.admin_state import num_bytes, settings_state
from longpole_collector.app import background
from longpole_collector.keys import Scope, create
from longpole_collector.settings import Settings
from longpole_collector.stores.remote import RemoteReader
from longpole_collector.watching import Seat, Watching


class Told:
    """A watch that answers for one name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def prometheus(self) -> str:
        return ""

    def answer(self, asked: str) -> dict[str, Any] | None:
        return {"from": self.name} if asked == self.name else None


class Silent:
    """A watch of the plain kind."""

    start = stop = lambda self: None
    prometheus = lambda self: ""  # noqa: E731


def test_a_project_hears_of_its_own_watches_alone(tmp_path: Path) -> None:
    watching = Watching([lambda seat: Silent(), lambda seat: Told(f"of-{seat.project}")])
    for project in ("default", "shop"):
        watching.start(Seat(project, tmp_path, None))  # type: ignore[arg-type]
    assert watching.answer("shop", "of-shop") == {"from": "of-shop"}
    assert watching.answer("default", "of-shop") is None
    assert watching.answer("nowhere", "of-shop") is None
    watching.stop()
    assert watching.answer("shop", "of-shop") is None


@pytest.mark.parametrize("project", ["default", "shop"])
def test_a_key_tells_its_own_project_and_no_other_key(tmp_path: Path, project: str) -> None:
    _, secret = create(tmp_path, project, Scope.ADMIN, f"{project}'s")
    _, other = create(tmp_path, "other", Scope.ADMIN, "other's")
    settings = Settings(db=tmp_path, http="127.0.0.1:0", grpc="127.0.0.1:0", retention_days=3)
    with background(settings) as collector:
        reader = RemoteReader(collector.url, secret)
        told = reader.get("/api/v1/settings").json()
        reader.close()
    assert [key["name"] for key in told["keys"]] == [f"{project}'s"]
    assert (told["project"], told["retention_days"]) == (project, 3)
    assert told["content"]["policy"] == "drop"
    assert secret not in str(told)
    assert other not in str(told)


def test_a_rule_that_refers_to_a_secret_is_told_as_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from longpole_collector.settings import load_settings

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATTERN", "hidden-[0-9]+")
    (tmp_path / "longpole.toml").write_text(
        '[collector.projects.shop]\ncontent = "redact"\nredact = ["${env:PATTERN}", "ORD-[0-9]+"]\n'
    )
    settings = load_settings(db=tmp_path)
    assert settings.project("shop").redact == ("hidden-[0-9]+", "ORD-[0-9]+")
    content = settings_state(settings, "shop", tmp_path).content
    assert (content.policy, content.rules) == ("redact", ["${env:PATTERN}", "ORD-[0-9]+"])
    monkeypatch.chdir("/")
    assert settings_state(settings, "shop", tmp_path).content.rules == ["***", "***"]


def test_the_size_of_a_project_is_its_own(tmp_path: Path) -> None:
    (tmp_path / "wal").mkdir()
    (tmp_path / "wal" / "0.wal").write_bytes(b"x" * 30)
    (tmp_path / "projects" / "shop").mkdir(parents=True)
    (tmp_path / "projects" / "shop" / "spans.duckdb").write_bytes(b"x" * 500)
    assert num_bytes(tmp_path) == 30
    assert num_bytes(tmp_path / "projects" / "shop") == 500
    assert num_bytes(tmp_path / "none") == 0
