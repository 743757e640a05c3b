"""The manifests of packaging/kubernetes against each other and against a running server.

    kubernetes_files_test.py HALLEY_BINARY SOURCE_DIR [unittest arguments]
"""
import copy
import json
import os
import re
import shutil
import subprocess
import sys
import unittest

import jsonschema
import yaml

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
HALLEY, SOURCE = sys.argv[1], sys.argv[2]
sys.path.insert(0, os.path.join(SOURCE, "tests", "serve"))
from kubernetes_files import COMPONENTS, Manifests  # noqa: E402
from served import Server  # noqa: E402

MANIFESTS = Manifests(SOURCE)
METRIC = re.compile(r"halley:[a-z]\w+")
# What halley serve needs behind --shutdown-timeout to write answers and give memory back.
GOODBYE_S = 10


def pod_of(deployment):
    return deployment["spec"]["template"]["spec"]


def container_of(deployment):
    container, = pod_of(deployment)["containers"]
    return container


def argument(container, name):
    values = [text.removeprefix(f"{name}=") for text in container["args"]
              if text.startswith(f"{name}=")]
    if len(values) != 1:
        raise AssertionError(f"expected one {name}, got {values}")
    return values[0]


def all_text():
    for folder, _, files in os.walk(MANIFESTS.folder):
        for name in files:
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                yield os.path.relpath(os.path.join(folder, name), MANIFESTS.folder), file.read()


