"""Model families in Hugging Face layout, their shards by layout and rank, and their files."""

from rljob_core.models import ModelConfig, check_layout, parse_config, tensor_specs
from rljob_workers.model.directory import read_config, read_directory, write_directory
from rljob_workers.model.groups import expert_parallel_group
from rljob_workers.model.initial import initial_tensors
from rljob_workers.model.policy import Placement, Policy, RoutingCounts, routed_mask
from rljob_workers.model.registry import build_policy, family_of

__all__ = [
    "ModelConfig",
    "Placement",
    "Policy",
    "RoutingCounts",
    "build_policy",
    "check_layout",
    "expert_parallel_group",
    "family_of",
    "initial_tensors",
    "parse_config",
    "read_config",
    "read_directory",
    "routed_mask",
    "tensor_specs",
    "write_directory",
]
