"""What runs on the node, with which arguments; and the certificates each needs."""

from __future__ import annotations

from pathlib import Path

from local.certificates import Authority
from local.settings import (
    CLUSTER_DOMAIN,
    HOST_IP,
    KUBERNETES_SERVICE_IP,
    NODE_INTERFACE,
    NODE_IP,
    NODE_NAME,
    OWN_FOLDERS,
    POD_CIDR,
    PREFIX,
    SERVICE_CIDR,
    Paths,
    memory_bytes,
    write_json,
)


def issue_certificates(paths: Paths) -> None:
    """One client certificate a component, the API server's own, and the key of service-account tokens."""
    authority = Authority(paths.certificates)
    names = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", f"kubernetes.default.svc.{CLUSTER_DOMAIN}")
    addresses = (*(f"DNS:{name}" for name in names), f"IP:{NODE_IP}", f"IP:{KUBERNETES_SERVICE_IP}", "IP:127.0.0.1")
    authority.issue("kube-apiserver", "kube-apiserver", addresses=addresses)
    authority.issue("kubelet-client", "kube-apiserver-kubelet-client", "system:masters")
    authority.issue("admin", "admin", "system:masters")
    authority.issue("kube-controller-manager", "system:kube-controller-manager")
    authority.issue("kube-scheduler", "system:kube-scheduler")
    authority.issue("kube-proxy", "system:kube-proxy")
    authority.issue("coredns", "system:coredns")
    authority.issue("kubelet", f"system:node:{NODE_NAME}", "system:nodes", (f"DNS:{NODE_NAME}", f"IP:{NODE_IP}"))
    authority.issue("service-account", "service-account")


def command_lines(paths: Paths, binaries: Path) -> dict[str, list[str]]:
    """Command line of every component by name, in the order of start."""
    certificates, config = paths.certificates, paths.config

    def flags(name: str, **values: str | Path) -> list[str]:
        return [str(binaries / name), *(f"--{key.replace('_', '-')}={value}" for key, value in values.items())]

    return {
        "containerd": ["containerd", "--config", str(config / "containerd.toml")],
        "etcd": flags(
            "etcd",
            data_dir=paths.root / "etcd",
            listen_client_urls="http://127.0.0.1:2379",
            advertise_client_urls="http://127.0.0.1:2379",
            listen_peer_urls="http://127.0.0.1:2380",
            unsafe_no_fsync="true",
        ),
        "kube-apiserver": flags(
            "kube-apiserver",
            advertise_address=NODE_IP,
            allow_privileged="true",
            authorization_mode="Node,RBAC",
            bind_address=NODE_IP,
            client_ca_file=certificates / "ca.crt",
            enable_admission_plugins="NodeRestriction",
            etcd_servers="http://127.0.0.1:2379",
            kubelet_client_certificate=certificates / "kubelet-client.crt",
            kubelet_client_key=certificates / "kubelet-client.key",
            kubelet_preferred_address_types="InternalIP",
            secure_port="6443",
            service_account_issuer=f"https://kubernetes.default.svc.{CLUSTER_DOMAIN}",
            service_account_key_file=certificates / "service-account.crt",
            service_account_signing_key_file=certificates / "service-account.key",
            service_cluster_ip_range=SERVICE_CIDR,
            tls_cert_file=certificates / "kube-apiserver.crt",
            tls_private_key_file=certificates / "kube-apiserver.key",
        ),
        "kube-controller-manager": flags(
            "kube-controller-manager",
            bind_address="127.0.0.1",
            controllers="*,-nodeipam",
            kubeconfig=config / "kube-controller-manager.kubeconfig",
            kube_api_burst="200",
            kube_api_qps="100",
            leader_elect="false",
            root_ca_file=certificates / "ca.crt",
            service_account_private_key_file=certificates / "service-account.key",
            use_service_account_credentials="true",
        ),
        "kube-scheduler": flags(
            "kube-scheduler",
            bind_address="127.0.0.1",
            kubeconfig=config / "kube-scheduler.kubeconfig",
            leader_elect="false",
        ),
        "kubelet": flags(
            "kubelet",
            config=config / "kubelet.json",
            hostname_override=NODE_NAME,
            kubeconfig=config / "kubelet.kubeconfig",
            node_ip=NODE_IP,
        ),
        "kube-proxy": flags("kube-proxy", config=config / "kube-proxy.json"),
        "coredns": [str(binaries / "coredns"), "-conf", str(config / "Corefile")],
    }


def write_plan(paths: Paths, binaries: Path) -> None:
    """The document `node.py` acts on: mounts, network set-up, components."""
    write_json(
        paths.plan,
        {
            "tmpfs": ["/run", *([str(paths.containerd)] if memory_bytes() > IMAGES_IN_MEMORY_ABOVE else [])],
            "binds": {str(paths.binds / target.strip("/").replace("/", "-")): target for target in OWN_FOLDERS},
            "interface": NODE_INTERFACE,
            "network": [
                ["ip", "link", "set", "lo", "up"],
                ["ip", "address", "add", f"{NODE_IP}/{PREFIX}", "dev", NODE_INTERFACE],
                ["ip", "link", "set", NODE_INTERFACE, "up"],
                ["ip", "route", "add", "default", "via", HOST_IP],
            ],
            "logs": str(paths.logs),
            "components": command_lines(paths, binaries),
        },
    )


IMAGES_IN_MEMORY_ABOVE = 16 << 30
"""Bytes of memory from which images (about 2.5 GiB) are kept there: faster to unpack, and above all to remove."""

ROUTES_OF_THE_MACHINE = (["ip", "route", "replace", POD_CIDR, "via", NODE_IP],)
"""Lets a test reach a pod by its address; gone with the interface."""
