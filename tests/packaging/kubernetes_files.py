"""The manifests of packaging/kubernetes as kustomize reads them."""
import os

import yaml

COMPONENTS = ("gpu", "prometheus", "hpa", "keda", "inference-gateway")


def read_all(path):
    with open(path, encoding="utf-8") as file:
        return [document for document in yaml.safe_load_all(file) if document]


def merge(base, patch):
    """A strategic merge patch: maps by key, lists of named maps by name, other lists replaced."""
    if isinstance(base, dict) and isinstance(patch, dict):
        return {key: merge(base[key], patch[key]) if key in base and key in patch
                else patch.get(key, base.get(key)) for key in {**base, **patch}}
    if isinstance(base, list) and all(isinstance(item, dict) and "name" in item
                                      for item in base + patch):
        by_name = {item["name"]: item for item in base}
        for item in patch:
            by_name[item["name"]] = merge(by_name.get(item["name"], {}), item)
        return list(by_name.values())
    return patch


class Manifests:
    def __init__(self, source):
        self.folder = os.path.join(source, "packaging", "kubernetes")
        self.kustomizations = {
            name: read_all(os.path.join(self.folder, name, "kustomization.yaml"))[0]
            for name in ("base", *COMPONENTS, "example")}
        self.resources = [document for folder in ("base", *COMPONENTS)
                          for document in self.resources_of(folder)]

    def resources_of(self, folder):
        return [document for file in self.kustomizations[folder].get("resources", [])
                for document in read_all(os.path.join(self.folder, folder, file))]

    def one(self, kind, name="halley"):
        found = [document for document in self.resources
                 if (document["kind"], document["metadata"]["name"]) == (kind, name)]
        if len(found) != 1:
            raise AssertionError(f"expected one {kind} {name}, got {len(found)}")
        return found[0]

    def gpu_deployment(self):
        patch, = read_all(os.path.join(self.folder, "gpu", "deployment.yaml"))
        return merge(self.one("Deployment"), patch)

    def picker_config(self):
        return read_all(os.path.join(self.folder, "inference-gateway",
                                     "endpoint-picker-config.yaml"))[0]
