"""A key's project is all its holder can see, by every door; each project lies in its own folder."""

import json
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace

import grpc
import httpx
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from longpole.cli import main
from longpole.errors import BadInput, StoreBusy, UsageError
from longpole_collector import projects as projects_module
from longpole_collector.keys import Scope, create
from longpole_collector.settings import ProjectSettings, project_folder
from longpole_collector.stores import open_reader
from longpole_collector.stores.remote import ARROW, RemoteReader
from longpole_collector.whereabouts import find

PROTOBUF = {"content-type": "application/x-protobuf"}
JSON = {"content-type": "application/json"}
EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
NAMES = "SELECT name FROM spans ORDER BY name"


class Holder:
    """Somebody with a key."""

    def __init__(self, collector, secret):
        self.headers = {"authorization": f"Bearer {secret}"}
        self.client = httpx.Client(base_url=collector.url, trust_env=False, headers=self.headers)
        self.reader = RemoteReader(collector.url, secret)
        self.collector = collector

    def send(self, body):
        return self.client.post("/v1/traces", content=body, headers=PROTOBUF)

    def send_grpc(self, body):
        with grpc.insecure_channel(str(self.collector.grpc)) as channel:
            channel.unary_unary(EXPORT)(body, timeout=20, metadata=tuple(self.headers.items()))

    def names(self):
        return self.reader.sql(NAMES)["name"].to_pylist()

    def close(self):
        self.client.close()
        self.reader.close()


@contextmanager
def holders(settings, collecting, *projects):
    secrets = [create(settings.db, project, Scope.ADMIN)[1] for project in projects]
    with collecting(settings) as collector:
        found = [Holder(collector, secret) for secret in secrets]
        try:
            yield found
        finally:
            for holder in found:
                holder.close()


def test_nobody_sees_another_projects_spans_by_any_door(otlp, settings, collecting, eventually):
    with holders(settings, collecting, "one", "two", "default") as (one, two, default):
        assert one.send(otlp.body([otlp.span(name="of one")], service="one")).status_code == 200
        two.send_grpc(otlp.body([otlp.span(name="of two")], service="two"))
        default.send(otlp.body([otlp.span(name="of nobody")]))
        everybody = {"one": one, "two": two, "nobody": default}
        for name, holder in everybody.items():
            assert eventually(holder.names) == [f"of {name}"]
            asked = {"sql": "SELECT DISTINCT service, name FROM spans"}
            (row,) = holder.client.post("/api/v1/query", json=asked).json()["rows"]
            assert row[1] == f"of {name}"
            arrow = holder.client.post("/api/v1/query", json=asked, headers={"accept": ARROW})
            assert f"of {name}".encode() in arrow.content
            status = holder.client.get("/api/v1/status").json()
            assert (status["num_spans"], status["num_files"]) == (1, 1)
            assert "longpole_spans_stored_total 1\n" in holder.client.get("/metrics").text
        plain = RemoteReader(one.collector.url)
        assert plain.sql(NAMES)["name"].to_pylist() == ["of nobody"]
        plain.close()


def test_no_statement_reaches_another_projects_files(otlp, settings, collecting, eventually):
    with holders(settings, collecting, "one", "two") as (one, two):
        one.send(otlp.body([otlp.span(name="hush-hush")]))
        assert eventually(one.names) == ["hush-hush"]
        folder = settings.db / "projects" / "one"
        (file,) = folder.glob("*.duckdb")
        for sql in (
            f"ATTACH '{file}' AS other",
            f"SELECT * FROM '{file}'",
            f"SELECT * FROM read_blob('{folder}/wal/*')",
            f"SELECT * FROM read_text('{folder}/pseudonym.key')",
            f"SELECT * FROM read_json('{settings.db}/keys/*')",
            f"SELECT * FROM glob('{settings.db}/**')",
            f"COPY spans TO '{folder}/x.parquet'",
            "SELECT * FROM duckdb_databases()",
            "SELECT * FROM one.spans",
            "SELECT * FROM main.span_rows",
            "SELECT getenv('HOME')",
        ):
            with pytest.raises(BadInput):
                two.reader.sql(sql)
        seen = two.reader.sql("SELECT * FROM information_schema.tables").to_pylist()
        assert "hush-hush" not in repr(seen)
        assert str(folder) not in repr(seen)
        assert two.names() == []


