"""The doctor on the dashboard's settings: who would have to log in, and which port is looked at."""

import socket

import pytest

from longpole_collector import doctor
from longpole_collector.doctor_dashboard import login_checks, where


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("lines", "num_logins", "status", "says"),
    [
        ("", 0, "ok", "loopback only"),
        ("", 2, "ok", "loopback only"),
        ('host = "::1"', 0, "ok", "loopback only"),
        ('host = "0.0.0.0"', 0, "fail", "0.0.0.0 is refused"),
        ('host = "0.0.0.0"\nlogin = "none"', 1, "fail", "0.0.0.0 is refused"),
        ('host = "0.0.0.0"', 2, "ok", "(password; 2 logins)"),
        ('host = "0.0.0.0"\nlogin = "password"', 0, "warn", "nobody has one yet"),
        ('host = "::"\nlogin = "proxy"', 0, "ok", "(proxy; 0 logins)"),
        ('allowed_hosts = "dash.example"', 0, "warn", "by the name dash.example"),
        ('allowed_hosts = "dash.example"\nlogin = "oidc"', 0, "ok", "loopback only"),
    ],
)
def test_a_dashboard_that_others_reach_needs_a_login(tmp_path, lines, num_logins, status, says):
    (tmp_path / "longpole.toml").write_text(f"[dashboard]\n{lines}\n")
    (tmp_path / "logins").mkdir()
    for number in range(num_logins):
        (tmp_path / "logins" / f"{number}.json").touch()
    (check,) = login_checks(tmp_path)
    assert (check.name, check.status) == ("bind (dashboard)", status)
    assert says in check.detail
    assert (check.fix is None) is (status == "ok")


def test_the_environment_wins_and_a_broken_file_is_left_to_its_own_check(tmp_path, monkeypatch):
    monkeypatch.setenv("LONGPOLE_DASHBOARD_HOST", "0.0.0.0")
    (check,) = login_checks(tmp_path)
    assert check.status == "fail"
    (tmp_path / "longpole.toml").write_text("broken")
    assert list(login_checks(tmp_path / "other")) == []
    assert where(8501) == ("127.0.0.1", 8501)


def test_the_port_that_is_configured_is_looked_at(tmp_path, monkeypatch):
    monkeypatch.setenv("LONGPOLE_COLLECTOR_HTTP", "127.0.0.1:0")
    monkeypatch.setenv("LONGPOLE_COLLECTOR_GRPC", "127.0.0.1:0")
    monkeypatch.setattr(doctor, "ENGINE_PORT", 0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        (tmp_path / "longpole.toml").write_text(f"[dashboard]\nport = {port}\n")
        checks = {check.name: check for check in doctor.examine(tmp_path / "db")}
    assert "taken by" in checks[f"port {port} (dashboard)"].detail
