"""Lark grammars with texts, for compare.py and constraint_test.py: name: (grammar, texts)."""

CALC = """
?start: sum
?sum: term | sum "+" term -> add | sum "-" term -> sub
?term: atom | term "*" atom -> mul | term "/" atom -> div
?atom: NUMBER -> number | "-" atom -> neg | "(" sum ")"
%import common.NUMBER
%import common.WS_INLINE
%ignore WS_INLINE
"""
JSON = r"""
?start: value
?value: object | array | string | SIGNED_NUMBER | "true" | "false" | "null"
array: "[" [value ("," value)*] "]"
object: "{" [pair ("," pair)*] "}"
pair: string ":" value
string: ESCAPED_STRING
%import common.ESCAPED_STRING
%import common.SIGNED_NUMBER
%import common.WS
%ignore WS
"""
SQL = """
start: "SELECT"i SP columns SP "FROM"i SP NAME where? ";"
where: SP "WHERE"i SP test (SP join SP test)*
join: "AND"i | "OR"i
columns: "*" | NAME ("," SP? NAME)*
test: NAME SP? OP SP? (NUMBER | STRING)
OP: "=" | "<" | ">" | "<=" | ">=" | "<>"
SP: " "
NAME: /[a-z_][a-z0-9_]{0,30}/
NUMBER: /[0-9]+(\\.[0-9]+)?/
STRING: "'" /[^'\\n]*/ "'"
"""

LARKS = {
    "choice": ('start: "yes" | "no" | "may" "be"', ["yes", "no", "maybe", "may", "yesno", ""]),
    "calculator": (CALC, ["1", "1+2*3", "1 + 2 * (3 - 4.5)", "-(1)", "1+", "(1", "1 2", " 1 + 2 ",
                          "--1", "1.e5/2", "1\n+2"]),
    "JSON": (JSON, ['{"a": [1, -2.5e3, {}], "b": "\\u00e9"}', "[]", "[1,]", "{'a': 1}", '"\\"',
                    "[1 , 2]\n", "tru", '{"a" : null}', "[true,false]", "01"]),
    "SQL": (SQL, ["SELECT * FROM t;", "select a, b from t where a >= 3 and b = 'x';",
                  "SELECT FROM t;", "SELECT a FROM t WHERE a;", "SELECT a,b FROM t WHERE a=1.5;",
                  "SELECT a FROM t"]),
    "counts": ('start: A~3 b~1..2 C+ D*\nA: "a"\nb: "b" | "B"\nC: /c/\nD: "d"~2',
               ["aaabc", "aaabBccdd", "aabc", "aaabbbc", "aaab", "aaabcddd", "aaabcdddd"]),
    "optional": ('start: "a" ["b" "c"] "d"? ("e" | "f")?',
                 ["a", "abc", "abcdf", "ab", "ade", "aef"]),
    "case": ('start: "Ab"i /cd/i', ["abcd", "ABCD", "aBcD", "abxd"]),
    "range": ('start: "a".."f" DIGIT\nDIGIT: "0".."9"', ["a0", "f9", "g0", "a"]),
    "alternatives on lines": ('start: a\n  | b\na: "a"\n\nb: "b"\n  | "c" // rest\n',
                              ["a", "b", "c", "d"]),
    "escapes": (r'start: "\"\\\n\t" "\u00e9"', ['"\\\n\té', '"\\\n\te']),
    "empty": ('start: A? B*\nA: "a"\nB: "b"', ["", "a", "ab", "bb", "ba"]),
    "recursion": ('start: "(" start ")" | "x"', ["x", "(x)", "((x))", "((x)", "()"]),
    "list by left recursion": ('start: items\nitems: item | items "," item\nitem: /[a-z]+/',
                               ["a", "a,bc,d", "a,", ",a"]),
    "comments that are ignored": (
        'start: (NAME "=" INT ";")+\n%import common (CNAME, INT, WS, CPP_COMMENT)\nNAME: CNAME\n'
        '%ignore WS\n%ignore CPP_COMMENT',
        ["a=1;", "a = 1 ; // x\nb=2;", "a=1", "a 1;", "a=1;// x"]),
    "date": ('start: YEAR "-" MONTH "-" DAY\nYEAR: /[0-9]{4}/\nMONTH: /0[1-9]|1[0-2]/\n'
             'DAY: /0[1-9]|[12][0-9]|3[01]/', ["2024-02-29", "2024-13-01", "24-01-01"]),
    "keyword and name": ('start: "if" NAME\nNAME: /[a-z]+/\n%ignore " "', ["if x", "ifx", "if"]),
}

# Texts that llguidance rejects and Halley accepts, as Lark does: ignored texts at both ends.
OTHERWISE = {"Lark calculator": [" 1 + 2 "], "Lark JSON": ["[1 , 2]\n"]}
