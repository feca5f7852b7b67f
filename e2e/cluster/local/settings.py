"""Addresses, folders and generated files of the local cluster."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

NODE_NAME = "rljob-e2e"
HOST_INTERFACE, NODE_INTERFACE = "rljob-e2e", "node0"  # the two ends of the cable between machine and node
HOST_IP, NODE_IP, PREFIX = "10.213.0.1", "10.213.0.2", 30
POD_CIDR, POD_GATEWAY = "10.213.128.0/17", "10.213.128.1"
SERVICE_CIDR, KUBERNETES_SERVICE_IP = "10.214.0.0/16", "10.214.0.1"
CLUSTER_DOMAIN = "cluster.local"
API_SERVER = f"https://{NODE_IP}:6443"
PAUSE_IMAGE = "localhost/pause:1"
CGROUP = "rljob-e2e"


OWN_FOLDERS = ("/var/lib/kubelet", "/var/lib/cni", "/var/log")
"""Folders whose paths are fixed in a component: the node sees its own in their place."""


class Paths:
    """Everything the cluster writes lies under one folder (RLJOB_E2E_STATE, default /var/lib/rljob-e2e)."""

    def __init__(self, root: Path | None = None) -> None:
        self.root = root or Path(os.environ.get("RLJOB_E2E_STATE") or "/var/lib/rljob-e2e")
        self.certificates = self.root / "certificates"
        self.config = self.root / "config"
        self.logs = self.root / "logs"
        self.containerd = self.root / "containerd"
        self.cni = self.root / "cni"
        self.binds = self.root / "binds"
        self.loaded = self.root / "loaded"
        self.plan = self.config / "node.json"
        self.pid_file = self.root / "node.pid"
        self.machine = self.root / "machine.json"
        self.socket = self.root / "containerd.sock"
        self.kubeconfig = self.root / "kubeconfig"


def kubeconfig(paths: Paths, user: str) -> dict[str, Any]:
    """A self-contained kubeconfig for the user whose certificate is `<user>.crt`."""

    def inline(name: str) -> str:
        return base64.b64encode((paths.certificates / name).read_bytes()).decode()

    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": NODE_NAME,
        "clusters": [
            {"name": NODE_NAME, "cluster": {"server": API_SERVER, "certificate-authority-data": inline("ca.crt")}}
        ],
        "users": [
            {
                "name": user,
                "user": {
                    "client-certificate-data": inline(f"{user}.crt"),
                    "client-key-data": inline(f"{user}.key"),
                },
            }
        ],
        "contexts": [{"name": NODE_NAME, "context": {"cluster": NODE_NAME, "user": user}}],
    }


def kubelet_configuration(paths: Paths) -> dict[str, Any]:
    """cgroupfs, no swap check, no eviction by a full disk, everything inside our own folder."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": NODE_IP,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(paths.certificates / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{CGROUP}",
        "clusterDNS": [NODE_IP],
        "clusterDomain": CLUSTER_DOMAIN,
        "containerRuntimeEndpoint": f"unix://{paths.socket}",
        "evictionHard": {"memory.available": "100Mi"},
        "failSwapOn": False,
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "makeIPTablesUtilChains": False,
        "oomScoreAdj": 0,
        "resolvConf": str(paths.config / "resolv.conf"),
        "volumePluginDir": str(paths.root / "volume-plugins"),
    }


def proxy_configuration(paths: Paths) -> dict[str, Any]:
    """iptables mode; conntrack limits of the machine stay as they are."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "bindAddress": NODE_IP,
        "clientConnection": {"kubeconfig": str(paths.config / "kube-proxy.kubeconfig")},
        "clusterCIDR": POD_CIDR,
        "conntrack": {"maxPerCore": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        "hostnameOverride": NODE_NAME,
        "iptables": {"localhostNodePorts": False},
        "oomScoreAdj": 0,
    }


def cni_configuration(paths: Paths) -> dict[str, Any]:
    """Each pod on a cable of its own to the node (`ptp`), addresses from one range, no route to the outside."""
    return {
        "cniVersion": "0.4.0",
        "name": "rljob-e2e",
        "plugins": [
            {
                "type": "ptp",
                "ipam": {
                    "type": "host-local",
                    "dataDir": str(paths.cni / "networks"),
                    "ranges": [[{"subnet": POD_CIDR, "gateway": POD_GATEWAY}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            }
        ],
    }


def containerd_configuration(paths: Paths) -> str:
    """A containerd of our own: other containerds of the machine are left alone."""
    return f"""\
version = 2
root = "{paths.containerd}/root"
state = "/run/containerd"

[grpc]
address = "{paths.socket}"

[plugins."io.containerd.internal.v1.opt"]
path = "{paths.containerd}/opt"

[plugins."io.containerd.grpc.v1.cri"]
# Without CAP_SYS_RESOURCE a process cannot lower its out-of-memory score.
restrict_oom_score_adj = true
sandbox_image = "{PAUSE_IMAGE}"

[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "{paths.cni}/net.d"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
SystemdCgroup = false
"""


def corefile(paths: Paths) -> str:
    """Cluster names are answered; everything else does not exist here. (In one block the template would win.)"""
    return f"""\
{CLUSTER_DOMAIN}:53 in-addr.arpa:53 ip6.arpa:53 {{
    bind {NODE_IP}
    errors
    kubernetes {CLUSTER_DOMAIN} in-addr.arpa ip6.arpa {{
        kubeconfig {paths.config}/coredns.kubeconfig
        pods insecure
        ttl 1
    }}
}}
.:53 {{
    bind {NODE_IP}
    template ANY ANY {{
        rcode NXDOMAIN
    }}
}}
"""


def memory_bytes() -> int:
    """Memory of the machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def write_json(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=1))


def write_configuration(paths: Paths) -> None:
    """Every file the components read, certificates excepted."""
    for user in ("admin", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "coredns"):
        write_json(paths.config / f"{user}.kubeconfig", kubeconfig(paths, user))
    write_json(paths.config / "kubelet.json", kubelet_configuration(paths))
    write_json(paths.config / "kube-proxy.json", proxy_configuration(paths))
    write_json(paths.cni / "net.d" / "10-rljob.conflist", cni_configuration(paths))
    (paths.config / "containerd.toml").write_text(containerd_configuration(paths))
    (paths.config / "Corefile").write_text(corefile(paths))
    (paths.config / "resolv.conf").write_text(f"nameserver {NODE_IP}\n")
