#!/usr/bin/env python3
"""Makes the Grafana dashboard packaging/grafana/halley.json from the table SECTIONS.

    packaging/make_dashboard.py            check; exits with 1 where the file differs
    packaging/make_dashboard.py --check    the same
    packaging/make_dashboard.py --write    bring the file up to date

Expressions are PromQL with two abbreviations. `NAME@` is the metric halley:NAME of the chosen
models and instances, `NAME@{...}` the same with more matchers, and [$] is the range that Grafana
chooses by the step of the graph and the scrape interval.
"""
import json
import os
import re
import sys
from typing import NamedTuple

from made_file import check_or_write

DASHBOARD = os.path.join(os.path.dirname(os.path.abspath(__file__)), "grafana", "halley.json")
SCHEMA_VERSION = 38  # of Grafana 10; later ones convert it at import
COLUMNS = 24  # of Grafana's grid
CHOSEN = 'model_name=~"$model_name",instance=~"$instance"'
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
SHORTHAND = re.compile(r"\b([a-z]\w*)@(?:\{([^}]*)\})?")
# Probes, the page and paths that are none are no part of the rate or the errors of the API.
API = 'handler!~"/|/health|/ready|/metrics|other"'


def expanded(expression):
    """The expression without abbreviations, as Grafana gets it."""
    def metric(match):
        matchers = ",".join(filter(None, (CHOSEN, match[2])))
        return f"halley:{match[1]}{{{matchers}}}"
    return SHORTHAND.sub(metric, expression).replace("[$]", "[$__rate_interval]")


class Query(NamedTuple):
    """One expression of a panel; `legend` has labels as {{model_name}}."""
    expression: str
    legend: str = "{{model_name}}"


class Panel(NamedTuple):
    """One panel. `unit` is one of Grafana's; `limits` are the yellow and the red threshold of a
    stat; `is_stacked` is for graphs alone."""
    title: str
    unit: str
    queries: list
    text: str
    kind: str = "timeseries"
    width: int = 8
    limits: tuple = ()
    is_stacked: bool = False


def percentiles(histogram, by="model_name"):
    """Queries of percentiles and of the mean over the chosen instances."""
    legend = " ".join(f"{{{{{label}}}}}" for label in by.split(", "))
    queries = [Query(f"histogram_quantile({percent / 100}, sum by (le, {by}) "
                     f"(rate({histogram}_bucket@[$])))", f"{legend} p{percent}")
               for percent in (50, 90, 95, 99)]
    return [*queries, Query(mean_of(histogram, by), f"{legend} mean")]


def mean_of(histogram, by="model_name"):
    return share(f"{histogram}_sum@", f"{histogram}_count@", by)


def share(part, whole, by="model_name"):
    """What counter `part` grew by for each that counter `whole` grew by."""
    return f"sum by ({by}) (rate({part}[$])) / sum by ({by}) (rate({whole}[$]))"


def heatmap(title, histogram, unit, text):
    return Panel(title, unit, [Query(f"sum by (le) (increase({histogram}_bucket@[$]))", "{{le}}")],
                 text, kind="heatmap")


# A status that never came has no series: the second operand says 0 for it.
SERVER_ERRORS = (f'(sum by (model_name) (rate(http_requests_total@{{{API},status=~"5.."}}[$])) '
                 f"or 0 * sum by (model_name) (rate(http_requests_total@{{{API}}}[$]))) / "
                 f"sum by (model_name) (rate(http_requests_total@{{{API}}}[$]))")
TTFT_95 = percentiles("time_to_first_token_seconds")[2].expression
ITL_95 = percentiles("inter_token_latency_seconds")[2].expression
EACH = "{{model_name}} {{instance}}"

