"""The dashboard is what its table says, and it and the alert rules name what a server exports.

    dashboard_test.py HALLEY_BINARY [unittest arguments]
"""
import os
import re
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import prometheus_parts as parts  # noqa: E402

sys.path.insert(0, parts.PACKAGING)
import make_dashboard  # noqa: E402

HALLEY = sys.argv[1]
STRING = r'"(?:[^"\\]|\\.)*"'
SELECTOR = re.compile(rf"(halley:\w+)(?:\{{((?:[^}}\"]|{STRING})*)\}})?")
MATCHER = re.compile(rf"(\w+)\s*(?:=~|!~|!=|=)\s*({STRING})")
GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
LEGEND = re.compile(r"\{\{(\w+)\}\}|\$labels\.(\w+)")
# Prometheus adds these to every series that it reads.
TARGET = {"instance", "job"}
# Labels with values that the code lists; statuses and routes come as they occur.
LISTED = ("finished_reason", "kind")


def problems_of(expression, text):
    """What the expression names and /metrics with the text `text` has not."""
    labels = parts.labels_of(text)
    problems, known = [], set(TARGET)
    for name, inside in SELECTOR.findall(expression.text):
        if name not in labels:
            problems.append(f"no metric {name}")
            continue
        known |= labels[name]
        for label, value in MATCHER.findall(inside):
            if label not in labels[name] | TARGET:
                problems.append(f"{name} has no label {label}")
            elif label in LISTED and f"{label}={value}" not in text:
                problems.append(f"{name} has no {label}={value}")
    used = [label.strip() for clause in GROUPING.findall(re.sub(STRING, "", expression.text))
            for label in clause.split(",") if label.strip()]
    used += [first or second for first, second in LEGEND.findall(expression.legend)]
    return problems + [f"no label {label}" for label in used if label not in known]


def families_named(expressions, families):
    """The families that the expressions name, by a sample of theirs or by themselves."""
    names = {name for expression in expressions for name, _ in SELECTOR.findall(expression.text)}
    return {family for family, kind in families.items()
            if names & {family, *(family + end for end in ("_bucket", "_sum", "_count")
                                  if kind == "histogram")}}


class Dashboard(unittest.TestCase):
    def test_it_is_what_the_table_says(self):
        maker = os.path.join(parts.PACKAGING, "make_dashboard.py")
        result = subprocess.run([sys.executable, "-B", maker, "--check"], capture_output=True,
                                text=True, timeout=60, check=False)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertEqual(make_dashboard.dashboard(), parts.dashboard())

    def test_panels_lie_within_the_grid_and_on_no_other(self):
        cells, ids = set(), []
        for panel in parts.dashboard()["panels"]:
            ids.append(panel["id"])
            at = panel["gridPos"]
            own = {(x, y) for x in range(at["x"], at["x"] + at["w"])
                   for y in range(at["y"], at["y"] + at["h"])}
            self.assertLessEqual(at["x"] + at["w"], 24, panel["title"])
            self.assertFalse(own & cells, panel["title"])
            cells |= own
        self.assertEqual(len(ids), len(set(ids)))

    def test_the_data_source_is_a_variable_everywhere(self):
        content = parts.dashboard()
        variables = {variable["name"]: variable for variable in content["templating"]["list"]}
        self.assertEqual(set(variables), {"datasource", "model_name", "instance"})
        panels = [panel for panel in content["panels"] if panel["type"] != "row"]
        users = [*panels, *(target for panel in panels for target in panel["targets"]),
                 variables["model_name"], variables["instance"]]
        for user in users:
            self.assertEqual(user["datasource"], {"type": "prometheus", "uid": "${datasource}"})

    def test_each_metric_is_of_the_chosen_models_and_instances(self):
        for panel in parts.dashboard()["panels"]:
            for target in panel.get("targets", []):
                for name, inside in SELECTOR.findall(target["expr"]):
                    self.assertTrue(inside.startswith(make_dashboard.CHOSEN), (name, inside))
                for variable in re.findall(r"\$\w+", target["expr"]):
                    self.assertIn(variable, parts.VARIABLES, panel["title"])


class Names(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.text = parts.exported(HALLEY)
        cls.families = parts.families_of(cls.text)
        cls.expressions = [*parts.panel_expressions(), *parts.rule_expressions()]

    def test_each_metric_and_label_is_exported(self):
        for expression in self.expressions:
            self.assertEqual(problems_of(expression, self.text), [], expression.source)

    def test_variables_are_labels_of_their_metrics(self):
        for variable in parts.dashboard()["templating"]["list"][1:]:
            query = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["definition"])
            self.assertEqual(variable["query"]["query"], variable["definition"])
            self.assertEqual(query[2], variable["name"])
            self.assertEqual(problems_of(parts.Expression(
                "", f"sum by ({query[2]}) ({query[1]})", ""), self.text), [])

    def test_each_exported_metric_is_used_or_listed_as_unused(self):
        unused = {"halley:" + name for name in make_dashboard.UNUSED}
        self.assertEqual(set(self.families) - families_named(self.expressions, self.families),
                         unused)

    def test_a_wrong_name_is_seen(self):
        for text, legend, expected in (
                ("halley:no_such_metric", "", "no metric halley:no_such_metric"),
                ('halley:model_info{color="red"}', "", "halley:model_info has no label color"),
                ('halley:request_success_total{finished_reason="stopped"}', "",
                 'halley:request_success_total has no finished_reason="stopped"'),
                ("sum by (colour) (halley:model_info)", "", "no label colour"),
                ("halley:num_requests_running", "{{precision}}", "no label precision"),
                ("halley:num_requests_running", "$labels.device", "no label device")):
            self.assertEqual(problems_of(parts.Expression("", text, legend), self.text),
                             [expected])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
