"""Reads /metrics with the parser of Prometheus' Python client.

    metrics_test.py METRICS_EXAMPLE [unittest arguments]
"""
import subprocess
import sys
import unittest

try:
    from prometheus_client.parser import text_string_to_metric_families
except ImportError:
    print("SKIPPED: prometheus_client is not there (Debian: python3-prometheus-client)")
    sys.exit(0)

TEXT = subprocess.run([sys.argv[1]], capture_output=True, text=True, timeout=60, check=True).stdout
FAMILIES = {family.name: family for family in text_string_to_metric_families(TEXT)}
MODEL = 'models/"demo"\\\n'
# What vLLM 0.11 has, of what applies here (v1/metrics/loggers.py).
HISTOGRAMS = ["time_to_first_token_seconds", "inter_token_latency_seconds",
              "request_time_per_output_token_seconds", "e2e_request_latency_seconds",
              "request_queue_time_seconds", "request_prefill_time_seconds",
              "request_decode_time_seconds", "request_inference_time_seconds",
              "request_prompt_tokens", "request_generation_tokens"]
COUNTERS = ["num_preemptions", "prefix_cache_queries", "prefix_cache_hits", "prompt_tokens",
            "generation_tokens", "request_success"]
GAUGES = ["num_requests_running", "num_requests_waiting", "kv_cache_usage_perc",
          "cache_config_info"]


def samples(name):
    return FAMILIES["halley:" + name].samples


def value(name, suffix="", **labels):
    found = [sample.value for sample in samples(name)
             if sample.name == f"halley:{name}{suffix}"
             and all(sample.labels.get(key) == text for key, text in labels.items())]
    assert len(found) == 1, (name, labels, found)
    return found[0]


class Metrics(unittest.TestCase):
    def test_names_and_types_are_those_of_vllm(self):
        for names, kind in (HISTOGRAMS, "histogram"), (COUNTERS, "counter"), (GAUGES, "gauge"):
            for name in names:
                self.assertEqual(FAMILIES["halley:" + name].type, kind, name)

    def test_every_family_has_help_and_every_sample_the_model(self):
        for family in FAMILIES.values():
            self.assertTrue(family.documentation, family.name)
            for sample in family.samples:
                self.assertEqual(sample.labels["model_name"], MODEL)

    def test_histograms_are_cumulative_and_end_with_their_count(self):
        for name in HISTOGRAMS:
            buckets = [(float(sample.labels["le"]), sample.value) for sample in samples(name)
                       if sample.name.endswith("_bucket")]
            self.assertEqual(buckets, sorted(buckets), name)
            self.assertEqual(buckets[-1], (float("inf"), value(name, "_count")))
            self.assertEqual([count for _, count in buckets],
                             sorted(count for _, count in buckets))

    def test_values(self):
        self.assertEqual(value("num_requests_running"), 4)
        self.assertEqual(value("kv_cache_usage_perc"), 0.75)
        self.assertEqual(value("prompt_tokens", "_total"), 300)
        self.assertEqual(value("prefix_cache_hits", "_total"), 96)
        self.assertEqual(value("request_success", "_total", finished_reason="stop"), 1)
        self.assertEqual(value("request_success", "_total", finished_reason="abort"), 0)
        self.assertEqual(value("time_to_first_token_seconds", "_sum"), 0.75)
        self.assertEqual(value("time_to_first_token_seconds", "_bucket", le="0.5"), 0)
        self.assertEqual(value("time_to_first_token_seconds", "_bucket", le="0.75"), 1)
        self.assertEqual(value("inter_token_latency_seconds", "_count"), 2)
        self.assertEqual(value("inter_token_latency_seconds", "_sum"), 0.25)
        self.assertEqual(value("request_time_per_output_token_seconds", "_sum"), 0.125)
        self.assertEqual(value("e2e_request_latency_seconds", "_sum"), 2.75)
        self.assertEqual(value("request_prompt_tokens", "_bucket", le="200.0"), 0)
        self.assertEqual(value("request_prompt_tokens", "_bucket", le="500.0"), 1)

    def test_bounds_are_those_of_vllm(self):
        def bounds(name):
            return [sample.labels["le"] for sample in samples(name)
                    if sample.name.endswith("_bucket")]
        self.assertEqual(bounds("time_to_first_token_seconds")[:3], ["0.001", "0.005", "0.01"])
        self.assertEqual(bounds("time_to_first_token_seconds")[-3:], ["640.0", "2560.0", "+Inf"])
        self.assertEqual(len(bounds("time_to_first_token_seconds")), 23)
        self.assertEqual(len(bounds("inter_token_latency_seconds")), 20)
        self.assertEqual(len(bounds("e2e_request_latency_seconds")), 22)
        self.assertEqual(bounds("request_prompt_tokens")[-2:], ["2000.0", "+Inf"])

    def test_precisions(self):
        self.assertEqual(value("precision_active", precision="f16"), 1)
        self.assertEqual(value("precision_active", precision="e4m3"), 0)
        self.assertEqual(value("precision_steps", "_total", precision="e4m3"), 2)
        self.assertEqual(value("precision_seconds", "_total", precision="f16"), 0)
        self.assertEqual(value("slo_violations", "_total", kind="ttft"), 1)

    def test_http_and_info(self):
        self.assertEqual(value("http_requests", "_total", method="POST",
                               handler="/v1/completions", status="200"), 1)
        self.assertEqual(value("http_requests", "_total", handler="other", status="404"), 1)
        info = samples("model_info")[0]
        self.assertEqual(info.value, 1)
        self.assertEqual(info.labels["kv_dtype"], "int8")
        self.assertEqual(info.labels["kernels"], "gemm_w4a21_avx512 88")
        cache = samples("cache_config_info")[0]
        self.assertEqual((cache.value, cache.labels["num_gpu_blocks"]), (1, "64"))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
