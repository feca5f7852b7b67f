"""Run one role in this process, and turn how it ends into an exit code and last words."""

from __future__ import annotations

import importlib
import logging
import traceback
from collections.abc import Mapping
from pathlib import Path

from rljob_core import names
from rljob_core.api.report import TerminationMessage
from rljob_core.errors import EXIT_FAILED, EXIT_INVALID_INPUT, InvalidInputError
from rljob_core.names import Role
from rljob_workers import last_words
from rljob_workers.context import Context

MODULES = {
    Role.COORDINATOR: "rljob_workers.coordinator.main",
    Role.TRAINER: "rljob_workers.trainer.main",
    Role.ROLLOUT: "rljob_workers.rollout.main",
    Role.REWARD: "rljob_workers.reward.main",
    Role.STORE_MASTER: "rljob_workers.kv_store.master",
    Role.STORE: "rljob_workers.kv_store.segment",
}
_log = logging.getLogger(__name__)


def run_role(environ: Mapping[str, str]) -> int:
    """Exit code: what `main(context)` returns; 64 for the user's mistakes, 1 for every other error."""
    rank = -1
    try:
        context = Context.from_env(environ)
        rank = context.rank
        return int(importlib.import_module(MODULES[context.role]).main(context))
    except InvalidInputError as error:
        _log.error("%s", error)
        words = TerminationMessage(invalid_input=True, rank=rank, exit_code=EXIT_INVALID_INPUT, message=str(error))
    except Exception as error:
        traceback.print_exc()
        text = f"{type(error).__name__}: {error}"
        words = TerminationMessage(rank=rank, exit_code=EXIT_FAILED, message=text)
    last_words.write(Path(environ.get(names.ENV_TERMINATION_LOG) or names.TERMINATION_LOG), words)
    return words.exit_code
