#!/usr/bin/env bash
# Installs the operator on the cluster of the kubeconfig $1, applies the RLJob in $2 and shows it until it ends.
set -euo pipefail
export KUBECONFIG=$1
kubectl apply -k manifests/base
kubectl -n rljob-system rollout status deployment/rljob-operator --timeout=180s
kubectl apply -f "$2"
name=$(kubectl get -f "$2" -o jsonpath='{.metadata.name}')
echo "The kubeconfig is $KUBECONFIG"
kubectl get rljobs "$name" --watch &
watcher=$!
trap 'kill "$watcher" 2>/dev/null || true' EXIT
until phase=$(kubectl get rljobs "$name" -o jsonpath='{.status.phase}') && [[ $phase == Succeeded || $phase == Failed ]]; do
  sleep 2
done
kubectl get rljobs "$name" -o wide
[[ $phase == Succeeded ]]
