"""The RLJob spec. Each field's docstring gives meaning, unit, default and why.

Numbers carry no pydantic bounds: ranges and contradictions are CEL rules (`rules` of each class), written once
and run by the API server and by `rljob validate`. A choice is sibling optional objects with a one-of rule.
"""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field

from rljob_core.api.algorithm import Algorithm, StaleSync
from rljob_core.api.base import Document, Rule
from rljob_core.api.changes import FIXED
from rljob_core.api.inputs import Data, Evaluation, Model, Reward
from rljob_core.api.placement import Checkpoint, Deployment, Experts, KVStore, Lifecycle, Scheduling
from rljob_core.api.roles import Coordinator, Rollout, Trainer
from rljob_core.names import API_VERSION, JOB_NAME_LIMIT, KIND


class RLJobSpec(Document):
    """What to train, on which data, by which reward, with which devices."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="!self.algorithm.deterministic || self.staleSync.maxVersionLag == 0",
            message="'maxVersionLag is %d, but algorithm.deterministic is true: set it to 0'"
            ".format([self.staleSync.maxVersionLag])",
            field=".staleSync.maxVersionLag",
        ),
        Rule(
            rule="self.trainer.layout.dp < 1 || self.algorithm.minibatches < 1 || "
            "self.algorithm.promptsPerStep % (self.trainer.layout.dp * self.algorithm.minibatches) == 0",
            message="'promptsPerStep is %d, which does not divide into %d data parallel ranks x %d minibatches: "
            "use a multiple of %d'.format([self.algorithm.promptsPerStep, self.trainer.layout.dp, "
            "self.algorithm.minibatches, self.trainer.layout.dp * self.algorithm.minibatches])",
            field=".algorithm.promptsPerStep",
        ),
        Rule(
            rule="self.trainer.replicas <= 1 || has(self.checkpoint.volume)",
            message="'checkpoint.volume is absent, but trainer.replicas is %d: set a volume that all trainer pods "
            "share, or use one pod with more devicesPerPod'.format([self.trainer.replicas])",
            field=".checkpoint.volume",
        ),
        Rule(
            rule="self.kvStore.protocol != 'ascend' || self.scheduling.device == 'npu'",
            message="'protocol is ascend, but scheduling.device is %s: use tcp, or device npu'"
            ".format([self.scheduling.device])",
            field=".kvStore.protocol",
        ),
        *FIXED,
    )

    model: Model
    """The policy: a Hugging Face directory, or a config with a seed."""
    data: Data
    """Training prompts: exactly one source."""
    reward: Reward
    """How a response is scored: exactly one way."""
    algorithm: Algorithm
    """GRPO and its options, and how long to train."""
    evaluation: Evaluation | None = None
    """Held-out prompts, cadence and decoding. Absent: no evaluation."""
    deployment: Deployment = Field(default_factory=Deployment)
    """Which roles share devices."""
    trainer: Trainer = Field(default_factory=Trainer)
    """Trainer pods and their parallel layout."""
    rollout: Rollout = Field(default_factory=Rollout)
    """Rollout groups, their layout and sampling."""
    coordinator: Coordinator = Field(default_factory=Coordinator)
    """The one coordinator pod."""
    stale_sync: StaleSync = Field(default_factory=StaleSync)
    """How old a sample may be when it is trained."""
    experts: Experts = Field(default_factory=Experts)
    """Expert placement."""
    kv_store: KVStore = Field(default_factory=KVStore)
    """MooncakeStore of this job."""
    checkpoint: Checkpoint = Field(default_factory=Checkpoint)
    """Where and how often state is saved."""
    scheduling: Scheduling = Field(default_factory=Scheduling)
    """Device kind and image."""
    lifecycle: Lifecycle = Field(default_factory=Lifecycle)
    """Retries and deadlines."""


class ObjectMeta(Document):
    """The part of Kubernetes metadata that decisions read; the rest is kept, unread."""

    model_config = Document.model_config | {"extra": "ignore"}
    name: str
    namespace: str = "default"
    uid: str = ""
    generation: int = 1
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)


class RLJob(Document):
    """One RLJob object as the API server stores it (status is read apart)."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule=f"size(self.metadata.name) <= {JOB_NAME_LIMIT} && "
            "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
            message='\'name is "%s": use lower-case letters, digits and -, a letter first, no - at the end, '
            f"at most {JOB_NAME_LIMIT} characters (names of pods are longer, 63 at most)'"
            ".format([self.metadata.name])",
            field=".metadata.name",
        ),
    )
    model_config = Document.model_config | {"extra": "ignore"}
    api_version: str = API_VERSION
    kind: str = KIND
    metadata: ObjectMeta
    spec: RLJobSpec

    @classmethod
    def from_object(cls, body: dict[str, Any]) -> RLJob:
        """Parse an object with defaults missing or present, unknown metadata ignored, nulls dropped."""
        return cls.model_validate(drop_nulls(body))


def drop_nulls(value: Any) -> Any:
    """Remove null map entries, as the API server does before defaulting non-nullable fields."""
    if isinstance(value, dict):
        return {k: drop_nulls(v) for k, v in value.items() if v is not None}
    if isinstance(value, list):
        return [drop_nulls(v) for v in value]
    return value
