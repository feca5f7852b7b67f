"""Entry point of every worker: `python -m rljob_workers`. Says who it is by `RLJOB_*` and runs that role."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping

from rljob_core import names
from rljob_workers.parent import die_with_parent

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "RAYON_NUM_THREADS",
)
DEVICE_ROLES = (names.Role.TRAINER, names.Role.ROLLOUT)


def main(environ: Mapping[str, str]) -> int:
    """Exit code of the role; of the first failing child where one process per device is started."""
    die_with_parent(environ)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    if environ.get(names.ENV_ROLE) in DEVICE_ROLES and not environ.get(names.ENV_LOCAL_RANK):
        from rljob_workers.launcher import launch

        return launch(environ)
    _set_threads(environ.get(names.ENV_THREADS) or "1")
    from rljob_workers.role import run_role

    return run_role(environ)


def _set_threads(threads: str) -> None:
    """Thread pools read these when their library loads, so before numpy and torch are imported."""
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, threads))
    os.environ["TOKENIZERS_PARALLELISM"] = "false"


if __name__ == "__main__":
    sys.exit(main(os.environ))