class Files(unittest.TestCase):
    def setUp(self):
        self.deployment = MANIFESTS.one("Deployment")
        self.container = container_of(self.deployment)

    def test_each_file_is_named_by_a_kustomization(self):
        for folder, content in MANIFESTS.kustomizations.items():
            named = {"kustomization.yaml", *content.get("resources", [])}
            named.update(patch["path"] for patch in content.get("patches", []) if "path" in patch)
            named.update(file for made in content.get("configMapGenerator", [])
                         for file in made["files"])
            there = set(os.listdir(os.path.join(MANIFESTS.folder, folder)))
            if folder == "hpa":
                named.add("prometheus-adapter-values.yaml")  # for Helm
            if folder == "example":
                named = {name for name in named if not name.startswith("..")}
            self.assertEqual(there, named, folder)
        parts = [*MANIFESTS.kustomizations["example"]["resources"],
                 *MANIFESTS.kustomizations["example"]["components"]]
        self.assertLessEqual({part.removeprefix("../") for part in parts}, {"base", *COMPONENTS})

    @unittest.skipUnless(shutil.which("kubectl"), "no kubectl is there")
    def test_kustomize_builds_the_example(self):
        result = subprocess.run(["kubectl", "kustomize", os.path.join(MANIFESTS.folder, "example")],
                                capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        made = {(document["kind"], document["metadata"]["name"]): document
                for document in yaml.safe_load_all(result.stdout)}
        deployment = made["Deployment", "halley"]
        self.assertNotIn("replicas", deployment["spec"])  # the autoscaler's
        expected = MANIFESTS.gpu_deployment()
        self.assertEqual({**pod_of(deployment), "containers": None},
                         {**pod_of(expected), "containers": None})
        image = {"image": container_of(deployment)["image"]}
        self.assertEqual(container_of(deployment), {**container_of(expected), **image})
        mounted, = [volume["configMap"]["name"] for volume in pod_of(
            made["Deployment", "halley-endpoint-picker"])["volumes"]]
        self.assertIn(("ConfigMap", mounted), made)

    def test_selectors_find_the_pods(self):
        labels = self.deployment["spec"]["template"]["metadata"]["labels"]
        selectors = [
            self.deployment["spec"]["selector"]["matchLabels"],
            MANIFESTS.one("Service")["spec"]["selector"],
            MANIFESTS.one("PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
            MANIFESTS.one("NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
            MANIFESTS.one("PodMonitor")["spec"]["selector"]["matchLabels"],
            MANIFESTS.one("InferencePool")["spec"]["selector"]["matchLabels"],
            *(spread["labelSelector"]["matchLabels"]
              for spread in pod_of(self.deployment)["topologySpreadConstraints"])]
        for selector in selectors:
            self.assertTrue(selector)
            self.assertLessEqual(selector.items(), labels.items())
        picker = MANIFESTS.one("Deployment", "halley-endpoint-picker")
        self.assertLessEqual(
            MANIFESTS.one("Service", "halley-endpoint-picker")["spec"]["selector"].items(),
            picker["spec"]["template"]["metadata"]["labels"].items())
        # A Service or a pool that takes the picker for a replica would send it requests.
        for selector in selectors:
            self.assertFalse(selector.items() <=
                             picker["spec"]["template"]["metadata"]["labels"].items())

    def test_ports_agree(self):
        port, = self.container["ports"]
        self.assertEqual(argument(self.container, "--port"), str(port["containerPort"]))
        self.assertEqual(MANIFESTS.one("InferencePool")["spec"]["targetPorts"],
                         [{"number": port["containerPort"]}])
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            self.assertEqual(self.container[probe]["httpGet"]["port"], port["name"])
        self.assertEqual(MANIFESTS.one("Service")["spec"]["ports"][0]["targetPort"], port["name"])
        self.assertEqual(MANIFESTS.one("NetworkPolicy")["spec"]["ingress"][0]["ports"],
                         [{"port": port["name"]}])
        self.assertEqual(MANIFESTS.one("PodMonitor")["spec"]["podMetricsEndpoints"][0]["port"],
                         port["name"])
        picker = container_of(MANIFESTS.one("Deployment", "halley-endpoint-picker"))
        service = MANIFESTS.one("Service", "halley-endpoint-picker")["spec"]["ports"][0]
        reference = MANIFESTS.one("InferencePool")["spec"]["endpointPickerRef"]
        self.assertEqual((reference["name"], reference["port"]["number"]),
                         ("halley-endpoint-picker", service["port"]))
        ports = {port["name"]: port["containerPort"] for port in picker["ports"]}
        self.assertIn(service["targetPort"], ports)
        self.assertEqual(argument(picker, "--grpc-health-port"), str(ports["grpc-health"]))

    def test_the_grace_period_covers_pause_and_drain(self):
        pause = self.container["lifecycle"]["preStop"]["sleep"]["seconds"]
        drain = int(argument(self.container, "--shutdown-timeout"))
        grace = pod_of(self.deployment)["terminationGracePeriodSeconds"]
        self.assertGreaterEqual(grace, pause + drain + GOODBYE_S)
        # Meanwhile at least two rounds of the readiness probe have taken the pod out of Services.
        probe = self.container["readinessProbe"]
        self.assertGreaterEqual(pause, 2 * probe["periodSeconds"] * probe["failureThreshold"])
        picker = MANIFESTS.one("Deployment", "halley-endpoint-picker")
        self.assertGreaterEqual(pod_of(picker)["terminationGracePeriodSeconds"], grace)

    def test_both_autoscalers_ask_for_the_same(self):
        batch = int(argument(self.container, "--max-num-seqs"))
        scaler = MANIFESTS.one("HorizontalPodAutoscaler")["spec"]
        keda = MANIFESTS.one("ScaledObject")["spec"]
        targets = [metric["pods"]["target"]["averageValue"] for metric in scaler["metrics"]]
        self.assertEqual(targets,
                         [trigger["metadata"]["threshold"] for trigger in keda["triggers"]])
        self.assertEqual(float(targets[1]), 0.75 * batch)
        self.assertEqual((scaler["minReplicas"], scaler["maxReplicas"]),
                         (keda["minReplicaCount"], keda["maxReplicaCount"]))
        self.assertEqual(scaler["behavior"],
                         keda["advanced"]["horizontalPodAutoscalerConfig"]["behavior"])
        self.assertEqual(scaler["scaleTargetRef"]["name"], self.deployment["metadata"]["name"])
        self.assertEqual(keda["scaleTargetRef"]["name"], self.deployment["metadata"]["name"])
        namespace = MANIFESTS.kustomizations["example"]["namespace"]
        for trigger in keda["triggers"]:
            self.assertEqual(set(re.findall(r'namespace="(.*?)"', trigger["metadata"]["query"])),
                             {namespace})

    def test_custom_metrics_are_those_that_the_adapter_makes(self):
        with open(os.path.join(MANIFESTS.folder, "hpa", "prometheus-adapter-values.yaml"),
                  encoding="utf-8") as file:
            made = re.findall(r"^ +as: (\S+)$", file.read(), re.M)
        asked = [metric["pods"]["metric"]["name"]
                 for metric in MANIFESTS.one("HorizontalPodAutoscaler")["spec"]["metrics"]]
        self.assertEqual(asked, made)

    def test_a_gpu_is_requested_where_it_is_a_limit(self):
        resources = container_of(MANIFESTS.gpu_deployment())["resources"]
        self.assertEqual(resources["requests"], resources["limits"])
        self.assertEqual(resources["limits"]["nvidia.com/gpu"], "1")

    def test_pods_name_their_mapping_of_metrics(self):
        extractor, = [plugin["parameters"] for plugin in MANIFESTS.picker_config()["plugins"]
                      if plugin["type"] == "core-metrics-extractor"]
        labels = self.deployment["spec"]["template"]["metadata"]["labels"]
        self.assertEqual([engine["name"] for engine in extractor["engineConfigs"]],
                         [labels["llm-d.ai/engine-type"]])


class CustomResources(unittest.TestCase):
    """Kinds whose definitions are no part of Kubernetes."""

    @classmethod
    def setUpClass(cls):
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)),
                               "custom_resource_schemas.json"), encoding="utf-8") as file:
            cls.schemas = json.load(file)
        cls.documents = [document for document in [
            *MANIFESTS.resources, *MANIFESTS.kustomizations.values(), MANIFESTS.picker_config()]
            if cls.key(document) in cls.schemas["kinds"]]

    @staticmethod
    def key(document):
        return f"{document['apiVersion']} {document['kind']}"

    def validate(self, document):
        jsonschema.validate(document, {**self.schemas["kinds"][self.key(document)],
                                       "definitions": self.schemas["definitions"]})

    def test_each_is_valid(self):
        self.assertEqual({self.key(document) for document in self.documents},
                         set(self.schemas["kinds"]))
        for document in self.documents:
            with self.subTest(self.key(document)):
                self.validate(document)

    def test_a_field_that_is_not_known_is_found(self):
        for document in self.documents:
            changed = copy.deepcopy(document)
            changed.get("spec", changed)["targetPort"] = 8000
            with self.subTest(self.key(document)), self.assertRaises(jsonschema.ValidationError):
                self.validate(changed)


