"""Whether a store that someone else runs answers, asked by a process of its own before the job begins.

A client that has reached another kind of server waits for it inside the library, where nothing can stop it.
"""

from __future__ import annotations

import subprocess
import sys

from rljob_core.api.placement import StoreProtocol
from rljob_core.errors import InvalidInputError, StoreError
from rljob_workers.context import Context
from rljob_workers.kv_store.mooncake import RPC_FAILED, MooncakeStore
from rljob_workers.parent import die_with_parent

FIELD = "spec.kvStore.external.masterAddress"
REMEDY = f"correct {FIELD}, or start that store"
CONNECT_S = 30.0
"""Until somebody listens there: the store may be starting as well."""
ANSWER_S = 45.0
"""Until a client is set up, the connection included."""


def require(context: Context, *, known: bool) -> None:
    """Return once the store answers. known: it has answered to this job before, so its silence may pass: StoreError,
    and the job is tried again. Otherwise the address is the user's mistake: InvalidInputError."""
    problem = _problem(context.store_master, context.pod_ip, context.spec.kv_store.protocol)
    if problem and known:
        raise StoreError("connect", context.store_master, RPC_FAILED, f"{problem}; {REMEDY}")
    if problem:
        raise InvalidInputError(FIELD, context.store_master, f"does not answer ({problem})", REMEDY)


def _problem(master: str, local_ip: str, protocol: StoreProtocol) -> str:
    """Why no store answers there; empty when one does."""
    module = "rljob_workers.kv_store.probe"
    command = [sys.executable, "-P", "-m", module, master, local_ip, str(protocol), str(CONNECT_S)]
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, text=True, check=False, timeout=ANSWER_S,
            preexec_fn=lambda: die_with_parent({}),
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"something listens there, but it is no store master: no answer within {ANSWER_S:g} s"
    return done.stdout.strip() or f"exit code {done.returncode}" if done.returncode else ""


def main(master: str, local_ip: str, protocol: str, connect_s: str) -> int:
    """Exit code 0 when a client could be set up; 1, and why on stdout, when not."""
    try:
        MooncakeStore(
            uid="probe", master=master, local_ip=local_ip, protocol=StoreProtocol(protocol), budgets={},
            wait_s=float(connect_s), remedy="",
        ).close()  # fmt: skip
    except StoreError as error:
        print(str(error).removesuffix("; "))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
