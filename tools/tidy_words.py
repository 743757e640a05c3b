"""The vocabulary of docs/STYLE.md: which words give way to the field's own, and which words may not
begin a comment or a heading. tools/tidy.py runs it."""

import re

from tidy_modules import CODE

# Folders whose identifiers and comments keep their old words until their kernels are rewritten;
# their README files follow the vocabulary already.
OLD_WORDS = re.compile(r"src/halley/cuda/(mixed_gemm|w4ax_gemm|nested_gemm|hopper_tile|gemm|gemv|"
                       r"row_gemm|mma_gemm|moe|experts|weights)/(?!README)")
# These hold the words as data.
ABOUT_WORDS = {"tools/tidy_words.py", "tools/tidy.py", "tests/tidy/tidy_test.py", "docs/STYLE.md",
               "docs/GLOSSARY.md", "CHANGELOG.md"}
# "code" is the word of format pages for a quantized value.
FORMAT_PAGES = ("src/halley/quant/", "docs/formats/", "tools/golden/", "testdata/",
                "src/halley/core/", "docs/quantization.md")

# (what a line may not hold, what to say instead, paths that it does not concern)
WORDS = (
    (r"(?<!dot )(?<!dot-)(?<!inner )(?<!outer )\bproducts?\b(?! (code|files?|sources?)\b)",
     "GEMM, GEMV, matmul", ()),
    (r"[a-z0-9]_products?(?=[_\b])|\bproducts?_[a-z]|"
     r"(?<!Dot)(?<![A-Z])Products?(?=[A-Z\d_]|\b)",
     "gemm, matmul", ()),
    (r"copy engines?", "TMA, bulk copy", ()),
    (r"\bgivers?\b|\bleft_sums\b", "Stream-K: contributing CTA, partials, fix-up", ()),
    (r"\b(f32|s32|f16|fp32|int32) sums?\b|\bsums? of (s32|f32|mma|wgmma|products)\b",
     "accumulators", ()),
    (r"(?<!exit )(?<!status )(?<!error )(?<!key )(?<!escape )(?<!HTTP )\bcodes\b"
     r"(?=[^()]*$|[^(]* )"
     r"(?![\w.:\[(<>*&=;)-])", "quantized values", FORMAT_PAGES),
    (r"\bkNumbers\b|\bwhy_numbers\b|\b(stay|become|as|to|into|are|in) numbers\b|"
     r"\b(f16|bf16|f32|16-bit|plain) numbers?\b|\bnumbers? of (f16|bf16|f32)\b",
     "floating-point values, dequantized", ()),
    (r"\b(Weight|Tile)Forms?\b|\b(weight|tile|mixed|gemv)_forms?\b|\bforms? of (a |the )?weights?\b",
     "device layout, storage format", ()),
    (r"\bearly.starts?\b|EarlyStart|\bstarts? early\b|let_next_kernel_start",
     "programmatic dependent launch (PDL), griddepcontrol_launch_dependents", ()),
    (r"wait_for_(previous|earlier)_kernels?", "griddepcontrol_wait", ()),
    (r"\b(give|take)_registers\b", "warpgroup_reg_dealloc, warpgroup_reg_alloc", ()),
    (r"\bplaces\b|_places\b|\bplace_of_|[a-z]Place\b", "positions, indices, slots", ()),
    (r"\bfours\b|_fours\b", "float4, vectors of 4", ()),
    (r"\bnarrow (kernel|gemm|tile|product)s?\b", "small-M, skinny", ()),
    (r"\bfew (rows|tokens)\b|few_rows", "small M, M <= 16", ()),
    (r"\binput_digits\b|\b(s8|signed|int8) digits?\b|\bdigits? of (s8|\d)", "int8 slices", ()),
    (r"\bputs? (\w+ )?in(to)? order\b|(?<![.\"`])input_order(?![\"`])", "permutation, perm, act-order", ()),
    (r"\bdealt\b|\bdeals\b|\bdeal out\b|TileDeal", "tile schedule, work partition", ()),
    (r"\bbehind the tensor cores\b", "accumulator scaling, post-scaled", ()),
    (r"\btak(e|es|en|ing) off\b", "subtracted", ()),
    (r"\bscales? (for each (output|row|token)|an? (row|output|token))\b",
     "per-channel scale, per-token scale", ()),
    (r"(?<!no )(?<!find )(?<!finds )(?<!has )(?<!have )(?<!make )\brooms?\b(?! (for|to|left|in|on)\b)"
     r"(?![_.])", "module", ()),
    (r"(?<!Connection)(?<!onnection )[Rr]efus(e|al|ing)", "unsupported, rejected", ()),
    (r"\b(un)?[Ss]tated\b|[a-z]_stated\b|\bstated_|\bStated[A-Z]|"
     r"\bstatements?\b|_statements?\b|"
     r"[a-z]Statement\b", "declared (in config.json)",
     ("src/halley/checkpoint/chat_template/", "src/halley/constraint/",
      "tools/make_template_goldens.py")),
    (r"\bmade[- ]up (inputs|weights|items|data|channels)\b|\bhostile\b", "synthetic; untrusted", ()),
    (r"\b[Pp]reparers?\b|\b[Dd]eliverer\b|\bTickets?\b|\btickets?\b",
     "preprocessing threads, response thread, admission", ()),
    (r"(?<![\"_])\bmultiprocessors?\b(?!\\?\")", "SM", ()),
    (r"\b[Bb]eside\b", "versus, next to, with", ()),
)
COMPILED = tuple((re.compile(pattern), instead, free) for pattern, instead, free in WORDS)
BARE_STARTS = ("Of", "What", "Where", "And")
COMMENT = re.compile(r"^(?P<before>.*?)//+\s?(?P<text>.*)$")
BARE = re.compile(rf"\s*({'|'.join(BARE_STARTS)})\b")
HEADING = re.compile(rf"#+\s+({'|'.join(BARE_STARTS)})\b")


def check_vocabulary(path, text):
    """(line, what is wrong) for every line that uses a word that another one replaces."""
    if OLD_WORDS.match(path) or path in ABOUT_WORDS:
        return
    rules = [(p, i) for p, i, free in COMPILED if not path.startswith(tuple(free))]
    for number, line in enumerate(text.split("\n"), 1):
        for pattern, instead in rules:
            if found := pattern.search(line):
                yield number, f"'{found.group().strip()}': say {instead} (docs/STYLE.md)"


def check_bare_starts(path, text):
    """(line, what is wrong) for comments and headings that begin with one of BARE_STARTS."""
    if OLD_WORDS.match(path) or path in ABOUT_WORDS:
        return
    inside = False  # a comment that goes on from the line before
    for number, line in enumerate(text.split("\n"), 1):
        if path.endswith(".md"):
            if found := HEADING.match(line):
                yield number, f"a heading begins with '{found.group(1)}': write subject and verb"
            continue
        if not path.endswith(CODE):
            return
        comment = re.match(r"\s*//+ ?(.*)", line)
        if comment and not inside and (found := BARE.match(comment.group(1))):
            yield number, (f"a comment begins with '{found.group(1)}': write subject, verb and "
                           "object")
        trailing = None if comment else re.match(r"[^\"]*;\s*//+<? (Of|What|Where|And)\b", line)
        if trailing:
            yield number, (f"a comment begins with '{trailing.group(1)}': write subject, verb and "
                           "object")
        inside = bool(comment) and bool(comment.group(1).strip())
