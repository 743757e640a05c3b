"""The alert rules and the expressions of the dashboard, as Prometheus evaluates them.

    alert_rules_test.py HALLEY_BINARY [unittest arguments]

Exits with 77 where promtool is missing: tools/setup.sh --dev installs it.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

import yaml

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
if not shutil.which("promtool"):
    print("SKIPPED: no promtool (Debian: prometheus); run tools/setup.sh --dev")
    sys.exit(77)
import prometheus_parts as parts  # noqa: E402

HALLEY = sys.argv[1]
# Two replicas of one model and a server of another: joins must find their partners.
SERVERS = (("a", "a:8000"), ("a", "b:8000"), ("b", "c:8000"))


def promtool(*arguments):
    result = subprocess.run(["promtool", *arguments], capture_output=True, text=True, timeout=120,
                            check=False)
    return result.returncode, result.stdout + result.stderr


def series_of(text):
    """Series in promtool's notation: each exported one from each server, growing by 1 a minute."""
    made = []
    for model, instance in SERVERS:
        for name, inside in parts.SAMPLE.findall(text):
            labels = {**dict(parts.LABEL.findall(inside)), "model_name": model,
                      "instance": instance, "job": "halley"}
            joined = ",".join(f'{label}="{value}"' for label, value in labels.items())
            made.append({"series": f"{name}{{{joined}}}", "values": "0+1x16"})
    return made


class Promtool(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        shutil.copy(parts.RULES, self.folder)

    def write(self, name, content):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            json.dump(content, file)  # JSON is YAML
        return path

    def expect_success(self, *arguments):
        code, output = promtool(*arguments)
        self.assertEqual(code, 0, output)


class AlertRules(Promtool):
    @classmethod
    def setUpClass(cls):
        with open(os.path.join(HERE, "halley_alerts_test.yml"), encoding="utf-8") as file:
            cls.content = yaml.safe_load(file)
        cls.alerts = {rule["alert"]: rule for rule in parts.rules() if "alert" in rule}

    def test_prometheus_takes_the_rules_and_the_configuration(self):
        self.expect_success("check", "rules", parts.RULES)
        self.expect_success("check", "config",
                            os.path.join(os.path.dirname(parts.RULES), "prometheus.yml"))

    def test_series_in_alerts_out(self):
        for test in self.content["tests"]:
            for case in test["alert_rule_test"]:
                for alert in case["exp_alerts"]:
                    alert["exp_annotations"]["description"] = \
                        self.alerts[case["alertname"]]["annotations"]["description"]
        self.expect_success("test", "rules", self.write("tests.yml", self.content))

    def test_each_alert_is_seen_to_come_and_to_stay_away(self):
        seen = {(case["alertname"], bool(case["exp_alerts"])) for test in self.content["tests"]
                for case in test["alert_rule_test"]}
        self.assertEqual(seen, {(name, comes) for name in self.alerts for comes in (True, False)})

    def test_each_alert_waits_and_says_what_to_do(self):
        for name, rule in self.alerts.items():
            self.assertIn(rule["labels"]["severity"], ("warning", "critical"), name)
            self.assertRegex(rule["for"], r"^\d+m$", name)
            self.assertEqual(set(rule["annotations"]), {"summary", "description"}, name)
            self.assertNotIn("{{", rule["annotations"]["description"], name)

    def test_a_model_can_have_a_target_of_its_own(self):
        with open(parts.RULES, encoding="utf-8") as file:
            text = file.read()
        example = " ".join(line.strip(" #") for line in text.splitlines()
                           if line.startswith("  #   "))
        self.assertIn(" or ", example)
        path = self.write("targets.yml", {"groups": [{"name": "targets", "rules": [
            {"record": "target", "expr": example}]}]})
        samples = [{"labels": f'target{{model_name="{name}"}}', "value": value}
                   for name, value in (("large", 5), ("small", 2))]
        self.expect_success("test", "rules", self.write("tests.yml", {
            "rule_files": [path], "evaluation_interval": "15s", "tests": [{
                "interval": "15s", "input_series": [
                    {"series": f'halley:model_info{{model_name="{name}"}}', "values": "1x8"}
                    for name in ("large", "small")],
                "promql_expr_test": [{"expr": "target", "eval_time": "1m",
                                      "exp_samples": samples}]}]}))


class Expressions(Promtool):
    @classmethod
    def setUpClass(cls):
        cls.series = series_of(parts.exported(HALLEY))

    def evaluate(self, expressions):
        """Runs each as a recording rule over the series and expects that each gives some."""
        records = {f"record:{expression.source}": expression.text for expression in expressions}
        rules = [{"record": name, "expr": text} for name, text in records.items()]
        path = self.write("panels.yml", {"groups": [{"name": "panels", "rules": rules}]})
        code, output = promtool("check", "rules", path)
        if code:
            return code, output
        return promtool("test", "rules", self.write("tests.yml", {
            "rule_files": [path, os.path.join(self.folder, "halley_alerts.yml")],
            "evaluation_interval": "1m", "tests": [{
                "interval": "1m", "input_series": self.series, "promql_expr_test": [{
                    "expr": 'group by (__name__) ({__name__=~"record:.+"})', "eval_time": "15m",
                    "exp_samples": [{"labels": name, "value": 1} for name in records]}]}]}))

    def test_each_of_the_dashboard_gives_series_of_a_running_server(self):
        expressions = parts.panel_expressions()
        self.assertGreater(len(expressions), 50)
        code, output = self.evaluate(expressions)
        self.assertEqual(code, 0, output)

    def test_what_does_not_parse_or_gives_nothing_is_seen(self):
        good = parts.Expression("good:A", "halley:model_info", "")
        self.assertEqual(self.evaluate([good])[0], 0)
        for text, why in (("sum by (le (halley:model_info)", "parse error"),
                          ("rate(halley:no_such_metric[5m])", "got:"),
                          ("halley:model_info / on () halley:model_info", "many-to-many")):
            code, output = self.evaluate([good, parts.Expression("bad:A", text, "")])
            self.assertNotEqual(code, 0, text)
            self.assertIn(why, output, text)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