SECTIONS = (
    ("Overview", (
        Panel("Instances", "none", [Query("count by (model_name) (model_info@)")],
              "Servers that Prometheus reads.", "stat", 3),
        Panel("Running", "none", [Query("sum by (model_name) (num_requests_running@)")],
              "Requests in the batches.", "stat", 3),
        Panel("Waiting", "none", [Query("sum by (model_name) (num_requests_waiting@)")],
              "Requests before the batches, preempted ones too.", "stat", 3, (16, 256)),
        Panel("Output tokens/s", "none",
              [Query("sum by (model_name) (rate(generation_tokens_total@[$]))")],
              "Generated tokens of all chosen instances.", "stat", 3),
        Panel("TTFT p95", "s", [Query(TTFT_95)], "Time to first token.", "stat", 3, (1, 2)),
        Panel("ITL p95", "s", [Query(ITL_95)], "Inter-token latency.", "stat", 3, (0.1, 0.2)),
        Panel("KV cache", "percentunit", [Query("max by (model_name) (kv_cache_usage_perc@)")],
              "Share of KV pages that requests use, of the fullest instance.", "stat", 3,
              (0.8, 0.95)),
        Panel("Answers 5xx", "percentunit", [Query(SERVER_ERRORS)],
              "Share of the API's answers with a status from 500 on.", "stat", 3, (0.001, 0.01)),
        Panel("Models", "none", [Query("model_info@", "")],
              "What is served, and how.", "table", 16),
        Panel("KV caches", "none", [Query("cache_config_info@", "")],
              "num_gpu_blocks is the number of pages on any device, block_size a page's tokens.",
              "table", 8),
    )),
    ("Requests and queue", (
        Panel("Running and waiting", "none",
              [Query("num_requests_running@", EACH + " running"),
               Query("num_requests_waiting@", EACH + " waiting")],
              "A queue that stays needs another replica or a larger batch."),
        Panel("Ended requests", "reqps",
              [Query("sum by (finished_reason) (rate(request_success_total@[$]))",
                     "{{finished_reason}}")],
              "abort: the client went. deadline: the request's timeout. error: the engine's.",
              is_stacked=True),
        Panel("Queue time", "s", percentiles("request_queue_time_seconds"),
              "From the submit to the first step, of ended requests."),
        Panel("Lengths of prompts", "none", percentiles("request_prompt_tokens"),
              "Tokens, of ended requests."),
        Panel("Lengths of answers", "none", percentiles("request_generation_tokens"),
              "Tokens, of ended requests."),
        Panel("Where the time goes", "s",
              [Query(mean_of("request_queue_time_seconds"), "{{model_name}} queue"),
               Query(mean_of("request_prefill_time_seconds"), "{{model_name}} prefill"),
               Query(mean_of("request_decode_time_seconds"), "{{model_name}} decode")],
              "Means of ended requests.", is_stacked=True),
    )),
    ("Tokens", (
        Panel("Prompt tokens/s", "none",
              [Query("sum by (model_name) (rate(prompt_tokens_total@[$]))", "{{model_name}} all"),
               Query("sum by (model_name) (rate(prompt_tokens_cached_total@[$]))",
                     "{{model_name}} from the prefix cache")],
              "Prompts count at their first token."),
        Panel("Output tokens/s by instance", "none",
              [Query("rate(generation_tokens_total@[$])", EACH)], "Generated tokens."),
        Panel("Tokens of a step", "none", percentiles("iteration_tokens_total"),
              "Batch size: tokens that a forward pass computes, of prompts and outputs."),
    )),
    ("Latency", (
        Panel("Time to first token", "s", percentiles("time_to_first_token_seconds"),
              "Seen while requests run."),
        Panel("Inter-token latency", "s", percentiles("inter_token_latency_seconds"),
              "Between tokens of a request, seen while requests run."),
        Panel("End-to-end latency", "s", percentiles("e2e_request_latency_seconds"),
              "From the submit to the end."),
        Panel("Time per output token", "s",
              percentiles("request_time_per_output_token_seconds"),
              "A request's mean time between tokens."),
        heatmap("Time to first token, all", "time_to_first_token_seconds", "s",
                "How many requests, by time."),
        heatmap("Inter-token latency, all", "inter_token_latency_seconds", "s",
                "How many tokens, by time."),
        Panel("Requests that miss their SLO", "percentunit",
              [Query(share('slo_violations_total@{kind="ttft"}',
                           "time_to_first_token_seconds_count@"), "{{model_name}} ttft"),
               Query(share('slo_violations_total@{kind="tpot"}',
                           "request_time_per_output_token_seconds_count@"),
                     "{{model_name}} tpot")],
              "Limits of --slo or of the requests themselves."),
    )),
    ("Engine", (
        Panel("Steps/s", "none", [Query("rate(engine_steps_total@[$])", EACH)],
              "Forward passes. 0 while requests run or wait: the engine hangs."),
        heatmap("Tokens of steps, all", "iteration_tokens_total", "none",
                "How many steps, by their tokens."),
        Panel("Target of a step's time", "s", [Query("itl_target_seconds@", EACH)],
              "--itl-target: longest step while answers are generated; 0 is none."),
        Panel("Prompt tokens that a step may have", "none", [Query("prefill_limit_tokens@", EACH)],
              "What the target leaves to prefill; 0 before there was such a step."),
    )),
    ("KV cache", (
        Panel("KV cache use", "percentunit", [Query("kv_cache_usage_perc@", EACH)],
              "Pages that requests use. Cached prefixes that no request uses count as free."),
        Panel("Prefix cache hits", "percentunit",
              [Query(share("prefix_cache_hits_total@", "prefix_cache_queries_total@"))],
              "Share of the prompt tokens looked up that were found."),
        Panel("Preemptions/s", "none", [Query("rate(num_preemptions_total@[$])", EACH)],
              "Requests that gave up their pages, and are recomputed: the cache is too small."),
    )),
    ("Precision (models in several)", (
        Panel("Precision of the last step", "none", [Query("precision_active@",
                                                           EACH + " {{precision}}")],
              "1 for the one in use."),
        Panel("Share of steps", "percentunit",
              [Query("sum by (precision) (rate(precision_steps_total@[$])) / ignoring (precision) "
                     "group_left () sum (rate(precision_steps_total@[$]))", "{{precision}}")],
              "Forward passes in each precision.", is_stacked=True),
        Panel("Tokens/s by precision", "none",
              [Query("sum by (precision) (rate(precision_tokens_total@[$]))", "{{precision}}")],
              "Generated tokens.", is_stacked=True),
        Panel("Time of a step", "s",
              [Query(share("precision_seconds_total@", "precision_steps_total@",
                           "model_name, precision"), "{{model_name}} {{precision}}")],
              "Mean of the forward passes."),
        Panel("Measured time by predicted", "none",
              [Query(share("precision_measured_step_seconds_total@",
                           "precision_predicted_step_seconds_total@", "model_name, precision"),
                     "{{model_name}} {{precision}}"),
               Query(share("precision_switched_measured_step_seconds_total@",
                           "precision_switched_predicted_step_seconds_total@",
                           "model_name, precision"),
                     "{{model_name}} {{precision}} after a switch")],
              "1 is an unbiased predictor. What is above it after a switch is the switch's cost."),
        Panel("Switches/s", "none", [Query("rate(precision_switches_total@[$])", EACH)],
              "Changes of the precision."),
    )),
    ("HTTP and memory", (
        Panel("Answers by status", "reqps",
              [Query(f"sum by (status) (rate(http_requests_total@{{{API}}}[$]))", "{{status}}")],
              "503: overloaded. 504: a request's timeout. 0: the client went before an answer.",
              is_stacked=True),
        Panel("Answers by route", "reqps",
              [Query("sum by (method, handler) (rate(http_requests_total@[$]))",
                     "{{method}} {{handler}}")],
              "Unknown routes and methods are other."),
        Panel("Share of errors by status", "percentunit",
              [Query(f'sum by (status) (rate(http_requests_total@{{{API},status=~"[45].."}}[$])) '
                     f"/ ignoring (status) group_left () "
                     f"sum (rate(http_requests_total@{{{API}}}[$]))", "{{status}}")],
              "4xx are the client's, 5xx the server's."),
        Panel("Duration of answers p95", "s",
              [Query("histogram_quantile(0.95, sum by (le, handler) "
                     "(rate(http_request_duration_seconds_bucket@[$])))", "{{handler}}")],
              "Whole answers, streams too."),
        Panel("Memory of answers", "bytes",
              [Query("answer_memory_reserved_bytes@", EACH + " reserved"),
               Query("answer_memory_limit_bytes@", EACH + " limit")],
              "What answers in the making have reserved, and --answer-memory-bytes."),
        Panel("Rejected for want of memory", "reqps",
              [Query("rate(answer_memory_rejections_total@[$])", EACH)],
              "503 since the answer's memory could not be reserved."),
    )),
)
# Exported, and in no panel and no alert on purpose.
UNUSED = {
    "request_inference_time_seconds": "prefill and decode, which are shown apart",
}


