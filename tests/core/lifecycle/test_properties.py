"""Whatever happens, in whatever order: deciding twice is deciding once, slots are never doubled, the end is final."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import example, given, settings
from hypothesis import strategies as st

from rljob_core.api.report import Outcome, Report
from rljob_core.lifecycle.decide import decide
from rljob_core.lifecycle.model import ApplyError, WorkloadPhase

MISHAPS = ["ready", "fail", "exit64", "exit75", "evict", "vanish", "succeed", "terminating", "gone"]
WORLD = ["nothing", "report", "done", "quota", "all ready", "drain", "undrain", "no report"]


@st.composite
def histories(draw):
    """(seconds, what happens, to which pod, by number)."""
    return draw(
        st.lists(
            st.tuples(st.sampled_from([0.0, 1.0, 3.0, 70.0]), st.sampled_from(MISHAPS + WORLD), st.integers(0, 20)),
            max_size=40,
        )
    )


def strike(world, mishap, which):
    if mishap == "report":
        world.report = Report(sequence=which, step=min(which, 9), policy_version=which)
    elif mishap == "done":
        world.report = Report(sequence=99, outcome=Outcome.STEPS_DONE, step=10)
    elif mishap == "no report":
        world.report = None
    elif mishap == "quota":
        world.errors = (ApplyError(action="create", name="x", reason="QuotaExceeded", message="no"),)
    elif mishap == "all ready":
        world.ready()
    elif mishap in ("drain", "undrain"):
        world.drain = mishap == "drain"
    elif world.pods and mishap in MISHAPS:
        name = sorted(world.pods)[which % len(world.pods)]
        pod = world.pods[name]
        if mishap in ("vanish", "gone"):
            if mishap == "vanish" or pod.deleting:
                del world.pods[name]
        elif not pod.live:
            return
        elif mishap == "ready":
            world.change(name, phase=WorkloadPhase.RUNNING, ready=True)
        elif mishap == "succeed":
            world.change(name, phase=WorkloadPhase.SUCCEEDED, ready=False, exit_code=0)
        elif mishap == "terminating":
            world.change(name, deleting=True)
        else:
            code = {"fail": 1, "exit64": 64, "exit75": 75, "evict": 137}[mishap]
            world.fail(name, code, disrupted=mishap == "evict")


@settings(max_examples=80, deadline=None)
@given(history=histories(), obeys=st.booleans())
def test_any_history(new_world, history, obeys):
    world = new_world(obeys_deletes=obeys)
    counted, attempt, terminal = 0, 0, None
    for seconds, mishap, which in history:
        strike(world, mishap, which)
        plan = world.step(seconds)
        again = decide(
            world.job, replace(world.observed(), workloads=tuple(world.pods.values())), world.memory, world.now
        )
        assert again.create == (), "what was just created is not wanted again"
        assert again.memory.counted_restarts == plan.memory.counted_restarts
        assert again.memory.attempt == plan.memory.attempt
        live = Counter((pod.role, pod.index) for pod in world.pods.values() if pod.live)
        assert max(live.values(), default=0) <= 1, "two live workloads in one slot"
        assert plan.memory.counted_restarts >= counted
        assert plan.memory.attempt >= attempt
        assert plan.memory.counted_restarts <= world.job.spec.lifecycle.backoff_limit
        counted, attempt = plan.memory.counted_restarts, plan.memory.attempt
        if terminal is not None:
            assert plan.status == terminal
            assert plan.create == ()
        elif plan.status.phase.terminal:
            terminal = plan.status
        truths = {c.type: c.status == "True" for c in plan.status.conditions}
        assert not (truths["Ready"] and truths["Stalled"])
        assert not (truths["Complete"] and truths["Failed"])
        assert not (truths["Reconciling"] and truths["Ready"])


@settings(max_examples=40, deadline=None)
@given(history=histories())
@example(history=[(0.0, "ready", 0), (0.0, "quota", 0), (0.0, "quota", 0)])
def test_deciding_twice_is_deciding_once(new_world, history):
    world = new_world()
    for seconds, mishap, which in history:
        strike(world, mishap, which)
        observed = world.observed()
        now = world.now + seconds
        first = decide(world.job, observed, world.memory, now)
        assert decide(world.job, observed, world.memory, now) == first
        settled = decide(world.job, replace(observed, status=first.status), first.memory, now)
        assert settled.memory.attempt == first.memory.attempt
        assert settled.memory.counted_restarts == first.memory.counted_restarts
        assert settled.create == first.create
        assert settled.delete == first.delete
        assert settled.events == ()
        world.step(seconds)
