"""The vocabulary of docs/STYLE.md: which words give way to the field's own, and which words may not
begin a comment or a heading. tools/tidy.py runs it."""

import re
from typing import NamedTuple

from tidy_modules import CODE

# Folders whose identifiers and comments keep their old words until their kernels are rewritten;
# their README files follow the vocabulary already.
OLD_WORDS = re.compile(r"src/halley/cuda/(mixed_gemm|w4ax_gemm|nested_gemm|hopper_tile|gemm|gemv|"
                       r"row_gemm|mma_gemm|moe|experts|weights)/(?!README)")
# These hold the words as data.
ABOUT_WORDS = {"tools/tidy_words.py", "tests/tidy/tidy_test.py", "tests/tidy/tidy_words_test.py",
               "docs/STYLE.md", "docs/GLOSSARY.md", "CHANGELOG.md"}
# "code" is the word of format pages for a quantized value; their goldens have arrays of that name.
FORMAT_PAGES = ("src/halley/quant/", "docs/formats/", "tools/golden/", "tools/make_", "testdata/",
                "src/halley/core/", "docs/quantization.md")
# Statements of a template's language, and of JSON Schema's.
LANGUAGES = ("src/halley/checkpoint/chat_template/", "src/halley/constraint/",
             "tools/make_template_goldens.py", "tools/golden/templates")
# The C ABI has "codes" and "product" in names that callers use.
C_ABI = ("src/halley/cuda/library/", "examples/kernels/", "tests/kernels/")
# Names in the folders of OLD_WORDS, which others call.
OLD_NAMES = re.compile(r"\b(ProductShape|time_products|start_products|wait_for_products|"
                       r"W4axBytePlace|input_digits\.cuh|weight_form|WeightForm|TileForm|tile_form|"
                       r"mixed_forms|gemv_form|why_numbers)\b")


class Word(NamedTuple):
    """One row: what a line may not hold and what it says instead."""
    keys: tuple  # lower-case texts, one of which stands in every line that `pattern` matches
    pattern: str
    instead: str
    free: tuple = ()  # paths that the row does not concern


