"""Small tokenizer.json files that between them use every component and flag, and texts for them."""

import random

TEXTS = [
    "",
    " ",
    "  ",
    "a",
    " a",
    "Hello world",
    "  two  spaces ",
    "don't stop",
    "abc abcabc",
    "x<s>y",
    "x <s> y",
    "a<tool>b",
    "a  <tool>  b",
    "word sword words word",
    "12345 6",
    "tab\tnew\nline\r\n",
    "\u00c4pfel \u00e9\u0301 e\u0301",
    "\ufb01 \u2460 \uff21",
    "\u4f60\u597d world",
    "\U0001f600 ok",
    "a,b.c!d?",
    "\u2581mark \u2581",
    "--a-b---c-",
    "HeLLo \u0130 \u00df",
    "x\u00a0y\u3000z",
    "\x01\x7f\u200bq",
    "a</w>b",
    "<0x41>",
    "\u0e01\u0e33 \u0939\u093f",
]
FLAGS = ["single_word", "lstrip", "rstrip", "normalized", "special"]


def added(token_id, content, *flags):
    return {"id": token_id, "content": content, **{flag: flag in flags for flag in FLAGS}}


def vocabulary(byte_level, byte_fallback=False, prefix="", suffix="", seed=0):
    """Characters of the texts and some merges between them."""
    rng = random.Random(seed)
    chars = sorted({c for text in TEXTS[:16] for c in text})
    if byte_level:
        from tokenizers.pre_tokenizers import ByteLevel

        chars = sorted(ByteLevel.alphabet())
    chars += [c for c in "\u2581\u00c4\u4f60" if c not in chars]
    tokens = ["<unk>"]
    if byte_fallback:
        tokens += [f"<0x{byte:02X}>" for byte in range(256)]
    tokens += chars
    if prefix or suffix:
        tokens += [prefix + c for c in chars] + [prefix + c + suffix for c in chars]
        tokens += [c + suffix for c in chars]
    tokens = list(dict.fromkeys(tokens))
    space = "\u0120" if byte_level else "\u2581"
    pairs = [
        "l l",
        "h e",
        "ll o",
        "a b",
        "ab c",
        "o r",
        "w or",
        "wor d",
        f"{space} a",
        f"{space} w",
        "1 2",
        "3 4",
        f"{space} {space}",
        "d o",
        "b c",
        "e ll",
        "he ll",
        "hell o",
    ]
    merges = []
    for pair in pairs:
        left, right = pair.split()
        right = prefix + right
        if left in tokens and right in tokens:
            merges.append([left, right])
            joined = left + right[len(prefix) :]
            for form in dict.fromkeys([joined, prefix + joined]):
                if form not in tokens:
                    tokens.append(form)
    rng.shuffle(merges)
    return {token: i for i, token in enumerate(tokens)}, merges


def model(byte_level=False, legacy_merges=False, **options):
    prefix = options.get("continuing_subword_prefix") or ""
    suffix = options.get("end_of_word_suffix") or ""
    vocab, merges = vocabulary(byte_level, options.get("byte_fallback", False), prefix, suffix)
    kept = [f"{a} {b}" for a, b in merges] if legacy_merges else merges
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        **options,
        "vocab": vocab,
        "merges": kept,
    }


