"""Exit codes of `rljob run` and `rljob validate`: said in --help, and 130 without a traceback for an early Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from rljob_operator.cli import main
from rljob_operator.cli_exit_codes import RUN, VALIDATE


@pytest.mark.parametrize(("command", "codes"), [("run", RUN), ("validate", VALIDATE)])
def test_help_says_every_exit_code(command, codes, capsys):
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    said = " ".join(capsys.readouterr().out.partition("exit codes:")[2].split())
    assert said == " ".join(f"{code} {meaning}" for code, meaning in codes.items())


def test_a_wrong_command_line_is_invalid_input(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["run", "--quick", "job.yaml"])
    assert ended.value.code == 64
    assert "unrecognized arguments: --quick" in capsys.readouterr().err


def test_next_to_nothing_is_imported_with_the_command():
    """A Ctrl-C can be answered in silence from `main` on."""
    before = "import os, sys; before = set(sys.modules); import rljob_operator.cli"
    code = f"{before}; print(sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    ours = ["rljob_core", "rljob_core.errors", "rljob_operator", "rljob_operator.cli"]
    assert done.stdout.strip() == str(["__future__", *ours])


@pytest.mark.processes
@pytest.mark.parametrize("command", ["run", "validate"])
def test_ctrl_c_before_a_run_has_begun_is_130_and_silent(command, tmp_path):
    os.mkfifo(tmp_path / "job.yaml")
    process = subprocess.Popen(
        [sys.executable, "-m", "rljob_operator.cli", command, "job.yaml"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with (tmp_path / "job.yaml").open("w"):  # opens once the command reads it
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=30)
    assert (process.returncode, out) == (130, "")
    assert not (tmp_path / "runs").exists()
