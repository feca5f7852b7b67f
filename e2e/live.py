"""A namespace of a whole cluster, as `kubectl` shows it."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import timeouts

Body = dict[str, Any]
T = TypeVar("T")
ROOT = Path(__file__).resolve().parents[1]
# Made by Kubernetes itself in every namespace, or records that expire by themselves.
NOT_OURS = ("configmaps/kube-root-ca.crt", "serviceaccounts/default")
IGNORED_KINDS = ("events", "events.events.k8s.io", "endpoints")


class KubectlError(AssertionError):
    """kubectl refused; its stderr is the message."""


def kubectl(kubeconfig: Path, *argv: str, text: str | None = None) -> str:
    """stdout of kubectl, run in the root of the repository."""
    environ = os.environ | {"KUBECONFIG": str(kubeconfig)}
    done = subprocess.run(
        ["kubectl", *argv], env=environ, input=text, capture_output=True, text=True, check=False, cwd=ROOT
    )
    if done.returncode:
        raise KubectlError(f"kubectl {' '.join(argv)}: {done.stderr.strip()}")
    return done.stdout


def until(
    probe: Callable[[], T | None],
    what: str,
    seconds: float,
    report: Callable[[], str] = str,
    pause: float = timeouts.POLL_S,
) -> T:
    """The first answer that is not None or False. report: what a failure shows beside `what`. pause: between probes."""
    deadline = time.monotonic() + seconds
    while True:
        answer = probe()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:.0f} s: {what}\n{report()}")
        time.sleep(pause)


class Namespace:
    """One namespace; `kubectl` of its methods is bound to it."""

    def __init__(self, kubeconfig: Path, name: str) -> None:
        self.kubeconfig, self.name = kubeconfig, name

    def kubectl(self, *argv: str, text: str | None = None) -> str:
        return kubectl(self.kubeconfig, "--namespace", self.name, *argv, text=text)

    def apply(self, body: Body) -> str:
        return self.kubectl("apply", "-f", "-", text=json.dumps(body))

    def config_map(self, name: str, files: dict[str, str]) -> None:
        self.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": files})

    def get(self, kind: str, name: str) -> Body:
        """The object; {} when it does not exist."""
        out = self.kubectl("get", kind, name, "--ignore-not-found", "-o", "json")
        found: Body = json.loads(out) if out else {}
        return found

    def items(self, kind: str, *selector: str) -> list[Body]:
        found: list[Body] = json.loads(self.kubectl("get", kind, *selector, "-o", "json"))["items"]
        return found

    def status(self, job: str) -> Body:
        status: Body = self.get("rljobs", job).get("status", {})
        return status

    def condition(self, job: str, kind: str) -> Body:
        """The condition of that type; {} when there is none."""
        conditions: list[Body] = self.status(job).get("conditions", [])
        return next((condition for condition in conditions if condition["type"] == kind), {})

    def pods(self, job: str) -> dict[str, Body]:
        return {pod["metadata"]["name"]: pod for pod in self.items("pods", "-l", f"rljob.dev/job={job}")}

    def pod(self, job: str, role: str) -> str:
        """Name of the first living pod of a role."""
        selector = f"rljob.dev/job={job},rljob.dev/role={role}"
        names: list[str] = [pod["metadata"]["name"] for pod in self.items("pods", "-l", selector) if alive(pod)]
        assert names, f"no living {role} pod of {job}"
        return sorted(names)[0]

    def wait_pods(self, job: str, names: set[str]) -> None:
        """Wait until exactly these pods of the job exist."""
        what = f"only the pods {sorted(names)}"
        until(lambda: set(self.pods(job)) == names, what, timeouts.GONE_S, lambda: self.account(job))

    def wait_phase(self, job: str, phase: str, seconds: float) -> Body:
        """Status once the job is in the phase; fails at once where the phase can no longer come."""

        def reached() -> Body | None:
            status = self.status(job)
            now = status.get("phase")
            if now != phase and now in ("Succeeded", "Failed"):
                raise AssertionError(f"{job} is {now}, not {phase}\n{self.account(job)}")
            return status if now == phase else None

        return until(reached, f"{job} is {phase}", seconds, lambda: self.account(job))

    def wait_running(self, job: str) -> Body:
        return self.wait_phase(job, "Running", timeouts.RUNNING_S)

    def objects(self) -> dict[str, tuple[str, str]]:
        """(uid, resourceVersion) of everything in the namespace, by `kind/name`."""
        listed = kubectl(self.kubeconfig, "api-resources", "--namespaced", "--verbs=list", "-o", "name").split()
        kinds = [kind for kind in listed if kind not in IGNORED_KINDS]
        out: dict[str, tuple[str, str]] = {}
        for item in self.items(",".join(kinds)):
            meta = item["metadata"]
            key = f"{item['kind'].lower()}s/{meta['name']}"
            if key not in NOT_OURS:
                out[key] = (meta["uid"], meta["resourceVersion"])
        return out

    def settled(self) -> dict[str, tuple[str, str]]:
        """`objects` once nothing has been written for a while."""
        seen: list[dict[str, tuple[str, str]]] = [{}]

        def unchanged() -> bool:
            seen.append(self.objects())
            return seen[-1] == seen[-2]

        until(unchanged, "nothing is written any more", timeouts.SETTLED_S, pause=timeouts.QUIET_S)
        return seen[-1]

    def wait_only(self, *left: str) -> None:
        """Wait until nothing but the objects named as `kind/name` exists."""
        until(
            lambda: set(self.objects()) == set(left),
            f"only {sorted(left)} left",
            timeouts.GONE_S,
            lambda: f"left: {sorted(self.objects())}",
        )

    def account(self, job: str) -> str:
        """What a person would look at when the job does not do as it should."""
        parts = [json.dumps(self.status(job), indent=1), self.kubectl("get", "pods", "-o", "wide")]
        for name, pod in self.pods(job).items():
            states = [container["state"] for container in pod["status"].get("containerStatuses", [])]
            parts.append(f"--- {name}: {json.dumps(states)}")
            try:
                parts.append(self.kubectl("logs", name, "--tail=30"))
            except KubectlError as error:
                parts.append(str(error))
        return "\n".join(parts)


def alive(pod: Body) -> bool:
    return pod["status"].get("phase") in ("Pending", "Running") and "deletionTimestamp" not in pod["metadata"]