WORDS = (
    Word(("product",),
         r"(?<!dot )(?<!dot-)(?<!inner )(?<!outer )(?<!\")\bproducts?\b(?!\")"
         r"(?! (code|files?|sources?)\b)",
         "GEMM, GEMV, matmul", C_ABI),
    Word(("product",), r"(?<=[a-z0-9])(?<!inner)_products?(?=_|\b)|\bproducts?_[a-z]|"
         r"(?<!Dot)(?<![A-Z])Products?(?=[A-Z\d_]|\b)", "gemm, matmul",
         (*C_ABI, "tools/make_bad_safetensors.py")),
    Word(("copy engine",), r"[Cc]opy engines?", "TMA, bulk copy"),
    Word(("giver", "left_sums"), r"\bgivers?\b|\bleft_sums\b",
         "Stream-K's contributing CTA, partials, fix-up"),
    Word((" sum", "sums of"), r"\b(f32|s32|f16|fp32|int32) sums?\b|"
         r"\bsums? of (s32|f32|mma|wgmma|products)\b", "accumulators"),
    Word(("codes",), r"(?<!xit )(?<!tatus )(?<!rror )(?<!key )(?<!scape )(?<!HTTP )"
         r"(?<![.>])\bcodes\b"
         r"(?![\w.:\[(<>*&=;)-])", "quantized values", (*FORMAT_PAGES, *C_ABI)),
    Word(("number",), r"\bkNumbers\b|\bwhy_numbers\b|"
         r"\b(stay|become|as|to|into|are) numbers\b|"
         r"\b(f16|bf16|f32|16-bit|plain) numbers?\b|\bnumbers? of (f16|bf16|f32)\b",
         "floating-point values, dequantized"),
    Word(("form",), r"\b(Weight|Tile)Forms?\b|\b(weight|tile|mixed|gemv)_forms?\b|"
         r"\bforms? of (a |the )?weights?\b", "device layout, storage format"),
    Word(("early", "let_next_kernel"),
         r"\b[Ee]arly.starts?\b|EarlyStart|\bstarts? early\b|let_next_kernel_start",
         "programmatic dependent launch (PDL), griddepcontrol_launch_dependents"),
    Word(("wait_for_",), r"wait_for_(previous|earlier)_kernels?", "griddepcontrol_wait"),
    Word(("_registers",), r"\b(give|take)_registers\b",
         "warpgroup_reg_dealloc, warpgroup_reg_alloc"),
    Word(("place",), r"\bplaces\b(?!=)|_places\b|\bplace_of_|[a-z]Place\b",
         "positions, indices, slots"),
    Word(("fours",), r"\bfours\b|_fours\b", "float4, vectors of 4"),
    Word(("narrow",), r"\b[Nn]arrow (kernel|gemm|tile|product)s?\b", "small-M, skinny"),
    Word(("few",), r"\b[Ff]ew (rows|tokens)\b|few_rows", "small M, M <= 16"),
    Word(("digit",), r"\binput_digits\b|\b(s8|signed|int8) digits?\b|\bdigits? of (s8|\d)",
         "int8 slices"),
    Word(("order",), r"\b[Pp]uts? (\w+ )?in(to)? order\b|(?<![.\"`])input_order(?![\"`.[])",
         "permutation, perm, act-order"),
    Word(("deal",), r"\bdealt\b|\bdeals\b|\bdeal out\b|TileDeal",
         "tile schedule, work partition"),
    Word(("behind the tensor",), r"\bbehind the tensor cores\b",
         "accumulator scaling, post-scaled"),
    Word((" off",), r"\btak(e|es|en|ing) off\b", "subtract"),
    Word(("scale",), r"\bscales? (for each (output|row|token)|an? (row|output|token))\b",
         "per-channel scale, per-token scale"),
    Word(("room",), r"(?<!no )(?<!find )(?<!finds )(?<!has )(?<!have )(?<!make )"
         r"\brooms?\b(?! (for|to|left|in|on)\b)(?![_.])", "module"),
    Word(("refus",), r"[Rr]efus(?!ed\"|al\")(ed|e|al|ing)\w*", "unsupported, rejected",
         ("tests/packaging/",)),
    Word(("stated", "statement"), r"\b(un)?[Ss]tated\b|[a-z]_stated\b(?!\")|\bstated_|"
         r"\bStated[A-Z]|\bstatements?\b|_statements?\b|[a-z]Statement\b",
         "declared (in config.json)",
         LANGUAGES),
    Word(("made", "hostile"), r"\b[Mm]ade[- ]up (inputs|weights|items|data|channels)\b|"
         r"\b[Hh]ostile\b", "synthetic; untrusted"),
    Word(("preparer", "deliverer", "ticket"),
         r"\b[Pp]reparers?\b|\b[Dd]eliverer\b|\b[Tt]ickets?\b",
         "preprocessing threads, response thread, admission"),
    Word(("multiprocessor",), r"(?<![\"_])\b[Mm]ultiprocessors?\b(?!\\?\")", "SM"),
    Word(("beside",), r"\b[Bb]eside\b", "versus, next to, with"),
)
PATTERNS = {word: re.compile(word.pattern) for word in WORDS}
BARE_STARTS = "Of|What|Where|And"
BARE_COMMENT = re.compile(rf"\s*//+<?\s*({BARE_STARTS})\b")
BARE_TRAILING = re.compile(rf"[^\"]*[;{{,]\s*//+<? ({BARE_STARTS})\b")
BARE_HEADING = re.compile(rf"#+\s+({BARE_STARTS})\b")
COMMENT = re.compile(r"\s*//+<?\s*\S")


def lines_with(text, lower, keys):
    """(number, line) of the lines of `text` that hold one of `keys`; `lower` is the same text in
    lower case. Finds keys first: most files hold none, and that is quick to know."""
    starts = set()
    for key in keys:
        at = lower.find(key)
        while at >= 0:
            starts.add(text.rfind("\n", 0, at) + 1)
            end = text.find("\n", at)
            at = lower.find(key, end) if end >= 0 else -1
    for start in sorted(starts):
        end = text.find("\n", start)
        yield text.count("\n", 0, start) + 1, text[start:end if end >= 0 else len(text)]


def is_exempt(path):
    return bool(OLD_WORDS.match(path)) or path in ABOUT_WORDS


def check_vocabulary(path, text):
    """(line, problem) for every line that uses a word that another one replaces."""
    if is_exempt(path):
        return
    lower = text.lower()
    for word in WORDS:
        if path.startswith(word.free):
            continue
        for number, line in lines_with(text, lower, word.keys):
            if found := PATTERNS[word].search(OLD_NAMES.sub("", line)):
                yield number, f"'{found.group().strip()}': say {word.instead} (docs/STYLE.md)"


def check_bare_starts(path, text):
    """(line, problem) for comments and headings that begin with one of BARE_STARTS."""
    if is_exempt(path) or not path.endswith(CODE + (".md",)):
        return
    is_inside = False  # the line before is a comment that goes on
    for number, line in enumerate(text.split("\n"), 1):
        if path.endswith(".md"):
            found = BARE_HEADING.match(line)
        else:
            found = None if is_inside else BARE_COMMENT.match(line)
            found = found or BARE_TRAILING.match(line)
            is_inside = bool(COMMENT.match(line))
        if found:
            yield number, f"begins with '{found.group(1)}': write subject, verb and object"
