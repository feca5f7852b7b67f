"""`python e2e/cluster COMMAND`: a cluster for tests and demos, whatever the machine offers."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from commands import CommandError, say
from local import binaries
from providers import PROVIDERS, choose


def main() -> int:
    parser = argparse.ArgumentParser(prog="python e2e/cluster", description=__doc__)
    parser.add_argument("--provider", choices=PROVIDERS, help="default: RLJOB_CLUSTER, else kind or local")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("up", help="make the cluster and wait until its node is ready")
    commands.add_parser("down", help="remove the cluster and everything it left on the machine")
    commands.add_parser("kubeconfig", help="print the path of an administrator's kubeconfig")
    commands.add_parser("build", help="build the local cluster's components into the cache")
    load = commands.add_parser("load-image", help="make images from archives usable by pods")
    load.add_argument("archive", type=Path, nargs="+")
    arguments = parser.parse_args()
    try:
        if arguments.command == "build":
            binaries.build_all()
            return 0
        provider = choose(arguments.provider)
        match arguments.command:
            case "up":
                provider.up()
            case "down":
                provider.down()
            case "kubeconfig":
                print(provider.kubeconfig())
            case "load-image":
                for archive in arguments.archive:
                    provider.load_image(archive)
    except CommandError as error:
        say(f"error: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
