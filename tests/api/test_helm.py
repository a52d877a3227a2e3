"""deploy/helm/flashd, rendered by helm: against Kubernetes' own schemas, and the real server under what it mounts and asks."""

import os
import pathlib
import re
import shutil
import subprocess

import httpx
import jsonschema
import pytest
import yaml

from conftest import MODEL, ROOT

kubernetes_validate = pytest.importorskip("kubernetes_validate")
pytestmark = pytest.mark.skipif(not shutil.which("helm"), reason="no helm: tests/unpack-helm")

CHART = ROOT / "deploy/helm/flashd"
EVERYTHING = ["model.claim=models", "apiKeys.secret=flashd-keys", "gpus=1", "podMonitor.enabled=true", "autoscaling.enabled=true",
              "inferencePool.enabled=true", "inferencePool.gateway=inference", "inferencePool.endpointPicker.image=endpoint-picker:latest"]
PULLED = ["model.claim=models", "gpus=1", "runtimeClassName=nvidia", "image.pullSecrets[0].name=pull"]
CORE = {"Deployment", "Service", "ServiceAccount", "ConfigMap", "PodDisruptionBudget"}
PICKER = {f"{kind} of llm-epp" for kind in ("Deployment", "Service", "ServiceAccount", "ConfigMap", "Role", "RoleBinding")}
CRDS = os.environ.get("FLASHD_CRDS")  # a folder of custom resource definitions, as other projects publish them
FETCH = ["model.fetch.image=curl", "model.fetch.args={-o,/models/m.gguf}"]


def helm(*args):
    return subprocess.run(["helm", *args], capture_output=True, text=True, timeout=60)


def template(*values):
    return ["template", "llm", str(CHART), "--namespace", "prod", *(arg for value in values for arg in ("--set", value))]


def rendered(*values):
    done = helm(*template(*values))
    assert done.returncode == 0, done.stderr
    return by_name(yaml.safe_load_all(done.stdout))


def by_name(objects):
    """By kind; where they have a name that is not the release's, with it."""
    names = ((one["kind"], one["metadata"]["name"], one) for one in objects if one)
    return {kind if name == "llm" else f"{kind} of {name}": one for kind, name, one in names}


def pod_of(objects):
    return objects["Deployment"]["spec"]["template"]["spec"]


def options_of(objects):
    return yaml.safe_load(objects["ConfigMap"]["data"]["flashd.yaml"])


def test_lint():
    done = helm("lint", "--strict", str(CHART), "--set", "model.claim=models")
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("values", [["model.claim=models"], FETCH, EVERYTHING, PULLED, ["model.claim=m", "maxSurge=0", "disruptionBudget.enabled=false"]])
@pytest.mark.parametrize("version", ["1.29", "1.37"])
def test_kubernetes_takes_it(values, version):
    objects = rendered(*values)
    for kind in (CORE | PICKER) & set(objects):
        kubernetes_validate.validate(objects[kind], version, strict=True)
    assert CORE - {"PodDisruptionBudget"} <= set(objects) and (values is not EVERYTHING or PICKER <= set(objects))


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


