#!/usr/bin/env python3
"""Renders template snippets with Jinja into testdata/chat_templates/snippets.json.

The environment is that of transformers: immutable sandbox, trim_blocks, lstrip_blocks, loop
controls, tojson without ASCII escapes, raise_exception, strftime_now (fixed at 2025-01-02
03:04:05) and generation blocks. Needs jinja2 3.1.6. There is no randomness; --seed only shuffles
the order in which the snippets are rendered, which must not matter.

Usage: make_template_goldens.py [--seed 1] OUTPUT
"""
import argparse
import datetime
import json
import os
import random

import jinja2
import jinja2.ext
import jinja2.sandbox

CONTEXT = {'s': 'Hello, World',
 'u': 'Zürich 🙂 ß',
 'empty': '',
 'ws': '  a b\t\n',
 'n': 7,
 'neg': -3,
 'f': 2.5,
 'yes': True,
 'no': False,
 'nil': None,
 'l': [3, 1, 2],
 'strs': ['b', 'A', 'c', 'a'],
 'nested': [[1, 2], [3]],
 'd': {'b': 1, 'a': {'c': [1, 2]}, 'items': 5, 'x y': 'z'},
 'el': [],
 'ed': {},
 'ms': [{'role': 'user', 'content': 'hi', 'n': 2},
        {'role': 'bot', 'content': 'yo', 'n': 1},
        {'role': 'user', 'content': '<b>&\'"', 'n': 3}],
 't': {'name': 'f',
       'p': {'type': 'object', 'q': {}, 'r': []},
       'v': [1, 2.0, None, True, 'é\n"\\\u2028\x7f']}}

# Expressions by feature; each is rendered as {{ expression }}. A line that ends with a backslash
# goes on in the next one.
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden",
                       "template_expressions.txt"), encoding="utf-8") as lines:
    EXPRESSIONS = lines.read().removesuffix("\n")

