"""`python e2e/cluster COMMAND`: a cluster for tests and demos, whatever the machine offers."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import images
import needs
from commands import CommandError, say
from local import binaries
from providers import PROVIDERS, choose


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python e2e/cluster", description=__doc__)
    parser.add_argument("--provider", choices=PROVIDERS, help="default: RLJOB_CLUSTER, else kind or local")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("up", help="make the cluster and wait until its node is ready")
    commands.add_parser("down", help="remove the cluster and everything it left on the machine")
    commands.add_parser("kubeconfig", help="print the path of an administrator's kubeconfig")
    commands.add_parser("images", help="build both images and load them into the cluster")
    commands.add_parser("provider", help="print the provider that is chosen on this machine")
    commands.add_parser("needs", help="print the Debian packages that are still to be installed, on one line")
    commands.add_parser("fill-cache", help="build all components and both images, load nothing")
    commands.add_parser("load-image", help="load images from archives").add_argument("archive", type=Path, nargs="+")
    return parser.parse_args()


def act(arguments: argparse.Namespace) -> None:
    name = choose(arguments.provider)
    provider = PROVIDERS[name]()
    match arguments.command:
        case "up":
            provider.up()
            print(f"export KUBECONFIG={provider.kubeconfig()}")
        case "down":
            provider.down()
        case "kubeconfig":
            print(provider.kubeconfig())
        case "images":
            for archive in images.build_all():
                provider.load_image(archive)
        case "provider":
            print(name)
        case "needs":
            if missing := needs.by_hand():
                raise CommandError(f"install {' and '.join(missing)}")
            print(" ".join(needs.packages(name)))
        case "fill-cache":
            binaries.build_all()  # the tests of the operator as a process use its API server, whatever the provider
            images.build_all()
        case "load-image":
            for archive in arguments.archive:
                provider.load_image(archive)


def main() -> int:
    try:
        act(parse())
    except CommandError as error:
        say(f"error: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
