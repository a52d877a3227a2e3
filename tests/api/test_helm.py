"""deploy/helm/flashd, rendered by helm: against Kubernetes' own schemas, and the real server under what it mounts and asks."""

import pathlib
import re
import shutil
import subprocess

import httpx
import pytest
import yaml

from conftest import MODEL, ROOT

kubernetes_validate = pytest.importorskip("kubernetes_validate")
pytestmark = pytest.mark.skipif(not shutil.which("helm"), reason="no helm: tests/unpack-helm")

CHART = ROOT / "deploy/helm/flashd"
EVERYTHING = ["model.claim=models", "apiKeys.secret=flashd-keys", "gpus=1", "podMonitor.enabled=true", "autoscaling.enabled=true",
              "inferencePool.enabled=true", "inferencePool.gateway=inference"]
CORE = {"Deployment", "Service", "ServiceAccount", "ConfigMap", "PodDisruptionBudget"}
FETCH = ["model.fetch.image=curl", "model.fetch.args={-o,/models/m.gguf}"]


def helm(*args):
    return subprocess.run(["helm", *args], capture_output=True, text=True, timeout=60)


def template(*values):
    return ["template", "llm", str(CHART), "--namespace", "prod", *(arg for value in values for arg in ("--set", value))]


def rendered(*values):
    done = helm(*template(*values))
    assert done.returncode == 0, done.stderr
    return {one["kind"]: one for one in yaml.safe_load_all(done.stdout) if one}


def pod_of(objects):
    return objects["Deployment"]["spec"]["template"]["spec"]


def options_of(objects):
    return yaml.safe_load(objects["ConfigMap"]["data"]["flashd.yaml"])


def test_lint():
    done = helm("lint", "--strict", str(CHART), "--set", "model.claim=models")
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("values", [["model.claim=models"], FETCH, EVERYTHING, ["model.claim=m", "maxSurge=0", "disruptionBudget.enabled=false"]])
@pytest.mark.parametrize("version", ["1.29", "1.37"])
def test_kubernetes_takes_it(values, version):
    objects = rendered(*values)
    for kind in CORE & set(objects):
        kubernetes_validate.validate(objects[kind], version, strict=True)
    assert CORE - {"PodDisruptionBudget"} <= set(objects)


def test_the_schemas_complain():
    broken = rendered("model.claim=models")["Deployment"]
    broken["spec"]["template"]["spec"]["containers"][0]["livenessProb"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, "1.37", strict=True)


def test_what_selects_pods():
    objects = rendered(*EVERYTHING)
    labels = objects["Deployment"]["spec"]["template"]["metadata"]["labels"].items()
    selectors = [objects[kind]["spec"]["selector"]["matchLabels"] for kind in ("Deployment", "PodDisruptionBudget", "PodMonitor", "InferencePool")]
    for selector in [*selectors, objects["Service"]["spec"]["selector"]]:
        assert selector and selector.items() <= labels
    ports = {p["name"]: p["containerPort"] for p in pod_of(objects)["containers"][0]["ports"]}
    assert ports == {"http": options_of(objects)["port"]}
    assert objects["InferencePool"]["spec"]["targetPorts"] == [{"number": ports["http"]}]
    assert set(objects["InferencePool"]["spec"]) == {"selector", "targetPorts", "endpointPickerRef"}
    assert objects["HTTPRoute"]["spec"]["rules"][0]["backendRefs"] == [
        {"group": "inference.networking.k8s.io", "kind": "InferencePool", "name": objects["InferencePool"]["metadata"]["name"]}]
    assert "replicas" not in objects["Deployment"]["spec"] and objects["ScaledObject"]["spec"]["scaleTargetRef"] == {"name": "llm"}


@pytest.mark.parametrize("delay, timeout", [(10, 60), (0, 600)])
def test_the_grace_period_is_longer_than_the_drain(delay, timeout):
    objects = rendered("model.claim=models", f"drainDelay={delay}", f"drainTimeout={timeout}")
    assert (options_of(objects)["drain-delay"], options_of(objects)["drain-timeout"]) == (delay, timeout)
    assert pod_of(objects)["terminationGracePeriodSeconds"] > delay + timeout


@pytest.mark.parametrize("values, sentence", [
    ([], "one of model.claim and model.fetch"), (["model.claim=m", *FETCH], "one of model.claim and model.fetch"),
    (["model.claim=m", "options.port=1"], "options.port: the chart sets it")])
def test_values_that_are_refused(values, sentence):
    done = helm(*template(*values))
    assert done.returncode != 0 and sentence in done.stderr


def test_the_example_is_what_helm_renders():
    kept = yaml.safe_load_all((ROOT / "deploy/helm/example.yaml").read_text())
    assert {one["kind"]: one for one in kept} == rendered(*EVERYTHING)


def test_the_server_takes_what_it_is_given(start_server, tmp_path):
    objects = rendered(*EVERYTHING)
    pod, options = pod_of(objects), options_of(objects)
    container = pod["containers"][0]
    mounted = [m["mountPath"] for m in container["volumeMounts"]]
    assert all(str(pathlib.PurePath(options[name]).parent) in mounted for name in ("model", "api-key-file"))
    assert container["args"] == ["serve", "--config", mounted[1] + "/flashd.yaml"] and {v["name"] for v in pod["volumes"]} == {
        m["name"] for m in container["volumeMounts"]}
    (tmp_path / "keys").write_text("secret name=acme\n")
    options.update({"model": str(MODEL), "api-key-file": str(tmp_path / "keys"), "host": "127.0.0.1", "drain-delay": 0})
    del options["port"]  # the fixture's
    (tmp_path / "flashd.yaml").write_text(yaml.safe_dump(options))
    with start_server("--config", str(tmp_path / "flashd.yaml")) as server:
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            assert httpx.get(server.url + container[probe]["httpGet"]["path"]).status_code == 200
        page = httpx.get(server.url + objects["PodMonitor"]["spec"]["podMetricsEndpoints"][0]["path"]).text
        assert httpx.get(server.url + "/v1/models").status_code == 401
    query = objects["ScaledObject"]["spec"]["triggers"][0]["metadata"]["query"]
    assert re.search(rf"^{re.search(r'vllm:[a-z_]+', query)[0]}\b", page, re.MULTILINE)
    pods = re.search(r'pod=~"([^"]*)"', query)[1]
    assert re.fullmatch(pods, "llm-6f9c7d8b4-x2x9z") and not re.fullmatch(pods, "llm-other-6f9c7d8b4-x2x9z")
