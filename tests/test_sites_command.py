"""``dcgs study``, ``dcgs site`` and ``dcgs relay``: from a new study to a certified model."""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import networkx as nx
import numpy as np
import pytest

import dcgs
from dcgs.cli import main
from dcgs.cli.fit_options import add_options, config_of
from dcgs.cli.study import fit_arguments
from dcgs.learn.files.fit import fit_files
from dcgs.learn.files.handover import HandoverFiles
from dcgs.learn.linear.fit import RowsFit
from dcgs.sites.config import SiteConfig
from dcgs.sites.events import EventLog
from dcgs.sites.mailbox import Mailbox
from dcgs.sites.node import Site
from dcgs.sites.study import Study
from fit_runs import ENVIRONMENT
from site_runs import free_port, make_sites

DOCS = Path(__file__).parents[1] / "docs"
SCRIPT = DOCS / "four-sites.sh"
MODELS = "run/*/model/agent-*.npz"


def arrays(file: Path) -> dict[str, np.ndarray]:
    """Return the coefficients and the scales of a model."""
    with np.load(file) as content:
        return {name: content[name] for name in content.files if content[name].dtype.kind == "f"}


def test_four_hospitals_get_the_model_of_lockstep_by_the_commands_of_the_docs(
    tmp_path: Path,
) -> None:
    script = tmp_path / "four-sites.sh"
    text = SCRIPT.read_text()
    for port in sorted(set(re.findall(r"184\d\d", text.partition("set -e")[2]))):
        text = text.replace(port, str(free_port()))
    script.write_text(text)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", str(script), str(tmp_path)],
        env=ENVIRONMENT | {"PATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=300.0,
    )
    logs = "\n".join(file.read_text() for file in tmp_path.glob("*.log"))
    assert done.returncode == 0, done.stderr + logs
    assert "done at" in done.stdout
    assert "certified" in done.stdout
    names = ("ulm", "graz", "bern", "lyon")
    for i, name in enumerate(names):
        shutil.copy(tmp_path / f"{name}.csv", tmp_path / f"site-{i}.csv")
    (tmp_path / "edges.txt").write_text("0 1\n0 3\n1 2\n2 3\n")
    command = f"fit logistic --data '{tmp_path}/site-{{agent}}.csv' --target malignant --radius 10"
    assert (
        main([*shlex.split(command), "--graph", str(tmp_path / "edges.txt"), "--out", str(tmp_path / "m")])
        == 0
    )
    for i, name in enumerate(names):
        (file,) = (tmp_path / name).glob(MODELS)
        expected = arrays(tmp_path / "m" / f"agent-{i:03d}.npz")
        assert expected.keys() == arrays(file).keys()
        assert all(np.array_equal(value, expected[key]) for key, value in arrays(file).items())
        mine = json.loads((file.parent / "summary.json").read_text())
        alone = json.loads((tmp_path / "m" / "summary.json").read_text())
        more = [a["bytes"] - b["bytes"] for a, b in zip(mine["agents"], alone["agents"], strict=True)]
        more += [a["bytes"] - b["bytes"] for a, b in zip(mine["sent"], alone["sent"], strict=True)][1:]
        assert not any(more)
        # The first has the names of sites, which are others, and with them the keys, which are signed there.
        assert mine["sent"][0]["bytes"] != alone["sent"][0]["bytes"]


