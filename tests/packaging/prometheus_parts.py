"""The dashboard and the rules of packaging/, and what a running server exports, for their tests."""
import json
import os
import re
import subprocess
import sys
import tempfile
from typing import NamedTuple

import yaml

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PACKAGING = os.path.join(os.path.dirname(TESTS), "packaging")
RULES = os.path.join(PACKAGING, "prometheus", "halley_alerts.yml")
sys.path.insert(0, os.path.join(TESTS, "serve"))
from served import Server  # noqa: E402

SAMPLE = re.compile(r"(halley:\w+)\{(.*)\} \S+")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
FAMILY = re.compile(r"# TYPE (halley:\w+) (\w+)")
VARIABLES = {"$__rate_interval": "5m", "$model_name": ".+", "$instance": ".+"}


class Expression(NamedTuple):
    """PromQL without variables; `legend` has labels as {{name}} or as $labels.name."""
    source: str
    text: str
    legend: str


def dashboard():
    with open(os.path.join(PACKAGING, "grafana", "halley.json"), encoding="utf-8") as file:
        return json.load(file)


def rules():
    with open(RULES, encoding="utf-8") as file:
        return [rule for group in yaml.safe_load(file)["groups"] for rule in group["rules"]]


def without_variables(text):
    for name, value in VARIABLES.items():
        text = text.replace(name, value)
    return text


def panel_expressions():
    return [Expression(f"panel{panel['id']}:{target['refId']}", without_variables(target["expr"]),
                       target["legendFormat"])
            for panel in dashboard()["panels"] for target in panel.get("targets", [])]


def rule_expressions():
    return [Expression(rule.get("alert") or rule["record"], rule["expr"],
                       " ".join(rule.get("annotations", {}).values())) for rule in rules()]


def exported(halley):
    """The text of /metrics of a server with two precisions, which has answered some requests."""
    model = os.path.join(os.path.dirname(PACKAGING), "models", "demo-21m")
    with tempfile.TemporaryDirectory() as folder:
        nested = os.path.join(folder, "nested")
        subprocess.run([halley, "quantize", model, "--method", "nestedfp", "--out", nested],
                       capture_output=True, timeout=300, check=True)
        server = Server(halley, nested, "--threads", "2", "--precision", "auto",
                        "--slo", "ttft=1us,tpot=1us")
        try:
            server.post("/v1/completions", {"prompt": "The Python language", "max_tokens": 4})
            assert server.ask("POST", "/v1/completions", "{")[0] == 400
            assert server.ask("GET", "/health")[0] == 200
            return server.ask("GET", "/metrics")[2]
        finally:
            server.end()


def families_of(text):
    """Types by the families' names."""
    return dict(FAMILY.findall(text))


def labels_of(text):
    """Labels by the names of the samples."""
    found = {}
    for name, inside in SAMPLE.findall(text):
        found.setdefault(name, set()).update(label for label, _ in LABEL.findall(inside))
    return found
