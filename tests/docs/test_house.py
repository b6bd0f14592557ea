"""The house keeps its promises: sizes, public names, arrows, and documents that are true."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner
from tests.docs.conftest import Stand

from longpole.cli import main
from longpole_analytics.finding import find

ROOT = Path(__file__).parents[2]
WINGS = {
    "longpole": "instrumentation",
    "longpole_collector": "collector",
    "longpole_analytics": "analytics",
    "longpole_dashboard": "dashboard",
    "longpole_engine": "reference_engine",
}


def test_no_code_file_is_over_400_lines() -> None:
    folders = [*WINGS.values(), "tests", "benchmarks"]
    files = [p for folder in folders for p in (ROOT / folder).rglob("*") if p.suffix in CODE]
    sizes = {str(p.relative_to(ROOT)): len(p.read_text("utf-8").splitlines()) for p in files}
    assert len(sizes) > 80
    assert {name: lines for name, lines in sizes.items() if lines > 400} == {}


CODE = {".py", ".sql", ".js", ".css"}


@pytest.mark.parametrize("wing", WINGS)
def test_every_public_name_of_a_wing_exists_and_is_documented(wing: str) -> None:
    module = importlib.import_module(wing)
    assert module.__doc__
    assert list(module.__all__) == sorted(module.__all__)
    for name in module.__all__:
        assert getattr(module, name).__doc__, f"{wing}.{name} has no docstring"


def test_a_key_string_stands_only_in_the_vocabulary() -> None:
    pattern = re.compile(r"""["'](?:gen_ai|longpole)\.[a-z_]+(?:\.[a-z_]+)+["']""")
    # A dialect reads foreign keys, which are its own business; so does the filter of content.
    allowed = {"vocab", "dialects", "content_keys.py"}
    strays = [
        f"{path.relative_to(ROOT)}: {match}"
        for folder in WINGS.values()
        for path in (ROOT / folder).rglob("*.py")
        if not allowed & set(path.parts)
        for match in pattern.findall(path.read_text("utf-8"))
        if not match.strip("\"'").startswith(tuple(f"{name}." for name in LOGGERS))
    ]
    assert strays == []


LOGGERS = (
    "longpole.collector",
    "longpole.engine",
    "longpole.analytics",
    "longpole.dashboard",
    "longpole.sdk",
)


def test_the_architecture_page_names_files_that_exist_in_the_order_of_the_call() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    life = page.split("## The life of one streamed call")[1].split("\n## ")[0]
    numbers = [int(number) for number in re.findall(r"^(\d)\. ", life, re.MULTILINE)]
    assert numbers == list(range(1, len(numbers) + 1))
    named = re.findall(r"`((?:longpole)[a-z_/]*/[a-z_/]+\.(?:py|sql|js))`", life)
    assert len(named) >= 8
    for name in named:
        wing = WINGS[name.partition("/")[0]]
        assert (ROOT / wing / name).is_file(), name


def test_the_readme_is_short_and_its_commands_are_known() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    assert len(readme.splitlines()) < 120
    from longpole.cli import COMMANDS

    named = set(re.findall(r"`?longpole ([a-z]+)\b", "\n".join(_blocks(readme))))
    assert named
    assert named <= set(COMMANDS)


def _blocks(page: str) -> list[str]:
    return re.findall(r"```(?:\w*)\n(.*?)```", page, re.DOTALL)


def test_the_readmes_python_example_runs_as_it_stands(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    assert blocks
    for block in blocks:
        compile(block, "README.md", "exec")


def test_the_readmes_finding_is_what_the_sample_data_says(stand: Stand) -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    shown = next(block for block in _blocks(readme) if block.startswith("What we found"))
    objective = re.search(r"objective of (\d+) ms", shown)
    assert objective
    reader = stand.open(files=[ROOT / "sample_data" / "demo.parquet"])
    traces, stages, calls = (
        pl.DataFrame(reader.sql(f"SELECT * FROM {view}"))
        for view in ("traces", "trace_stages", "calls")
    )
    finding = find(traces, stages, calls, objective_ms=float(objective[1]))
    assert finding
    lines = [f"  {label:<10} {text}" for label, text in finding.lines()]
    num_spans = traces["num_spans"].sum()
    head = f"What we found ({traces.height} workflows, {num_spans} spans)"
    assert shown.splitlines() == [head, *lines]


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "from longpole.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "heavy = {'torch', 'duckdb', 'streamlit', 'polars', 'plotly', 'fastapi', 'pydantic',\n"
        "         'numpy', 'pyarrow', 'grpc'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stderr.strip() == "[]"
    for command in ("demo", "serve", "open", "explain", "collect", "import", "query", "engine"):
        assert command in run.stdout


def test_an_unknown_command_suggests_the_nearest() -> None:
    run = CliRunner().invoke(main, ["explian"])
    assert run.exit_code == 2
    assert "Did you mean 'explain'?" in run.stderr


def test_a_missing_library_becomes_one_sentence_with_the_pip_line() -> None:
    code = (
        "import sys; sys.modules['duckdb'] = None\n"
        "from longpole.cli import main; main(['query', 'SELECT 1'])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert "pip install 'longpole[collector]'" in run.stderr
    assert "Traceback" not in run.stderr
