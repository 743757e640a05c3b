"""Other people's matchers, and the specification, behind one interface: accepts(schema, texts).

Each answers a list of True and False, one a whole text, or None for a schema that it rejects.
xgrammar's Python package demands PyTorch, transformers and Triton, of which its compiled core uses
nothing: modules without content stand in for them.
"""
import importlib.machinery
import json
import subprocess
import sys
import types
from decimal import Decimal

import jsonschema

EOS = 256
VOCABULARY = [bytes([byte]) for byte in range(256)]


class Specification:
    """The Python package jsonschema; formats are asserted; decimals are exact."""

    name = "jsonschema"

    def accepts(self, schema, texts):
        exact = json.loads(json.dumps(schema), parse_float=Decimal)
        checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
        try:
            jsonschema.Draft202012Validator.check_schema(schema)
            validator = jsonschema.Draft202012Validator(exact, format_checker=checker)
            return [self._fulfils(validator, text) for text in texts]
        except (jsonschema.SchemaError, RecursionError):
            return None
        except Exception as error:  # references that lead nowhere
            if type(error).__name__ in ("_WrappedReferencingError", "Unresolvable",
                                        "RefResolutionError"):
                return None
            raise

    @staticmethod
    def _fulfils(validator, text):
        try:
            value = json.loads(text, parse_float=Decimal)
        except ValueError:
            return False
        return validator.is_valid(value)


class Halley:
    name = "Halley"

    def __init__(self, walk, tokenizer):
        self.command = [walk, tokenizer]

    def accepts(self, schema, texts):
        return self.all_accept([(schema, texts)])[0]

    def all_accept(self, pairs):
        lines = "".join(json.dumps({"schema": schema, "seed": 1, "num_walks": 0, "texts": texts})
                        + "\n" for schema, texts in pairs)
        output = subprocess.run(self.command, input=lines, capture_output=True, text=True,
                                timeout=600, check=True).stdout
        answers = [json.loads(line) for line in output.splitlines()]
        return [None if "error" in a else [at == -1 for at in a["accepted"]] for a in answers]


class Xgrammar:
    name = "xgrammar"

    def __init__(self):
        for name in ("torch", "transformers", "triton", "triton.language"):
            sys.modules[name] = _EmptyModule(name)
        sys.modules["torch"].cuda = types.SimpleNamespace(is_available=lambda: False)
        import xgrammar
        self.package = xgrammar
        info = xgrammar.TokenizerInfo([*VOCABULARY, b"<eos>"], vocab_type=xgrammar.VocabType.RAW,
                                      stop_token_ids=[EOS])
        self.compiler = xgrammar.GrammarCompiler(info)

    def accepts(self, schema, texts):
        try:
            compiled = self.compiler.compile_json_schema(json.dumps(schema))
        except Exception:  # its exceptions have no class in common
            return None
        return [self._accepts(compiled, text) for text in texts]

    def _accepts(self, compiled, text):
        matcher = self.package.GrammarMatcher(compiled)
        return matcher.accept_string(text) and matcher.accept_token(EOS)


class Llguidance:
    name = "llguidance"

    class _Tokenizer:
        eos_token_id, bos_token_id = EOS, None
        tokens, special_token_ids = [*VOCABULARY, b"<eos>"], [EOS]

        def __call__(self, text):
            return list(text if isinstance(text, bytes) else text.encode())

    def __init__(self):
        import llguidance
        self.package = llguidance
        self.tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(self._Tokenizer()))

    def accepts(self, schema, texts):
        matcher_class = self.package.LLMatcher
        try:
            return self._accept(matcher_class.grammar_from_json_schema(json.dumps(schema)), texts)
        except ValueError:
            return None

    def accepts_lark(self, grammar, texts):
        return self._accept(self.package.LLMatcher.grammar_from_lark(grammar), texts)

    def _accept(self, grammar, texts):
        matcher = self.package.LLMatcher(self.tokenizer, grammar)
        if matcher.get_error():
            return None
        verdicts = []
        for text in texts:
            matcher.reset()
            tokens = list(text.encode())
            is_prefix = matcher.validate_tokens(tokens) == len(tokens)
            verdicts.append(is_prefix and matcher.consume_tokens(tokens) and
                            matcher.is_accepting())
        return verdicts


class _EmptyModule(types.ModuleType):
    """A module whose names are classes without content, or functions that do nothing."""

    def __init__(self, name):
        super().__init__(name)
        self.__path__ = []
        self.__spec__ = importlib.machinery.ModuleSpec(name, None)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        value = (lambda *_, **__: None) if name == "tensor" else type(name, (), {})
        setattr(self, name, value)
        return value