# Whole templates.
TEMPLATES = [
    'a\n{% if yes %}\nb\n{% endif %}\nc\n',
    'a\n  {% if yes %}\n  b\n  {% endif %}\nc\n\n',
    'a  {%- if yes -%}  b  {%- endif -%}  c',
    'a  {%+ if yes %}  b  {%+ endif %}  c',
    'a\n  {%+ if yes %}\nb{% endif +%}\nc',
    'a\n\n  {{- s -}}  \n\n b',
    'x {{ s }}\ny {{ n }}\n',
    '  {# c #}  \n a',
    'a\n  {# c #}\nb',
    'a {#- c -#} b',
    'a\n{#+ c +#}\nb',
    '{# {{ x }} {% if %} #}ok',
    '{#-#}x{#--#}y',
    '{% raw %}{{ x }}{% if %}{% endraw %}',
    'a {%- raw -%}  {{ x }}  {%- endraw -%} b',
    'a\n  {% raw %}\n {{ x }}\n  {% endraw %}\nb',
    '\r\na\rb\r\n',
    'a\n\n\n',
    '\n',
    '',
    '{{ s }}{# c #}\n{{ n }}',
    '{% if no %}1{% elif n == 7 %}2{% elif yes %}3{% else %}4{% endif %}',
    '{% if no %}1{% elif no %}2{% else %}4{% endif %}',
    '{% if x %}1{% endif %}|',
    '{% if l, %}1{% endif %}',
    '{% for i in l %}{{ i }},{% endfor %}',
    '{% for i in el %}{{ i }}{% else %}none{% endfor %}',
    '{% for i in x %}{{ i }}{% else %}none{% endfor %}',
    ('{% for i in l if i > 1 %}{{ loop.index }}:{{ i }} {% else %}none{% end'
     'for %}'),
    '{% for i in l if i > 9 %}{{ i }}{% else %}none{% endfor %}',
    ('{% for i in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ lo'
     'op.last }}{{ loop.length }}{{ loop.revindex }}{{ loop.revindex0 }}{{ l'
     'oop.depth }}{{ loop.depth0 }}|{% endfor %}'),
    ('{% for i in l %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }}{{ loop'
     '.nextitem is defined }} {% endfor %}'),
    "{% for i in l %}{{ loop.cycle('a', 'b') }}{% endfor %}",
    '{% for i in [1, 1, 2, 2, 1] %}{{ loop.changed(i) }} {% endfor %}',
    ('{% for i in [1, 1, 2] %}{% if loop.changed(i, 2) %}{{ i }}{% endif %}{'
     '% endfor %}'),
    '{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}',
    '{% for k, v in d|items %}{{ k }}={{ v }};{% endfor %}',
    '{% for k in d %}{{ k }};{% endfor %}',
    '{% for c in u %}[{{ c }}]{% endfor %}',
    '{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}',
    '{% for (a, b) in [(1, 2)] %}{{ a }}{{ b }}{% endfor %}',
    '{% for i in 1, 2, 3 %}{{ i }}{% endfor %}',
    ('{% for i in range(3) %}{% for j in range(2) %}{{ i }}{{ j }}{{ loop.in'
     'dex }} {% endfor %}{{ loop.index }}|{% endfor %}'),
    ('{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}{% if i'
     ' == 5 %}{% break %}{% endif %}{{ i }}{% endfor %}'),
    ('{% for i in range(3) %}{% for j in range(3) %}{% if j == 1 %}{% break '
     '%}{% endif %}{{ i }}{{ j }} {% endfor %}{% endfor %}'),
    '{% for i in l %}{% break %}{% else %}e{% endfor %}.',
    ('{% set x = 1 %}{% for i in l %}{% set x = x + i %}{{ x }} {% endfor %}'
     '{{ x }}'),
    '{% set q = 5 %}{% for q in l %}{{ q }}{% endfor %}{{ q }}',
    '{% for i in l %}{% set z = i %}{% endfor %}{{ z is defined }}',
    ('{% for i in l %}{% if loop.first %}{% set z = 9 %}{% endif %}{{ z }}|{'
     '% endfor %}'),
    '{% if yes %}{% set z = 1 %}{% endif %}{{ z }}',
    ('{% set ns = namespace(a=1) %}{% for i in l %}{% set ns.a = ns.a + i %}'
     '{% endfor %}{{ ns.a }}'),
    "{% set ns = namespace() %}{% set ns.b = 'x' %}{{ ns.b }}{{ ns.c }}|",
    '{% set a, b = 1, 2 %}{{ a }}{{ b }}',
    '{% set a, (b, c) = 1, (2, 3) %}{{ a }}{{ b }}{{ c }}',
    ('{% set ns = namespace() %}{% set ns.a, ns.b = 1, 2 %}{{ ns.a }}{{ ns.b'
     ' }}'),
    '{% set a = 1, %}{{ a }}',
    '{% set a %}x{{ n }}y{% endset %}{{ a|upper }}',
    '{% set a | upper | trim %} x{{ n }}y {% endset %}[{{ a }}]',
    '{% set ns = namespace() %}{% set ns.t %}b{% endset %}{{ ns.t }}',
    ('{% set z = 1 %}{% set a %}{% set z = 2 %}{{ z }}{% endset %}{{ z }}{{ '
     'a }}'),
    ("{% macro m(a, b=2, c='z') %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1)"
     " }}|{{ m(1, 3) }}|{{ m(1, c='q') }}|{{ m(b=5, a=4) }}"),
    '{% macro m(a) %}[{{ a }}]{% endmacro %}{{ m() }}{{ m(none) }}',
    ('{% macro m(a) %}{{ a is defined }}{{ varargs }}{{ kwargs }}{% endmacro'
     ' %}{{ m(1, 2, 3, k=4) }}{{ m() }}'),
    '{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}',
    ('{% macro m(n) %}{{ n }}{% if n > 0 %}{{ m(n - 1) }}{% endif %}{% endma'
     'cro %}{{ m(5) }}'),
    ('{% set x = 1 %}{% macro m() %}{{ x }}{% endmacro %}{% set x = 2 %}{{ m'
     '() }}'),
    '{% macro m() %}{{ later }}{% endmacro %}{% set later = 3 %}{{ m() }}',
    ("{% macro m() %}{% set s = 'inner' %}{{ s }}{% endmacro %}{{ m() }}{{ s"
     ' }}'),
    ('{% for i in l %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor'
     ' %}'),
    '{% macro m() %}a{% endmacro %}{{ m }}{{ m.name }}{{ m() ~ m()|upper }}',
    ('{% macro m() %}<{{ caller() }}>{% endmacro %}{% call m() %}in{{ n }}{%'
     ' endcall %}'),
    ('{% macro m() %}{% for i in l %}{{ caller(i, b=2) }}{% endfor %}{% endm'
     'acro %}{% call(a, b=1) m() %}{{ a }}{{ b }};{% endcall %}'),
    '{% macro m(x) %}{{ x }}{{ caller is defined }}{% endmacro %}{{ m(1) }}',
    ('{% macro o(x) %}[{{ caller() }}]{% endmacro %}{% macro p() %}{% call o'
     '(1) %}{{ caller() }}{% endcall %}{% endmacro %}{% call p() %}q{% endca'
     'll %}'),
    ('{% macro m(a, b) %}{{ a }}{{ b }}{% endmacro %}{{ m(*[1, 2]) }}{{ m(**'
     "{'a': 3, 'b': 4}) }}{{ m(5, *[6]) }}"),
    '{% filter upper %}abc{{ s }}{% endfilter %}',
    "{% filter replace('a', 'x')|upper %}banana{% endfilter %}",
    '{% with %}{% set k = 1 %}{{ k }}{% endwith %}{{ k }}',
    '{% with a = 1, b = n %}{{ a }}{{ b }}{% endwith %}{{ a }}',
    '{% set a = 5 %}{% with a = 1, b = a %}{{ b }}{% endwith %}',
    '{% generation %}abc{{ n }}{% endgeneration %}',
    ("{% for m in ms %}{% if m.role == 'bot' %}{% generation %}{{ m.content "
     '}}{% endgeneration %}{% endif %}{% endfor %}'),
    '{% print s, n %}',
    "{% set g = l|map('string') %}{{ g|list }}{{ g|list }}",
    '{% set g = l|select %}{{ g|first }}{{ g|list }}',
    "{% set j = joiner(', ') %}{% for i in l %}{{ j() }}{{ i }}{% endfor %}",
    ("{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() "
     '}}{{ c.current }}{{ c.reset() }}{{ c.next() }}'),
    ("{% for r, g in ms|groupby('role') %}{{ r }}:{{ g|length }} {% endfor %"
     '}'),
    "{% set messages = ms[1:] %}{{ messages|length }}{{ ms[-1]['role'] }}",
    ("{% for m in ms %}{{ '<' ~ m['role'] + '>' + m['content'] | trim }}{{ '"
     "\\n' if not loop.last }}{% endfor %}"),
    '{% for m in ms[::-1] %}{{ (ms|length - 1) - loop.index0 }}{% endfor %}',
    '{%- for m in ms -%}\n{{ m.role }}\n{%- endfor -%}',
    "{{ {'a': {'b': 1}} }}{{ {'x': [1, {'y': 2}]}['x'][1]['y'] }}",
    '{{ \'}}\' }}{{ "{%" }}{{ \'{{\' }}',
    '{{ s\n}}\n{{\nn }}',
    '{%if yes%}a{%endif%}',
    '{{s}}{{-n-}}',
    "{{ 'a' if yes }}{{ 'b' if no }}|",
    '{% if x is defined and x.y %}1{% else %}2{% endif %}',
    "{% if ms[0]['role'] == 'system' %}a{% else %}b{% endif %}",
    '{% if not (n == 7 and yes) or no %}a{% else %}b{% endif %}',
    '{% for tool in [t] %}{{ tool | tojson(indent=4) }}\n\n{% endfor %}',
    ("{{- '<|im_start|>' + ms[0].role + '\\n' + ms[0].content + '<|im_end|>' "
     "+ '\\n' }}"),
    '{% set range = 5 %}{{ range }}',
    '{% set x = none %}{{ x }}{{ x is none }}',
    '{% for i in range(3) %}{{ loop }}{% endfor %}',
    '{% for i in l %}{{ loop.nope }}{% endfor %}.',
    'a{% if yes %}\n\nb{% endif %}\n\nc',
    '<{% if yes -%}\n  b\n{%- endif %}>',
    '   {{ s }}',
    '   {% if yes %}a{% endif %}',
    'x   {% if yes %}a{% endif %}',
    '{{ n }}   {% if yes %}a{% endif %}\n   {% if yes %}b{% endif %}',
    '{% if yes %}\n   {% if yes %}\n a\n   {% endif %}\n{% endif %}',
]