def test_the_page_has_the_commands_of_the_script() -> None:
    in_script = " ".join(SCRIPT.read_text().replace("\\\n", " ").split())
    blocks = re.findall(r"```sh\n(.*?)```", (DOCS / "sites.md").read_text(), re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    left_out = ("dcgs study show", "dcgs site check", "dcgs site agree")
    commands = [" ".join(line.split()) for line in lines if not line.startswith(left_out)]
    assert len(commands) >= 8
    assert [command for command in commands if command not in in_script] == []


def test_check_prints_a_line_for_each_thing_and_what_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sites = make_sites(tmp_path, nx.path_graph(3), (1,), {"problem": "lasso", "radius": 1.0})
    ulm = str(sites.file("ulm").parent)  # its folder will do
    sites.file("ulm").with_name("data.csv").write_text("age,ill\n40,1\n")
    assert main(["site", "check", ulm]) == 1
    printed = capsys.readouterr().out
    assert "NOT  graz by https://127.0.0.1" in printed
    assert "no connection (nothing listens there: it does not run, or a firewall refuses)" in printed
    with ThreadPoolExecutor(1) as pool:
        with sites.running("graz"):
            assert main(["site", "check", ulm]) == 0
            others = pool.submit(sites.run, lambda runtime: None, ["ulm", "bern"])
        others.result(300.0)
    printed = capsys.readouterr().out
    assert [line[:5] for line in printed.splitlines()] == ["ok   "] * 6
    assert f"the same study, dcgs {version('dcgs')}" in printed
    assert f"key and certificate of ulm, valid until {datetime.now(UTC).year + 2}" in printed
    assert "columns of data.csv: age; to predict ill" in printed
    assert "the clock here and that of graz are 0 s apart" in printed or "1 s apart" in printed
    assert main(["site", "status", ulm]) == 0
    assert "done at" in capsys.readouterr().out


def test_a_site_agrees_to_what_it_has_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sites = make_sites(tmp_path, nx.path_graph(3), (1,), {"problem": "lasso", "radius": 2.0, "rounds": 50})
    data = sites.file("ulm").with_name("data.csv")
    data.write_text("age,ward,ill\n" + "".join(f"{40 + i},a,{i % 2}\n" for i in range(20)))
    monkeypatch.setattr("builtins.input", lambda text: "no")
    assert main(["site", "agree", str(sites.file("ulm"))]) == 1
    monkeypatch.setattr("builtins.input", lambda text: "yes")
    assert main(["site", "agree", str(sites.file("ulm"))]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "fits: lasso with radius = 2.0, rounds = 50" in printed
    assert "at most 100000 rounds of messages, and 10240 MB from each site" in printed
    assert "sums are masked" in printed
    assert "at least 10 people at 3 sites" in printed
    assert sites.study.hash.hex() in printed
    assert "columns of data.csv: age, ward; to predict ill" in printed


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--sites ulm,graz --problem lasso --radius 1", "or a relay"),
        ("--sites ulm=http://a:1,graz --problem lasso --radius 1", "nothing is sent in plaintext"),
        ("--sites ulm=https://a:1,Graz --problem lasso --radius 1", "small letters, digits and hyphens"),
    ],
)
def test_a_study_that_cannot_be_run_is_refused(
    options: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["study", "new", str(tmp_path / "heart"), *shlex.split(options)])
    assert ended.value.code == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "heart").exists()


def test_options_of_a_study_are_read_back_as_they_were_given(tmp_path: Path) -> None:
    folder = str(tmp_path / "heart")
    options = (
        "--problem logistic --target ill --radius auto --drop name ward --no-intercept --gap 1e-3 --folds 3"
    )
    assert main(["study", "new", folder, "--sites", "ulm=https://a:1,graz", *options.split(), "--open"]) == 0
    study = Study.load(tmp_path / "heart" / "study.toml")
    expected = {"problem": "logistic", "target": "ill", "radius": "auto", "drop": ["name", "ward"]}
    assert dict(study.fit) == expected | {"intercept": False, "gap": 1e-3, "folds": 3, "open": True}
    assert (tmp_path / "heart" / "ca.key").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("fit", "message"),
    [
        ({"problem": "lasso", "radius": 1.0, "method": "os:system"}, "names other code"),
        ({"problem": "os.py:system", "radius": 1.0}, "names other code"),
        ({"problem": "lasso", "radius": 1.0, "seconds": 3.0}, "that all sites share; got seconds"),
        ({"problem": "lasso", "radius": 1.0, "out": "/etc"}, "that all sites share; got out"),
        ({"problem": "lasso", "set": "hull", "points": "/etc/passwd"}, "by their names alone"),
        ({"problem": "lasso", "set": "hull", "points": "ulm.key"}, "by their names alone"),
        ({"problem": "lasso", "set": "hull", "points": "data.csv"}, "the data of a site as another file"),
    ],
)
def test_a_study_names_no_code_and_no_file_of_a_site(
    fit: dict[str, object], message: str, tmp_path: Path
) -> None:
    sites = make_sites(tmp_path, nx.path_graph(2), (1,), fit)
    with pytest.raises(ValueError, match=message):
        fit_arguments(sites.study, SiteConfig.load(sites.file("ulm")), tmp_path / "state")