def thresholds(limits):
    steps = [{"color": "green", "value": None}]
    steps += [{"color": color, "value": limit} for color, limit in zip(("yellow", "red"), limits)]
    return {"mode": "absolute", "steps": steps}


def options_of(panel):
    """(options, fieldConfig) of the panel's kind."""
    defaults = {"unit": panel.unit, "thresholds": thresholds(panel.limits),
                "color": {"mode": "palette-classic"}}
    if panel.kind == "stat":
        defaults["color"] = {"mode": "thresholds"}
        options = {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
                   "graphMode": "area", "colorMode": "value", "textMode": "auto"}
    elif panel.kind == "heatmap":
        defaults = {"custom": {"hideFrom": {"legend": False, "tooltip": False, "viz": False}}}
        options = {"calculate": False, "yAxis": {"unit": panel.unit}, "cellGap": 1,
                   "color": {"mode": "scheme", "scheme": "Oranges", "steps": 64},
                   "tooltip": {"show": True, "yHistogram": False}, "legend": {"show": False}}
    elif panel.kind == "table":
        options = {"showHeader": True}
    else:
        defaults |= {"min": 0, "custom": {
            "lineWidth": 1, "fillOpacity": 30 if panel.is_stacked else 8, "showPoints": "never",
            "stacking": {"mode": "normal" if panel.is_stacked else "none", "group": "A"}}}
        options = {"legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
                   "tooltip": {"mode": "multi", "sort": "desc"}}
    return options, {"defaults": defaults, "overrides": []}