UNK = {"unk_token": "<unk>"}
BYTE = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
MARKS = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
SPM_DECODER = [
    {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
    {"type": "ByteFallback"},
    {"type": "Fuse"},
    {"type": "Strip", "content": " ", "start": 1, "stop": 0},
]


def sequence(kind, *steps):
    return {"type": "Sequence", kind: list(steps)}


def split(pattern, behavior="Isolated", invert=False):
    key = "Regex" if pattern.startswith("re:") else "String"
    return {
        "type": "Split",
        "pattern": {key: pattern.removeprefix("re:")},
        "behavior": behavior,
        "invert": invert,
    }


def metaspace(scheme, do_split=True):
    return {
        "type": "Metaspace",
        "replacement": "\u2581",
        "prepend_scheme": scheme,
        "split": do_split,
    }


def template(*pieces):
    return [
        (
            {"Sequence": {"id": p, "type_id": 0}}
            if p in ("A", "B")
            else {"SpecialToken": {"id": p, "type_id": 0}}
        )
        for p in pieces
    ]


def normalizer_cases():
    bert = {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": True,
        "strip_accents": None,
        "lowercase": True,
    }
    steps = [
        {"type": t} for t in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt")
    ]
    steps += [
        {"type": "Strip", "strip_left": l, "strip_right": r}
        for l in (False, True)
        for r in (False, True)
    ]
    steps += [
        {"type": "Prepend", "prepend": "\u2581"},
        MARKS,
        bert,
        {**bert, "clean_text": False, "handle_chinese_chars": False, "strip_accents": True},
        {**bert, "lowercase": False},
        {"type": "Replace", "pattern": {"Regex": "\\s+|b"}, "content": "_"},
        sequence("normalizers", {"type": "NFD"}, {"type": "StripAccents"}, {"type": "Lowercase"}),
        sequence("normalizers", {"type": "Prepend", "prepend": "\u2581"}, MARKS),
    ]
    for step in steps:
        yield {"normalizer": step, "model": model(**UNK)}
    yield {
        "normalizer": {"type": "ByteLevel"},
        "model": model(byte_level=True),
        "decoder": {
            "type": "ByteLevel",
            "add_prefix_space": True,
            "trim_offsets": True,
            "use_regex": True,
        },
    }


def pre_tokenizer_cases():
    behaviors = ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]
    for behavior in behaviors:
        for invert in (False, True):
            yield split("-", behavior, invert)
            yield split("re:\\s+|[a-c]{2}", behavior, invert)
        yield {"type": "Punctuation", "behavior": behavior}
    for pattern in [
        "a(?i)b|C",
        "\\p{N}{1,3}+",
        "\\p{N}{2}?",
        "[\\w&&[^b-d]]+",
        "[a[bc]]+",
        "(?<=a|bc)d",
        "\\bw\\w+|\\Bo",
        "[[:punct:]]+",
        "[]a]",
        "[^\\s\\p{L}\\p{N}]+",
        "\\h+",
        "(?m:.)+",
        "(?i:HE)l|\\p{^L}",
        "^.|.$",
        "[^a&&\\w]",
        "\\p{Han}|\\p{Lu}\\p{Ll}*",
        "a{,2}",
        "(l)\\1",
        "\\W\\D",
        "\\S+?(?!\\w)",
        "(?>a+)b?",
        "b*",
        "\\u00c4\\x{70}",
        "[^\\W\\d]+",
    ]:
        yield split("re:" + pattern)
    for individual in (False, True):
        yield {"type": "Digits", "individual_digits": individual}
    for kind in ("Whitespace", "WhitespaceSplit", "BertPreTokenizer"):
        yield {"type": kind}
    yield {"type": "CharDelimiterSplit", "delimiter": "b"}
    yield {"type": "FixedLength", "length": 3}
    for scheme in ("first", "always", "never"):
        for do_split in (False, True):
            yield metaspace(scheme, do_split)
    yield sequence(
        "pretokenizers", {"type": "Digits", "individual_digits": True}, metaspace("first")
    )
    yield sequence("pretokenizers", {"type": "WhitespaceSplit"}, {"type": "Punctuation"})


def byte_level_cases():
    for prefix in (False, True):
        for regex in (False, True):
            for ignore in (False, True):
                pre = {**BYTE, "add_prefix_space": prefix, "use_regex": regex}
                yield {
                    "pre_tokenizer": pre,
                    "decoder": BYTE,
                    "model": model(byte_level=True, legacy_merges=regex, ignore_merges=ignore),
                }


def model_cases():
    for fallback in (False, True):
        for fuse in (False, True):
            for unk in (None, "<unk>"):
                yield {
                    "normalizer": sequence(
                        "normalizers", {"type": "Prepend", "prepend": "\u2581"}, MARKS
                    ),
                    "model": model(byte_fallback=fallback, fuse_unk=fuse, unk_token=unk),
                    "decoder": sequence("decoders", *SPM_DECODER),
                }
    for prefix, suffix in (("##", None), (None, "</w>"), ("@", "</w>")):
        yield {
            "pre_tokenizer": {"type": "Whitespace"},
            "model": model(continuing_subword_prefix=prefix, end_of_word_suffix=suffix, **UNK),
            "decoder": {"type": "BPEDecoder", "suffix": "</w>"},
        }


