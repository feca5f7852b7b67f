"""What a run leaves for people."""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path

import pytest
from outputs_page import documented

from rljob_core import run_files
from rljob_core.api.messages import Span
from rljob_core.api.report import Outcome, Report
from rljob_core.api.status import Phase
from rljob_core.names import Role
from rljob_core.session import Worker
from rljob_operator.report_html.records import read_run
from rljob_workers.coordinator.events import EventFile, _checksum
from rljob_workers.coordinator.run_files import RunFiles
from rljob_workers.coordinator.summary import summary


def records(data: bytes) -> list[bytes]:
    """TFRecords, checksums verified."""
    out = []
    while data:
        (length,) = struct.unpack_from("<Q", data)
        body = data[12 : 12 + length]
        assert data[8:12] == _checksum(data[:8])
        assert data[12 + length : 16 + length] == _checksum(body)
        out.append(body)
        data = data[16 + length :]
    return out


def test_crc32c_of_the_check_string_is_the_published_value() -> None:
    """RFC 3720: CRC-32C of "123456789" is e3069283; masked as in TFRecord."""
    crc = 0xE3069283
    assert _checksum(b"123456789") == struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
    assert zlib.crc32(b"123456789") != crc, "not the ordinary CRC-32"


def test_scalars_carry_tag_value_step_and_time(tmp_path: Path) -> None:
    events = EventFile(tmp_path, 5.0)
    events.scalars({"train/loss": 0.5}, step=300, now=6.0)
    events.close()
    (path,) = tmp_path.iterdir()
    first, second = records(path.read_bytes())
    assert first.endswith(b"brain.Event:2")
    assert second == b"\x09" + struct.pack(
        "<d", 6.0
    ) + b"\x10\xac\x02" + b"\x2a\x13\x0a\x11\x0a\x0atrain/loss\x15" + struct.pack("<f", 0.5)


def test_tensorboard_reads_them(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing import event_file_loader as loader

    events = EventFile(tmp_path, 5.0)
    events.scalars({"train/loss": 0.5, "train/kl": 0.25}, step=7, now=6.0)
    events.close()
    (path,) = tmp_path.iterdir()
    read = list(loader.EventFileLoader(str(path)).Load())
    assert [(v.tag, read[1].step) for v in read[1].summary.value] == [("train/loss", 7), ("train/kl", 7)]


def test_lines_are_on_disk_at_once_and_appended_over_restarts(tmp_path: Path) -> None:
    worker = Worker(worker_id=1, role=Role.TRAINER, pod="t", pod_uid="u", rank=0, group=0, last_seen=0)
    for start in range(2):
        files = RunFiles(tmp_path, float(start))
        files.metrics({"step": start, "reward_mean": 0.5}, "train", now=1.0)
        files.samples([{"prompt": "1=", "response": "1", "reward": 1.0, "version": 2}])
        files.spans(worker, [Span(stage="train", start=1.0, end=2.0, step=3)])
        files.close()
    metrics = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert metrics == [{"kind": "train", "time": 1.0, "step": s, "reward_mean": 0.5} for s in range(2)]
    span = json.loads((tmp_path / "timeline.jsonl").read_text().splitlines()[0])
    assert span == {
        "process": "trainer-0", "role": "trainer", "pod": "t", "stage": "train", "start": 1.0, "end": 2.0, "step": 3,
    }  # fmt: skip


def test_timeline_and_samples_are_cut_at_a_size_and_the_report_reads_both_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(run_files.CUT_AT_BYTES, "timeline.jsonl", 1000)
    worker = Worker(worker_id=1, role=Role.TRAINER, pod="t", pod_uid="u", rank=0, group=0, last_seen=0)
    for start in range(2):
        files = RunFiles(tmp_path, float(start))
        for step in range(30 * start, 30 * start + 30):
            files.spans(worker, [Span(stage="train", start=step, end=step + 1.0, step=step)])
        files.close()
    sizes = {path.name: path.stat().st_size for path in tmp_path.glob("timeline*")}
    assert sizes.keys() == {"timeline.jsonl", "timeline.1.jsonl"}
    assert max(sizes.values()) <= 1000
    steps = [span.step for span in read_run(tmp_path).spans]
    assert steps == list(range(steps[0], 60)), "the newest, in order, none left out"
    assert sum(sizes.values()) > 1000


def test_a_step_of_metrics_and_events_stays_within_what_the_volume_has_for_it(tmp_path: Path) -> None:
    """Every key that docs/outputs.md names, which is every key there is."""
    files = RunFiles(tmp_path, 0.0)
    before = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    for group, title in (("train", "metrics.jsonl, training"), ("evaluation", "metrics.jsonl, evaluations")):
        keys = documented(title).keys() - {"kind", "time"}
        files.metrics(dict.fromkeys(keys, -1.2345678901234567e-100) | {"step": 9_999_999}, group, now=1.7e9)
    files.close()
    written = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) - before
    assert 1000 < written < run_files.STEP_BYTES


def test_a_summary_is_of_this_start_and_never_torn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "summary.json"
    files = RunFiles(tmp_path, 0.0)
    files.summary({"steps": 4})
    files.close()
    assert json.loads(file.read_text()) == {"steps": 4}
    files = RunFiles(tmp_path, 1.0)
    assert not file.exists(), "its figures would stand for those of the attempt that begins now"
    files.summary({"steps": 5})
    monkeypatch.setattr("os.fsync", killed)
    with pytest.raises(KeyboardInterrupt):
        files.summary({"steps": 6})
    files.close()
    assert json.loads(file.read_text()) == {"steps": 5}


@pytest.mark.parametrize(
    ("outcome", "phase"),
    [
        (Outcome.STEPS_DONE, Phase.SUCCEEDED),
        (Outcome.TARGET_REACHED, Phase.SUCCEEDED),
        (Outcome.DRAINED, Phase.PENDING),
        (Outcome.INVALID_INPUT, Phase.FAILED),
        (Outcome.FAILED, Phase.FAILED),
    ],
)
def test_the_summary_names_the_phase_that_the_job_has_then(outcome: Outcome, phase: Phase) -> None:
    ended = Report(sequence=1, outcome=outcome)
    said = summary(ended, started_at=1.0, now=3.0, attempt=2, tokens_here=0, sampling_since=None)
    assert (said["phase"], said["reason"], said["restarts"]) == (phase, outcome, 2)


def killed(_: int) -> None:
    raise KeyboardInterrupt
