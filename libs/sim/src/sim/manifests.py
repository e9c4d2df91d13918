"""Small manifests for tests and benches."""

from typing import Any


def deployment(name: str, replicas: int, *, cpu: str = "100m", image: str = "app:1", **spec: Any) -> dict[str, Any]:
    """Returns a Deployment. spec: fields of the pod's spec; `strategy` goes to the Deployment's."""
    labels = {"app": name}
    strategy = {"strategy": spec.pop("strategy")} if "strategy" in spec else {}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod_spec(cpu=cpu, image=image, **spec)},
            **strategy,
        },
    }


def statefulset(name: str, replicas: int, *, cpu: str = "100m", image: str = "app:1", **more: Any) -> dict[str, Any]:
    """Returns a StatefulSet. more: fields of its spec."""
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "serviceName": name,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod_spec(cpu=cpu, image=image)},
            **more,
        },
    }


def job(
    name: str,
    parallelism: int,
    completions: int | None = None,
    *,
    run_seconds: float | None = None,
    cpu: str = "100m",
    image: str = "app:1",
    **more: Any,
) -> dict[str, Any]:
    """Returns a Job. run_seconds: how long each simulated pod runs; None: for ever. more: fields of the Job's spec."""
    runs = {} if run_seconds is None else {"annotations": {"sim/run-seconds": str(run_seconds)}}
    template = {
        "metadata": {"labels": {"app": name}, **runs},
        "spec": pod_spec(cpu=cpu, image=image, restartPolicy="Never"),
    }
    until = {} if completions is None else {"completions": completions}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"parallelism": parallelism, **until, "template": template, **more},
    }


def pod(name: str, *, labels: dict[str, str] | None = None, cpu: str = "100m", **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "labels": labels or {}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod_spec(cpu=cpu, **spec)}


def pod_spec(*, cpu: str = "100m", image: str = "app:1", **fields: Any) -> dict[str, Any]:
    container = {"name": "main", "image": image, "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}}}
    return {"containers": [container], **fields}