# Templates that fail; where the message is Jinja's own, it is kept.
ERRORS = [
    '{{ x.y }}',
    "{{ x['y'] }}",
    '{{ d.nope.more }}',
    '{{ l[9].a }}',
    '{{ nil.a.b }}',
    '{{ x + 1 }}',
    '{{ 1 + x }}',
    "{{ 'a' + x }}",
    '{{ x() }}',
    '{{ -x }}',
    '{{ x < 1 }}',
    "{{ raise_exception('boom: é') }}",
    '{{ s() }}',
    '{{ s + 1 }}',
    '{{ 1 / 0 }}',
    '{{ 1 % 0 }}',
    '{{ 1.0 // 0 }}',
    '{{ l.append(4) }}',
    '{{ d.update(a=1) }}',
    "{{ d.pop('b') }}",
    '{{ l.sort() }}',
    '{{ s.nope() }}',
    '{{ n|length }}',
    '{{ nil|join }}',
    '{{ 5 in 5 }}',
    '{{ 5 in s }}',
    '{% for i in 5 %}{% endfor %}',
    '{% for a, b in [1, 2] %}{% endfor %}',
    '{% for a, b in [(1, 2, 3)] %}{% endfor %}',
    '{% set a, b = 1, 2, 3 %}',
    '{% set d.x = 1 %}',
    '{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}',
    '{% macro m(a) %}{% endmacro %}{{ m(b=2) }}',
    '{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}',
    "{{ '' | split }}",
    "{{ '%d' % 'a' }}",
    "{{ '%s %s' % 1 }}",
    "{{ '%s' % (1, 2) }}",
    "{{ s.split('') }}",
    "{{ s.index('zz') }}",
    '{{ {[]: 1} }}',
    '{{ x|tojson }}',
    '{{ range(3)|tojson }}',
    '{{ d.keys()|tojson }}',
    '{{ range(1000000) }}',
    '{{ range(1, 2, 0) }}',
    '{{ s[1:2:0] }}',
    "{{ s['a':] }}",
    '{{ d[1:] }}',
    "{{ [1, 'a']|sort }}",
    '{{ {} < {} }}',
    '{{ l|map|list }}',
    "{{ l|map('nope')|list }}",
    "{{ l|select('nope')|list }}",
    '{{ l|batch }}',
    '{{ 1 if }}',
    '{{ }}',
    '{% if %}{% endif %}',
    '{{ a b }}',
    '{% endif %}',
    '{% for %}',
    "{{ 'a' 1 }}",
    '{{ 1.. }}',
    '{{ @ }}',
    '{% set 1 = 2 %}',
    '{{ a is b is c }}',
    '{% if yes %}{% endfor %}',
    '{{ f(a=1, 2) }}',
    '{{ [1, 2 }}',
    '{{ namespace(_a=1) }}',
    "{{ ''.join([1]) }}",
    '{{ loop.index }}',
    '{% continue %}',
    '{% nope %}',
    '{{ s|nope }}',
    '{{ s is nope }}',
    "{{ 'a'.join(5) }}",
    "{{ '{}'.format() }}",
    "{{ '{:d}'.format('a') }}",
    '{{ s|indent(width=x) }}',
    '{{ l|first.a }}',
    '{{ loop() }}',
    '{% for i in l %}{{ loop(l) }}{% endfor %}',
    '{{ dict(1) }}',
    '{{ s.__class__.x }}',
    '{{ s|round }}',
    "{{ 'a'|abs }}",
    "{{ l|sum(start='a') }}",
    '{{ strs|sum }}',
    '{{ l|dictsort }}',
    '{{ l|items|list }}',
    '{% macro m(a=1, b) %}{% endmacro %}',
]
JINJA_MESSAGES = ("is undefined", "has no attribute", "has no element", "boom",
                  "No caller defined", "is unsafe")


