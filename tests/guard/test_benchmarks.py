"""What a benchmark's last line holds, and what `make bench` makes of it. Benchmarks themselves need an idle machine."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes

ROOT = Path(__file__).resolve().parents[2]

FAST = """
from harness import Claim, finish
print("a line on the way")
must = [Claim(claim="seconds a step", limit=2.5, measured=1.23456), Claim(claim="share", limit=0.2, measured=0.2)]
figures = {"seconds_per_step": 0.51234, "runs": [1, 2]}
raise SystemExit(finish("fast", must, figures, {"plain loop": {"seconds_per_step": 0.25}}))
"""
SLOW = """
import math
from harness import Claim, finish
must = [Claim(claim="seconds to the goal", limit=2.5, measured=math.inf)]
raise SystemExit(finish("slow", must, {"seconds": None}, {"peer": {}}))
"""


@pytest.fixture
def bench(tmp_path: Path) -> Path:
    """A folder of benchmarks with the real helpers and none of the real benchmarks."""
    folder = tmp_path / "bench"
    folder.mkdir()
    for helper in ("bench/harness.py", "bench/render.py"):
        shutil.copy(ROOT / helper, folder)
    return folder


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False)


def test_the_last_line_is_one_json_object(bench: Path) -> None:
    (bench / "fast.py").write_text(FAST)
    done = run(bench / "fast.py")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    machine = result.pop("machine")
    assert result == {
        "bench": "fast",
        "must": [
            {"claim": "seconds a step", "limit": 2.5, "measured": 1.2346, "holds": True},
            {"claim": "share", "limit": 0.2, "measured": 0.2, "holds": True},
        ],
        "metrics": {"seconds_per_step": 0.51234, "runs": [1, 2]},
        "peers": {"plain loop": {"seconds_per_step": 0.25}},
    }
    assert machine.keys() == {"cpu", "cores", "memory_gib", "kernel", "python", "torch"}
    assert machine["cores"] >= 1
    assert machine["memory_gib"] > 0
    assert re.match(r"\d+\.\d+", machine["torch"])


def test_what_never_happened_breaks_its_claim_and_is_null(bench: Path) -> None:
    (bench / "slow.py").write_text(SLOW)
    done = run(bench / "slow.py")
    assert done.returncode == 1
    (claim,) = json.loads(done.stdout)["must"]
    assert (claim["measured"], claim["holds"]) == (None, False)


def test_every_benchmark_is_rendered_and_a_broken_claim_is_told(bench: Path) -> None:
    (bench / "fast.py").write_text(FAST)
    assert run(bench / "render.py", bench / "page.md").returncode == 0
    (bench / "slow.py").write_text(SLOW)
    done = run(bench / "render.py", bench / "page.md")
    assert done.returncode == 1
    assert "a line on the way" in done.stdout
    page = (bench / "page.md").read_text()
    assert "| seconds a step | 2.5 | 1.23 | yes |" in page
    assert "| seconds to the goal | 2.5 | never | **no** |" in page
    assert "| figure | ours | plain loop |\n|---|---|---|\n| seconds_per_step | 0.512 | 0.25 |" in page
    assert "| seconds | never |  |" in page
    assert "runs" not in page


def test_a_benchmark_that_breaks_off_is_named(bench: Path) -> None:
    (bench / "broken.py").write_text("raise SystemExit(3)")
    done = run(bench / "render.py", bench / "page.md")
    assert done.returncode == 1
    assert "broken.py ended with 3 and without a result" in done.stderr
    assert not (bench / "page.md").exists()


def benchmarks() -> list[Path]:
    """Those that render.py runs."""
    spec = importlib.util.spec_from_file_location("render", ROOT / "bench/render.py")
    assert spec is not None
    assert spec.loader is not None
    render = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(render)
    found: list[Path] = render.benchmarks()
    return found


def test_make_bench_writes_the_page_of_every_benchmark() -> None:
    assert "\t$(BIN)/python bench/render.py docs/benchmarks.md\n" in (ROOT / "Makefile").read_text()
    page = (ROOT / "docs/benchmarks.md").read_text()
    assert benchmarks()
    for benchmark in benchmarks():
        (name,) = re.findall(r"return finish\(\"([\w-]+)\"", benchmark.read_text())
        assert f"## {name}\n" in page
    assert "**no**" not in page
