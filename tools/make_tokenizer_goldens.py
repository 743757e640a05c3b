#!/usr/bin/env python3
"""Makes testdata/tokenizers/{synthetic.json,spm_own} and testdata/fuzz/tokenizer.

synthetic.json: small tokenizer.json files that between them use every component and flag, each with
texts, ids and decoded texts from the Python package `tokenizers`. spm_own: ids and decoded texts of
tokenizer.model from the Python package `sentencepiece`; with --train the model itself is made anew
(Debian's spm_train).

    python3 tools/make_tokenizer_goldens.py --seed 1
"""

import argparse
import json
import pathlib
import random
import subprocess

import sentencepiece
from tokenizers import Tokenizer

from golden.tokenizer_cases import (TEXTS, added, all_cases, byte_level_cases, decoder_cases,
                                    normalizer_cases, pre_tokenizer_cases, split)

ROOT = pathlib.Path(__file__).resolve().parent.parent


def goldens_of(tokenizer, rng):
    texts = rng.sample(TEXTS, 9)
    texts.append("".join(rng.choice("ab1 -,<s>wordl\u00c4\u4f60\t") for _ in range(20)))
    for text in texts:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        with_special = tokenizer.encode(text, add_special_tokens=True).ids
        golden = {"text": text, "ids": ids, "ids_with_special": with_special}
        if ids:
            golden["decoded"] = tokenizer.decode(ids, skip_special_tokens=False)
            golden["decoded_skip_special"] = tokenizer.decode(
                with_special, skip_special_tokens=True
            )
        # What is as expected is left out of the file: it is large enough.
        if with_special == ids:
            del golden["ids_with_special"]
            golden.pop("decoded_skip_special", None)
        yield golden


def make_synthetic(seed):
    rng = random.Random(seed)
    models, cases = [], []
    for case in all_cases():
        file = {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [],
            "normalizer": None,
            "pre_tokenizer": None,
            "post_processor": None,
            "decoder": None,
            **case,
        }
        tokenizer = Tokenizer.from_str(json.dumps(file))
        if file["model"] not in models:
            models.append(file["model"])
        file = {
            key: value
            for key, value in file.items()
            if value not in (None, []) and key != "version"
        }
        file["model"] = models.index(case["model"])
        cases.append({"file": file, "golden": list(goldens_of(tokenizer, rng))})
    path = ROOT / "testdata/tokenizers/synthetic.json"
    text = ",\n".join(json.dumps(m, ensure_ascii=False, separators=(",", ":")) for m in models)
    lines = ",\n".join(json.dumps(c, ensure_ascii=False, separators=(",", ":")) for c in cases)
    path.write_text('{"models": [\n' + text + '\n],\n"cases": [\n' + lines + "\n]}\n")
    print(f"{path}: {len(models)} models, {len(cases)} cases, {path.stat().st_size} bytes")


def make_fuzz_corpus():
    """Files for tests/fuzz/tokenizer_fuzz.cc: a file, a text and ids, zero bytes between."""
    directory = ROOT / "testdata/fuzz/tokenizer"
    directory.mkdir(parents=True, exist_ok=True)
    tiny = {
        "type": "BPE",
        "unk_token": "<unk>",
        "byte_fallback": True,
        "vocab": {
            "<unk>": 0,
            "a": 1,
            "b": 2,
            "ab": 3,
            " ": 4,
            "\u2581": 5,
            "\u2581a": 6,
            "<0x41>": 7,
            "<0xC3>": 8,
            "<0xA4>": 9,
            "\u0120": 10,
        },
        "merges": [["a", "b"], ["\u2581", "a"]],
    }
    tokens = [
        added(11, "<s>", "special"),
        added(12, "word", "single_word", "lstrip", "rstrip", "normalized"),
    ]
    cases = list(normalizer_cases()) + [{"pre_tokenizer": p} for p in pre_tokenizer_cases()]
    cases += list(decoder_cases()) + list(byte_level_cases())
    for i, case in enumerate(cases[::6]):
        file = {"version": "1.0", **case, "added_tokens": tokens, "model": tiny}
        text = "a word<s> ab\u00e4 1 Ab--b"
        data = (
            json.dumps(file).encode()
            + b"\0"
            + text.encode()
            + b"\0"
            + bytes(range(1, 13))
            + b"\x08\x09"
        )
        (directory / f"good_{i:02}").write_bytes(data)
    bad = {
        "unigram": {"model": {**tiny, "type": "Unigram"}},
        "no_model": {},
        "pattern": {"model": tiny, "pre_tokenizer": split("re:(?:a|aa)+[bc]")},
        "id": {"model": {**tiny, "vocab": {"a": -1}}},
        "merge": {"model": {**tiny, "merges": ["a zz"]}},
        "precompiled": {
            "model": tiny,
            "normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"},
        },
    }
    for name, file in bad.items():
        (directory / f"bad_{name}").write_bytes(json.dumps(file).encode() + b"\0" + b"a" * 40)


def is_tie(processor, text):
    best = processor.nbest_encode(text, nbest_size=2, out_type=int)
    scores = [sum(processor.get_score(token_id) for token_id in ids) for ids in best]
    return len(scores) > 1 and abs(scores[0] - scores[1]) < 1e-3


def make_spm(seed, train):
    directory = ROOT / "testdata/tokenizers/spm_own"
    directory.mkdir(parents=True, exist_ok=True)
    for kind in ("bpe", "unigram"):
        sub = directory / kind
        sub.mkdir(exist_ok=True)
        model_path = sub / "tokenizer.model"
        if train:
            subprocess.run(
                [
                    "spm_train",
                    f"--input={ROOT / 'testdata/text/docs_heldout.txt'}",
                    f"--model_prefix={sub / 'tokenizer'}",
                    f"--model_type={kind}",
                    "--vocab_size=400",
                    "--byte_fallback=true",
                    "--character_coverage=0.98",
                    "--normalization_rule_name=identity",
                    "--remove_extra_whitespaces=false",
                    "--user_defined_symbols=<tool>",
                    "--self_test_sample_size=0",
                    "--num_threads=1",
                    f"--random_seed={seed}",
                ],
                check=True,
            )
            (sub / "tokenizer.model").rename(model_path)
            (sub / "tokenizer.vocab").unlink()
        processor = sentencepiece.SentencePieceProcessor(model_file=str(model_path))
        rng = random.Random(seed)
        words = (ROOT / "testdata/text/docs_heldout.txt").read_text().split(" ")
        texts = TEXTS + [" ".join(words[i : i + 8]) for i in rng.sample(range(len(words)), 20)]
        golden = []
        for text in texts:
            ids = processor.encode(text)
            # Versions of the library settle ties between equal scores in different ways.
            if kind == "unigram" and text and is_tie(processor, text):
                continue
            golden.append({"text": text, "ids": ids, "decoded": processor.decode(ids)})
        ids = [rng.randrange(3, processor.get_piece_size()) for _ in range(300)]
        golden.append(
            {
                "text": processor.decode(ids),
                "ids": processor.encode(processor.decode(ids)),
                "random_ids": ids,
                "decoded": processor.decode(processor.encode(processor.decode(ids))),
            }
        )
        path = sub / "golden.json"
        path.write_text(
            "[\n" + ",\n".join(json.dumps(g, ensure_ascii=False) for g in golden) + "\n]\n"
        )
        print(f"{path}: {len(golden)} cases")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--train", action="store_true", help="make the SentencePiece models anew")
    arguments = parser.parse_args()
    make_synthetic(arguments.seed)
    make_fuzz_corpus()
    make_spm(arguments.seed, arguments.train)


if __name__ == "__main__":
    main()