def test_each_project_keeps_its_own_policy_and_pseudonyms(otlp, settings, collecting, eventually):
    own = {"open": ProjectSettings("keep"), "closed": ProjectSettings()}
    said = {"input.value": "hello", "session.id": "s-1"}
    body = otlp.body([otlp.span(attributes=said)])
    with holders(replace(settings, projects=own), collecting, "open", "closed") as both:
        seen = []
        for holder in both:
            holder.send(body)
            eventually(holder.names)
            row = holder.reader.sql("SELECT attributes FROM spans").to_pylist()[0]
            seen.append(dict(row["attributes"]))
    assert seen[0].keys() == {"input.value", "session.id"}
    assert seen[1].keys() == {"input.value.length", "input.value.hash", "session.id"}
    assert seen[0]["session.id"] != seen[1]["session.id"]
    for project in own:
        folder = settings.db / "projects" / project
        assert (folder / "pseudonym.key").stat().st_mode & 0o777 == 0o600


def test_a_project_is_read_by_name_with_and_without_a_collector(
    otlp, settings, collecting, eventually, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)

    def run(*args):
        done = CliRunner().invoke(main, [*args])
        assert done.exit_code == 0, done.output
        return done.stdout

    def asked(*args):
        return json.loads(run("query", NAMES, "--json", *args))["rows"]

    where = ("--db", str(settings.db), "--project", "web")
    with holders(settings, collecting, "web") as (web,):
        web.send(otlp.body([otlp.span(name="of web")]))
        eventually(web.names)
        running = find(settings.db / "projects" / "web")
        assert running.url == web.collector.url
        command = [sys.executable, "-c", "from longpole.cli import main; main()", "query", NAMES]
        done = subprocess.run([*command, "--json", *where], capture_output=True, check=False)
        assert json.loads(done.stdout)["rows"] == [["of web"]], done.stderr
        assert asked("--url", web.collector.url) == []
    done = CliRunner().invoke(main, ["query", NAMES, "--project", "web", "--url", "http://x"])
    assert done.exit_code == 2
    assert find(settings.db / "projects" / "web") is None
    assert asked(*where) == [["of web"]]
    run("export", "--format", "parquet", "--out", "web.parquet", *where)
    assert pq.read_table("web.parquet")["name"].to_pylist() == ["of web"]
    run("import", "web.parquet", "--db", str(settings.db), "--project", "copy")
    reader = open_reader(db=project_folder(settings.db, "copy"))
    assert reader.sql(NAMES)["name"].to_pylist() == ["of web"]
    reader.close()
    with pytest.raises(UsageError, match=r"project '\.\./web'"):
        project_folder(settings.db, "../web")
    assert project_folder(settings.db, "default") == project_folder(settings.db, None)


def test_projects_beyond_the_bound_are_told_to_come_again(otlp, settings, collecting, monkeypatch):
    monkeypatch.setattr(projects_module, "MAX_OPEN", 2)
    body = otlp.body([otlp.span()])
    with holders(settings, collecting, "one", "two") as (one, two):
        assert one.send(body).status_code == 200
        answer = two.send(body)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        with pytest.raises(StoreBusy, match="are open"):
            two.names()
        assert one.send(body).status_code == 200
    assert not (settings.db / "projects" / "two").exists()


def test_a_project_that_cannot_be_opened_is_told_and_the_others_go_on(otlp, settings, collecting):
    body = otlp.body([otlp.span()])
    with holders(settings, collecting, "one", "two") as (one, two):
        folder = settings.db / "projects"
        folder.mkdir()
        (folder / "two").write_text("in the way")
        for _ in range(2):
            assert two.send(body).status_code == 503
            assert two.client.get("/api/v1/status").status_code == 503
        assert one.send(body).status_code == 200
        (folder / "two").unlink()
        assert two.send(body).status_code == 200


def test_all_projects_share_one_bound_on_what_waits(otlp, settings, collecting, eventually):
    body = otlp.body([otlp.span(attributes={"x": "y" * 50_000})])
    small = replace(settings, max_body_bytes=100_000, max_queue_bytes=120_000)
    with holders(small, collecting, "one", "two") as (one, two):
        assert one.send(body).status_code == two.send(body).status_code == 200
        project = one.collector._projects._open["one"]
        eventually(lambda: project.ingest.budget.used_bytes() == 0)
        with project.store._write_lock:
            sent = [holder.send(body).status_code for holder in (one, one, one, two)]
            assert sent[3] == 429
        eventually(lambda: project.ingest.budget.used_bytes() == 0)
        assert two.send(body).status_code == 200


def test_stopping_brings_every_project_into_its_store(otlp, settings, collecting):
    with holders(settings, collecting, "one", "two") as both:
        for holder in both:
            for _ in range(10):
                assert holder.send(otlp.body([otlp.span() for _ in range(10)])).status_code == 200
    for name in ("one", "two"):
        folder = project_folder(settings.db, name)
        assert not list((folder / "wal").iterdir())
        reader = open_reader(db=folder)
        assert reader.sql("SELECT count(*) AS n FROM spans").to_pylist() == [{"n": 100}]
        reader.close()