def make_environment():
    class Generation(jinja2.ext.Extension):
        tags = {"generation"}

        def parse(self, parser):
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            node = jinja2.nodes.CallBlock(self.call_method("_render"), [], [], body)
            return node.set_lineno(line)

        def _render(self, caller):
            return caller()

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                          sort_keys=sort_keys)

    class Namespace(jinja2.utils.Namespace):
        def __init__(*args, **kwargs):
            if any(name.startswith("_") for name in dict(*args[1:], **kwargs)):
                raise jinja2.exceptions.SecurityError("underscore")
            jinja2.utils.Namespace.__init__(*args, **kwargs)

    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["namespace"] = Namespace
    environment.globals["strftime_now"] = datetime.datetime(2025, 1, 2, 3, 4, 5).strftime
    return environment


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    environment = make_environment()
    sources = ["{{ " + line + " }}" for line in EXPRESSIONS.replace("\\\n", "\\\0").split("\n")]
    sources = [source.replace("\0", "\n") for source in sources] + TEMPLATES + ERRORS
    cases = [{"t": source} for source in sources]
    order = list(cases)
    random.Random(arguments.seed).shuffle(order)
    for case in order:
        try:
            case["x"] = environment.from_string(case["t"]).render(**CONTEXT)
        except Exception as error:  # every kind of failure is an expected result here
            message = str(error)
            case["e"] = message if any(part in message for part in JINJA_MESSAGES) else ""
            if case["t"] not in ERRORS:
                print("fails:", case["t"], repr(error))
    with open(arguments.output, "w", encoding="utf-8") as file:
        json.dump({"context": CONTEXT, "cases": cases}, file, ensure_ascii=False, indent=0)
        file.write("\n")
    print(len(cases), "cases,", sum("e" in case for case in cases), "errors")
    assert not [case["t"] for case in cases if case["t"] in ERRORS and "x" in case]


main()
