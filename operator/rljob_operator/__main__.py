"""`python -m rljob_operator`: the operator of a cluster, configured by its environment (see cluster/config.py)."""

from __future__ import annotations

import asyncio
import logging
import os
import sys

from rljob_core.errors import EXIT_INVALID_INPUT, InvalidInputError
from rljob_operator.cluster.config import OperatorConfig
from rljob_operator.cluster.process import connect, run


async def _run(config: OperatorConfig) -> int:
    client = await connect()
    try:
        return await run(config, client)
    finally:
        await client.close()


def main() -> int:
    """Exit code of the process."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("kopf").setLevel(logging.WARNING)
    try:
        config = OperatorConfig.from_env(os.environ)
    except InvalidInputError as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_INVALID_INPUT
    try:
        return asyncio.run(_run(config))
    except asyncio.CancelledError:
        return 0


if __name__ == "__main__":
    sys.exit(main())