def strict(schema):
    """A definition's schema as a server reads it: null where that may be, numbers or texts where both may; nothing that is not named."""
    if isinstance(schema, list):
        return [strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    schema = {key: strict(value) for key, value in schema.items()}
    if schema.pop("x-kubernetes-int-or-string", False):
        schema["type"] = ["integer", "string"]
    if isinstance(schema.get("properties"), dict) and "type" in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
        schema.setdefault("additionalProperties", False)
    return schema


@pytest.mark.skipif(not CRDS, reason="no FLASHD_CRDS")
@pytest.mark.parametrize("kind, group", [("InferencePool", "inference.networking.k8s.io/v1"), ("HTTPRoute", "gateway.networking.k8s.io/v1"),
                                         ("PodMonitor", "monitoring.coreos.com/v1"), ("ScaledObject", "keda.sh/v1alpha1")])
def test_other_projects_take_it(kind, group):
    definitions = [d for path in pathlib.Path(CRDS).glob("*.yaml") for d in yaml.safe_load_all(path.read_text()) if d]
    schemas = {d["spec"]["names"]["kind"]: {f'{d["spec"]["group"]}/{v["name"]}': v["schema"]["openAPIV3Schema"] for v in d["spec"]["versions"]}
               for d in definitions if d["kind"] == "CustomResourceDefinition"}
    one = rendered(*EVERYTHING)[kind]
    assert one["apiVersion"] == group
    schema = strict(schemas[kind][group])
    schema["properties"]["metadata"] = {"type": "object"}
    jsonschema.validate(one, schema)
    one["spec"]["no_such_member"] = 1
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(one, schema)


def test_the_endpoint_picker():
    """The pool names its service, which selects its pod and no other; it may read what it reads; what it reads of flashd is there."""
    objects = rendered(*EVERYTHING)
    pod = objects["Deployment of llm-epp"]["spec"]["template"]
    container, service = pod["spec"]["containers"][0], objects["Service of llm-epp"]["spec"]
    labels = pod["metadata"]["labels"].items()
    assert objects["InferencePool"]["spec"]["endpointPickerRef"] == {"name": "llm-epp", "port": {"number": 9002}, "failureMode": "FailOpen"}
    assert service["selector"].items() <= labels and objects["Deployment of llm-epp"]["spec"]["selector"]["matchLabels"].items() <= labels
    for other in (objects["InferencePool"]["spec"]["selector"]["matchLabels"], objects["Service"]["spec"]["selector"]):
        assert not other.items() <= labels
    ports = {p["name"]: p["containerPort"] for p in container["ports"]}
    assert [(p["port"], ports[p["targetPort"]]) for p in service["ports"]] == [(9002, 9002)]
    assert container["livenessProbe"]["grpc"]["port"] == ports["grpc-health"]
    options = dict(arg.removeprefix("--").split("=") for arg in container["args"])
    assert (options["pool-name"], options["pool-namespace"]) == ("llm", "prod") and options["grpc-port"] == "9002"
    folder, name = options["config-file"].rsplit("/", 1)
    assert folder in {m["mountPath"] for m in container["volumeMounts"]}
    config = yaml.safe_load(objects["ConfigMap of llm-epp"]["data"][name])
    plugins = {p["type"] for p in config["plugins"]}
    assert plugins == {p["pluginRef"] for p in config["schedulingProfiles"][0]["plugins"]}
    binding = objects["RoleBinding of llm-epp"]
    assert binding["roleRef"]["name"] == objects["Role of llm-epp"]["metadata"]["name"]
    assert binding["subjects"][0]["name"] == pod["spec"]["serviceAccountName"] == objects["ServiceAccount of llm-epp"]["metadata"]["name"]
    rules = {(group, resource) for rule in objects["Role of llm-epp"]["rules"] for group in rule["apiGroups"] for resource in rule["resources"]}
    assert {("", "pods"), ("inference.networking.k8s.io", "inferencepools")} <= rules


def test_a_picker_that_is_there_already():
    objects = rendered("model.claim=models", "inferencePool.enabled=true", "inferencePool.endpointPicker.service=mine")
    assert objects["InferencePool"]["spec"]["endpointPickerRef"]["name"] == "mine" and not any(" of " in name for name in objects)


@pytest.mark.parametrize("delay, timeout", [(10, 60), (0, 600)])
def test_the_grace_period_is_longer_than_the_drain(delay, timeout):
    objects = rendered("model.claim=models", f"drainDelay={delay}", f"drainTimeout={timeout}")
    assert (options_of(objects)["drain-delay"], options_of(objects)["drain-timeout"]) == (delay, timeout)
    assert pod_of(objects)["terminationGracePeriodSeconds"] > delay + timeout


@pytest.mark.parametrize("values, sentence", [
    ([], "one of model.claim and model.fetch"), (["model.claim=m", *FETCH], "one of model.claim and model.fetch"),
    (["model.claim=m", "options.port=1"], "options.port: the chart sets it"),
    (["model.claim=m", "gpus=1", "options.device=cpu"], "options.device: the chart sets it"),
    (["model.claim=m", "options.api-key=s3cret"], "options.api-key: it would be readable in a ConfigMap"),
    (["model.claim=m", "options.api_key={s3cret}"], "options.api-key: it would be readable in a ConfigMap")])
def test_values_that_are_refused(values, sentence):
    done = helm(*template(*values))
    assert done.returncode != 0 and sentence in done.stderr


def test_the_example_is_what_helm_renders():
    kept = yaml.safe_load_all((ROOT / "deploy/helm/example.yaml").read_text())
    assert by_name(kept) == rendered(*EVERYTHING)


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
    del options["port"], options["device"]  # the fixture's; there may be no GPU
    (tmp_path / "flashd.yaml").write_text(yaml.safe_dump(options))
    of_services = {"FLASHD_PORT": "tcp://10.0.0.1:80", "FLASHD_SERVICE_HOST": "10.0.0.1"}  # what a pod finds where the release is flashd
    with start_server("--config", str(tmp_path / "flashd.yaml"), env=of_services) as server:
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            assert httpx.get(server.url + container[probe]["httpGet"]["path"]).status_code == 200
        page = httpx.get(server.url + objects["PodMonitor"]["spec"]["podMetricsEndpoints"][0]["path"]).text
        assert httpx.get(server.url + "/v1/models").status_code == 401
    query = objects["ScaledObject"]["spec"]["triggers"][0]["metadata"]["query"]
    assert re.search(rf"^{re.search(r'vllm:[a-z_]+', query)[0]}\b", page, re.MULTILINE)
    pods = re.search(r'pod=~"([^"]*)"', query)[1]
    assert re.fullmatch(pods, "llm-6f9c7d8b4-x2x9z") and not re.fullmatch(pods, "llm-other-6f9c7d8b4-x2x9z")


def test_a_pod_with_a_gpu_computes_there_or_ends():
    """Without the driver it would serve on the CPU, and nobody would know."""
    assert options_of(rendered("model.claim=models", "gpus=1"))["device"] == "cuda"
    assert "device" not in options_of(rendered("model.claim=models")) and "runtimeClassName" not in pod_of(rendered("model.claim=models"))
    pod = pod_of(rendered(*PULLED))
    assert (pod["runtimeClassName"], pod["imagePullSecrets"]) == ("nvidia", [{"name": "pull"}])


def test_alerts_know_the_job_by_its_name():
    """That of a PodMonitor without jobLabel is its namespace and its name."""
    objects = rendered(*EVERYTHING)
    labels = objects["Deployment"]["spec"]["template"]["metadata"]["labels"]
    job = labels[objects["PodMonitor"]["spec"]["jobLabel"]]
    assert re.findall(r'job="(\w+)"', (ROOT / "deploy/prometheus/flashd.rules.yml").read_text()) == [job]


def test_several_gpus_compute_as_one():
    assert options_of(rendered("model.claim=models", "gpus=2"))["tensor-parallel-size"] == 2
    assert "tensor-parallel-size" not in options_of(rendered("model.claim=models", "gpus=1"))
