"""Checks from package metadata that the `npu` extra can be installed on x86_64 and aarch64, without any NPU.

The constraint that this environment puts on torch (a CPU build) would hide a conflict, so it is left out.
"""

from __future__ import annotations

import os
import subprocess
import sys

# torch-npu and the Mooncake wheel for NPUs need glibc 2.35.
PLATFORMS = ("x86_64-manylinux_2_35", "aarch64-manylinux_2_35")


def main() -> int:
    environment = {key: value for key, value in os.environ.items() if key not in ("UV_CONSTRAINT", "PIP_CONSTRAINT")}
    for platform in PLATFORMS:
        command = ["uv", "pip", "compile", "--quiet", "--python-platform", platform, "--python-version", "3.11"]
        command += ["--extra", "workers", "--extra", "npu", "pyproject.toml"]
        done = subprocess.run([sys.executable, "-m", *command], env=environment, capture_output=True, text=True)
        if done.returncode:
            print(f"the npu extra does not resolve for {platform}:\n{done.stderr}", file=sys.stderr)
            return 1
        chosen = [line for line in done.stdout.splitlines() if line.startswith(("torch", "mooncake"))]
        print(f"{platform}: {', '.join(chosen)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
