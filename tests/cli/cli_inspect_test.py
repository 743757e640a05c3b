"""`halley inspect --activations`, as a user meets it.

    cli_inspect_test.py HALLEY_BINARY SOURCE_DIR [unittest arguments]
"""
import array
import json
import os
import shutil
import struct
import sys
import tempfile
import unittest
import xml.etree.ElementTree

from program import MODEL, run, write_excerpt

LAYER, CHANNEL, SCALE = 3, 412, 64
SVG = "{http://www.w3.org/2000/svg}"


def multiplied(bits, factor):
    return struct.unpack("<H", struct.pack("<e", struct.unpack(
        "<e", struct.pack("<H", bits))[0] * factor))[0]


def plant_outlier(folder):
    """The demo model with one norm gain, and so one channel of gate and up's input, 64 times
    larger, and the weights that read it as much smaller: the same function."""
    shutil.copytree(MODEL, folder)
    path = os.path.join(folder, "model.safetensors")
    with open(path, "rb") as file:
        data = bytearray(file.read())
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])

    def change(name, factor, stride):
        begin, end = (8 + size + at for at in header[name]["data_offsets"])
        values = array.array("H", bytes(data[begin:end]))
        for i in range(CHANNEL, len(values), stride):
            values[i] = multiplied(values[i], factor)
        data[begin:end] = values.tobytes()

    prefix = f"model.layers.{LAYER}."
    change(prefix + "post_attention_layernorm.weight", SCALE, 512)
    for name in "gate_proj", "up_proj":
        change(f"{prefix}mlp.{name}.weight", 1 / SCALE, 512)
    with open(path, "wb") as file:
        file.write(data)


class Activations(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.text = self.path("text.txt")
        write_excerpt(self.text, 4000)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def inspect(self, *others, model=MODEL, text=None, length="64"):
        return run("inspect", model, "--activations", "--calibrate", text or self.text,
                   "--num-samples", "2", "--sample-length", length, *others)

    def measured(self, out, *others, model=MODEL):
        result = self.inspect("--out", self.path(out), *others, model=model)
        self.assertEqual(result.returncode, 0, result.stderr)
        with open(self.path(os.path.join(out, "activations.json")), encoding="utf-8") as file:
            report = json.load(file)
        return {site["name"]: site for site in report["sites"]}, result.stdout

    def test_a_planted_outlier_is_found(self):
        plant_outlier(self.path("twin"))
        name = f"layers.{LAYER}.gate_up"
        sites, text = self.measured("out", "--layers", str(LAYER), model=self.path("twin"))
        original, _ = self.measured("original", "--layers", str(LAYER))
        self.assertEqual(sites[name]["worst_channel"], CHANNEL)
        expected = original[name]["before"]["abs_max"][CHANNEL]
        planted = sites[name]["before"]["abs_max"][CHANNEL]
        self.assertAlmostEqual(planted / expected, SCALE, delta=0.1)
        others = [(a, b) for k, (a, b) in enumerate(zip(sites[name]["before"]["abs_mean"],
                                                        original[name]["before"]["abs_mean"]))
                  if k != CHANNEL]
        self.assertLess(max(abs(a - b) / b for a, b in others), 1e-3)
        self.assertIn(f"{name}: channel {CHANNEL} is ", text)
        self.assertLess(sites[name]["ratio_after"], sites[name]["ratio"] / 4)  # by smoothing

    def test_pictures_have_a_bar_for_each_channel(self):
        sites, _ = self.measured("out", "--layers", "0,5")
        self.assertEqual({site["layer"] for site in sites.values()}, {0, 5})
        self.assertEqual(len(sites), 12)
        for name, site in sites.items():
            tree = xml.etree.ElementTree.parse(self.path(f"out/{name}.svg"))
            bars = {"maxima": 0, "outliers": 0, "means": 0}
            for path in tree.iter(SVG + "path"):
                if "style" not in path.attrib:  # the legend's
                    bars[path.get("class")] += path.get("d").count("M")
            self.assertEqual(bars["means"], 2 * site["num_channels"], name)
            self.assertEqual(bars["maxima"] + bars["outliers"], 2 * site["num_channels"], name)
            if "perm" in site:
                self.assertEqual(bars["outliers"],
                                 site["num_outliers"] + site["num_outliers_after"], name)
        xml.etree.ElementTree.parse(self.path("out/worst.svg"))

    def test_rejects_wrong_options(self):
        os.mkdir(self.path("full"))
        with open(self.path("full/x"), "w", encoding="utf-8"):
            pass
        for args, options, text in [
                (["--layers", "6"], {}, "--layers: expected layers of 0 to 5"),
                (["--layers", "2-1"], {}, "--layers: expected layers of 0 to 5"),
                (["--out", self.path("full")], {}, "expected a folder that does not exist"),
                ([], {"length": "100000"}, "expected at least one sequence"),
                ([], {"length": "0"}, "--sample-length"),
                ([], {"text": self.path("none")}, self.path("none"))]:
            result = self.inspect(*args, **options)
            self.assertEqual(result.returncode, 2, (args, result.stderr))
            self.assertIn(text, result.stderr)
            self.assertEqual(result.stdout, "")
        result = run("inspect", MODEL, "--activations")
        self.assertEqual(result.returncode, 2)
        self.assertIn("--calibrate", result.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=1)
