"""lm-eval's client `local-completions` against `halley serve`: the log likelihoods and accuracies
of `halley eval --tasks`.

    lm_eval_test.py HALLEY_BINARY SOURCE_DIR [unittest arguments]

Needs the packages lm_eval and transformers (tools/setup.sh --serve-tests); exits with 77 where they
are not there.
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", HF_EVALUATE_OFFLINE="1",
                  TOKENIZERS_PARALLELISM="false")
try:
    import lm_eval
    import lm_eval.tasks
    import transformers  # noqa: F401  its tokenizers
except ImportError as missing:
    print(f"SKIPPED: {missing}; run tools/setup.sh --serve-tests")
    sys.exit(77)

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from served import Server  # noqa: E402

HALLEY, SOURCE = sys.argv[1], sys.argv[2]
MODEL = os.path.join(SOURCE, "models", "demo-21m")
PIQA = os.path.join(SOURCE, "testdata", "multiple_choice", "piqa.jsonl")
# As lm-eval's own piqa.yaml, with a file in place of the hub's data set.
TASK = """
task: piqa_of_a_file
dataset_path: json
dataset_kwargs:
  data_files:
    validation: {file}
output_type: multiple_choice
validation_split: validation
doc_to_text: "Question: {{{{goal}}}}\\nAnswer:"
doc_to_target: label
doc_to_choice: "{{{{[sol1, sol2]}}}}"
metric_list:
  - metric: acc
  - metric: acc_norm
"""


class LmEvalTest(unittest.TestCase):
    def test_log_likelihoods_are_those_of_halley_eval(self):
        ours = json.loads(subprocess.run(
            [HALLEY, "eval", MODEL, "--tasks", PIQA, "--kv-dtype", "f32", "--json"], check=True,
            capture_output=True, text=True).stdout)
        server = Server(HALLEY, MODEL, "--kv-dtype", "f32")
        try:
            with tempfile.TemporaryDirectory() as folder:
                # Labels of one type, as the package datasets wants a column.
                data = os.path.join(folder, "piqa.jsonl")
                with open(PIQA, encoding="utf-8") as file, open(data, "w", encoding="utf-8") as out:
                    for line in file:
                        item = json.loads(line)
                        out.write(json.dumps({**item, "label": int(item["label"])}) + "\n")
                with open(os.path.join(folder, "piqa.yaml"), "w", encoding="utf-8") as file:
                    file.write(TASK.format(file=data))
                os.environ["HF_HOME"] = os.path.join(folder, "home")
                theirs = lm_eval.simple_evaluate(
                    model="local-completions",
                    model_args={"model": server.name, "tokenizer": MODEL,
                                "base_url": f"http://127.0.0.1:{server.port}/v1/completions",
                                "num_concurrent": 2, "max_length": 512},
                    tasks=["piqa_of_a_file"], log_samples=True, bootstrap_iters=0,
                    task_manager=lm_eval.tasks.TaskManager(include_path=folder))
        finally:
            self.assertEqual(server.end(), 0, server.log)
        samples = sorted(theirs["samples"]["piqa_of_a_file"], key=lambda sample: sample["doc_id"])
        scores = [float(response[0]) for sample in samples
                  for response in sample["filtered_resps"]]
        self.assertEqual(len(scores), len(ours["log_likelihoods"]))
        for score, wanted in zip(scores, ours["log_likelihoods"]):
            self.assertAlmostEqual(score, wanted, delta=1e-3)
        results = theirs["results"]["piqa_of_a_file"]
        self.assertAlmostEqual(results["acc,none"], ours["accuracy"], delta=1e-9)
        self.assertAlmostEqual(results["acc_norm,none"], ours["accuracy_norm"], delta=1e-9)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=1)