class AgainstTheServer(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # The arguments of the manifest, but for what is this machine's.
        arguments = [text for text in container_of(MANIFESTS.one("Deployment"))["args"][2:]
                     if not text.startswith(("--host=", "--port=", "--threads="))]
        cls.server = Server(HALLEY, os.path.join(SOURCE, "models", "demo-21m"), "--threads", "1",
                            "--no-self-check", *arguments)
        cls.addClassCleanup(cls.server.end)

    def test_it_has_the_paths_of_the_probes(self):
        container = container_of(MANIFESTS.one("Deployment"))
        paths = {container[probe]["httpGet"]["path"]
                 for probe in ("startupProbe", "readinessProbe", "livenessProbe")}
        self.assertEqual(paths, {"/health", "/ready"})
        paths.add(MANIFESTS.one("PodMonitor")["spec"]["podMetricsEndpoints"][0]["path"])
        for path in paths:
            self.assertEqual(self.server.ask("GET", path)[0], 200, path)

    def test_it_has_the_paths_of_the_route(self):
        known = self.server.get("/openapi.json")["paths"]
        for match in MANIFESTS.one("HTTPRoute")["spec"]["rules"][0]["matches"]:
            path = match["path"]["value"]
            self.assertTrue(any(name == path or match["path"]["type"] == "PathPrefix" and
                                name.startswith(path + "/") for name in known), path)

    def test_it_exports_every_metric_that_is_named(self):
        text = self.server.ask("GET", "/metrics")[2]
        exported = set(METRIC.findall(text))
        named = {(file, name) for file, content in all_text() for name in METRIC.findall(content)}
        self.assertGreater(len({name for _, name in named}), 3)
        for file, name in named:
            self.assertIn(name, exported, file)
        info = next(line for line in text.splitlines()
                    if line.startswith("halley:cache_config_info{"))
        for label in ("block_size", "num_gpu_blocks"):  # those that the endpoint picker reads
            self.assertRegex(info, rf'[{{,]{label}="\d+"')


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