def target(panel, index):
    query = panel.queries[index]
    is_table = panel.kind == "table"
    return {"datasource": DATASOURCE, "editorMode": "code", "expr": expanded(query.expression),
            "format": panel.kind if panel.kind in ("heatmap", "table") else "time_series",
            "instant": is_table, "range": not is_table, "legendFormat": query.legend or "__auto",
            "refId": chr(ord("A") + index)}


def panel_json(panel, number, position):
    options, field_config = options_of(panel)
    made = {"id": number, "type": panel.kind, "title": panel.title, "description": panel.text,
            "datasource": DATASOURCE, "gridPos": position, "fieldConfig": field_config,
            "options": options,
            "targets": [target(panel, index) for index in range(len(panel.queries))]}
    if panel.kind == "table":
        hidden = ("Time", "Value", "__name__", "job")
        made["transformations"] = [{"id": "organize", "options": {
            "excludeByName": {name: True for name in hidden}}}]
    return made


def height_of(panel):
    return {"stat": 4, "table": 5}.get(panel.kind, 8)


def panels_json():
    """Rows and panels from left to right, a new line where one does not fit."""
    made, y = [], 0
    for title, panels in SECTIONS:
        made.append({"id": len(made) + 1, "type": "row", "title": title, "collapsed": False,
                     "gridPos": {"x": 0, "y": y, "w": COLUMNS, "h": 1}, "panels": []})
        y += 1
        x = height = 0
        for panel in panels:
            if x + panel.width > COLUMNS:
                x, y = 0, y + height
                height = 0
            height = max(height, height_of(panel))
            position = {"x": x, "y": y, "w": panel.width, "h": height_of(panel)}
            made.append(panel_json(panel, len(made) + 1, position))
            x += panel.width
        y += height
    return made


def variable(name, label, metric):
    query = f"label_values({metric}, {name})"
    return {"name": name, "label": label, "type": "query", "datasource": DATASOURCE,
            "definition": query, "query": {"query": query, "refId": f"variable_{name}"},
            "refresh": 2, "sort": 1, "multi": True, "includeAll": True, "allValue": ".+",
            "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
            "options": [], "regex": "", "hide": 0, "skipUrlSync": False}


def dashboard():
    """The dashboard as Grafana's JSON model."""
    source = {"name": "datasource", "label": "Data source", "type": "datasource",
              "query": "prometheus", "refresh": 1, "regex": "", "multi": False,
              "includeAll": False, "options": [], "hide": 0, "skipUrlSync": False}
    variables = [source, variable("model_name", "Model", "halley:model_info"),
                 variable("instance", "Instance", 'halley:model_info{model_name=~"$model_name"}')]
    return {"id": None, "uid": "halley-serve", "title": "Halley",
            "description": "Servers started by `halley serve`.", "tags": ["halley", "llm"],
            "schemaVersion": SCHEMA_VERSION, "version": 1, "editable": True, "graphTooltip": 1,
            "timezone": "browser", "refresh": "15s", "time": {"from": "now-1h", "to": "now"},
            "timepicker": {}, "links": [], "annotations": {"list": []},
            "templating": {"list": variables}, "panels": panels_json()}


def main():
    """Checks or writes."""
    if sys.argv[1:] not in ([], ["--check"], ["--write"]):
        sys.exit(__doc__)
    check_or_write(DASHBOARD, json.dumps(dashboard(), indent=1) + "\n", "its table")


if __name__ == "__main__":
    main()