def added_token_cases():
    vocab = model(**UNK)["vocab"]
    vocab_size = len(vocab)
    contents = ["<s>", "<tool>", "word", "wor", " ok", "HELLO"]
    outside = [content for content in contents if content not in vocab]
    ids = {
        c: vocab.get(c, vocab_size + (outside.index(c) if c in outside else 0)) for c in contents
    }
    for normalized in (False, True):
        for flag in (None, "single_word", "lstrip", "rstrip"):
            flags = [f for f in (flag, "normalized" if normalized else None) if f]
            tokens = [added(ids["<s>"], "<s>", "special")]
            tokens += [added(ids[c], c, *flags) for c in contents[1:5]]
            for normalizer in (None, {"type": "Lowercase"}):
                yield {
                    "added_tokens": tokens,
                    "normalizer": normalizer,
                    "model": model(**UNK),
                    "pre_tokenizer": metaspace("first"),
                }
    both = [
        added(ids["<s>"], "<s>", "special", "lstrip", "rstrip"),
        added(ids["word"], "word", "single_word", "lstrip", "rstrip"),
        added(vocab_size + 1, "HELLO", "normalized"),
    ]
    yield {"added_tokens": both, "normalizer": {"type": "Lowercase"}, "model": model(**UNK)}


def post_processor_cases():
    size = len(model(**UNK)["vocab"])
    tokens = [added(size, "<s>", "special"), added(size + 1, "</s>", "special")]
    special = {
        t["content"]: {"id": t["content"], "ids": [t["id"]], "tokens": [t["content"]]}
        for t in tokens
    }
    bos = {
        "type": "TemplateProcessing",
        "single": template("<s>", "A"),
        "pair": template("<s>", "A", "B"),
        "special_tokens": special,
    }
    both = {**bos, "single": template("<s>", "A", "</s>"), "pair": template("A", "</s>", "B", "A")}
    cls = {"sep": ["</s>", size + 1], "cls": ["<s>", size]}
    bert = {"type": "BertProcessing", **cls}
    roberta = {"type": "RobertaProcessing", **cls, "trim_offsets": True, "add_prefix_space": True}
    byte = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}
    for processor in (
        bos,
        both,
        bert,
        roberta,
        byte,
        sequence("processors", byte, both),
        sequence("processors", bos, both),
    ):
        yield {"added_tokens": tokens, "post_processor": processor, "model": model(**UNK)}


def decoder_cases():
    replace = {"type": "Replace", "pattern": {"String": "ab"}, "content": "\u2581-"}
    regex = {"type": "Replace", "pattern": {"Regex": "l+|\u2581"}, "content": "L"}
    strip = {"type": "Strip", "content": "a", "start": 1, "stop": 0}
    fuse = {"type": "Fuse"}
    decoders = [
        None,
        replace,
        regex,
        strip,
        fuse,
        {"type": "ByteFallback"},
        {"type": "WordPiece", "prefix": "l", "cleanup": True},
        {"type": "WordPiece", "prefix": "##", "cleanup": False},
        {"type": "BPEDecoder", "suffix": "o"},
        sequence("decoders", fuse, replace),
        sequence("decoders", fuse, regex),
        sequence("decoders", replace, fuse, strip),
        sequence("decoders", fuse, metaspace("always")),
        sequence("decoders", *SPM_DECODER),
        sequence("decoders", BYTE, replace),
        sequence("decoders", {"type": "BPEDecoder", "suffix": "o"}, fuse, strip),
    ]
    decoders += [metaspace(scheme) for scheme in ("first", "always", "never")]
    for decoder in decoders:
        yield {"decoder": decoder, "normalizer": MARKS, "model": model(byte_fallback=True, **UNK)}


def all_cases():
    yield from normalizer_cases()
    for pre_tokenizer in pre_tokenizer_cases():
        yield {"pre_tokenizer": pre_tokenizer, "model": model(**UNK)}
    yield from byte_level_cases()
    yield from model_cases()
    yield from added_token_cases()
    yield from post_processor_cases()
    yield from decoder_cases()
