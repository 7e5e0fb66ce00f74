"""Jobs of other packages, and the package that is installed alone."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

import dcgs
from dcgs.cli import main
from dcgs.datasets.synthetic import write_patients

ROOT = Path(__file__).parent.parent
PACKAGES = {"dcgs": ROOT, "dcgs_bench": ROOT / "benchmarks"}

HELLO_JOBS = """
from dcgs.cli.jobs import CommandJob
HELLO = CommandJob("say hello", "hello_job:add", ("dcgs hello --to you   say it to somebody",))
"""
HELLO = """
def add(jobs):
    parser = jobs.add_parser("hello", description="Say hello.")
    parser.add_argument("--to", default="all")
    parser.set_defaults(run=lambda args, console: console.print(f"hello {args.to}") or 0)
"""


@pytest.fixture
def hello(tmp_path: Path) -> Path:
    """A folder with an installed package that adds the job ``dcgs hello``."""
    (tmp_path / "hello_jobs.py").write_text(HELLO_JOBS)
    (tmp_path / "hello_job.py").write_text(HELLO)
    about = tmp_path / "hello-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: hello\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[dcgs.jobs]\nhello = hello_jobs:HELLO\n")
    return tmp_path


def dcgs_with(folder: Path, *typed: str) -> subprocess.CompletedProcess[str]:
    """Return what the command does if the packages of the folder are installed."""
    environment = os.environ | {"PYTHONPATH": str(folder)}
    command = [sys.executable, "-m", "dcgs", *typed]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_a_job_of_another_package_is_listed_and_run(hello: Path) -> None:
    listed = dcgs_with(hello, "--help").stdout
    assert "say hello" in listed
    assert "dcgs hello --to you" in listed
    assert dcgs_with(hello, "hello", "--to", "you").stdout == "hello you\n"


@pytest.mark.parametrize(("file", "listed"), [("hello_jobs.py", False), ("hello_job.py", True)])
def test_a_package_that_cannot_be_imported_hides_no_other_job(file: str, listed: bool, hello: Path) -> None:
    (hello / file).write_text("import nowhere")
    text = dcgs_with(hello, "--help").stdout
    assert ("say hello" in text) == listed
    assert ("cannot be loaded: No module named 'nowhere'" in text) != listed
    assert "fit a model to your own data" in text
    done = dcgs_with(hello, "hello")
    assert done.returncode == 2
    assert "the job cannot be loaded: No module named 'nowhere'." in done.stderr


@pytest.mark.parametrize("job", ["bench", "reproduce", "report"])
def test_without_the_package_of_a_job_the_command_says_which_to_install(
    job: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("dcgs.cli.jobs.entry_points", lambda group: ())
    with pytest.raises(SystemExit) as ended:
        main([job, "--quick"])
    assert ended.value.code == 2
    wanted = f"is not installed. Install it with: pip install dcgs-bench=={dcgs.__version__}"
    assert wanted in capsys.readouterr().err


def test_without_the_benchmarks_the_help_lists_what_is_there(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("dcgs.cli.jobs.entry_points", lambda group: ())
    with pytest.raises(SystemExit):
        main(["--help"])
    text = capsys.readouterr().out
    assert "dcgs fit" in text
    assert "bench" not in text


def test_both_packages_have_one_version_and_the_benchmarks_need_it() -> None:
    files = {name: (path / "pyproject.toml").read_text() for name, path in PACKAGES.items()}
    projects = {name: tomllib.loads(text)["project"] for name, text in files.items()}
    assert {project["version"] for project in projects.values()} == {dcgs.__version__}
    assert projects["dcgs_bench"]["dependencies"] == [f"dcgs[report]=={dcgs.__version__}"]


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheels of both packages."""
    folder = tmp_path_factory.mktemp("wheels")
    options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation"]
    command = [sys.executable, "-m", "pip", "wheel", *options, "--wheel-dir", str(folder)]
    subprocess.run([*command, *map(str, PACKAGES.values())], check=True)
    return {path.name.partition("-")[0]: path for path in folder.glob("*.whl")}


@pytest.mark.parametrize("name", PACKAGES)
def test_a_wheel_has_all_files_of_its_package_and_no_other(name: str, wheels: dict[str, Path]) -> None:
    source = PACKAGES[name] / "src"
    files = {path for path in source.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    packed = {entry for entry in zipfile.ZipFile(wheels[name]).namelist() if ".dist-info/" not in entry}
    assert packed == {str(path.relative_to(source)) for path in files}
    assert {entry.partition("/")[0] for entry in packed} == {name}


def test_the_wheel_alone_fits_predicts_and_shows_with_a_page(wheels: dict[str, Path], tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=False)
    python = tmp_path / "venv" / "bin" / "python"
    install = ["install", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-index"]
    pip = [sys.executable, "-m", "pip", "--python", str(python), *install]
    subprocess.run([*pip, str(wheels["dcgs"])], check=True)
    (site,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    # What dcgs needs is taken from this environment; a path that is named so brings no editable packages.
    (installed,) = {path for path in sys.path if path.endswith("site-packages")}
    (site / "needed.pth").write_text(f"{installed}\n")
    write_patients(tmp_path, sites=2, rows=60)

    def run(*typed: str) -> str:
        command = [str(python.with_name("dcgs")), *typed]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    code = "import dcgs; print(dcgs.__file__)"
    where = subprocess.run([python, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert where.stdout.startswith(str(site))
    fit = "fit logistic --data hospital-{agent}.csv --open --target ill --radius 2 --out model"
    run(*fit.split())
    assert "</html>" in (tmp_path / "model" / "report.html").read_text()
    assert "probability" in run("predict", "model", "--data", "hospital-0.csv")
    assert "certified" in run("show", "model")
