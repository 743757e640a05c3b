"""The manifests of core kinds against the schemas of Kubernetes, which kubernetes-validate has.

    kubernetes_schemas_test.py SOURCE_DIR [unittest arguments]

Exits with 77 where that package is missing: tools/setup.sh --deploy-tests installs it.
"""
import copy
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
try:
    import kubernetes_validate
except ImportError:
    print("SKIPPED: no kubernetes-validate; run tools/setup.sh --deploy-tests")
    sys.exit(77)
from kubernetes_files import Manifests  # noqa: E402

MANIFESTS = Manifests(sys.argv[1])
# The oldest that README.md names, and the newest of the package.
VERSIONS = ("1.30", kubernetes_validate.latest_version())
CORE = [document for document in [*MANIFESTS.resources, MANIFESTS.gpu_deployment()]
        if "." not in document["apiVersion"].split("/")[0]
        or document["apiVersion"].split("/")[0].endswith(".k8s.io")
        and document["kind"] not in ("InferencePool", "HTTPRoute")]


def validate(document):
    for version in VERSIONS:
        kubernetes_validate.validate(document, version, strict=True)


class Schemas(unittest.TestCase):
    def test_each_core_manifest_is_valid(self):
        self.assertGreaterEqual({document["kind"] for document in CORE},
                                {"Deployment", "Service", "PodDisruptionBudget", "NetworkPolicy",
                                 "HorizontalPodAutoscaler", "Role", "RoleBinding"})
        for document in CORE:
            with self.subTest(f"{document['kind']} {document['metadata']['name']}"):
                validate(document)

    def test_a_misspelt_field_and_a_wrong_type_are_found(self):
        for field, value in (("terminationGracePeriodSecond", 5),
                             ("terminationGracePeriodSeconds", "soon")):
            deployment = copy.deepcopy(MANIFESTS.one("Deployment"))
            deployment["spec"]["template"]["spec"][field] = value
            with self.assertRaises(kubernetes_validate.ValidationError):
                validate(deployment)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