def test_a_site_is_left_out_by_a_new_study_that_begins_where_the_others_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fit = {"problem": "logistic", "target": "ill", "radius": 4.0, "open": True}
    sites = make_sites(tmp_path / "sites", nx.path_graph(3), (0, 1), fit)
    folder, before = tmp_path / "heart", sites.study
    folder.mkdir()
    (folder / "study.toml").write_bytes(before.content)
    with pytest.raises(SystemExit):
        main(["study", "without", "graz", str(folder)])
    assert "the graph must be connected without graz" in capsys.readouterr().err
    assert main(["study", "without", "bern", str(folder)]) == 0
    left = Study.load(folder / "study.toml")
    assert (left.names, left.run, left.without) == (("ulm", "graz"), 2, ("bern",))
    assert left.before == before.hash.hex()
    assert (folder / "study-run-1.toml").read_bytes() == before.content
    assert main(["study", "show", str(folder)]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "what is certified is the optimum over the rows of ulm, graz alone" in printed
    args = fit_arguments(left, SiteConfig.load(sites.file("ulm")), tmp_path / "state")
    assert args.handover.start == tmp_path / "sites" / "ulm" / "run" / left.before[:16] / "latest.json"


def test_a_run_begins_at_the_models_that_sites_have_of_the_run_before(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    for i in range(3):
        A = rng.standard_normal((60, 3)) * [1.0, 10.0, 0.1] + [0.0, 5.0, 0.0]
        np.savez(tmp_path / f"site-{i}.npz", A=A, b=A @ [1.0, -0.2, 3.0] + rng.standard_normal(60) + 4.0)
    options = f"lasso --data {tmp_path}/site-{{agent}}.npz --open --radius 2 --gap 1e-6 --out {tmp_path}/m"
    parser = add_options(argparse.ArgumentParser().add_subparsers())
    config = config_of(parser.parse_args(options.split()))
    first = fit_files(replace(config, handover=HandoverFiles(tmp_path / "latest.json")), dcgs.Lockstep())
    file = json.loads((tmp_path / "latest.json").read_text())  # the first model, which is written at once
    assert isinstance(first.fit, RowsFit)
    model = first.fit.model
    file["models"][""] = {"coef": model.coef.tolist(), "intercept": model.intercept}
    (tmp_path / "latest.json").write_text(json.dumps(file))
    again = HandoverFiles(tmp_path / "again.json", start=tmp_path / "latest.json", notes=("without oslo",))
    second = fit_files(replace(config, handover=again), dcgs.Lockstep())
    assert isinstance(second.fit, RowsFit)
    assert second.notes[0] == "without oslo"
    assert second.runs[""].rounds < first.runs[""].rounds
    np.testing.assert_allclose(second.fit.model.coef, model.coef, rtol=1e-2)  # gaps of 1e-6 of the loss
    assert first.prepared is not None
    objectives = first.fit.fitted[0].design.objectives(first.prepared.fitted).values()
    null, least = (sum(f.value(x) for f in objectives) for x in (np.zeros(3), first.runs[""].x))
    assert second.fit.fitted[0].explained == pytest.approx(null - least, rel=1e-6)


def test_a_site_has_floors_of_its_own_where_they_are_stricter(tmp_path: Path) -> None:
    fit = {"problem": "lasso", "radius": 1.0, "secure": True, "min_count": 10, "min_sites": 3}
    sites = make_sites(tmp_path, nx.path_graph(4), (1, 2), fit)
    file = sites.file("ulm")
    file.write_text(file.read_text() + "[floors]\nmin_count = 20\nmin_sites = 2\n")
    args = fit_arguments(sites.study, SiteConfig.load(file), tmp_path / "state")
    assert (args.min_count, args.min_sites) == (20, 3)


def test_a_site_that_is_done_is_done_again(tmp_path: Path) -> None:
    sites = make_sites(tmp_path, nx.path_graph(2), (0,))
    sites.run(lambda runtime: None)
    site = Site.load(sites.file("ulm"))
    assert site.done is not None
    with site.running(EventLog(show=lambda text: None), again=True):
        pass


def test_a_site_that_is_stopped_by_a_signal_goes_on_and_has_told_nobody_that_it_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sites = make_sites(tmp_path, nx.path_graph(2), (0,), {"problem": "lasso", "radius": 1.0})
    ulm, state = str(sites.file("ulm")), Site.load(sites.file("ulm")).state
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("dcgs.cli.site.fit_over", lambda *given: 143)
    with pytest.raises(SystemExit) as ended:
        main(["site", "run", ulm])
    assert ended.value.code == 143
    with closing(Mailbox(state, 1000)) as mailbox:
        assert mailbox.waiting() == {}  # the last message of a run would be one
        assert mailbox.fact("done") is None
    assert main(["site", "status", ulm]) == 0
    printed = capsys.readouterr().out
    assert "it does NOT run, and is not done; start it with: dcgs site run" in printed
    assert "it was stopped, and goes on when it is started again" in printed


def test_a_study_says_whether_sums_are_masked_and_what_leaves_a_site(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = "--sites ulm=https://a:1,graz=https://b:1,bern=https://c:1 --problem logistic --radius auto"
    assert main(["study", "new", str(tmp_path / "heart"), *where.split(), "--rounds-limit", "500"]) == 0
    study = Study.load(tmp_path / "heart" / "study.toml")
    privacy = {name: study.fit[name] for name in ("secure", "min_count", "min_sites")}
    assert privacy == {"secure": True, "min_count": 10, "min_sites": 3}
    assert main(["study", "show", str(tmp_path / "heart")]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    for text in (
        "at most 500 rounds of messages, and 10240 MB from each site",
        "sums of each column over the rows of each class",
        "errors of models on rows held out, for each radius",
        "at least 10 people at 3 sites",
    ):
        assert text in printed


def test_without_aiohttp_a_sentence_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['aiohttp'] = None; from dcgs.cli import main; main(['study', '--help'])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "need the package aiohttp; install it with: pip install 'dcgs[sites]'." in done.stderr
