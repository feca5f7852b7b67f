"""The report: well-formed, self-contained, and true to the run's files."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest

from rljob_core.api.directive import StageName
from rljob_operator.report_html import render, write_report
from rljob_operator.report_html.charts import MOST_POINTS, thin, ticks
from rljob_operator.report_html.gantt import BINS, merged
from rljob_operator.report_html.records import Span, read_run
from rljob_operator.report_html.style import CSS


def span(stage, start, end, step=0, process="trainer 0"):
    return Span(process=process, role=process.split()[0], stage=stage, start=start, end=end, step=step)


@pytest.fixture
def folder(tmp_path):
    steps = [
        {"step": i, "reward_mean": i / 30, "exact_match": i / 60, "lag_oldest": i % 2, "tokens_per_second": 900.0 + i,
         "loss": -0.1 * i, "grad_norm": 1.0, "experts_max_over_mean": 1.5}
        for i in range(1, 31)
    ]  # fmt: skip
    evaluations = [{"step": 10, "eval_exact_match": 0.3}, {"step": 30, "eval_exact_match": 0.95}]
    lines = [json.dumps(row) for row in [*steps, *evaluations]] + ['{"step": 31, "rew']
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines))
    spans = [
        {"role": role, "rank": rank, "stage": stage, "start": 100 + i + at, "end": 100.4 + i + at, "step": i}
        for i in range(30)
        for role, rank, stage, at in [("trainer", 0, "train", 0.5), *(("rollout", r, "decode", 0.0) for r in (0, 1))]
    ]  # fmt: skip
    (tmp_path / "timeline.jsonl").write_text("\n".join(map(json.dumps, spans)))
    samples = [{"step": 1, "version": 0, "prompt": "12<3=", "response": "\x00&\n", "reward": 0.25}]
    (tmp_path / "samples.jsonl").write_text("\n".join(map(json.dumps, samples)))
    (tmp_path / "summary.json").write_text(json.dumps({"phase": "Succeeded", "steps": 30, "kv": {"hits": 3}}))
    job = {"metadata": {"name": "demo"}, "spec": {"staleSync": {"maxVersionLag": 1}}}
    (tmp_path / "job.json").write_text(json.dumps(job))
    return tmp_path


def parse(page):
    return ElementTree.fromstring(page.partition("\n")[2])


def test_whole_page(folder):
    write_report(folder, folder / "report.html")
    page = (folder / "report.html").read_text()
    root = parse(page)
    assert len(root.findall(".//figure")) == 6
    assert "12&lt;3=" in page
    for foreign in ("http:", "https:", "<script", "src=", "@import"):
        assert foreign not in page
    lanes = {text.text for text in root.iter("text") if text.get("class") == "lane"}
    assert lanes == {"trainer 0", "rollout 0", "rollout 1"}
    assert "Steps 15 to 17" in page


def test_every_stage_has_a_colour():
    assert [stage for stage in StageName if f".s-{stage} {{" not in CSS] == [StageName.IDLE]


def test_empty_run_still_has_a_page(tmp_path):
    root = parse(render(read_run(tmp_path)))
    assert "Unfinished" in "".join(root.itertext())


def test_steps_done_again_after_a_resume_count_once(tmp_path):
    rows = [{"step": s, "reward_mean": r} for s, r in [(1, 0.1), (2, 0.2), (3, 0.3), (2, 0.9), (3, 0.8)]]
    (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert [(row["step"], row["reward_mean"]) for row in read_run(tmp_path).steps] == [(1, 0.1), (2, 0.9), (3, 0.8)]


def test_a_long_timeline_stays_small():
    spans = [span("train" if i % 2 else "publish", i * 0.001, i * 0.001 + 0.0009) for i in range(100_000)]
    assert len(merged(spans, 0.0, 100.0)) <= BINS


def test_wide_spans_keep_their_ends():
    assert merged([span("train", 0.0, 5.0), span("publish", 5.0, 10.0)], 0.0, 10.0) == [
        (0.0, BINS / 2, "train"),
        (BINS / 2, BINS, "publish"),
    ]


@pytest.mark.parametrize(
    ("low", "high", "wanted"),
    [(0.0, 1.0, [0.0, 0.5, 1.0]), (3.0, 3.0, [2.5, 3.0, 3.5]), (-0.4, 0.4, [-0.5, 0.0, 0.5])],
)
def test_ticks_are_round_and_cover(low, high, wanted):
    assert ticks(low, high, 2) == wanted


def test_thin_keeps_the_mean():
    points = thin([(float(i), 2.0) for i in range(10_000)])
    assert len(points) <= MOST_POINTS
    assert {y for _, y in points} == {2.0}
