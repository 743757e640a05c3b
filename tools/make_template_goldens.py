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

# One list of expressions a feature; each is rendered as {{ expression }}.
EXPRESSIONS = r"""
1 + 2 * 3
(1 + 2) * 3
7 // 2
-7 // 2
7 // -2
-7 % 3
7 % -3
7 / 2
6 / 2
2 ** 10
2 ** 3 ** 2
-2 ** 2
2 ** -1
7.5 // 2
-7.5 // 2
-7.5 % 2
7.5 % -2
1e16
1e15
123456789012345678
1.0
0.1 + 0.2
1e-5
0.0001
1.5e300 * 1e10
1e100
-0.0
1 / 3
100000.0 * 10
1_000
0x1F
0b101
0o17
1_0.5_0
1.e5 if false
True + True
true
none
None
not true
not not 1
not 1 == 2
1 < 2 < 3
1 < 3 < 2
1 == 1.0
1 == true
'a' < 'b'
'a' == "a"
[1, 2] < [1, 3]
(1, 2) == (1, 2)
[1, 2] == (1, 2)
1 != 2
1 in [1, 2]
1 not in [1, 2]
'ell' in s
'x' in d
'b' in d
'' in s
4 in range(5)
1.5 in range(5)
nil == none
nil is none
x is defined
x is not defined
s is defined
x is undefined
n is number
f is number
yes is number
n is integer
yes is integer
f is float
s is string
s is iterable
n is iterable
x is iterable
x is sequence
x is callable
l is sequence
d is sequence
d is mapping
d is iterable
l is mapping
range is callable
s is callable
yes is true
n is true
no is false
nil is false
yes is boolean
n is odd
n is even
n is divisibleby 7
n is divisibleby(2)
n is eq 7
n is equalto 7
n is ne 7
n is gt 3
n is lt 3
n is ge 7
n is le 6
n is greaterthan 6
n is lessthan 8
n is in [7, 8]
n is not in [7, 8]
's' is lower
'S' is upper
's1' is lower
'1' is lower
n is sameas 7
nil is sameas none
'upper' is filter
'nope' is filter
'odd' is test
1 + n is odd
n is odd and f is float
not n is odd
n is not odd
s is string and n
1 if yes else 2
1 if no else 2
1 if no
(1 if no) is undefined
1 if no else 2 if no else 3
'a' 'b' "c"
'a' ~ 1 ~ none ~ true ~ 1.0 ~ x
1 ~ 2 ~ 3 * 4
s[0]
s[-1]
s[99]
s[1:4]
s[:-3]
s[::2]
s[::-1]
s[5:1:-1]
s[-3:]
s[10:2]
s[1:100]
s[-100:2]
u[0:8]
u[7]
u[::-1]
u|length
l[0]
l[-1]
l[5]
l[1:]
l[::-1]
l[-2:]
l[:0]
l[::2]
(1, 2, 3)[1:]
range(10)[2:5]
range(10)[::-3]
range(3)
range(1, 10, 3)|list
range(10, 0, -4)|list
range(5)|length
range(5)[-1]
d.b
d['b']
d.a.c[1]
d.nope
d['nope']
d.items is callable
d['items']
d['x y']
d.get('b')
d.get('nope')
d.get('nope', 5)
d.keys()
d.keys()|list
d.values()|list
d.items()
ed.items()|list
d.nope is defined
l.0
l.7
d|length
d|list
d.a
ms[0].role
ms[-1]['content']
ms[0]
nested
nested[0][1]
{}
[]
()
(1,)
(1, 2)
[1, 'a', none, true, 2.0]
{'a': 1, 'b': [1, {'c': none}]}
{1: 2, 'x': (1,)}
{'a': 1, 'a': 2}
['it\'s', "say \"x\"", 'both \' "']
['\n\t\\', 'é', '\x00\x7f', '\u200b']
'\x41\u00e9\101\n'
'\d\é'
'a\
b'
s.upper()
s.lower()
s.title()
"it's a test-case".title()
s.swapcase()
'hELLO wORLD'.capitalize()
u.upper()
'ΑΣ ΣΑΣ'.lower()
'ﬁx'.title()
'  x '.strip()
'xxaxx'.strip('x')
'xyaxy'.lstrip('yx')
'xyaxy'.rstrip('yx')
'\u00a0 a\u3000'.strip()
'a,b,c'.split(',')
'a,b,c'.split(',', 1)
'a,b,c'.rsplit(',', 1)
' a  b c '.split()
' a  b c '.split(none, 1)
' a  b c '.rsplit(none, 1)
' a  b c '.split(' ')
''.split()
''.split(',')
'aaa'.split('aa')
'aaa'.rsplit('aa')
'a\nb\r\nc\n'.splitlines()
'a\nb\n'.splitlines(true)
s.startswith('Hell')
s.startswith(('x', 'H'))
s.startswith('ello', 1)
s.endswith('ld')
s.endswith('ld', 0, 3)
s.find('o')
s.find('o', 5)
s.rfind('o')
s.find('zz')
u.find('🙂')
s.index('W')
s.count('o')
s.count('')
'aaaa'.count('aa')
s.replace('o', '0')
s.replace('o', '0', 1)
'abc'.replace('', '-')
'abc'.replace('', '-', 2)
', '.join(strs)
''.join(['a', 'b'])
'{} {}'.format(1, 'a')
'{0} {1} {0}'.format('a', 'b')
'{a:>5}|{b:<5}|{c:^5}'.format(a=1, b='x', c='y')
'{:05d} {:.2f} {:,} {:x} {:+}'.format(42, 3.14159, 1234567, 255, 7)
'{{}} {!r}'.format('a')
'{:8.3f}|{:e}|{:g}|{:%}'.format(2.5, 12345.678, 0.0001, 0.25)
'123'.isdigit()
'12a'.isdigit()
'abc'.isalpha()
'ab1'.isalnum()
' \t'.isspace()
''.isspace()
'Ab'.islower()
'AB1'.isupper()
'42'.zfill(5)
'-42'.zfill(5)
'ab'.ljust(5, '.')
'ab'.rjust(5)
'ab'.center(5, '*')
'abc'.center(6, '*')
'prefix-x'.removeprefix('prefix-')
'x.txt'.removesuffix('.txt')
'a=b=c'.partition('=')
'a=b=c'.rpartition('=')
'abc'.partition('z')
'abc'.rpartition('z')
l.index(2)
l.count(3)
(1, 2, 1).count(1)
'%s is %d' % ('a', 3)
'%5.2f|%-5s|%05d|%x|%%' % (3.14159, 'a', 42, 255)
'%s' % 5
'%s' % [1]
'%(a)s' % {'a': 1}
'%r' % 'x'
'%+d % d' % (5, 5)
'%c%c' % (65, 'b')
'%i' % 3.9
'%e' % 12345.678
'%g' % 1e10
'ab' * 3
3 * 'ab'
[1] * 3
'a' * -1
[1] + [2]
(1,) + (2,)
s|upper
s|lower
s|length
s|count
s|title
'a-b (c) <d> {e} [f] g\'h'|title
'ABC dEF'|capitalize
' a '|trim
'xax'|trim('x')
5|trim
s|replace('o', '0')
s|replace('o', '0', 1)
123|replace('2', 'x')
s|first
s|last
l|first
l|last
el|first
el|last
el|first is undefined
d|first
d|last
s|list
l|list
l|join
l|join(', ')
ms|join('|', attribute='role')
ms|map(attribute='role')|list
ms|map(attribute='nope')|list
ms|map(attribute='nope', default='z')|join
nested|map(attribute=0)|list
ms|map(attribute='content.0')|list
strs|map('upper')|list
strs|map('replace', 'a', 'x')|join
l|map('string')|join('-')
ms|selectattr('role', 'equalto', 'user')|list|length
ms|selectattr('role', 'eq', 'user')|map(attribute='n')|list
ms|rejectattr('role', 'equalto', 'user')|map(attribute='n')|list
ms|selectattr('n', 'gt', 1)|map(attribute='n')|list
ms|selectattr('nope')|list
ms|selectattr('nope', 'defined')|list
ms|selectattr('n')|list|length
l|select('odd')|list
l|reject('odd')|list
l|select('>', 1)|list
l|select|list
[0, 1, '', 'a', none]|select|list
[0, 1, '', 'a', none]|reject|list
[1, none]|reject('none')|list
['a', 'b']|select('in', ['a'])|list
x|select|list
x|map('upper')|list
x|list
x|length
x|join
x|items|list
d|items|list
l|sort
l|sort(reverse=true)
strs|sort
strs|sort(case_sensitive=true)
strs|sort(true)
ms|sort(attribute='n')|map(attribute='n')|list
ms|sort(attribute='role,n')|map(attribute='n')|list
ms|sort(attribute='role', reverse=true)|map(attribute='n')|list
[1, 1.0, 2, 1]|unique|list
strs|unique|list
strs|unique(true)|list
ms|unique(attribute='role')|map(attribute='n')|list
l|reverse|list
s|reverse
l|min
l|max
strs|min
strs|max(case_sensitive=true)
el|min
ms|max(attribute='n')
l|sum
l|sum(start=10)
ms|sum(attribute='n')
ms|sum('n', 100)
[0.1, 0.2]|sum
'42'|int
'42.9'|int
'x'|int
'x'|int(5)
'0x1f'|int(base=16)
'ff'|int(0, 16)
3.9|int
-3.9|int
true|int
none|int
' 12 '|int
'1_000'|int
'3.5'|float
'x'|float
'x'|float(1.5)
7|float
'1e3'|float
'inf'|float
none|float
-5|abs
-5.5|abs
neg|abs
2.5|round
3.5|round
2.567|round(2)
2.561|round(2, 'ceil')
2.569|round(2, 'floor')
2.2|round(method='ceil')
1234.5|round(-2)
7|round
1.005|round(2)
7|round(1, 'floor')
n|string
f|string
none|string
l|string
l|batch(2)|list
l|batch(2, 'x')|list
range(7)|batch(3)|list
range(7)|slice(3)|list
range(7)|slice(3, 'x')|list
ms|groupby('role')|list|length
(ms|groupby('role'))[0].grouper
(ms|groupby('role'))[1].list|length
ms|groupby('role')|map(attribute=0)|list
ms|groupby('nope', default='k')|map('first')|list
d|dictsort|map('first')|list
{'b': 1, 'A': 3, 'c': 2}|dictsort
{'b': 1, 'A': 3, 'c': 2}|dictsort(true)
{'b': 1, 'A': 3, 'c': 2}|dictsort(by='value')
{'b': 1, 'A': 3, 'c': 2}|dictsort(reverse=true)
'a\nb\n\nc'|indent
'a\nb\n\nc'|indent(2, true)
'a\nb\n\nc'|indent(2, blank=true)
'a\nb\n'|indent('>> ')
''|indent(first=true)
'a b c'|wordcount
"it's, ok_1"|wordcount
'%s %s'|format(1, 2)
'%(a)s'|format(a=1)
'<a href="x">\'&'|e
'<a>'|escape
'<a>'|safe
'<a>'|string
5|escape
'a b&c/d?é'|urlencode
{'a b': 'c/d', 'e': 1}|urlencode
'foo bar baz qux'|truncate(9)
'foo bar baz qux'|truncate(9, true)
'foo bar baz qux'|truncate(11)
'foo bar baz qux'|truncate(11, false, '...', 0)
'foo bar baz qux'|truncate(7, end='>', leeway=0)
'ab'|center(6)
x|default('d')
x|d('d')
x|default
nil|default('d')
empty|default('d')
empty|default('d', true)
nil|d('d', boolean=true)
no|d(5, true)
d.nope.more|default('z') if false else 'w'
d|attr('b')
d|attr('get') is callable
t|tojson
t|tojson(indent=2)
t|tojson(indent=4)
t|tojson(indent=0)
t|tojson(indent='--')
t|tojson(separators=(',', ':'))
t|tojson(ensure_ascii=true)
t|tojson(sort_keys=true)
u|tojson
u|tojson(true)
[]|tojson
[]|tojson(indent=2)
{}|tojson(indent=2)
[[], {}, [1]]|tojson(indent=1)
[1e16, 1.0, 0.1, -0.0, 1e-7]|tojson
(1, 'a')|tojson
{1: 2, true: 3, none: 4, 1.5: 5}|tojson
'\x01\b\f\r/'|tojson
none|tojson
ms|tojson
dict(a=1, b=2)
dict({'a': 1}, b=2)
dict([('a', 1)])
dict()
namespace(a=1).a
namespace({'a': 1}).a
namespace(a=1)
namespace().nope is defined
namespace(a=1)['a']
strftime_now('%Y-%m-%d %H:%M:%S')
strftime_now('%d %b %Y')
strftime_now('%-d %B %Y, %A %j %I %p %y %%')
strftime_now('%a %c %x %X')
strftime_now('%Z|%z|')
joiner()() ~ joiner('|')()
cycler(1, 2).current
[cycler('a', 'b').next()]
[1, 2][true]
{'a': 1}.a
{'a': {'b': 2}}.a.b
'abc'[1].upper()
(s|upper).lower()
s|upper|lower|title
-n|abs
-5|string
(-5)|string
n * -1
- n + 1
+n
not x
x == y
x == none
x or 'a'
x and 'a'
nil or 0 or ''
1 and 2 and 3
0 or 'z'
yes and no or 'q'
l and 'has'
el or 'none'
x in ['a']
x in [y]
'a' in x
[x]
{'k': x}
x ~ 'a'
x|string
x|upper
range(0)|list
l|length - 1
s|length > 3 and n
'a' if s|length > 3 else 'b'
s.split(', ')[1][:3]|upper
s.split(',')|map('trim')|list
d.a.c|map('string')|join('+')
d.items()|list|length
dict(d, e=1)|length
[[1, 2], [3, 4]]|map('last')|list
[[1, 2], [3, 4]]|map('sum')|sum
[3, [1], 'a']|map('string')|list
'a' * 3 ~ 'b'
'5' + '6'
5 | string + '6'
ms|map(attribute='content')|join('\n')
[1, 2, 3]|last
{'a': 1}|tojson|length
true == 1
'True' == true|string
[none]|first is none
1.0|int
1e3|int
'1,2'.split(',')|map('int')|sum
'café'|length
'日本語'[1]
'日本語'[::-1]
'日本語'|upper
'日本語'.find('語')
'e\u0301'|length
'ǆ'.title() ~ 'ŉ'.upper()
'a\u2028b'.splitlines()
'a\x1cb'.splitlines()
"\u00e9"|tojson
loop is defined
caller is defined
self is defined and false
""".strip("\n")

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
